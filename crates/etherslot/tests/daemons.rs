//! The binary as an operator starts it, on links that are memory of this user.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etherslot"));
    // Root's nodes have their sockets elsewhere, whatever this says.
    command.args(arguments).env("XDG_RUNTIME_DIR", folder).env("XDG_STATE_HOME", folder).current_dir(folder);
    command
}

/// The configuration of a box that nobody uses.
fn box_file(folder: &Path, file: &str, name: &str, hub: &str) {
    let text = format!(
        "[node]\nname = {name:?}\n[link]\nkind = \"ring\"\nhub = {hub:?}\nport = 1\n\
         [[device]]\nkind = \"dc\"\nname = \"buffer\"\nserial = \"DC1\"\nsize = \"1 MiB\"\n"
    );
    fs::write(folder.join(file), text.replace("hub = \"", &format!("hub = \"{}/", folder.display())))
        .unwrap();
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A daemon, stopped with its test: one that is killed leaves its socket.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_second_node_of_a_name_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("twice-{}", std::process::id());
    box_file(folder.path(), "first.toml", &name, "hub1");
    box_file(folder.path(), "second.toml", &name, "hub2");
    let mut first = command(folder.path(), &["box", "--config", "first.toml"]);
    let mut first = Daemon(first.stderr(Stdio::null()).spawn().unwrap());
    let stat = || command(folder.path(), &["stat", &name]).output().unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    while !stat().status.success() {
        assert!(Instant::now() < until && first.0.try_wait().unwrap().is_none(), "{}", told(&stat()));
    }
    let second = command(folder.path(), &["box", "--config", "second.toml"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{}", told(&second));
    assert!(told(&second).contains(&format!("a node called {name:?} runs here")), "{}", told(&second));
    assert!(stat().status.success() && first.0.try_wait().unwrap().is_none(), "{}", told(&stat()));
}

#[test]
fn what_keeps_a_daemon_from_starting_is_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    box_file(path, "box.toml", "remedies", "hub");
    let text = fs::read_to_string(path.join("box.toml")).unwrap();
    let disk = "[[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"E1\"\n[[device.namespace]]\npath = \"none.img\"\n";
    fs::write(path.join("disk.toml"), text.clone() + disk).unwrap();
    fs::write(path.join("wrong.key"), "what is this?\n").unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["host", "--config", "box.toml"], "it is for `etherslot box`"),
        (&["box", "--config", "disk.toml"], "truncate -s 10G"),
        (&["box", "--config", "box.toml", "--key", "wrong.key"], "not a key file"),
        (&["config", "check", "box.toml", "--key", "wrong.key"], "not a key file"),
    ];
    fs::set_permissions(path.join("wrong.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for (arguments, remedy) in cases {
        let output = command(path, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", told(&output));
        assert!(told(&output).contains(remedy), "{arguments:?}: {}", told(&output));
    }
}

#[test]
fn a_device_that_was_released_is_anybodys_again_by_an_order() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("anybody-{}", std::process::id());
    box_file(folder.path(), "box.toml", &name, "hub");
    let text = fs::read_to_string(folder.path().join("box.toml")).unwrap();
    fs::write(folder.path().join("box.toml"), text + "[fabric]\nstate = \"box.leases\"\n").unwrap();
    let mut io_box = command(folder.path(), &["box", "--config", "box.toml"]);
    let mut io_box = Daemon(io_box.stderr(Stdio::null()).spawn().unwrap());
    let ask = |arguments: &[&str]| {
        let output = command(folder.path(), &[arguments, &["--node", &name]].concat()).output().unwrap();
        (output.status.success(), told(&output))
    };
    let until = Instant::now() + Duration::from_mins(1);
    while !ask(&["ls"]).0 {
        assert!(Instant::now() < until && io_box.0.try_wait().unwrap().is_none(), "{}", ask(&["ls"]).1);
    }
    for (arguments, said, who) in [
        (&["release", "buffer"][..], "is nobody's until it is assigned again", "nobody"),
        (&["assign", "buffer", "anybody", "--dry-run"], "would go to anybody", "nobody"),
        (&["assign", "buffer", "anybody"], "is anybody's: the first host that asks gets it", "anybody"),
        (&["assign", "buffer", "7"], "group 7", "its group"),
        (&["assign", "buffer", "anybody", "--explain"], "is asked to give buffer to anybody", "anybody"),
    ] {
        let (is_well, told) = ask(arguments);
        assert!(is_well && told.contains(said), "{arguments:?}: {told}");
        let (_, told) = ask(&["ls"]);
        assert!(told.contains(who), "{arguments:?}: {told}");
    }
}
