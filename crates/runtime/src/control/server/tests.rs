use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use super::*;
use crate::counted::Counted;
use crate::desk::LOOK_NS;
use crate::events::{Record, SessionChange};
use crate::stat::{NodeStat, Role};

fn stat(sessions: usize) -> NodeStat {
    let session = crate::stat::SessionStat {
        peer: "memory:1".to_owned(),
        peer_node: None,
        peer_key: None,
        cipher: None,
        state: "up".to_owned(),
        mode: "selective".to_owned(),
        frame_bytes: 1500,
        unacked_frames: 0,
        gauges: Counted::from([("srtt_ns", 5)]),
        counters: Counted::from([("frames_sent", 1)]),
        paths: Vec::new(),
        hierarchy: None,
    };
    NodeStat {
        name: "tried".to_owned(),
        role: Role::Box,
        version: "1".to_owned(),
        uptime_ns: 1,
        notices: Vec::new(),
        security: crate::stat::SecurityStat::default(),
        address: "memory:0".to_owned(),
        counters: Counted::default(),
        port: Counted::default(),
        sessions: vec![session; sessions],
        slots: Vec::new(),
        fabric: None,
        leases: None,
        links: Vec::new(),
        devices: Vec::new(),
        peers: Vec::new(),
    }
}

/// A server in a folder of its own, with a clock that the test turns.
struct Rig {
    _folder: tempfile::TempDir,
    path: PathBuf,
    server: Server,
    now_ns: u64,
    sessions: usize,
    teller: Teller,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/tried.control");
        let server = Server::bind(&path).unwrap();
        Self { _folder: folder, path, server, now_ns: 1, sessions: 1, teller: Teller::default() }
    }

    fn poll(&mut self) -> bool {
        let sessions = self.sessions;
        self.server.poll(self.now_ns, true, &self.teller, &mut |_| Ok(Answer::Stat(Box::new(stat(sessions)))))
    }

    /// The answer to `request`, while others may be connected.
    fn ask(&mut self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        self.poll();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// What is answered to `request`, and that the connection ends after it.
    fn answer(&mut self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        self.poll();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(self.server.desk.connections(), 0);
        answer
    }
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_server() {
    let rig = Rig::new();
    assert_eq!(rig.path.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let path = rig.path.clone();
    assert!(matches!(Server::bind(&path), Err(BindError::InUse(_))), "one that listens is left alone");
    drop(rig.server);
    assert!(path.symlink_metadata().is_err());
}

#[test]
fn a_stale_socket_is_replaced_and_anything_else_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.symlink_metadata().is_ok());
    drop(Server::bind(&path).unwrap());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Server::bind(&path), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_path_that_no_socket_can_have_is_told_with_what_can_be() {
    let path = std::env::temp_dir().join("x".repeat(120));
    let error = Server::bind(&path).unwrap_err().to_string();
    assert!(error.contains("too long") && error.contains("107"), "{error}");
}

#[test]
fn one_request_is_answered_with_or_without_the_end_of_its_line() {
    let mut rig = Rig::new();
    let answer = rig.answer(b"{\"request\":\"stat\"}\n");
    assert!(answer.starts_with("{\"ok\":{\"name\":\"tried\",\"role\":\"box\""), "{answer}");
    assert!(answer.ends_with('\n'));

    let mut stream = rig.connect();
    stream.write_all(b"{\"request\":").unwrap();
    rig.poll();
    stream.write_all(b"\"stat\"}").unwrap();
    rig.poll();
    assert_eq!(rig.server.desk.connections(), 1, "it may go on");
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    rig.poll();
    let mut again = String::new();
    stream.read_to_string(&mut again).unwrap();
    assert_eq!(again, answer);
}

#[test]
fn what_is_no_request_is_answered_with_an_error() {
    let mut rig = Rig::new();
    for bad in [&b"\n"[..], b"{}\n", b"\xFF\n", b"{\"request\":\"reboot\"}\n", &[b'{'; LIMITS.request_bytes]]
    {
        let answer = rig.answer(bad);
        assert!(answer.starts_with("{\"error\":"), "{answer}");
    }
    let silent = rig.connect();
    drop(silent);
    rig.poll();
    rig.poll();
    assert_eq!(rig.server.desk.connections(), 0);
}

#[test]
fn a_slow_reader_holds_up_nobody_and_is_dropped() {
    let mut rig = Rig::new();
    rig.sessions = 20_000;
    let mut slow = rig.connect();
    slow.write_all(b"{\"request\":\"stat\"}\n").unwrap();
    rig.poll();
    assert_eq!(rig.server.desk.connections(), 1, "more than the socket holds");
    rig.sessions = 1;
    assert!(!rig.server.desk.has_event(), "the loop can sleep");
    let mut quick = rig.connect();
    quick.write_all(b"{\"request\":\"stat\"}\n").unwrap();
    rig.poll();
    let mut answer = String::new();
    quick.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("{\"ok\""));
    assert_eq!(rig.server.desk.deadline_ns(), Some(1 + LIMITS.patience_ns));
    rig.now_ns += LIMITS.patience_ns;
    rig.poll();
    assert_eq!(rig.server.desk.connections(), 0);
}

