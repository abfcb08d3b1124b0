//! Every kind of link under a client that checks what it reads: what was written at random places is found there, on the
//! medium too, and no TLP was lost on the way, over a good link and over one that loses, repeats, reorders and spoils frames.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use etherslot_lab::{
    BOX_IP, BOX_MAC, Cable, HOST_IP, HOST_MAC, INTERFACE, KEY_VARIABLE, NetOptions, Process, Run, Side,
    ensure_nbd_clients, ensure_net, etherslot_binary, mortal, node_keys,
};
use serde_json::Value;

use crate::Story;

const DISK_BYTES: u64 = 32 << 20;
/// Says that links of DPDK have to be there.
const NEEDS_DPDK: &str = "ETHERSLOT_TEST_DPDK";
const NO_DPDK: &str = "built without DPDK";
const FAULTS: &str = "loss=1%,reorder=1%,duplicate=1%,corrupt=0.2%,seed=7";
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of link, as box, export and people write it.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) table: String,
    pub(crate) link: String,
    pub(crate) address: String,
}

/// All kinds; `folder` is for what both sides share beside the cable.
pub(crate) fn kinds(folder: &Path) -> [Kind; 6] {
    let folder = folder.display();
    let ethernet = |name, table: String, link| Kind { name, table, link, address: BOX_MAC.to_owned() };
    let dpdk = |device: &str| format!("kind = \"dpdk\"\ndevice = \"{device}\"\nmac = \"{BOX_MAC}\"");
    [
        ethernet(
            "packet",
            format!("kind = \"packet\"\ninterface = \"{INTERFACE}\""),
            format!("packet:{INTERFACE}"),
        ),
        Kind {
            name: "udp",
            table: format!("kind = \"udp\"\nlisten = \"{BOX_IP}:4700\""),
            link: format!("udp:{HOST_IP}:0"),
            address: format!("{BOX_IP}:4700"),
        },
        ethernet("xdp", format!("kind = \"xdp\"\ninterface = \"{INTERFACE}\""), format!("xdp:{INTERFACE}")),
        Kind {
            name: "ring",
            table: format!("kind = \"ring\"\nhub = \"{folder}/hub\"\nport = 1"),
            link: format!("ring:{folder}/hub#2"),
            address: "ring:1".to_owned(),
        },
        ethernet(
            "memif",
            dpdk(&format!("net_memif0,role=server,socket={folder}/memif")),
            format!("dpdk:net_memif0,socket={folder}/memif,mac={HOST_MAC}"),
        ),
        ethernet(
            "af_packet",
            dpdk(&format!("net_af_packet0,iface={INTERFACE}")),
            format!("dpdk:net_af_packet0,iface={INTERFACE},mac={HOST_MAC}"),
        ),
    ]
}

/// A box and an export of its disk, at the ends of a cable of their own.
struct Pair {
    io_box: Process,
    export: Process,
    folder: PathBuf,
    /// Last: the processes are in its namespaces.
    _cable: Cable,
}

