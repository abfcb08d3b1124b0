use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::Ordering;

use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};
use tempfile::TempDir;

use super::region::{Word, awake};
use super::*;

const DATA_BYTES: usize = 64 << 10;

fn hub() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn open(hub: &TempDir, port: u32) -> RingPort {
    RingPort::open(&RingConfig { ring_bytes: DATA_BYTES, ..RingConfig::new(hub.path(), port) })
        .expect("a port")
}

fn refused(config: &RingConfig) -> String {
    match RingPort::open(config) {
        Ok(_) => panic!("{config:?} opened"),
        Err(error) => error.to_string(),
    }
}

/// All that waits.
fn drain(port: &mut RingPort) -> Vec<(Address, Vec<u8>)> {
    let mut frames = Vec::new();
    // The first look may bring news, the second what they brought.
    for _ in 0..2 {
        port.look();
        while port.receive(&mut |from, frame| frames.push((*from, frame.to_vec()))) != 0 {}
    }
    frames
}

/// A peer that does as it likes.
struct Rogue {
    socket: OwnedFd,
    region: Region,
}

impl Rogue {
    fn connect(hub: &TempDir, to: u32, claims: u32) -> Self {
        let socket = hub::connect_to(hub.path(), to).expect("a connection");
        let memory = hub::memory(DATA_BYTES).expect("memory");
        let region = Region::map(memory.as_fd(), DATA_BYTES).expect("a map");
        Offer { port: claims, data_bytes: DATA_BYTES }.send(&socket, &memory).expect("sent");
        Self { socket, region }
    }

    fn set(&self, word: Word, value: u64) {
        self.region.header(word).store(value, Ordering::SeqCst);
    }

    fn is_connected(&self) -> bool {
        hub::take_wakes(&self.socket)
    }
}

#[test]
fn three_ports_talk_each_to_each() {
    let hub = hub();
    let mut ports = [open(&hub, 1), open(&hub, 2), open(&hub, 3)];
    for (from, port) in ports.iter_mut().enumerate() {
        for to in 1..=3_u8 {
            // To itself, too.
            assert_eq!(port.send(&Address::Ring(u32::from(to)), &[&[from as u8; 100], &[to; 5]]), 2);
        }
    }
    for (at, port) in ports.iter_mut().enumerate() {
        let mut frames = drain(port);
        frames.sort();
        let mut expected: Vec<_> = (0..3_u8)
            .flat_map(|from| {
                let address = Address::Ring(u32::from(from) + 1);
                [(address, vec![from; 100]), (address, vec![at as u8 + 1; 5])]
            })
            .collect();
        expected.sort();
        assert_eq!(frames, expected);
    }
}

#[test]
fn a_busy_peer_does_not_starve_another() {
    let hub = hub();
    let (mut a, mut b, mut c) = (open(&hub, 1), open(&hub, 2), open(&hub, 3));
    let burst = [&[1; 64][..]; BURST_FRAMES];
    for _ in 0..4 {
        assert_eq!(a.send(&Address::Ring(3), &burst), BURST_FRAMES);
    }
    assert_eq!(b.send(&Address::Ring(3), &[&[2; 64]]), 1);
    let mut first_of_b = None;
    for turn in 0..4 {
        c.receive(&mut |from, _| {
            if *from == Address::Ring(2) {
                first_of_b.get_or_insert(turn);
            }
        });
    }
    assert!(first_of_b <= Some(1) && first_of_b.is_some(), "{first_of_b:?}");
}

#[test]
fn a_port_is_held_by_one_and_told_with_the_remedy() {
    let hub = hub();
    let held = open(&hub, 1);
    let config = RingConfig::new(hub.path(), 1);
    assert!(refused(&config).contains("use another number"));
    drop(held);
    drop(open(&hub, 1));
    // The socket of a process that was killed stays; the lock does not.
    std::fs::write(hub.path().join("1.sock"), "").expect("a file");
    drop(open(&hub, 1));
    assert!(refused(&RingConfig { ring_bytes: 1000, ..config.clone() }).contains("power of two"));
    assert!(refused(&RingConfig { max_frame_bytes: Some(10_000), ..config.clone() }).contains("9216"));
    let deep = hub.path().join("x".repeat(100));
    assert!(refused(&RingConfig::new(deep, 1)).contains("shorter"));
    let mode = std::fs::Permissions::from_mode(0o770);
    std::fs::set_permissions(hub.path(), mode).expect("a mode");
    assert!(refused(&config).contains("chmod go-w"));
}

