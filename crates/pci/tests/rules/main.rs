//! The rules of the PCI Express Base Specification 6.0 that this crate keeps: one row a rule, with its section,
//! and a test that runs the rule on real TLPs. `cargo test -p etherslot-pci --test rules the_table --
//! --nocapture` prints the table.

#[path = "../support/mod.rs"]
mod support;

/// One row: the section, the rule, and the test that shows that it holds.
pub(crate) struct Rule(&'static str, &'static str, fn());

mod completer;
mod errors;
mod interrupts;
mod ordering;
mod requester;
mod resets;
mod routing;

/// A part of the table: its title, its rows, and the file that its tests are in.
type Part = (&'static str, &'static [Rule], &'static str);

const TABLE: [Part; 7] = [
    ("Ordering", ordering::RULES, include_str!("ordering.rs")),
    ("Completer", completer::RULES, include_str!("completer.rs")),
    ("Requester", requester::RULES, include_str!("requester.rs")),
    ("Interrupts", interrupts::RULES, include_str!("interrupts.rs")),
    ("Resets and power", resets::RULES, include_str!("resets.rs")),
    ("Errors", errors::RULES, include_str!("errors.rs")),
    ("Switch", routing::RULES, include_str!("routing.rs")),
];

#[test]
fn the_table_has_a_section_and_a_test_for_each_rule_and_a_rule_for_each_test() {
    for (title, rules, source) in TABLE {
        println!("\n{title}");
        for Rule(section, rule, test) in rules {
            println!("  {section:<14} {rule}");
            assert!(section.starts_with(|first: char| first.is_ascii_digit()), "{rule}: no section");
            test();
        }
        assert_eq!(source.matches("#[test]").count(), rules.len(), "{title}: a test without a row");
    }
}
