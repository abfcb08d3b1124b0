//! EFE in hardware against the session in software: a session in both modes, either side active, with frames lost, and every
//! byte checked both ways.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use etherslot_cosim::Efe;
use etherslot_session::{CloseReason, Config, Deliver, Heard, Listener, Mode, Session, State, parse_frame};
use etherslot_wire::frame;
use etherslot_wire::record::{self, FIRST, HEADER_BYTES, Kind, LAST, Record};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const STREAM: u16 = 3;

/// The model that `./run rtl cosim` made.
fn model() -> PathBuf {
    std::env::var_os("ETHERSLOT_COSIM_EFE")
        .expect("ETHERSLOT_COSIM_EFE names the model: ./run rtl cosim makes it")
        .into()
}

/// The bytes of the `place`-th record of a direction.
fn content(direction: u8, place: u64) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(place << 8 | u64::from(direction));
    let len = if rng.random_ratio(1, 2) { rng.random_range(12..100) } else { rng.random_range(100..1396) };
    (0..len).map(|_| rng.random()).collect()
}

/// Takes records and holds them against what they should be.
#[derive(Default)]
struct Sink {
    records: u64,
    bytes: u64,
}

impl Sink {
    fn take(&mut self, direction: u8, payload: &[u8]) {
        assert!(
            payload == content(direction, self.records),
            "record {} of direction {direction}",
            self.records
        );
        self.records += 1;
        self.bytes += payload.len() as u64;
    }
}

struct ToSoftware<'a>(&'a mut Sink);

impl Deliver for ToSoftware<'_> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        assert_eq!((kind, stream), (Kind::Tlp, STREAM));
        self.0.take(0, payload);
    }
}

/// A frame on its way: when it comes, order, whether to the software, bytes.
type Flying = Reverse<(u64, u64, bool, Vec<u8>)>;

/// Hardware and software with a link between them.
struct World {
    efe: Efe,
    session: Option<Session>,
    listener: Listener<u8>,
    rng: SmallRng,
    loss_per_million: u32,
    /// Frames of which a bit is turned.
    damage_per_million: u32,
    delay_ns: u64,
    /// How much later than that a frame comes at most, whatever others do.
    jitter_ns: u64,
    /// Frames on their way.
    flying: BinaryHeap<Flying>,
    order: u64,
    from_hardware: Sink,
    to_hardware: Sink,
    sent_by_hardware: u64,
    sent_by_software: u64,
    /// Parts received by the hardware's user, for the stream sequence.
    parts: u16,
}

impl World {
    fn new(seed: u32, mode: Mode, is_hardware_active: bool, loss_per_million: u32) -> Self {
        let config = Config {
            node: etherslot_wire::NodeId([7; 16]),
            mode,
            one_record_a_frame: true,
            port_rate: Some(1_000_000_000),
            noise_ns: 0,
            rto_min_ns: MS,
            ..Config::default()
        };
        let mut efe = Efe::load(&model(), seed, [9; 16]).expect("a model");
        efe.open(is_hardware_active, mode == Mode::Classic, 0x1234_0000 | seed);
        let session = (!is_hardware_active).then(|| Session::connect(&config, 0x4567_0000 | seed, 0));
        Self {
            efe,
            listener: Listener::new(&config),
            session,
            rng: SmallRng::seed_from_u64(u64::from(seed)),
            loss_per_million,
            damage_per_million: 0,
            delay_ns: 10 * US,
            jitter_ns: 0,
            flying: BinaryHeap::new(),
            order: 0,
            from_hardware: Sink::default(),
            to_hardware: Sink::default(),
            sent_by_hardware: 0,
            sent_by_software: 0,
            parts: 0,
        }
    }

    fn launch(&mut self, to_software: bool, mut frame: Vec<u8>) {
        if self.rng.random_ratio(self.damage_per_million, 1_000_000) {
            let at = self.rng.random_range(0..frame.len());
            frame[at] ^= 1 << self.rng.random_range(0..8);
        }
        if !self.rng.random_ratio(self.loss_per_million, 1_000_000) {
            self.order += 1;
            let at_ns = self.efe.now_ns() + self.delay_ns + self.rng.random_range(0..=self.jitter_ns);
            self.flying.push(Reverse((at_ns, self.order, to_software, frame)));
        }
    }