#[test]
fn the_folder_and_the_socket_are_for_their_owner() {
    let hub = hub();
    let folder = hub.path().join("made/here");
    let _port = RingPort::open(&RingConfig::new(&folder, 4)).expect("a port");
    let mode = |path: &std::path::Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("4.sock"))), (0o700, 0o600));
}

#[test]
fn frames_to_a_port_that_nobody_holds_are_lost_and_counted() {
    let hub = hub();
    let mut a = open(&hub, 1);
    assert_eq!(a.send(&Address::Ring(2), &[&[0; 64], &[0; 64]]), 2);
    assert_eq!(a.counters().tx_link_down, 2);
    let mut b = open(&hub, 2);
    std::thread::sleep(2 * RETRY);
    assert_eq!(a.send(&Address::Ring(2), &[&[7; 64]]), 1);
    assert_eq!(drain(&mut b), [(Address::Ring(1), vec![7; 64])]);
}

#[test]
fn a_killed_receiver_is_noticed_and_a_killed_senders_frames_are_taken() {
    let hub = hub();
    let (mut a, mut b) = (open(&hub, 1), open(&hub, 2));
    assert_eq!(a.send(&Address::Ring(2), &[&[7; 64]]), 1);
    assert_eq!(drain(&mut b).len(), 1);
    // A killed process sets no flag: its sockets close, that is all.
    b.incoming.fill_with(|| None);
    drop(b);
    a.tick(0);
    assert_eq!(a.send(&Address::Ring(2), &[&[8; 64]]), 1);
    assert_eq!(a.counters().tx_link_down, 1);
    let mut b = open(&hub, 2);
    std::thread::sleep(2 * RETRY);
    assert_eq!(a.send(&Address::Ring(2), &[&[9; 64], &[10; 64]]), 2);
    drop(a);
    let frames: Vec<u8> = drain(&mut b).iter().map(|(_, frame)| frame[0]).collect();
    assert_eq!(frames, [9, 10]);
    assert!(b.incoming.iter().all(Option::is_none), "the ring goes with its last frame");
}

#[test]
fn a_position_that_cannot_be_cuts_the_peer_off() {
    let hub = hub();
    let mut port = open(&hub, 1);
    let mut good = open(&hub, 2);
    for (turn, head) in [DATA_BYTES as u64 + 8, u64::MAX, 4, 8 << 60].into_iter().enumerate() {
        let rogue = Rogue::connect(&hub, 1, 7);
        assert_eq!(drain(&mut port), []);
        rogue.set(Word::Head, head);
        assert_eq!(good.send(&Address::Ring(1), &[&[1; 64]]), 1);
        assert_eq!(drain(&mut port), [(Address::Ring(2), vec![1; 64])]);
        assert!(!rogue.is_connected());
        assert_eq!(port.counters().cut_off, turn as u64 + 1);
    }
    // A length that ends behind the position; then a tail that was never reached, from one who receives.
    let rogue = Rogue::connect(&hub, 1, 7);
    rogue.region.word(0).store(64, Ordering::SeqCst);
    rogue.set(Word::Head, 64);
    assert_eq!(drain(&mut port), []);
    assert!(!rogue.is_connected());
    assert_eq!(port.counters().cut_off, 5);
}

#[test]
fn a_receiver_that_reads_what_was_not_sent_is_cut_off() {
    let hub = hub();
    let mut port = open(&hub, 1);
    let seat = Seat::take(hub.path(), 9).expect("a seat");
    assert_eq!(port.send(&Address::Ring(9), &[&[1; 64]]), 1);
    let socket = seat.accept().expect("a connection");
    let (offer, memory) = Offer::receive(&socket).expect("an offer").expect("now");
    assert_eq!((offer.port, offer.data_bytes), (1, DATA_BYTES));
    let region = Region::map(memory.as_fd(), DATA_BYTES).expect("a map");
    region.header(Word::Tail).store(1 << 40, Ordering::SeqCst);
    let burst = [&[1; 9000][..]; 10];
    // The position is looked at when there seems to be no room.
    assert_eq!(port.send(&Address::Ring(9), &burst), burst.len());
    assert_eq!(port.counters().cut_off, 1);
    assert!(port.counters().tx_link_down > 0);
    assert_eq!(port.send(&Address::Ring(9), &burst), burst.len());
    assert_eq!(port.counters().tx_frames, 1 + 7);
}

