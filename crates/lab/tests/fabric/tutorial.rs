//! docs/tutorial.md, word for word: every line that it tells people to type is typed here, in its order, on a machine whose folders of
//! keys, sockets and leases are empty.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use etherslot_lab::{Process, Run, Story, etherslot_binary};

const TUTORIAL: &str = "docs/tutorial.md";
/// Of the whole; only a broken run gets there.
const PATIENCE: Duration = Duration::from_mins(8);

/// What the script of the test begins with. A terminal is a shell that reads lines from a pipe, as people type them; who has no prompt
/// tells by an echo that it is done with what was typed before.
const HEAD: &str = r#"
set -eu
for folder in /etc/etherslot /run/etherslot /var/lib/etherslot /srv /run/netns; do
    mkdir -p $folder; mount -t tmpfs none $folder
done
stop() { kill -- $(jobs -p) 2>/dev/null || true; }
trap stop EXIT
open() { mkfifo $1.in; $2 <>$1.in >$1.out 2>&1 & }
await() { # FILE TEXT
    n=0
    until grep -aqF -- "$2" $1; do
        n=$((n + 1)); [ $n -lt 1200 ] || { echo "no $2 in $1:"; tail -n 40 $1; exit 1; }
        sleep 0.1
    done
}
type_in() { # TERMINAL FILE, and wait until its lines have been obeyed
    count=$((${count:-0} + 1))
    { cat $2; echo "echo typed-\$((1000 + $count))"; } >$1.in
    await $1.out typed-$((1000 + count))
}
"#;

/// The indented lines below a heading, a block each, with the words before it.
fn blocks(page: &str, heading: &str) -> Vec<(String, String)> {
    let (_, rest) = page.split_once(&format!("## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = rest.split("\n## ").next().unwrap();
    let (mut all, mut words, mut block) = (Vec::new(), String::new(), String::new());
    for line in section.lines().chain(["end"]) {
        match line.strip_prefix("    ") {
            Some(line) => writeln!(block, "{line}").unwrap(),
            // A blank line in a block is one of its lines.
            None if line.is_empty() => block.push_str(if block.is_empty() { "" } else { "\n" }),
            None => {
                if !block.trim().is_empty() {
                    all.push((std::mem::take(&mut words), std::mem::take(&mut block)));
                }
                words.push_str(line);
            }
        }
    }
    all
}

/// The only block below a heading.
fn block(page: &str, heading: &str) -> String {
    let mut all = blocks(page, heading);
    assert_eq!(all.len(), 1, "below {heading}");
    all.remove(0).1
}

/// The script of the test, whose terminals have their files in `folder`.
fn script(page: &str, folder: &Path) -> String {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let mut script = HEAD.to_owned();
    let mut terminal = |name: &str, text: &str| {
        write(&format!("{name}.typed"), text);
        // The last line is a daemon, which keeps the terminal: nothing more is typed there.
        let _ = writeln!(script, "open {name} 'bash -s'\ncat {name}.typed >{name}.in");
    };
    terminal("box", &(block(page, "An Ethernet") + &block(page, "Keys") + &block(page, "The box")));
    script.push_str("await box.out ready\n");
    for x in ["a", "b"] {
        let typed = block(page, "The hosts").replace("x=a\n", &format!("x={x}\n"));
        write(&format!("host-{x}.typed"), &typed);
        let _ = writeln!(
            script,
            "open host-{x} 'bash -s'\ncat host-{x}.typed >host-{x}.in\nawait host-{x}.out ready"
        );
        let typed = block(page, "The guests").replace("x=a\n", &format!("x={x}\ncd \"$ROOT\"\n"));
        write(&format!("guest-{x}.typed"), &typed);
        let _ = writeln!(script, "open guest-{x} 'bash -s'\ncat guest-{x}.typed >guest-{x}.in");
    }
    for x in ["a", "b"] {
        // Its shell is there when it answers.
        write("nothing.typed", "\n");
        let _ = writeln!(script, "await guest-{x}.out '# '\ntype_in guest-{x} nothing.typed");
    }
    script.push_str("open operator 'bash -s'\n");
    for (number, (words, typed)) in
        blocks(page, "Give the disk to a guest, and to the other").iter().enumerate()
    {
        let terminal = match words {
            words if words.ends_with("in guest b:") => "guest-b",
            words if words.contains("in guest a, a second later:") && number == 1 => "guest-a",
            _ => "operator",
        };
        // What guest b reads and the operator watches are one block of the page.
        let parts: Vec<&str> = typed.split_inclusive("\n\n").collect();
        for (part, typed) in parts.iter().enumerate() {
            let terminal = if part == 0 { terminal } else { "operator" };
            // The stream of events has no end.
            let typed: String = typed.lines().filter(|line| !line.starts_with("etherslot events")).fold(
                String::new(),
                |mut all, line| {
                    let _ = writeln!(all, "{line}");
                    all
                },
            );
            let name = format!("step-{number}-{part}.typed");
            write(&name, &typed);
            if terminal != "operator" {
                let _ = writeln!(script, "sleep 3");
            }
            let _ = writeln!(script, "type_in {terminal} {name}");
        }
    }
    script.push_str("echo the walk is over\n");
    script
}

#[test]
#[ignore = "needs root and QEMU: ./run test fabric"]
fn the_tutorial_does_what_it_says_word_for_word() {
    let story = Story::begin();
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = fs::read_to_string(root.join(TUTORIAL)).unwrap();
    let run = Run::new("tutorial").unwrap();
    let text = script(&page, run.folder());
    fs::write(run.path("walk.sh"), text).unwrap();
    let binary = etherslot_binary().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "walk.sh"]);
    command.current_dir(run.folder()).env("ROOT", &root).process_group(0);
    command.env("PATH", format!("{}:{path}", binary.parent().unwrap().display()));
    command.env_remove("ETHERSLOT_BIN");
    let log = run.path("walk.log");
    let mut walk = Process::start("walk", command, &log).unwrap();
    let status = walk.wait(PATIENCE);
    let told = |name: &str| fs::read_to_string(run.path(name)).unwrap_or_default();
    let all = || {
        let names =
            ["walk.log", "box.out", "host-a.out", "host-b.out", "guest-a.out", "guest-b.out", "operator.out"];
        names.iter().fold(String::new(), |all, name| all + &format!("--- {name} ---\n{}\n", told(name)))
    };
    assert!(matches!(&status, Ok(status) if status.success()), "{status:?}\n{}", all());
    // What guest a wrote, guest b has read; not what was typed, which a terminal shows, too.
    assert!(told("guest-b.out").lines().any(|line| line.trim() == "hello"), "{}", all());
    let operator = told("operator.out");
    for words in ["box/disk0: from nobody to host-a", "box/disk0: from host-a to host-b", "used by host-b"] {
        assert!(operator.contains(words), "no {words:?} in\n{operator}");
    }
    assert!(!all().contains("command not found"), "{}", all());
    story.tell("guest b has read what guest a had written");
}