impl Pair {
    /// `None` where there are no links of this kind.
    fn start(run: &Run, kind: &Kind, name: &str, impair: &str, disk: &Path) -> Option<Self> {
        let cable = Cable::new(run, name, NetOptions { mtu: 9000 }).unwrap();
        let folder = run.path(name);
        fs::create_dir_all(&folder).unwrap();
        let config = folder.join("box.toml");
        let text = format!(
            "[node]\nname = \"box\"\n[link]\n{}\n{impair}\n[[device]]\nkind = \"nvme\"\nname = \"disk0\"\n\
             serial = \"ES0001\"\n[[device.namespace]]\npath = \"{}\"\n",
            kind.table,
            disk.display()
        );
        fs::write(&config, text).unwrap();
        let command = |side, node: &str| {
            let mut command = mortal(Some(cable.namespace(side)), &etherslot_binary().unwrap());
            command.env(KEY_VARIABLE, node_keys(run, node).unwrap()).current_dir(run.folder());
            command.env("ETHERSLOT_CONTROL", folder.join(format!("{node}.control")));
            command
        };
        let start = |command, node: &str| {
            Process::start(node, command, &run.path(&format!("{name}-{node}.log"))).unwrap()
        };
        let mut command_of_box = command(Side::Box, "box");
        command_of_box.arg("box").arg("--config").arg(&config);
        let mut io_box = start(command_of_box, "box");
        let ready =
            io_box.wait_until("that it is ready", PATIENCE, |process| process.log().contains("ready"));
        if ready.is_err() && io_box.log().contains(NO_DPDK) && std::env::var_os(NEEDS_DPDK).is_none() {
            return None;
        }
        ready.unwrap();
        let mut command_of_export = command(Side::Host, "export");
        command_of_export.args(["export", "--link", &kind.link, "--wait", "10s"]);
        command_of_export.arg(format!("disk0@{}", kind.address)).arg("--nbd").arg(folder.join("nbd"));
        let mut export = start(command_of_export, "export");
        export
            .wait_until("that it is ready", PATIENCE, |process| process.log().contains("ready export"))
            .unwrap();
        Some(Self { io_box, export, folder, _cable: cable })
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.folder.join("nbd").display())
    }

    /// What a node counts.
    fn stat(&self, node: &str) -> Value {
        let mut command = Command::new(etherslot_binary().unwrap());
        command.arg("stat").arg(self.folder.join(format!("{node}.control"))).args(["--output", "json"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// All records that either end sent have come to the other, once: export and box when that is so.
    fn settled(&self) -> (Value, Value) {
        let until = Instant::now() + PATIENCE;
        loop {
            let (export, io_box) = (self.stat("export"), self.stat("box"));
            let count = |node: &Value, name: &str| count(&node["sessions"][0]["counters"], name);
            let is_there = |from, to| {
                ["records", "record_bytes"].iter().all(|what| {
                    count(from, &format!("{what}_sent")) == count(to, &format!("{what}_received"))
                })
            };
            if is_there(&export, &io_box) && is_there(&io_box, &export) {
                return (export, io_box);
            }
            assert!(Instant::now() < until, "what was sent and what came differ: {export:#} {io_box:#}");
            sleep(Duration::from_millis(50));
        }
    }

    fn stop(mut self) {
        for process in [&mut self.export, &mut self.io_box] {
            assert!(process.terminate(PATIENCE).unwrap().success(), "{}", process.log());
        }
    }
}

fn count(counters: &Value, name: &str) -> u64 {
    counters[name].as_u64().unwrap_or_else(|| panic!("{name} is not counted: {counters:#}"))
}

/// Runs a program to its end, which has to be a good one.
fn done(program: &str, arguments: &[&str]) {
    let output = Command::new("timeout").arg("40").arg(program).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// Writes all of the disk in a random order, in pieces of many sizes, 32 at a time; reads and checks some of it meanwhile and all of
/// it at the end.
fn write_and_verify(uri: &str) {
    let uri = format!("--uri={uri}");
    done(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            "--bssplit=512/20:1536/10:4k/40:12k/10:64k/15:256k/5",
            "--iodepth=32",
            "--size=32m",
            "--randrepeat=0",
            "--verify=crc32c",
            "--verify_interval=512",
            "--verify_backlog=128",
            "--verify_fatal=1",
            "--do_verify=1",
            "--verify_state_save=0",
        ],
    );
}

fn nothing_was_lost(export: &Value, io_box: &Value) {
    for node in [export, io_box] {
        assert_eq!(node["sessions"].as_array().unwrap().len(), 1, "{node:#}");
        let session = &node["sessions"][0]["counters"];
        for name in ["records_refused", "dropped_malformed", "dropped_sequence", "dropped_ack"] {
            assert_eq!(count(session, name), 0, "{name}: {node:#}");
        }
    }
    assert_eq!(
        (count(&io_box["counters"], "sessions_up"), count(&io_box["counters"], "sessions_dead")),
        (1, 0)
    );
    let hierarchy = &io_box["sessions"][0]["hierarchy"];
    for name in
        ["stray", "malformed", "spoofed", "trespassing", "unrouted", "unrouted_completions", "overflows"]
    {
        assert_eq!(count(hierarchy, name), 0, "{name}: {hierarchy:#}");
    }
    let slot = &export["slots"][0]["counters"];
    for name in [
        "dma_faults",
        "silenced",
        "malformed",
        "foreign",
        "poisoned",
        "unsupported",
        "unexpected_completions",
    ] {
        assert_eq!(count(slot, name), 0, "{name}: {slot:#}");
    }
    for name in ["access_timeouts", "lost_writes", "failed", "resubmitted", "losses", "stray_completions"] {
        assert_eq!(count(slot, name), 0, "{name}: {slot:#}");
    }
    assert_eq!(count(slot, "submitted"), count(slot, "completed"), "{slot:#}");
    let nbd = &export["counters"];
    for name in ["errors", "broken", "refused", "slow"] {
        assert_eq!(count(nbd, name), 0, "{name}: {nbd:#}");
    }
    assert!(
        count(nbd, "bytes_written") >= DISK_BYTES && count(nbd, "bytes_read") >= 2 * DISK_BYTES,
        "{nbd:#}"
    );
}

#[test]
#[ignore = "needs root: ./run test link"]
fn what_is_written_over_any_kind_of_link_is_read_back_and_on_the_medium() {
    let story = Story::begin();
    ensure_net().unwrap();
    ensure_nbd_clients().unwrap();
    let run = Run::new("verify").unwrap();
    for (state, impair) in [("good", String::new()), ("bad", format!("impair = \"{FAULTS}\""))] {
        // Fresh sockets for each.
        let folder = run.path(&format!("{state}-shared"));
        fs::create_dir_all(&folder).unwrap();
        for kind in kinds(&folder) {
            let name = format!("{state}-{}", kind.name);
            let disk = run.disk_image(&format!("{name}.img"), DISK_BYTES).unwrap();
            let Some(pair) = Pair::start(&run, &kind, &name, &impair, &disk) else {
                story.tell(format!("{}: left out, as etherslot was built without DPDK", kind.name));
                continue;
            };
            write_and_verify(&pair.uri());
            let copy = run.path("copy");
            done("nbdcopy", &[&pair.uri(), copy.to_str().unwrap()]);
            let (export, io_box) = pair.settled();
            nothing_was_lost(&export, &io_box);
            let sum = |name| {
                [&export, &io_box]
                    .map(|node| count(&node["sessions"][0]["counters"], name))
                    .iter()
                    .sum::<u64>()
            };
            let (frames, again) = (sum("frames_sent"), sum("retransmissions"));
            if !impair.is_empty() {
                assert!(again > 0, "{}: no frame was lost, so nothing was shown", kind.name);
            }
            pair.stop();
            assert!(fs::read(&copy).unwrap() == fs::read(&disk).unwrap(), "{name}: the medium differs");
            fs::remove_file(&disk).unwrap();
            story.tell(format!("{name}: all data was found; {frames} frames, {again} of them sent again"));
        }
    }
}
