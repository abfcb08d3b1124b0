use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use etherslot_session::Counters;

use super::*;
use crate::counted::Counted;
use crate::stat::{
    DeviceStat, LinkStat, NodeStat, PathStat, PeerStat, Protection, Role, SecurityStat, SessionStat, SlotStat,
};

/// A node that has something of everything.
fn stat() -> NodeStat {
    let named = |gauges: bool| {
        let counters = Counters { frames_sent: 7, dropped_epoch: 2, srtt_ns: 43_219, ..Counters::default() };
        let chosen: Vec<_> = counters.named().filter(|named| named.is_gauge == gauges).collect();
        Counted::from(chosen.into_iter().map(|named| (named.name, named.value)))
    };
    let path = PathStat {
        is_up: true,
        gauges: Counted::from([("srtt_ns", 1_000_000_000)]),
        counters: Counted::from([("data_frames_sent", 3)]),
    };
    let session = SessionStat {
        peer: "02:00:00:00:00:01".to_owned(),
        peer_node: Some("00ff".to_owned()),
        peer_key: None,
        cipher: Some("AES-256-GCM".to_owned()),
        state: "up".to_owned(),
        mode: "selective".to_owned(),
        frame_bytes: 9000,
        unacked_frames: 3,
        gauges: named(true),
        counters: named(false),
        paths: vec![path; 2],
        hierarchy: Some(Counted::from([("received", 5)])),
    };
    let tx = Counted::from([("tx_frames", 9), ("tx_bytes", 900), ("tx_too_long", 1), ("tx_refused", 4)]);
    NodeStat {
        name: "box \"1\"".to_owned(),
        role: Role::Box,
        version: "0.1.0".to_owned(),
        uptime_ns: 1_500_000_000,
        notices: Vec::new(),
        security: SecurityStat {
            protection: Protection::Keys,
            public_key: None,
            counters: Counted::from([("forged_frames", 6), ("handshakes", 1)]),
        },
        address: "02:00:00:00:00:02".to_owned(),
        counters: Counted::from([("sessions_up", 1), ("sessions_dead", 0)]),
        port: tx.clone(),
        links: vec![LinkStat { address: "02:00:00:00:00:02".to_owned(), is_up: Some(true), counters: tx }],
        // The one that is dying and the one that follows it.
        sessions: vec![SessionStat { state: "closing".to_owned(), ..session.clone() }, session],
        slots: vec![
            SlotStat {
                device: "disk0".to_owned(),
                is_attached: true,
                guest: None,
                refusal: None,
                counters: Counted::from([("dma_read_bytes", 4096)])
            };
            2
        ],
        devices: vec![DeviceStat {
            name: "disk0".to_owned(),
            state: "used".to_owned(),
            owner: Some("host-a".to_owned()),
            epoch: 5,
            counters: Counted::from([("bytes_read", 512), ("busy_ns", 250_000_000)]),
        }],
        peers: vec![PeerStat {
            name: "host-a".to_owned(),
            role: Role::Host,
            is_up: true,
            heartbeats_lost: 1,
            heartbeats_expected: 64,
        }],
        fabric: Some(Counted::from([("heartbeats", 12)])),
        leases: Some(Counted::from([("granted", 5)])),
    }
}

