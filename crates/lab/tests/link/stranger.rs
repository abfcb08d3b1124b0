//! A stranger on the segment, with raw frames and anybody's addresses, against real daemons: what he sends is counted, and does nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherslot_lab::{
    BOX_MAC, Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, captured_frames,
    ensure_programs, etherslot_command, mortal, node_keys, write_pcap,
};
use etherslot_wire::frame::{CHECK_BYTES, Header, Kind, put_check};
use etherslot_wire::handshake::is_handshake;
use serde_json::Value;

use crate::Story;

const ETHERNET_BYTES: usize = 14;
/// Slow enough for every frame to arrive, so that counters can be held against what was sent.
const PACE: &[&str] = &["--pps=4000"];
/// As fast as it goes.
const FLOOD: &[&str] = &["--topspeed"];
const FLOODED: usize = 200_000;

struct Stand {
    run: Run,
    net: Net,
    io_box: Daemon,
    host: Daemon,
}

/// Frames with their Ethernet headers.
type Frames = Vec<Vec<u8>>;

fn of(frame: &[u8]) -> &[u8] {
    &frame[ETHERNET_BYTES..]
}

/// To the box, by the sixth byte of its address.
fn is_to_box(frame: &[u8]) -> bool {
    frame[5] == 2
}

fn destination(frame: &[u8]) -> u32 {
    u32::from_be_bytes(of(frame)[4..8].try_into().unwrap())
}

impl Stand {
    fn new() -> Self {
        let run = Run::new("stranger").unwrap();
        let net = Net::new(&run, NetOptions::default()).unwrap();
        let mut config = format!(
            "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\ncapture = \"{}\"\n",
            run.path("box.pcapng").display()
        );
        for device in ["disk0", "disk1"] {
            let disk = run.disk_image(&format!("{device}.img"), 1 << 20).unwrap();
            let disk = disk.display();
            // Writing to a string does not fail.
            let _ = write!(
                config,
                "[[device]]\nkind = \"nvme\"\nname = \"{device}\"\nserial = \"{device}\"\n\
                 [[device.namespace]]\npath = \"{disk}\"\n"
            );
        }
        let io_box = Daemon::start(&run, &net, Role::Box, "box", &config).unwrap();
        let config = format!(
            "[node]\nname = \"host\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n\
             [[slot]]\ndevice = \"disk0\"\nbox = \"{BOX_MAC}\"\nsocket = \"{}\"\n",
            run.path("disk0.sock").display()
        );
        let mut host = Daemon::start(&run, &net, Role::Host, "host", &config).unwrap();
        host.wait_for_log("device attached", Duration::from_secs(10)).unwrap();
        Self { run, net, io_box, host }
    }

    /// All that the box has sent and received so far, but for what is younger than a second.
    fn seen(&self) -> Frames {
        std::thread::sleep(Duration::from_millis(1_500));
        captured_frames(&self.run.path("box.pcapng")).unwrap()
    }

    /// Puts frames on the segment, as if from one side's place.
    fn send(&self, side: Side, options: &[&str], frames: &[Vec<u8>]) {
        let file = self.run.path("stranger.pcap");
        write_pcap(&file, frames.iter().map(Vec::as_slice)).unwrap();
        let mut command = mortal(Some(&self.net.namespace(side)), Path::new("tcpreplay"));
        let output = command.args(["--quiet", "-i", INTERFACE]).args(options).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::thread::sleep(Duration::from_millis(300));
    }

