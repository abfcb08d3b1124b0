//! `etherslot export`: a remote disk under the programs that people have for NBD disks.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use etherslot_lab::{
    BOX_MAC, Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, ensure_nbd_clients,
    ensure_net, etherslot_command, node_keys,
};

use crate::Story;

const DISK_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// In a file, so that what was written outlives the box.
fn box_config(disk: &Path) -> String {
    format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"ES0001\"\n\
         [[device.namespace]]\npath = \"{}\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"quick\"\nserial = \"ES0002\"\n\
         [[device.namespace]]\nmemory = \"64 MiB\"\nblock_bytes = 4096\n",
        disk.display()
    )
}

/// A running `etherslot export`.
struct Export {
    child: Child,
    log: std::path::PathBuf,
    uri: String,
}

impl Export {
    fn start(run: &Run, net: &Net, devices: &[&str], options: &[&str]) -> Self {
        let all = devices.join("-");
        let (socket, log) = (run.path(&format!("{all}.nbd")), run.path(&format!("export-{all}.log")));
        let mut command = etherslot_command(net, Side::Host).unwrap();
        command.env(KEY_VARIABLE, node_keys(run, "export").unwrap());
        command.args(["export", "--link", &format!("packet:{INTERFACE}")]);
        command.args(devices.iter().map(|device| format!("{device}@{BOX_MAC}")));
        command.arg("--nbd").arg(&socket).args(options);
        let log_file = fs::File::create(&log).unwrap();
        let child = command.stdin(Stdio::null()).stderr(log_file).spawn().unwrap();
        let export = Self { child, log, uri: format!("nbd+unix:///?socket={}", socket.display()) };
        let until = Instant::now() + PATIENCE;
        while !export.log().contains("ready export") {
            assert!(Instant::now() < until, "{}", export.log());
            sleep(Duration::from_millis(20));
        }
        export
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// SIGTERM; whether it ended well.
    fn stop(mut self) -> bool {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end; what it says. Nothing of it may take for ever.
fn tell(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("timeout").arg("20").arg(program).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn done(program: &str, arguments: &[&str]) -> String {
    let (is_well, said) = tell(program, arguments);
    assert!(is_well, "{program} {arguments:?}: {said}");
    said
}

fn image(run: &Run) -> std::path::PathBuf {
    let path = run.path("image");
    let data: Vec<u8> = (0..DISK_BYTES as u64 / 8)
        .flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).to_le_bytes())
        .collect();
    fs::write(&path, data).unwrap();
    path
}

fn both_in_one_process(run: &Run, net: &Net, image: &str) {
    let control = run.path("both.control");
    let control = control.to_str().unwrap();
    let both = Export::start(run, net, &["disk0", "quick"], &["--control", control]);
    let uri = |name: &str| both.uri.replace("///", &format!("///{name}"));
    let list = done("nbdinfo", &["--list", &both.uri]);
    assert!(list.contains("export=\"disk0\"") && list.contains("export=\"quick\""), "{list}");
    done("nbdcopy", &[image, &uri("quick")]);
    done("qemu-io", &["-f", "raw", "-c", "write -P 0x77 0 1M", &uri("disk0")]);
    done("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0x77 0 1M", &both.uri]);
    done("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri("quick")]);
    let mut command = etherslot_command(net, Side::Host).unwrap();
    let output = command.args(["stat", control, "--output", "json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["role"], told["sessions"].as_array().unwrap().len()), (&"export".into(), 2));
    let devices: Vec<&str> = told["slots"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|slot| slot["counters"]["completed"].as_u64().unwrap() > 0)
        .map(|slot| slot["device"].as_str().unwrap())
        .collect();
    assert_eq!(devices, ["disk0", "quick"]);
    assert!(told["counters"]["bytes_written"].as_u64().unwrap() >= 65 << 20);
    assert!(both.stop());
}

#[test]
#[ignore = "needs root: ./run test link"]
fn programs_for_nbd_disks_use_a_remote_one_and_outlive_the_death_of_its_box() {
    let story = Story::begin();
    ensure_net().unwrap();
    ensure_nbd_clients().unwrap();
    let run = Run::new("export").unwrap();
    let net = Net::new(&run, NetOptions { mtu: 9000 }).unwrap();
    let config = box_config(&run.disk_image("disk.img", DISK_BYTES as u64).unwrap());
    let mut io_box = Daemon::start(&run, &net, Role::Box, "box", &config).unwrap();
    let image = image(&run);
    let image = image.to_str().unwrap();

    let export = Export::start(&run, &net, &["disk0"], &["--patience", "20s"]);
    let uri = export.uri.clone();
    let info = done("nbdinfo", &["--json", &uri]);
    for expected in ["\"export-name\": \"disk0\"", "\"export-size\": 67108864", "\"can_multi_conn\": true"] {
        assert!(info.contains(expected), "{expected}: {info}");
    }
    let commands =
        ["write -P 0xab 1M 3M", "flush", "read -P 0xab 1M 3M", "write -z 2M 64k", "read -P 0 2M 64k"];
    let mut arguments = vec!["-f", "raw"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    done("qemu-io", &arguments);
    assert!(
        !tell("qemu-io", &["-r", "-f", "raw", "-c", "read 64M 512", &uri]).0,
        "nothing is behind the end"
    );
    story.tell("libnbd and QEMU know the disk");

    done("nbdcopy", &[image, &uri]);
    done("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]);
    story.tell("what nbdcopy wrote, QEMU reads");

    let quick = Export::start(&run, &net, &["quick"], &["--name", "a name"]);
    done("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &quick.uri]);
    let copy = run.path("copy");
    done("nbdcopy", &[&quick.uri, copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == fs::read(image).unwrap());
    story.tell("what QEMU wrote to blocks of 4096 bytes, nbdcopy reads");

    let uri_option = format!("--uri={uri}");
    let fio = ["--name=job", "--ioengine=nbd", &uri_option, "--rw=randwrite", "--bs=4k", "--iodepth=32"];
    let load = [
        "--verify=crc32c",
        "--verify_fatal=1",
        "--size=64m",
        "--io_size=48m",
        "--rate_iops=3000",
        "--verify_state_save=0",
    ];
    let mut running = Command::new("timeout")
        .arg("40")
        .arg("fio")
        .args(fio)
        .args(load)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sleep(Duration::from_millis(1500));
    assert!(running.try_wait().unwrap().is_none(), "fio is at work");
    io_box.process().kill();
    sleep(Duration::from_millis(500));
    io_box.restart(&config).unwrap();
    story.tell("the box was killed under fio and is back");
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    story.tell("fio has written on, and read what it had written");

    assert!(export.stop() && quick.stop(), "SIGTERM is a clean end");
    both_in_one_process(&run, &net, image);
    story.tell("two devices in one process are two exports, and `etherslot stat` knows them");

    let kept = Export::start(&run, &net, &["disk0"], &["--read-only", "--patience", "1s"]);
    assert!(!tell("qemu-io", &["-f", "raw", "-c", "write 0 4k", &kept.uri]).0, "it can't be written to");
    done("qemu-io", &["-r", "-f", "raw", "-c", "read 0 4k", &kept.uri]);
    io_box.process().kill();
    let (is_well, said) = tell("qemu-io", &["-r", "-f", "raw", "-c", "read 0 4k", &kept.uri]);
    assert!(!is_well && said.contains("Input/output error"), "{said}");
    story.tell("without a box, patience ends");
}