    fn handle_frame(&mut self, bytes: &[u8]) {
        let Ok((header, body)) = parse_frame(bytes) else {
            assert!(self.damage_per_million > 0, "the hardware makes good frames");
            return;
        };
        let now_ns = self.efe.now_ns();
        if let Some(session) = self.session.as_mut().filter(|session| session.epoch() == header.dst_epoch) {
            session.handle_frame(now_ns, &header, body, &mut ToSoftware(&mut self.from_hardware));
        } else if header.kind == frame::Kind::Hello {
            let mut reply = [0; 576];
            match self.listener.handle_hello(now_ns, 0, &header, body, self.rng.random(), &mut reply) {
                Heard::Reply(bytes) => self.launch(false, reply[..bytes].to_vec()),
                Heard::Accept(session) => self.session = Some(*session),
                Heard::Dropped(why) => panic!("a Hello of the hardware was dropped: {why:?}"),
            }
        }
    }

    /// One clock of the hardware, and what the software has to do by then.
    fn step(&mut self) {
        let mut stirred = false;
        if let Some(frame) = self.efe.clock() {
            self.launch(true, frame);
        }
        let now_ns = self.efe.now_ns();
        while self.flying.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= now_ns) {
            let Some(Reverse((_, _, to_software, bytes))) = self.flying.pop() else { break };
            if to_software {
                self.handle_frame(&bytes);
                stirred = true;
            } else {
                self.efe.land(bytes);
            }
        }
        while let Some(body) = self.efe.bodies.pop_front() {
            let mut rest = &body[..];
            while !rest.is_empty() {
                let (record, behind) = Record::parse(rest).expect("bodies come out as they went in");
                assert_eq!((record.stream, record.stream_sequence), (STREAM, self.parts));
                assert_eq!(record.flags, FIRST | LAST);
                self.parts = self.parts.wrapping_add(1);
                self.to_hardware.take(1, record.payload);
                rest = behind;
            }
        }
        if let Some(session) = &mut self.session
            && (stirred || session.deadline_ns().is_some_and(|deadline| deadline <= now_ns))
        {
            session.handle_timeout(now_ns);
            self.transmit();
        }
    }

    fn transmit(&mut self) {
        let now_ns = self.efe.now_ns();
        let mut out = Vec::new();
        if let Some(session) = &mut self.session {
            session.transmit(now_ns, &mut |frames| {
                out.extend(frames.iter().map(|frame| frame.to_vec()));
                frames.len()
            });
        }
        for frame in out {
            self.launch(false, frame);
        }
    }

    /// A session has ended: all begins anew.
    fn forget(&mut self) {
        self.session = None;
        (self.from_hardware, self.to_hardware) = (Sink::default(), Sink::default());
        (self.sent_by_hardware, self.sent_by_software, self.parts) = (0, 0, 0);
    }

    fn is_up(&self) -> bool {
        self.efe.is_up() && self.session.as_ref().is_some_and(|session| session.state() == State::Up)
    }

    fn until(&mut self, end_ns: u64, what: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.step();
            assert!(
                self.efe.now_ns() < end_ns,
                "{what}: {:?}, {:?}",
                self.efe.stats(),
                self.session.as_ref().map(Session::counters)
            );
        }
    }

    /// Both sides send so many records, as fast as they can.
    fn exchange(&mut self, records: u64) {
        let end_ns = self.efe.now_ns() + 400 * MS;
        while self.from_hardware.records < records || self.to_hardware.records < records {
            while self.sent_by_hardware < records && self.efe.waiting() < 2 {
                let payload = content(0, self.sent_by_hardware);
                let mut body = vec![0; record::size(payload.len())];
                emit(&mut body, self.sent_by_hardware as u16, &payload);
                assert!(body.len() <= self.efe.body_bytes());
                self.efe.send(body);
                self.sent_by_hardware += 1;
            }
            let mut put = false;
            while self.sent_by_software < records {
                let payload = content(1, self.sent_by_software);
                let session = self.session.as_mut().expect("a session");
                let (head, data) = payload.split_at(12);
                if session.send(Kind::Tlp, STREAM, head, 0, data, payload.len()).is_err() {
                    break;
                }
                self.sent_by_software += 1;
                put = true;
            }
            if put {
                self.transmit();
            }
            self.step();
            assert!(
                self.efe.now_ns() < end_ns,
                "not all came: {:?}, {:?}",
                self.efe.stats(),
                self.session.as_ref().map(Session::counters)
            );
        }
    }
}