#[test]
fn what_stat_shows_is_there_under_the_names_of_the_documentation() {
    let page = families::page(&stat());
    for line in [
        "etherslot_build_info{version=\"0.1.0\"} 1",
        "etherslot_node_info{node=\"box \\\"1\\\"\",role=\"box\",protection=\"keys\"} 1",
        "etherslot_node_uptime_seconds 1.500000000",
        "etherslot_node_sessions_up_total 1",
        "etherslot_security_dropped_frames_total{reason=\"forged\"} 6",
        "etherslot_link_tx_bytes_total{link=\"0\",address=\"02:00:00:00:00:02\"} 900",
        "etherslot_link_tx_dropped_frames_total{link=\"0\",address=\"02:00:00:00:00:02\",reason=\"refused\"} 4",
        "etherslot_link_up{link=\"0\",address=\"02:00:00:00:00:02\"} 1",
        "etherslot_slot_attached{slot=\"0\",device=\"disk0\"} 1",
        "etherslot_session_up{peer=\"02:00:00:00:00:01\"} 1",
        "etherslot_session_srtt_seconds{peer=\"02:00:00:00:00:01\"} 0.000043219",
        "etherslot_session_frames_sent_total{peer=\"02:00:00:00:00:01\"} 14",
        "etherslot_session_dropped_total{peer=\"02:00:00:00:00:01\",reason=\"epoch\"} 4",
        "etherslot_session_unacked_frames{peer=\"02:00:00:00:00:01\"} 3",
        "etherslot_path_srtt_seconds{peer=\"02:00:00:00:00:01\",path=\"1\"} 1.000000000",
        "etherslot_slot_dma_read_bytes_total{slot=\"1\",device=\"disk0\"} 4096",
        "etherslot_device_read_bytes_total{device=\"disk0\"} 512",
        "etherslot_device_busy_seconds_total{device=\"disk0\"} 0.250000000",
        "etherslot_device_lease_epoch{device=\"disk0\"} 5",
        "etherslot_device_state_info{device=\"disk0\",state=\"used\"} 1",
        "etherslot_device_owner_info{device=\"disk0\",owner=\"host-a\"} 1",
        "etherslot_peer_up{peer=\"host-a\",role=\"host\"} 1",
        "etherslot_fabric_heartbeats_total 12",
        "etherslot_lease_granted_total 5",
    ] {
        assert!(page.lines().any(|known| known == line), "no {line} in\n{page}");
    }
}

#[test]
fn every_counter_of_a_session_has_a_family_and_no_sample_stands_twice() {
    let page = families::page(&stat());
    let mut seen = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(sample.to_owned()), "{sample} stands twice");
    }
    for named in Counters::default().named() {
        let word = named.name.trim_end_matches("_ns").trim_start_matches("dropped_").replace("bytes_", "");
        let word = if word == "ack" { "acknowledgement".to_owned() } else { word };
        let is_there = |sample: &String| {
            sample.starts_with("etherslot_session_")
                && (sample.contains(&word) || sample.contains(&word.replace('_', " ")))
        };
        assert!(seen.iter().any(is_there), "{} is missing", named.name);
    }
}

/// Prometheus's own check, where it is installed: syntax, and the conventions for names.
#[test]
fn promtool_has_nothing_to_say_about_the_page() {
    let command = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut promtool) = command else {
        eprintln!("not checked: promtool (Debian: prometheus) is not installed");
        return;
    };
    promtool.stdin.take().unwrap().write_all(families::page(&stat()).as_bytes()).unwrap();
    assert!(promtool.wait().unwrap().success());
}

/// Metrics at a free port, with a clock that the test turns.
struct Rig {
    metrics: Metrics,
    address: std::net::SocketAddr,
    now_ns: u64,
}

impl Rig {
    fn new() -> Self {
        let sleeper = Sleeper::new(Some(Duration::ZERO)).unwrap();
        let metrics = Metrics::open(&"127.0.0.1:0".parse().unwrap(), &sleeper).unwrap();
        let Listening::Tcp(listener) = metrics.desk.listening() else { unreachable!("asked for TCP") };
        let address = listener.local_addr().unwrap();
        Self { metrics, address, now_ns: 1 }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    fn poll(&mut self) {
        self.metrics.poll(self.now_ns, true, &mut || Ok(Answer::Stat(Box::new(stat()))));
    }

    /// What is answered to `request` while so many others are there.
    fn answer(&mut self, request: &[u8], others: usize) -> String {
        while self.metrics.desk.connections() < others {
            self.poll();
        }
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut answer = String::new();
        while answer.is_empty() {
            self.poll();
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }
}

#[test]
fn a_scrape_gets_the_page_and_others_are_told_what_is_wrong() {
    let mut rig = Rig::new();
    let answer = rig.answer(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 0);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert_eq!(body, families::page(&stat()));
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", "405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\n\n", "400"),
        (&[b'x'; 9000], "400"),
    ] {
        let answer = rig.answer(request, 0);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn who_says_nothing_holds_up_nobody_and_is_cut() {
    let mut rig = Rig::new();
    let silent: Vec<TcpStream> = (1..LIMITS.connections).map(|_| rig.connect()).collect();
    let answer = rig.answer(b"GET /metrics HTTP/1.1\r\n\r\n", silent.len());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    rig.now_ns += LIMITS.patience_ns;
    rig.poll();
    assert_eq!(rig.metrics.desk.connections(), 0);
    assert_eq!(rig.metrics.deadline_ns(), None);
}
