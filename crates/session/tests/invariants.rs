//! What holds of a session whatever it hears, whenever it is asked, and however much the Port takes.

mod pair;

use std::collections::HashSet;

use etherslot_session::{
    Config, Controller, DeadReason, Deliver, Heard, Limits, Listener, Mode, Session, State, parse_frame,
};
use etherslot_wire::frame::{Kind, MIN_FRAME_BYTES};
use etherslot_wire::record;
use pair::{MS, US};
use proptest::prelude::*;

/// What happens next; `at` is a node.
#[derive(Clone, Debug)]
enum Step {
    /// Time goes by.
    Wait { ns: u64 },
    /// As much time goes by as it takes the next timer of either node to run out.
    Timer,
    /// A frame arrives that was sent so many before the last, this time or once more.
    Deliver { back: usize },
    /// The node puts in a record.
    Put { at: usize, stream: u16, len: usize },
    /// The Port takes no more than this until the next such step.
    Port { takes: usize },
    /// The node is told an earlier time than before.
    Backwards { at: usize, ns: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3 * MS).prop_map(|ns| Step::Wait { ns }),
        2 => (0..100 * US).prop_map(|ns| Step::Wait { ns }),
        1 => (0..400 * MS).prop_map(|ns| Step::Wait { ns }),
        4 => Just(Step::Timer),
        8 => (0..12usize).prop_map(|back| Step::Deliver { back }),
        4 => (0..2usize, 0..3u16, 0..4112usize).prop_map(|(at, stream, len)| Step::Put { at, stream, len }),
        1 => prop_oneof![Just(0usize), Just(1), Just(2), Just(usize::MAX), Just(usize::MAX)]
            .prop_map(|takes| Step::Port { takes }),
        1 => (0..2usize, 0..5 * MS).prop_map(|(at, ns)| Step::Backwards { at, ns }),
    ]
}

struct Nothing;

impl Deliver for Nothing {
    fn record(&mut self, _kind: record::Kind, _stream: u16, _payload: &[u8]) {}
}

/// How the nodes are run, and what they are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The Port takes everything, timers run before frames are handed over; what is due has to be done, but for what a
    /// retransmission has left behind.
    Prompt,
    /// The Port may be full and timers late; what is due has to be done.
    Slow,
    /// The same; deadlines are not looked at.
    Unwatched,
}

/// Two nodes, and all frames that they ever sent.
struct Walk {
    now_ns: u64,
    nodes: [Option<Session>; 2],
    listener: Listener<u8>,
    sent: Vec<(usize, Vec<u8>)>,
    takes: usize,
    owner: Owner,
    fresh: u32,
    /// The next packet number and the last timestamp, by node.
    numbers: [Option<(u64, u32)>; 2],
    answers: HashSet<(u32, u64)>,
}

impl Walk {
    fn new(config: &Config, now_ns: u64, owner: Owner) -> Self {
        Self {
            now_ns,
            nodes: [Some(Session::connect(config, 0xA, now_ns)), None],
            listener: Listener::new(config),
            sent: Vec::new(),
            takes: usize::MAX,
            owner,
            fresh: 0xB0,
            numbers: [None; 2],
            answers: HashSet::new(),
        }
    }

    /// Lets a node send at a time, and checks what every frame must keep; how many left.
    fn transmit(&mut self, at: usize, now_ns: u64) -> usize {
        let Some(session) = &mut self.nodes[at] else { return 0 };
        let (mut left, before) = (self.takes, self.sent.len());
        let sent = &mut self.sent;
        session.transmit(now_ns, &mut |frames| {
            let taken = frames.len().min(left);
            left = left.saturating_sub(taken);
            sent.extend(frames[..taken].iter().map(|frame| (at, frame.to_vec())));
            taken
        });
        for (_, frame) in &self.sent[before..] {
            let (header, _) = parse_frame(frame).expect("own frame");
            assert_eq!(header.src_epoch, session.epoch());
            assert!(header.src_epoch != 0 && (header.dst_epoch != 0 || header.kind == Kind::Hello));
            if let Some((number, ts_ns)) = self.numbers[at] {
                assert_eq!(header.packet_number, number, "packet numbers are a row without gaps");
                let later_ns = header.tx_ts_ns.wrapping_sub(ts_ns).cast_signed();
                assert!(later_ns > 0, "timestamps only grow: {later_ns}");
            }
            self.numbers[at] = Some((header.packet_number + 1, header.tx_ts_ns));
        }
        self.sent.len() - before
    }

    /// Runs the timers of a node, and holds it to them.
    fn run(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let Some(session) = &mut self.nodes[at] else { return };
        session.handle_timeout(now_ns);
        let once = format!("{session:?}");
        session.handle_timeout(now_ns);
        assert_eq!(format!("{session:?}"), once, "two calls at one time are one");
        self.transmit(at, now_ns);
        if self.takes < usize::MAX || self.owner == Owner::Unwatched {
            return;
        }
        let deadline_ns = |walk: &Self| walk.nodes[at].as_ref().and_then(Session::deadline_ns);
        let due_ns = deadline_ns(self);
        assert!(due_ns.is_none_or(|due_ns| due_ns > now_ns), "due at {due_ns:?}, done at {now_ns}");
        assert_eq!(self.transmit(at, now_ns), 0, "what may leave has left");
        // Until then there is nothing to do.
        if let Some(early_ns) = due_ns.map(|due_ns| now_ns + (due_ns - now_ns) / 2)
            && let Some(session) = &mut self.nodes[at]
        {
            session.handle_timeout(early_ns);
            assert_eq!(self.transmit(at, early_ns), 0, "nothing leaves before it is due");
            // That nothing is acknowledged is seen to be the end with any call, and has no timer of its own.
            let is_stalled = |session: &Session| session.state() == State::Dead(DeadReason::Stalled);
            assert!(
                deadline_ns(self) == due_ns || self.nodes[at].as_ref().is_some_and(is_stalled),
                "a timer is not moved by looking at it"
            );
            self.now_ns = early_ns;
        }
    }

