//! Two nodes with several links between them, in virtual time.
//!
//! Node 0 connects, over link 0, and adds the others as paths; node 1 listens, and lets them join.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use etherslot_session::{Config, Heard, Listener, PathId, PathReport, Routes, Session, State, parse_frame};
use etherslot_wire::frame::{self, Header};
use etherslot_wire::record::Kind;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::pair::{LEAST, Link, MS, Sink, US, fill};

/// What waits for a link that is busy longer than this is dropped.
const QUEUE_NS: u64 = 2 * MS;

/// A node.
pub(crate) struct End {
    pub(crate) session: Option<Session>,
    pub(crate) sink: Sink,
    pub(crate) sent: Vec<u64>,
    /// For each path its link.
    pub(crate) routes: Routes<usize>,
    buffer: Vec<u8>,
}

impl End {
    pub(crate) fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session")
    }

    pub(crate) fn path(&self, link: usize) -> PathReport {
        let id = self.routes.path(&link).expect("a path");
        self.session.as_ref().and_then(|session| session.paths().nth(id.index())).expect("a path")
    }

    fn is_up(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.state() == State::Up)
    }

    /// Puts in one record if there is room.
    pub(crate) fn put(&mut self, stream: u16, len: usize) -> bool {
        let place = self.sent[stream as usize];
        fill(stream, place, len.max(LEAST), &mut self.buffer);
        let session = self.session.as_mut().expect("a session");
        let done = session.send(Kind::Tlp, stream, &self.buffer, 0, &[], self.buffer.len()).is_ok();
        self.sent[stream as usize] += u64::from(done);
        done
    }
}

/// A frame under way: when it lands, its number, the node, the link, its bytes.
type Flying = Reverse<(u64, u64, usize, usize, Vec<u8>)>;

/// The nodes and the links between them.
pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) ends: [End; 2],
    /// There and back.
    pub(crate) links: Vec<[Link; 2]>,
    listener: Listener<usize>,
    free_ns: Vec<[u64; 2]>,
    flying: BinaryHeap<Flying>,
    launched: u64,
    /// Frames put on each link, there and back.
    pub(crate) frames: Vec<[u64; 2]>,
    rng: SmallRng,
    /// When node 1 got a record last, and the longest that it had to wait for one.
    got_ns: u64,
    pub(crate) gap_ns: u64,
}

impl World {
    /// A session is up, and all links are paths of it that are up.
    pub(crate) fn new(seed: u64, config: &Config, links: &[Link]) -> Self {
        let mut world = Self::connected(seed, [config, config], links);
        let all = links.len() as u64;
        assert!(world.run_until(50 * MS, |world| world.paths_up() == [all; 2]), "{:?}", world.paths_up());
        world
    }

    /// A session is up, and the other links have been added as paths.
    pub(crate) fn connected(seed: u64, configs: [&Config; 2], links: &[Link]) -> Self {
        let now_ns = 5_000_000_000;
        let end = || End {
            session: None,
            sink: Sink::default(),
            sent: vec![0; 64],
            routes: Routes::new(0),
            buffer: Vec::new(),
        };
        let mut world = Self {
            now_ns,
            ends: [end(), end()],
            links: links.iter().map(|&link| [link; 2]).collect(),
            listener: Listener::new(configs[1]),
            free_ns: vec![[0; 2]; links.len()],
            flying: BinaryHeap::new(),
            launched: 0,
            frames: vec![[0; 2]; links.len()],
            rng: SmallRng::seed_from_u64(seed),
            got_ns: now_ns,
            gap_ns: 0,
        };
        world.ends[0].session = Some(Session::connect(configs[0], 0xAAAA, now_ns));
        assert!(world.run_until(900 * MS, |world| world.ends.iter().all(End::is_up)));
        for link in 1..links.len() {
            let now_ns = world.now_ns;
            let End { session, routes, .. } = &mut world.ends[0];
            routes.add(session.as_mut().expect("a session"), now_ns, link);
        }
        world
    }

    pub(crate) fn paths_up(&self) -> [u64; 2] {
        let ups = |session: &Session| session.paths().filter(|path| path.is_up).count() as u64;
        [0, 1].map(|at| self.ends[at].session.as_ref().map_or(0, ups))
    }

    /// Further links, on which nothing has been sent.
    pub(crate) fn add_links(&mut self, links: usize) {
        self.links.resize(links, [Link { is_cut: true, ..Link::default() }; 2]);
        self.free_ns.resize(links, [0; 2]);
        self.frames.resize(links, [0; 2]);
    }

    pub(crate) fn cut(&mut self, link: usize, is_cut: bool) {
        self.links[link].iter_mut().for_each(|way| way.is_cut = is_cut);
    }

    fn launch(&mut self, from: usize, link: usize, frame: &[u8]) {
        let way = self.links[link][from];
        self.frames[link][from] += 1;
        let free_ns = self.free_ns[link][from].max(self.now_ns);
        if free_ns - self.now_ns > QUEUE_NS {
            return;
        }
        let free_ns = free_ns + (frame.len() as u64 * 1_000_000_000).checked_div(way.rate).unwrap_or(0);
        self.free_ns[link][from] = free_ns;
        if way.is_cut || frame.len() > way.longest || self.rng.random_ratio(way.loss, 1_000_000) {
            return;
        }
        self.launched += 1;
        self.flying.push(Reverse((free_ns + way.delay_ns, self.launched, 1 - from, link, frame.to_vec())));
    }

