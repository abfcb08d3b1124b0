//! Every dependency may be used under a licence that `deny.toml` allows.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Whether a licence expression (SPDX, or the older form with slashes) can be met with the licences allowed.
fn acceptable(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = either(&mut words, allowed);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = both(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= both(words, allowed);
    }
    met
}

fn both(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => {
            let met = either(words, allowed);
            met & (words.next() == Some(")"))
        }
        Some(name) => {
            let mut name = name.to_owned();
            if words.next_if_eq(&"WITH").is_some() {
                name = format!("{name} WITH {}", words.next().unwrap_or_default());
            }
            allowed.contains(&name)
        }
        None => false,
    }
}

fn allowed(root: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root.join("deny.toml")).unwrap();
    let rules: toml::Table = text.parse().unwrap();
    rules["licenses"]["allow"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let allowed = allowed(&root);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10);
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !acceptable(package["license"].as_str().unwrap_or(""), &allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn expressions_are_met_as_spdx_says() {
    let allowed: BTreeSet<String> =
        ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(String::from).into();
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-2.0-only OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR BSL-1.0",
    ] {
        assert!(acceptable(good, &allowed), "{good}");
    }
    for bad in
        ["", "GPL-3.0-only", "MIT AND GPL-2.0-only", "GPL-2.0-only WITH LLVM-exception", "(MIT", "MIT MIT"]
    {
        assert!(!acceptable(bad, &allowed), "{bad}");
    }
}
