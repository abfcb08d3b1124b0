//! Who has which keys decides who gets which device; who has none sees nothing.

use std::fs;
use std::path::Path;
use std::process::Output;

use etherslot_lab::{
    BOX_MAC, Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, ensure_net,
    etherslot_command, node_keys,
};
use serde_json::Value;

use crate::Story;

/// What is written to the disk: found in a capture if it crossed the wire in the clear.
const MARK: &[u8] = b"for the owner's eyes alone: ";

/// The public key of the node with these key files.
fn public_key(net: &Net, key: &Path) -> String {
    let mut command = etherslot_command(net, Side::Host).unwrap();
    command.arg("keygen").arg("--folder").arg(key.parent().unwrap()).args(["--output", "json"]);
    let told: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    told["public_key"].as_str().unwrap().to_owned()
}

fn box_config(run: &Run, disk: &Path, more: &str) -> String {
    let (capture, disk) = (run.path("box.pcapng"), disk.display());
    let capture = capture.display();
    format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\ncapture = \"{capture}\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"ES0001\"\n{more}\
         [[device.namespace]]\npath = \"{disk}\"\n"
    )
}

/// `etherslot nvme …` on the host's side.
fn nvme(net: &Net, key: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = etherslot_command(net, Side::Host).unwrap();
    command.arg("nvme").args(arguments).args(["--link", &format!("packet:{INTERFACE}"), "--wait", "1500ms"]);
    match key {
        Some(key) => command.env(KEY_VARIABLE, key),
        None => command.arg("--plaintext"),
    };
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn shows_mark(run: &Run) -> bool {
    let captured = fs::read(run.path("box.pcapng")).unwrap();
    captured.windows(MARK.len()).any(|part| part == MARK)
}

fn stat(net: &Net, daemon: &Daemon) -> Value {
    let mut command = etherslot_command(net, Side::Host).unwrap();
    let output = command.arg("stat").arg(daemon.control()).args(["--output", "json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "needs root: ./run test link"]
fn a_device_is_for_its_owners_and_what_crosses_the_wire_for_nobody_else() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("keys").unwrap();
    let net = Net::new(&run, NetOptions::default()).unwrap();
    let disk = run.disk_image("disk.img", 1 << 20).unwrap();
    let image = run.path("image.raw");
    fs::write(&image, &MARK.repeat(4096)[..65_536]).unwrap();
    let image = image.to_string_lossy().into_owned();
    let back = run.path("back.raw").to_string_lossy().into_owned();
    let device = format!("disk0@{BOX_MAC}");
    let write = ["write", &device, &image];
    let (owner, other) = (node_keys(&run, "owner").unwrap(), node_keys(&run, "other").unwrap());

    story.tell("a box without a key says how to get one, and does not start");
    let mut keyless = etherslot_command(&net, Side::Box).unwrap();
    fs::write(run.path("keyless.toml"), box_config(&run, &disk, "")).unwrap();
    keyless.arg("box").arg("--config").arg(run.path("keyless.toml"));
    // Wherever this machine's own keys may be.
    let output = keyless.env("ETHERSLOT_KEY", run.path("none.key")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told(&output).contains("etherslot keygen"), "{}", told(&output));

    let owners = format!("owners = [{:?}]\n", public_key(&net, &owner));
    let config = box_config(&run, &disk, &owners);
    let mut io_box = Daemon::start(&run, &net, Role::Box, "box", &config).unwrap();

    story.tell("the owner writes and reads");
    let output = nvme(&net, Some(&owner), &write);
    assert!(output.status.success(), "{}", told(&output));
    let output = nvme(&net, Some(&owner), &["read", &device, "--bytes", "65536", "--output-file", &back]);
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(fs::read(&image).unwrap(), fs::read(&back).unwrap());

    story.tell("a node of the fabric that is no owner finds no such device");
    let output = nvme(&net, Some(&other), &write);
    assert!(told(&output).contains("does not give us"), "{}", told(&output));

    story.tell("a node of another fabric, and one without keys, get no answer");
    let strangers = Run::new("strangers").unwrap();
    for key in [Some(node_keys(&strangers, "owner").unwrap()), None] {
        let output = nvme(&net, key.as_deref(), &write);
        assert!(told(&output).contains("no answer"), "{}", told(&output));
    }

    story.tell("a box with another key than the one expected is not spoken with");
    let key = public_key(&net, &other);
    let output = nvme(&net, Some(&owner), &["write", &device, &image, "--box-key", &key]);
    assert!(told(&output).contains("no answer"), "{}", told(&output));

    let node = stat(&net, &io_box);
    assert_eq!(node["security"]["protection"], "keys");
    let counters = &node["security"]["counters"];
    story.tell(format!("the box counts {counters}"));
    assert!(
        counters["handshake_strangers"].as_u64() > Some(5) && counters["plain_frames"].as_u64() > Some(5)
    );
    assert!(counters["handshakes"].as_u64() >= Some(3) && counters["forged_frames"].as_u64() == Some(0));
    assert!(io_box.stop().unwrap().success());
    assert!(!shows_mark(&run), "the data crossed the wire in the clear");

    story.tell("a file that others may read is no key");
    let output = std::process::Command::new("chmod").arg("644").arg(&owner).status().unwrap();
    assert!(output.success());
    let output = nvme(&net, Some(&owner), &write);
    assert!(told(&output).contains("chmod 600"), "{}", told(&output));

    story.tell("without keys, by the configuration's word, the same data shows, and the tools say so");
    let plain = format!("{}[security]\nplaintext = true\n", box_config(&run, &disk, ""));
    let mut io_box = Daemon::start(&run, &net, Role::Box, "plain", &plain).unwrap();
    let output = nvme(&net, None, &write);
    assert!(output.status.success() && told(&output).contains("PLAINTEXT"), "{}", told(&output));
    assert!(io_box.log().contains("PLAINTEXT"));
    assert_eq!(stat(&net, &io_box)["security"]["protection"], "plaintext");
    assert!(io_box.stop().unwrap().success());
    assert!(shows_mark(&run), "the test does not see what is in the clear");
}