    fn run_timers(&mut self, at: usize) {
        let now_ns = self.now_ns;
        if let Some(session) = &mut self.nodes[at] {
            session.handle_timeout(now_ns);
        }
        self.transmit(at, now_ns);
    }

    fn deliver(&mut self, back: usize) {
        let Some(index) = self.sent.len().checked_sub(back + 1) else { return };
        let (from, bytes) = self.sent[index].clone();
        let (header, body) = parse_frame(&bytes).expect("own frame");
        let to = 1 - from;
        if self.owner == Owner::Prompt {
            self.run_timers(to);
        }
        if let Some(session) = self.nodes[to].as_mut().filter(|session| session.epoch() == header.dst_epoch) {
            session.handle_frame(self.now_ns, &header, body, &mut Nothing);
        } else if to == 1 && header.kind == Kind::Hello {
            self.fresh += 1;
            let mut reply = [0; MIN_FRAME_BYTES];
            match self.listener.handle_hello(self.now_ns, 0, &header, body, self.fresh, &mut reply) {
                Heard::Reply(len) => {
                    let (answer, _) = parse_frame(&reply[..len]).expect("own frame");
                    assert!(self.answers.insert((answer.src_epoch, answer.packet_number)));
                    self.sent.push((1, reply[..len].to_vec()));
                }
                Heard::Accept(session) => {
                    let answers = self.answers.iter().filter(|(epoch, _)| *epoch == session.epoch()).count();
                    // The row of packet numbers goes on from the answers of this epoch; its times are its own.
                    self.numbers[1] = Some((answers as u64, (self.now_ns as u32).wrapping_sub(1)));
                    self.nodes[1] = Some(*session);
                }
                Heard::Dropped(_) => {}
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait { ns } => self.now_ns += ns,
            Step::Timer => {
                let due = self.nodes.iter().flatten().filter_map(Session::deadline_ns).min();
                self.now_ns = self.now_ns.max(due.unwrap_or(0));
            }
            Step::Deliver { back } => self.deliver(back),
            Step::Put { at, stream, len } => {
                if let Some(session) = &mut self.nodes[at] {
                    let _ = session.send(record::Kind::Tlp, stream, &[], 0, &vec![1; len], len);
                }
            }
            Step::Port { takes } => self.takes = takes,
            Step::Backwards { at, ns } => {
                let earlier_ns = self.now_ns - ns;
                if let Some(session) = &mut self.nodes[at] {
                    session.handle_timeout(earlier_ns);
                }
                self.transmit(at, earlier_ns);
            }
        }
        for at in 0..2 {
            self.run(at);
        }
    }
}

/// Begins shortly before the timestamps wrap.
const START_NS: u64 = (1 << 33) - 20 * MS;

fn config(is_classic: bool, is_impatient: bool, is_paced: bool) -> Config {
    let config = Config {
        streams: 3,
        window_frames: 16,
        mode: if is_classic { Mode::Classic } else { Mode::Selective },
        dead_after_ns: if is_impatient { 8 * MS } else { 1_000 * MS },
        ..Config::default()
    };
    let unpaced = |limits: &Limits| Box::new(pair::Window::new(limits)) as Box<dyn Controller>;
    if is_paced { config } else { Config { controller: unpaced, ..config } }
}

fn any_config() -> impl Strategy<Value = Config> {
    any::<[bool; 3]>()
        .prop_map(|[is_classic, is_impatient, is_paced]| config(is_classic, is_impatient, is_paced))
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..120)
}

fn walk(config: &Config, steps: &[Step], owner: Owner) {
    let mut walk = Walk::new(config, START_NS, owner);
    walk.run(0);
    // Mostly there is a session.
    for _ in 0..4 {
        walk.step(&Step::Deliver { back: 0 });
    }
    for step in steps.iter().filter(|step| owner != Owner::Prompt || !matches!(step, Step::Port { .. })) {
        walk.step(step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_due_is_done_when_it_is_due_and_neither_before_nor_twice(
        is_impatient in any::<bool>(),
        steps in any_steps(),
    ) {
        walk(&config(false, is_impatient, false), &steps, Owner::Prompt);
    }

    #[test]
    fn packet_numbers_are_a_row_and_timestamps_grow_whatever_the_port_takes(
        config in any_config(),
        steps in any_steps(),
    ) {
        walk(&config, &steps, Owner::Unwatched);
    }

    /// The same in classic mode too, and if retransmissions have to wait for the Port or for pacing.
    #[test]
    fn what_is_due_is_done_when_it_is_due_whatever_holds_frames_back(
        config in any_config(),
        steps in any_steps(),
    ) {
        walk(&config, &steps, Owner::Slow);
    }
}