    /// A frame arrives; the path it came on, if it was taken for one of the session.
    pub(crate) fn land(&mut self, to: usize, link: usize, bytes: &[u8]) -> Option<PathId> {
        let Ok((header, body)) = parse_frame(bytes) else { return None };
        let now_ns = self.now_ns;
        let end = &mut self.ends[to];
        if let Some(session) = end.session.as_mut().filter(|session| session.epoch() == header.dst_epoch) {
            let path = match to {
                0 => end.routes.path(&link)?,
                _ => end.routes.path_or_join(session, now_ns, &link, &header)?,
            };
            session.handle_frame_on(now_ns, path, &header, body, &mut end.sink);
            return Some(path);
        }
        let mut reply = [0; 576];
        if header.kind == frame::Kind::Hello && to == 1 {
            match self.listener.handle_hello(now_ns, link, &header, body, 0xBBBB, &mut reply) {
                Heard::Reply(bytes) => self.launch(1, link, &reply[..bytes]),
                Heard::Accept(session) => {
                    self.ends[1].session = Some(*session);
                    self.ends[1].routes = Routes::new(link);
                }
                Heard::Dropped(_) => {}
            }
        }
        None
    }

    /// What a node sends now, by link.
    pub(crate) fn caught(&mut self, from: usize) -> Vec<(usize, Vec<u8>)> {
        let mut out = Vec::new();
        let now_ns = self.now_ns;
        let End { session, routes, .. } = &mut self.ends[from];
        if let Some(session) = session {
            session.transmit_paths(now_ns, &mut |path, frames| {
                let link = routes.address(path).expect("a route");
                out.extend(frames.iter().map(|frame| (link, frame.to_vec())));
                frames.len()
            });
        }
        out
    }

    pub(crate) fn step_nodes(&mut self) {
        for at in 0..2 {
            let now_ns = self.now_ns;
            if let Some(session) = &mut self.ends[at].session
                && session.deadline_ns().is_some_and(|deadline| deadline <= now_ns)
            {
                session.handle_timeout(now_ns);
            }
            for (link, frame) in self.caught(at) {
                self.launch(at, link, &frame);
            }
        }
    }

    /// Goes on to the next event, at the latest until `end_ns`. False at the end.
    pub(crate) fn step(&mut self, end_ns: u64) -> bool {
        self.step_nodes();
        let landing = self.flying.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let timers = self.ends.iter().filter_map(|end| end.session.as_ref()?.deadline_ns());
        let next_ns = timers.chain(landing).min().unwrap_or(u64::MAX);
        let next_ns = if next_ns <= self.now_ns { self.now_ns + US } else { next_ns };
        if next_ns > end_ns {
            self.now_ns = self.now_ns.max(end_ns);
            return false;
        }
        self.now_ns = next_ns;
        while self.flying.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= next_ns) {
            let Some(Reverse((_, _, to, link, bytes))) = self.flying.pop() else { break };
            let records = self.ends[1].sink.records;
            self.land(to, link, &bytes);
            if self.ends[1].sink.records != records {
                self.gap_ns = self.gap_ns.max(self.now_ns - self.got_ns);
                self.got_ns = self.now_ns;
            }
        }
        true
    }

    /// Runs until the condition holds; false if it does not within `limit_ns`.
    pub(crate) fn run_until(&mut self, limit_ns: u64, done: impl Fn(&Self) -> bool) -> bool {
        let end_ns = self.now_ns + limit_ns;
        while !done(self) {
            if !self.step(end_ns) {
                return done(self);
            }
        }
        true
    }

    /// Forgets how long node 1 has waited so far.
    pub(crate) fn watch_gap(&mut self) {
        self.got_ns = self.now_ns;
        self.gap_ns = 0;
    }

    /// Node 0 has always something to send, for so long; the bytes that node 1 got meanwhile.
    pub(crate) fn bulk(&mut self, ns: u64) -> u64 {
        let (end_ns, before) = (self.now_ns + ns, self.ends[1].sink.bytes);
        loop {
            while self.ends[0].put(1, 1396) {}
            if !self.step(end_ns) {
                return self.ends[1].sink.bytes - before;
            }
        }
    }

    /// Node 0 sends a short record now and then, for so long.
    pub(crate) fn trickle(&mut self, every_ns: u64, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.ends[0].put(1, 64);
            let next_ns = self.now_ns + every_ns;
            while self.step(next_ns) {}
        }
    }

    pub(crate) fn is_all_delivered(&self) -> bool {
        (0..2).all(|at| {
            let got = &self.ends[1 - at].sink.next;
            let sent = self.ends[at].sent.iter().enumerate();
            sent.into_iter().all(|(stream, &sent)| got.get(stream).copied().unwrap_or(0) == sent)
        })
    }

    /// A header of node 0's session, as a stranger on another path would forge it.
    pub(crate) fn forged(&mut self, number: u64) -> Header {
        let (src_epoch, dst_epoch) = (self.ends[0].session().epoch(), self.ends[1].session().epoch());
        Header {
            kind: frame::Kind::Ack,
            flags: frame::flag::ACK_NOW,
            body_len: 0,
            dst_epoch,
            src_epoch,
            sequence: 0,
            packet_number: number,
            tx_ts_ns: self.now_ns as u32,
            ack: Some(frame::Ack { next: 0, credit: 0, receiver_cap_bytes: u32::MAX }),
            echo: None,
            sack: None,
        }
    }
}
