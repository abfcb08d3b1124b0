//! The nodes of a run: what is under test, and what stands for the daemons around it.

pub(crate) mod host;
pub(crate) mod io_box;
pub(crate) mod station;

use std::collections::VecDeque;
use std::fmt;

use etherslot_node::Security;
use etherslot_node::seal::{Credentials, Entropy, FabricKey, NodeKey, Peers, Suites};
use etherslot_session::{Config as SessionConfig, Mode, Session};
use etherslot_wire::NodeId;

use crate::checkers::verdict::{Rule, Verdict};
use crate::network::Address;
use crate::plan::{Plan, SessionPlan};
use crate::random::Random;

/// Frames that a Port hands over at once.
const BURST: usize = 64;

/// A node's receive queue: frames that wait until it runs.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    frames: VecDeque<(Address, Vec<u8>)>,
    most: usize,
}

impl Inbox {
    /// A queue of at most `most` frames.
    pub(crate) fn new(most: usize) -> Self {
        Self { frames: VecDeque::new(), most }
    }

    /// Takes a frame, or drops it if the queue is full.
    pub(crate) fn push(&mut self, from: Address, frame: Vec<u8>) {
        if self.frames.len() < self.most {
            self.frames.push_back((from, frame));
        }
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
    }

    /// Hands over a burst; how many frames it was.
    fn receive(&mut self, mut take: impl FnMut(&Address, &[u8])) -> usize {
        let burst = self.frames.len().min(BURST);
        for (from, frame) in self.frames.drain(..burst) {
            take(&from, &frame);
        }
        burst
    }
}

/// The set-up of a node's sessions.
fn session_config(plan: &Plan, node: usize) -> SessionConfig {
    let SessionPlan { classic, max_frame_bytes, window_frames, backlog_frames, first_sequence, .. } =
        plan.sessions[node];
    let SessionPlan { ack, dead_after_ns, heartbeat_ns, rto_min_ns, .. } = plan.sessions[node];
    let mut id = [0; 16];
    id[15] = node as u8 + 1;
    let id = if plan.keys { node_key(node).public().node_id("sim") } else { NodeId(id) };
    SessionConfig {
        node: id,
        is_link_intact: plan.keys,
        max_frame_bytes,
        window_frames,
        backlog_frames,
        mode: if classic { Mode::Classic } else { Mode::Selective },
        first_sequence,
        rto_min_ns,
        ack_every_frames: ack.0,
        ack_delay_ns: ack.1,
        dead_after_ns,
        heartbeat_ns,
        ..SessionConfig::default()
    }
}

fn node_key(node: usize) -> NodeKey {
    NodeKey::from_bytes([node as u8 + 1; 32])
}

/// What a node protects this life of its sessions with, if the plan has keys.
fn security(plan: &Plan, node: usize, random: &mut Random) -> Option<Security> {
    plan.keys.then(|| Security {
        credentials: Credentials {
            fabric: FabricKey::from_bytes([0xFA; 32]),
            node: node_key(node),
            peers: Peers::Fabric,
            suites: if node.is_multiple_of(3) { Suites::WITHOUT_AES } else { Suites::ALL },
        },
        entropy: Entropy::new(std::array::from_fn(|_| random.bits() as u8)),
    })
}

/// Reports counters that have to be zero where nobody forges frames.
fn check_zero(verdict: &Verdict, who: &dyn fmt::Display, counters: &[(&str, u64)]) {
    if let Some((name, count)) = counters.iter().find(|(_, count)| *count != 0) {
        verdict.broken(Rule::Counters, || format!("{who} counts {count} {name}"));
    }
}

/// Checks what a session has counted, and that it is within its window.
fn check_session(verdict: &Verdict, node: usize, peer: Address, session: &Session, window_frames: usize) {
    let who = format_args!("node{node} with {peer}");
    if session.unacked_frames() > window_frames {
        verdict.broken(Rule::Memory, || {
            format!("{who}: {} frames are not acknowledged", session.unacked_frames())
        });
    }
    let counters = session.counters();
    check_zero(
        verdict,
        &who,
        &[
            ("malformed frames", counters.dropped_malformed),
            ("frames beyond the credit", counters.dropped_sequence),
            ("records that were refused", counters.records_refused),
        ],
    );
}

/// What a node sends through: says how many frames were taken.
pub(crate) type Send<'a> = dyn FnMut(&Address, &[&[u8]]) -> usize + 'a;

/// What came of letting a node run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Frames that it received.
    pub(crate) frames: usize,
    /// It did something.
    pub(crate) progress: bool,
    /// It never came to rest.
    pub(crate) endless: bool,
}

/// More rounds than this without time going on are not work any more.
const MOST_ROUNDS: usize = 20_000;

/// Lets a node go round until it has nothing left to do.
fn rounds(mut round: impl FnMut() -> (usize, bool)) -> Ran {
    let mut ran = Ran::default();
    for _ in 0..MOST_ROUNDS {
        let (frames, progress) = round();
        ran.frames += frames;
        if frames == 0 && !progress {
            return ran;
        }
        ran.progress = true;
    }
    Ran { endless: true, ..ran }
}
