//! More cores: several boxes on one machine, each a core with devices and an interface of its own, on one cable.

use std::process::{Child, Command, Stdio};

use etherslot_lab::{
    Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, etherslot_command, node_keys,
};
use serde_json::Value;

use crate::Story;

const BYTES: usize = 8 << 20;

struct One {
    io_box: Daemon,
    device: String,
    key: std::path::PathBuf,
    image: std::path::PathBuf,
    back: std::path::PathBuf,
}

impl One {
    fn start(run: &Run, net: &Net, number: u8) -> Self {
        let (interface, mac) = (format!("core{number}"), format!("02:00:00:00:01:0{number}"));
        let namespace = net.namespace(Side::Box);
        for arguments in [
            &[
                "link", "add", &interface, "link", INTERFACE, "address", &mac, "type", "macvlan", "mode",
                "bridge",
            ][..],
            &["link", "set", &interface, "up"],
        ] {
            let made = Command::new("ip").args(["-n", &namespace]).args(arguments).status().unwrap();
            assert!(made.success(), "{arguments:?}");
        }
        let (name, disk) = (format!("box-{number}"), format!("disk{number}"));
        let config = format!(
            "[node]\nname = \"{name}\"\n[link]\nkind = \"packet\"\ninterface = \"{interface}\"\n\
             [[device]]\nkind = \"nvme\"\nname = \"{disk}\"\nserial = \"ES000{number}\"\n\
             [[device.namespace]]\nmemory = \"64 MiB\"\n"
        );
        let image = run.path(&format!("{disk}.raw"));
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7 % 251) as u8 ^ number).collect();
        std::fs::write(&image, bytes).unwrap();
        Self {
            io_box: Daemon::start(run, net, Role::Box, &name, &config).unwrap(),
            device: format!("{disk}@{mac}"),
            key: node_keys(run, &format!("host-{number}")).unwrap(),
            image,
            back: run.path(&format!("{disk}.back")),
        }
    }

    fn nvme(&self, net: &Net, arguments: &[&str]) -> Child {
        let mut command = etherslot_command(net, Side::Host).unwrap();
        command.arg("nvme").args(arguments).args(["--link", &format!("packet:{INTERFACE}"), "--wait", "10s"]);
        command.env(KEY_VARIABLE, &self.key).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Hosts that this box has come to terms with.
    fn handshakes(&self, net: &Net) -> u64 {
        let mut command = etherslot_command(net, Side::Box).unwrap();
        let output =
            command.arg("stat").arg(self.io_box.control()).args(["--output", "json"]).output().unwrap();
        let stat: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counted = &stat["security"]["counters"]["handshakes"];
        counted.as_u64().unwrap_or_else(|| panic!("not counted: {stat}"))
    }
}

#[test]
#[ignore = "needs root: ./run test link"]
fn boxes_of_one_machine_work_side_by_side_each_with_an_interface_of_its_own() {
    let story = Story::begin();
    let run = Run::new("cores").unwrap();
    let net = Net::new(&run, NetOptions::default()).unwrap();
    let both = [1, 2].map(|number| One::start(&run, &net, number));
    let done = |begin: &dyn Fn(&One) -> Child| {
        for child in both.each_ref().map(begin) {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    };
    done(&|one| one.nvme(&net, &["write", &one.device, &one.image.to_string_lossy()]));
    let bytes = BYTES.to_string();
    done(&|one| {
        one.nvme(
            &net,
            &["read", &one.device, "--bytes", &bytes, "--output-file", &one.back.to_string_lossy()],
        )
    });
    for one in &both {
        assert!(std::fs::read(&one.image).unwrap() == std::fs::read(&one.back).unwrap(), "{}", one.device);
        assert_eq!(one.handshakes(&net), 2, "no box has answered the other's hosts");
    }
    story.tell("two boxes on one cable, written and read at the same time");
}
