//! A session over two Ethernets, each with a bridge of its own: they add up, and the loss of one is hardly noticed.
//!
//! The bound of 10 ms on the pause is held to in virtual time (`crates/session/tests/paths`); here it is measured and
//! told, and held to what a shared machine can keep.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use etherslot_lab::{
    BOX_MAC, Ethernet, INTERFACE, Net, NetOptions, Run, SECOND_BOX_MAC, SECOND_INTERFACE, Side, ensure_net,
    etherslot_command,
};
use serde_json::Value;

use crate::Story;
use crate::goodput::goodput;

/// Each Ethernet's: two of them are well below what two shared cores can carry.
const RATE_MBIT: u32 = 100;
const MOST_ROUNDS: usize = 10;
/// Of the rate of one.
const SUM: f64 = 1.9;
/// How long a path is down.
const DOWN: Duration = Duration::from_secs(3);
/// The longest pause: well below that, on a machine that has other things to do. What the session takes is bounded in virtual time,
/// by its own tests.
const PAUSE_MS: f64 = 2_000.0;

const FIRST: (&str, &str) = (BOX_MAC, INTERFACE);
const SECOND: (&str, &str) = (SECOND_BOX_MAC, SECOND_INTERFACE);

struct Server(Child);

impl Server {
    fn start(net: &Net) -> Self {
        let mut command = etherslot_command(net, Side::Box).unwrap();
        command.args(["--log", "warn", "link", "serve"]);
        command.args(["--interface", INTERFACE, "--interface", SECOND_INTERFACE]);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `etherslot link test` over these Ethernets, with bulk from the peer.
fn test(net: &Net, ways: &[(&str, &str)], seconds: u32) -> Child {
    let mut command: Command = etherslot_command(net, Side::Host).unwrap();
    command.args(["link", "test", "--reverse", "--output", "json", "--seconds", &seconds.to_string()]);
    for (_, interface) in ways {
        command.args(["--interface", interface]);
    }
    command.args(ways.iter().map(|(mac, _)| mac));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

fn report(mut test: Child) -> Value {
    let mut text = String::new();
    test.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(test.wait().unwrap().success());
    serde_json::from_str(&text).unwrap()
}

fn lay(name: &str, story: &Story) -> (Run, Net) {
    ensure_net().unwrap();
    let run = Run::new(name).unwrap();
    let options = NetOptions { mtu: 1500 };
    let net = Net::new(&run, options).unwrap();
    net.add_second(options).unwrap();
    for ethernet in [Ethernet::First, Ethernet::Second] {
        for side in [Side::Host, Side::Box] {
            if let Err(error) = net.limit_rate_of(ethernet, side, Some(u64::from(RATE_MBIT) * 1_000_000)) {
                story.tell(format!("to {side:?}: the machine's own pace, since there is no shaper: {error}"));
            }
        }
    }
    (run, net)
}

fn pause_ms(report: &Value) -> f64 {
    report["longest_pause_ns"].as_f64().unwrap() / 1e6
}

#[test]
#[ignore = "needs root: ./run test link"]
fn two_ethernets_carry_twice_as_much_as_one() {
    let story = Story::begin();
    let (_run, net) = lay("paths-sum", &story);
    let _server = Server::start(&net);
    // What else the machine does takes away, from one or from both; it never adds.
    let mut most = [0.0_f64; 3];
    let mut ratio = 0.0;
    for round in 1..=MOST_ROUNDS {
        let [one, other, both] = [&[FIRST][..], &[SECOND], &[FIRST, SECOND]]
            .map(|ways| goodput(&report(test(&net, ways, 2)), "from_peer") / 1e6);
        most = [most[0].max(one), most[1].max(other), most[2].max(both)];
        ratio = 2.0 * most[2] / (most[0] + most[1]);
        story.tell(format!(
            "round {round}: {one:.1} and {other:.1} Mbit/s alone, {both:.1} together; the best so far {ratio:.2} times one"
        ));
        if ratio >= SUM {
            break;
        }
    }
    assert!(ratio >= SUM, "{ratio:.2} times one");
}

#[test]
#[ignore = "needs root: ./run test link"]
fn the_loss_of_an_ethernet_stops_a_transfer_for_a_moment_only() {
    let story = Story::begin();
    let (_run, net) = lay("paths-loss", &story);
    let _server = Server::start(&net);
    let usual_ms = pause_ms(&report(test(&net, &[FIRST, SECOND], 2)));
    story.tell(format!("with both: the longest pause is {usual_ms:.1} ms"));
    for lost in [Ethernet::First, Ethernet::Second] {
        let running = test(&net, &[FIRST, SECOND], 6);
        // A second for the pings alone, and one of the load.
        sleep(Duration::from_millis(2_200));
        net.set_link_of(lost, Side::Box, false).unwrap();
        sleep(DOWN);
        net.set_link_of(lost, Side::Box, true).unwrap();
        let report = report(running);
        let (pause_ms, rate) = (pause_ms(&report), goodput(&report, "from_peer") / 1e6);
        let paths: Vec<bool> =
            report["session"]["paths"].as_array().unwrap().iter().map(|path| path["is_up"] == true).collect();
        story.tell(format!(
            "{lost:?} down for {DOWN:?} of 6 s: {rate:.1} Mbit/s, the longest pause {pause_ms:.1} ms, paths up at the end: {paths:?}"
        ));
        assert!(pause_ms < PAUSE_MS, "{pause_ms} ms");
        assert_eq!(paths, [true; 2], "both are used again");
        assert!(rate >= f64::from(RATE_MBIT), "{rate} Mbit/s: one went on, and both before and after");
    }
}