    fn stat(&self, daemon: &Daemon) -> Value {
        let mut command = etherslot_command(&self.net, Side::Host).unwrap();
        let output = command.arg("stat").arg(daemon.control()).args(["--output", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// One of a node's counters of security, or of its one session.
    fn count(&self, daemon: &Daemon, name: &str) -> u64 {
        let stat = self.stat(daemon);
        let security = &stat["security"]["counters"][name];
        let counter = security.as_u64().or_else(|| stat["sessions"][0]["counters"][name].as_u64());
        counter.unwrap_or_else(|| panic!("{name} is not counted: {stat}"))
    }

    /// Sends frames to the box; by how much the counter grew.
    fn attack(&self, story: &Story, name: &str, options: &[&str], frames: &[Vec<u8>]) -> u64 {
        let before = self.count(&self.io_box, name);
        self.send(Side::Host, options, frames);
        let grown = self.count(&self.io_box, name) - before;
        story.tell(format!("{} frames: {name} + {grown}", frames.len()));
        grown
    }

    /// `etherslot nvme …` of an owner on the host's side.
    fn nvme(&self, arguments: &[&str]) {
        let mut command = etherslot_command(&self.net, Side::Host).unwrap();
        command.arg("nvme").args(arguments).args(["--link", &format!("packet:{INTERFACE}"), "--wait", "5s"]);
        let output = command.env(KEY_VARIABLE, node_keys(&self.run, "owner").unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The same header, another kind, later numbers, in the clear, with a good check.
fn in_the_clear(frame: &[u8], kind: Kind) -> Vec<u8> {
    let (header, body, _) = Header::parse_sealed(of(frame)).unwrap();
    let header = Header { kind, packet_number: header.packet_number + 1000, ..header };
    let mut plain = vec![0; header.len()];
    header.emit(&mut plain).unwrap();
    plain.extend_from_slice(body);
    plain.extend_from_slice(&[0; CHECK_BYTES]);
    put_check(&mut plain, crc32c::crc32c).unwrap();
    [&frame[..ETHERNET_BYTES], &plain].concat()
}

/// A step of a handshake that nobody of the fabric has made, from an address of its own.
fn junk(knock: &[u8], number: usize) -> Vec<u8> {
    let mut frame = knock.to_vec();
    frame[10..12].copy_from_slice(&(number as u16).to_be_bytes());
    let at = frame.len() - 1 - number % 32;
    frame[at] ^= 1 + (number / 32 % 255) as u8;
    frame
}

fn image(run: &Run) -> PathBuf {
    let path = run.path("image.raw");
    let bytes: Vec<u8> = (0..65_536_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
#[ignore = "needs root: ./run test link"]
fn raw_frames_of_a_stranger_are_counted_and_do_nothing() {
    let story = Story::begin();
    ensure_programs(&[("tcpreplay", "tcpreplay")]).unwrap();
    let mut stand = Stand::new();
    let live = stand.seen();
    let image = image(&stand.run).to_string_lossy().into_owned();
    let back = stand.run.path("back.raw").to_string_lossy().into_owned();
    let device = format!("disk1@{BOX_MAC}");
    stand.nvme(&["write", &device, &image]);
    let all = stand.seen();

    let sealed = |frames: &[Vec<u8>], to_box: bool| -> Frames {
        let is_it = |frame: &&Vec<u8>| {
            is_to_box(frame) == to_box && !is_handshake(of(frame)) && destination(frame) != 0
        };
        frames.iter().filter(is_it).cloned().collect()
    };
    let (to_box, to_host) = (sealed(&live, true), sealed(&live, false));
    assert!(to_box.len() > 8 && to_host.len() > 8, "{} and {} frames", to_box.len(), to_host.len());
    let epoch = destination(&to_box[0]);
    let over: Frames = sealed(&all, true).into_iter().filter(|frame| destination(frame) != epoch).collect();
    assert!(over.len() > 8, "{}", over.len());

    story.tell("a live session's own frames, again");
    let replayed = stand.attack(&story, "dropped_replay", PACE, &to_box);
    assert_eq!(replayed, to_box.len() as u64);
    let before = stand.count(&stand.host, "dropped_replay");
    stand.send(Side::Box, PACE, &to_host);
    assert_eq!(stand.count(&stand.host, "dropped_replay") - before, to_host.len() as u64);

    story.tell("the head of one and the rest of another");
    let mixed: Frames = to_box
        .windows(2)
        .map(|pair| [&pair[0][..ETHERNET_BYTES + 48], &pair[1][ETHERNET_BYTES + 48..]].concat())
        .collect();
    assert_eq!(stand.attack(&story, "forged_frames", PACE, &mixed), mixed.len() as u64);

    story.tell("frames of a session that is over");
    assert_eq!(stand.attack(&story, "keyless_frames", PACE, &over), over.len() as u64);

    story.tell("frames in the clear with all the right numbers, from the host's address and another");
    let mut plain: Frames = Vec::new();
    for kind in [Kind::Close, Kind::Data, Kind::Ack, Kind::Hello] {
        plain.extend(to_box.iter().map(|frame| in_the_clear(frame, kind)));
    }
    let elsewhere: Frames =
        plain.iter().map(|frame| [&frame[..6], &[2, 0, 0, 0, 0, 0x77], &frame[12..]].concat()).collect();
    plain.extend(elsewhere);
    assert_eq!(stand.attack(&story, "plain_frames", PACE, &plain), plain.len() as u64);

    story.tell("handshakes that were heard, again");
    let greetings: Frames =
        all.iter().filter(|frame| is_to_box(frame) && is_handshake(of(frame))).cloned().collect();
    assert!(greetings.len() >= 6, "{}", greetings.len());
    let agreed = stand.count(&stand.io_box, "handshakes");
    assert_eq!(stand.attack(&story, "handshake_exchanges", PACE, &greetings), 0);

    story.tell("a flood of made-up ones");
    let flood: Frames = (0..FLOODED).map(|number| junk(&greetings[0], number)).collect();
    let limited = stand.count(&stand.io_box, "handshake_limited");
    let strangers = stand.attack(&story, "handshake_strangers", FLOOD, &flood);
    let limited = stand.count(&stand.io_box, "handshake_limited") - limited;
    story.tell(format!("and handshake_limited + {limited}"));
    // The kernel may drop some; whatever came was dropped for the price of a tag, or for less.
    assert!(strangers + limited > 10_000 && strangers + limited <= FLOODED as u64);
    assert_eq!(stand.count(&stand.io_box, "handshakes"), agreed);

    story.tell("the session is the same, nothing was moved, and the next one comes up");
    // At the box one session has ended, as it should: that of the owner who wrote.
    for (daemon, ended) in [(&stand.io_box, 1), (&stand.host, 0)] {
        assert_eq!(stand.stat(daemon)["sessions"][0]["state"], "up");
        let log = daemon.log();
        assert_eq!(
            (log.matches("session over").count(), log.matches("session dead").count()),
            (ended, 0),
            "{log}"
        );
    }
    let again = sealed(&stand.seen(), true);
    assert!(again.iter().rev().take(5).any(|frame| destination(frame) == epoch), "the keys are the same");
    stand.nvme(&["read", &device, "--bytes", "65536", "--output-file", &back]);
    assert_eq!(std::fs::read(&image).unwrap(), std::fs::read(&back).unwrap());
    assert!(stand.host.stop().unwrap().success() && stand.io_box.stop().unwrap().success());
}
