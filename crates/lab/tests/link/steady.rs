//! A node that is at work touches hardly any memory for the first time: rings, buffers and media in memory are there from the start. A
//! session touches its slots as its window grows, and then uses those again that were free last.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use etherslot_lab::{
    Cable, KEY_VARIABLE, NetOptions, Process, Run, Side, ensure_net, etherslot_binary, mortal, node_keys,
};

use crate::Story;
use crate::verify::kinds;

const PATIENCE: Duration = Duration::from_secs(20);
/// Until both nodes have been at work for a while, and between two looks.
const WARM: Duration = Duration::from_millis(1500);
const WORK: Duration = Duration::from_secs(1);
/// Page faults in that time, of tens of thousands of operations.
const FEW: u64 = 100;

/// Page faults of a process so far that needed no disk: the tenth field of `/proc/PID/stat` (proc(5)).
fn faults(process: &Process) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root: ./run test link"]
fn nodes_at_work_touch_hardly_any_memory_for_the_first_time() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("steady").unwrap();
    let folder = run.path("shared");
    fs::create_dir_all(&folder).unwrap();
    for kind in
        kinds(&folder).into_iter().filter(|kind| ["packet", "udp", "xdp", "ring"].contains(&kind.name))
    {
        let cable = Cable::new(&run, kind.name, NetOptions { mtu: 9000 }).unwrap();
        let config = run.path(&format!("{}.toml", kind.name));
        let text = format!(
            "[node]\nname = \"box\"\n[link]\n{}\n[[device]]\nkind = \"nvme\"\nname = \"disk0\"\n\
             serial = \"ES0001\"\n[[device.namespace]]\nmemory = \"64 MiB\"\n",
            kind.table
        );
        fs::write(&config, text).unwrap();
        let start = |side, node: &str, arguments: &[&str]| {
            let mut command = mortal(Some(cable.namespace(side)), &etherslot_binary().unwrap());
            command.env(KEY_VARIABLE, node_keys(&run, node).unwrap()).args(arguments);
            command.env("ETHERSLOT_CONTROL", run.path(&format!("{}-{node}.control", kind.name)));
            Process::start(node, command, &run.path(&format!("{}-{node}.log", kind.name))).unwrap()
        };
        let mut io_box = start(Side::Box, "box", &["box", "--config", config.to_str().unwrap()]);
        io_box.wait_until("that it is ready", PATIENCE, |process| process.log().contains("ready")).unwrap();
        let device = format!("disk0@{}", kind.address);
        let load = [
            "--rw",
            "randrw",
            "--block-size",
            "4k",
            "--queue-depth",
            "32",
            "--warm-up",
            "0",
            "--seconds",
            "3.5",
        ];
        let mut arguments = vec!["nvme", "bench", &device, "--link", &kind.link];
        arguments.extend(load);
        let mut client = start(Side::Host, "client", &arguments);
        sleep(WARM);
        let before = [&io_box, &client].map(faults);
        sleep(WORK);
        let after = [&io_box, &client].map(faults);
        assert!(client.is_running(), "{}", client.log());
        story.tell(format!(
            "{}: page faults at work: box {}, host {}",
            kind.name,
            after[0] - before[0],
            after[1] - before[1]
        ));
        let most = after.iter().zip(&before).map(|(after, before)| after - before).max();
        assert!(most <= Some(FEW), "{}: page faults while at work: {before:?} to {after:?}", kind.name);
        assert!(client.wait(PATIENCE).unwrap().success(), "{}", client.log());
        assert!(io_box.terminate(PATIENCE).unwrap().success(), "{}", io_box.log());
    }
}