#[test]
fn memory_that_can_be_taken_away_is_refused() {
    let hub = hub();
    let mut port = open(&hub, 1);
    let offer = Offer { port: 7, data_bytes: DATA_BYTES };
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = |bytes: usize, seals| {
        let file = rustix::fs::memfd_create(c"rogue", flags).expect("memory");
        ftruncate(&file, bytes as u64).expect("a size");
        fcntl_add_seals(&file, seals).expect("seals");
        file
    };
    let whole = Region::file_bytes(DATA_BYTES);
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let on_disk = std::fs::File::create(hub.path().join("file")).expect("a file");
    on_disk.set_len(whole as u64).expect("a size");
    let bad = [
        file(whole, SealFlags::empty()),
        file(whole, SealFlags::GROW),
        file(whole - 4096, both),
        file(whole, both | SealFlags::FUTURE_WRITE),
        on_disk.into(),
    ];
    for memory in bad {
        let socket = hub::connect_to(hub.path(), 1).expect("a connection");
        offer.send(&socket, &memory).expect("sent");
        assert_eq!(drain(&mut port), []);
        assert!(!hub::take_wakes(&socket), "it was taken");
    }
    for data_bytes in [0, 1, DATA_BYTES - 8, 1 << 31] {
        let socket = hub::connect_to(hub.path(), 1).expect("a connection");
        let memory = hub::memory(DATA_BYTES).expect("memory");
        Offer { port: 7, data_bytes }.send(&socket, &memory).expect("sent");
        assert_eq!(drain(&mut port), []);
        assert!(!hub::take_wakes(&socket), "it was taken");
    }
    assert!(port.incoming.iter().all(Option::is_none));
}

#[test]
fn who_says_nothing_or_nonsense_takes_no_place_for_ever() {
    let hub = hub();
    let mut port = open(&hub, 1);
    let connect = || hub::connect_to(hub.path(), 1);
    let mut silent = Vec::new();
    for _ in 0..4 * PEERS {
        silent.push(connect().expect("a connection"));
        port.look();
    }
    let nonsense = connect().expect("a connection");
    assert!(hub::wake(&nonsense));
    port.look();
    assert!(!hub::take_wakes(&nonsense));
    let mut good = open(&hub, 2);
    assert_eq!(good.send(&Address::Ring(1), &[&[1; 64]]), 1);
    assert_eq!(drain(&mut port), [(Address::Ring(2), vec![1; 64])]);
}

#[test]
fn a_number_that_is_connected_cannot_be_claimed() {
    let hub = hub();
    let (mut port, mut good) = (open(&hub, 1), open(&hub, 2));
    assert_eq!(good.send(&Address::Ring(1), &[&[1; 64]]), 1);
    assert_eq!(drain(&mut port).len(), 1);
    let rogue = Rogue::connect(&hub, 1, 2);
    assert_eq!(drain(&mut port), []);
    assert!(!rogue.is_connected());
    // One that has left, noticed or not, makes room for its next life.
    drop(good);
    let next = Rogue::connect(&hub, 1, 2);
    assert_eq!(drain(&mut port), []);
    assert!(next.is_connected());
}

#[test]
fn a_peer_that_wakes_without_end_costs_no_more_than_looks() {
    let hub = hub();
    let mut port = open(&hub, 1);
    let rogue = Rogue::connect(&hub, 1, 7);
    port.look();
    let mut wakes = 0;
    while wakes < 100_000 && hub::wake(&rogue.socket) && wakes < 2_000 {
        wakes += 1;
    }
    port.look();
    assert!(rogue.is_connected());
    rogue.set(Word::Awake, awake::SLEEPS);
    assert_eq!(drain(&mut port), []);
}