fn emit(body: &mut [u8], place: u16, payload: &[u8]) {
    body[0..2].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    body[2] = Kind::Tlp as u8;
    body[3] = FIRST | LAST;
    body[4..6].copy_from_slice(&STREAM.to_be_bytes());
    body[6..8].copy_from_slice(&place.to_be_bytes());
    body[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
}

fn talks(mode: Mode, is_hardware_active: bool, loss_per_million: u32, records: u64) {
    let mut world = World::new(1, mode, is_hardware_active, loss_per_million);
    world.until(30 * MS, "no session", World::is_up);
    assert_eq!(world.efe.is_classic(), mode == Mode::Classic);
    let begin_ns = world.efe.now_ns();
    world.exchange(records);
    let stats = world.efe.stats();
    let session = world.session.as_ref().expect("a session");
    println!(
        "{mode:?}, hardware active {is_hardware_active}, loss {loss_per_million}: {} + {} bytes in {} us; {stats:?}",
        world.from_hardware.bytes,
        world.to_hardware.bytes,
        (world.efe.now_ns() - begin_ns) / US,
    );
    assert_eq!((stats.violations, stats.check, stats.refused, stats.full, stats.sessions), (0, 0, 0, 0, 1));
    assert_eq!(session.state(), State::Up);
    assert_eq!(
        stats.again == 0,
        loss_per_million == 0,
        "the hardware sends again what is lost, and only that"
    );
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_clean_link_carries_both_ways_selective() {
    talks(Mode::Selective, false, 0, 600);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_clean_link_carries_both_ways_classic() {
    talks(Mode::Classic, false, 0, 600);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn the_hardware_can_be_the_active_side() {
    talks(Mode::Selective, true, 0, 200);
    talks(Mode::Classic, true, 0, 200);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn one_frame_in_a_hundred_lost_is_made_good_selective() {
    talks(Mode::Selective, false, 10_000, 2000);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn one_frame_in_a_hundred_lost_is_made_good_classic() {
    talks(Mode::Classic, false, 10_000, 2000);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_session_that_is_closed_ends_on_both_sides() {
    let mut world = World::new(2, Mode::Selective, false, 0);
    world.until(30 * MS, "no session", World::is_up);
    world.exchange(20);
    world.efe.close();
    let end_ns = world.efe.now_ns() + 50 * MS;
    world.until(end_ns, "still up", |world| {
        !world.efe.is_up()
            && world.session.as_ref().is_some_and(|session| matches!(session.state(), State::Dead(_)))
    });
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_damaged_frame_is_as_good_as_lost() {
    let mut world = World::new(3, Mode::Selective, true, 10_000);
    world.damage_per_million = 10_000;
    world.until(300 * MS, "no session", World::is_up);
    world.exchange(1000);
    let stats = world.efe.stats();
    assert!(stats.check + stats.refused > 0 && stats.again > 0, "{stats:?}");
    assert_eq!((stats.violations, stats.sessions), (0, 1));
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn after_a_session_comes_the_next() {
    let mut world = World::new(4, Mode::Selective, true, 0);
    for session in 1..=3 {
        world.until(session * 300 * MS, "no session", World::is_up);
        world.exchange(50);
        assert_eq!(u64::from(world.efe.stats().sessions), session);
        world.session.as_mut().expect("a session").close(CloseReason::Shutdown);
        world.transmit();
        let end_ns = world.efe.now_ns() + MS;
        world.until(end_ns, "still up", |world| !world.efe.is_up());
        world.forget();
    }
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn whatever_the_link_does_all_comes_once_and_in_order() {
    for seed in 10..18 {
        // Go-Back-N crawls where frames overtake each other.
        let (mode, jitter_ns) = if seed % 2 == 0 { (Mode::Selective, 20 * US) } else { (Mode::Classic, 0) };
        let mut world = World::new(seed, mode, seed % 4 < 2, 10_000 << (seed % 3));
        world.damage_per_million = 5_000;
        world.jitter_ns = jitter_ns;
        world.until(900 * MS, "no session", World::is_up);
        world.exchange(300);
        let stats = world.efe.stats();
        assert_eq!((stats.violations, stats.full, stats.sessions), (0, 0, 1), "seed {seed}: {stats:?}");
    }
}