#[test]
fn more_connections_than_there_is_room_for_wait_and_do_not_wake_the_loop() {
    let mut rig = Rig::new();
    let silent: Vec<UnixStream> = (0..LIMITS.connections).map(|_| rig.connect()).collect();
    rig.poll();
    let mut late = rig.connect();
    late.write_all(b"{\"request\":\"stat\"}\n").unwrap();
    assert!(!rig.poll() && !rig.server.desk.has_event());
    drop(silent);
    rig.poll();
    rig.poll();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("{\"ok\""));
}

#[test]
fn an_idle_server_is_looked_at_only_now_and_then() {
    let mut rig = Rig::new();
    assert!(!rig.poll());
    let _silent = rig.connect();
    let answer = &mut |_| Ok(Answer::Stat(Box::new(stat(0))));
    assert!(!rig.server.poll(rig.now_ns, false, &Teller::default(), answer), "not woken, and just looked at");
    assert!(rig.server.poll(rig.now_ns + LOOK_NS, false, &Teller::default(), answer));
    assert_eq!(rig.server.desk.connections(), 1);
}

#[test]
fn the_client_gets_what_the_server_says() {
    let mut rig = Rig::new();
    let path = rig.path.clone();
    let asking = thread::spawn(move || super::super::ask::<NodeStat>(&path, &Request::Stat {}));
    while !asking.is_finished() {
        rig.poll();
        thread::yield_now();
    }
    assert_eq!(asking.join().unwrap().unwrap(), stat(1));
    drop(rig.server);
    let error = super::super::ask::<NodeStat>(&rig.path, &Request::Stat {}).unwrap_err();
    assert!(error.to_string().contains("no node runs there"), "{error}");
}

/// The next record of one who listens.
fn record(rig: &mut Rig, lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Record {
    rig.poll();
    serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
}

#[test]
fn who_listens_gets_a_snapshot_and_then_what_happens_until_the_end() {
    let mut rig = Rig::new();
    let session = |peer: &str| Event::Session { peer: peer.to_owned(), what: SessionChange::Up, why: None };
    rig.teller.tell(|| unreachable!("nobody listens yet"));
    let mut stream = rig.connect();
    stream.write_all(b"{\"request\":\"events\",\"every_ms\":100}\n").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = record(&mut rig, &mut lines);
    let Event::Snapshot { schema: SCHEMA, stat: told, ls: None } = first.event else { panic!("{first:?}") };
    assert_eq!((*told, first.sequence), (stat(1), 0));
    rig.teller.tell(|| session("a"));
    rig.teller.tell(|| session("b"));
    assert_eq!(record(&mut rig, &mut lines).event, session("a"));
    let second = record(&mut rig, &mut lines);
    assert_eq!((second.sequence, second.event), (2, session("b")));
    assert!(!rig.server.desk.has_event(), "the loop can sleep");
    assert_eq!(rig.server.desk.deadline_ns(), Some(1 + 100_000_000));
    rig.now_ns += 10 * LIMITS.patience_ns;
    assert!(matches!(record(&mut rig, &mut lines).event, Event::Counters { .. }), "patience is for who asks");
    drop((stream, lines));
    rig.poll();
    rig.teller.tell(|| unreachable!("nobody listens any more"));
    assert_eq!(rig.server.desk.connections(), 0);
}

#[test]
fn those_who_listen_are_few_and_keep_nobody_from_asking() {
    let mut rig = Rig::new();
    let all: Vec<UnixStream> = (0..FOLLOWERS)
        .map(|_| {
            let mut stream = rig.connect();
            stream.write_all(b"{\"request\":\"events\"}\n").unwrap();
            rig.poll();
            stream
        })
        .collect();
    assert!(rig.ask(b"{\"request\":\"events\"}\n").contains("listen already"));
    assert!(rig.ask(b"{\"request\":\"stat\"}\n").starts_with("{\"ok\""));
    assert_eq!(rig.server.desk.connections(), all.len());
    drop(all);
    rig.poll();
    assert!(rig.ask(b"{\"request\":\"events\",\"every_ms\":1}\n").contains("every_ms has to be"));
}

#[test]
fn who_does_not_read_loses_records_and_gets_a_new_snapshot_when_he_reads() {
    let mut rig = Rig::new();
    let mut stream = rig.connect();
    stream.write_all(b"{\"request\":\"events\"}\n").unwrap();
    rig.poll();
    let long = "x".repeat(10_000);
    for _ in 0..1000 {
        rig.teller.tell(|| Event::Session { peer: long.clone(), what: SessionChange::Up, why: None });
        rig.poll();
    }
    let mut lines = BufReader::new(stream).lines();
    let mut next = 0;
    loop {
        let record = record(&mut rig, &mut lines);
        if let Event::Lost { records } = record.event {
            assert_eq!(next + records, 1001, "all are accounted for");
            assert_eq!(record.sequence, 1001);
            break;
        }
        assert_eq!(record.sequence, next, "none is missing before");
        next += 1;
    }
    assert!(matches!(self::record(&mut rig, &mut lines).event, Event::Snapshot { .. }));
}
