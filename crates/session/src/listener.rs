//! The passive side of the handshake.
//!
//! A Hello is answered with an epoch of our own and remembered in a small table. A session comes into being only when
//! a Hello confirms that epoch, from the same address and the same epoch of the peer, and it takes the entry with it:
//! Hellos replayed from an earlier life can fill the table for a moment, but never make or disturb a session.

use etherslot_wire::control::Hello;
use etherslot_wire::frame::{CHECK_BYTES, Echo, Header, Kind, put_check};

use crate::config::Config;
use crate::session::{Accepted, Session};

/// What became of a Hello.
#[derive(Debug)]
pub enum Heard {
    /// The first so many bytes of `reply` are to be sent back.
    Reply(usize),
    /// A session has begun.
    Accept(Box<Session>),
    /// Nothing.
    Dropped(Refusal),
}

/// Why a Hello was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a Hello, or its body is none that a session could come of.
    #[error("not a Hello")]
    Malformed,
    /// It confirms an epoch that is not half-open: late, replayed, or pushed out of the table.
    #[error("confirms an epoch that is not half-open")]
    Unknown,
    /// The fresh epoch is 0 or half-open already, or `reply` is too short: the caller's error.
    #[error("no fresh epoch or no room for the reply")]
    Caller,
}

/// A session that waits for its confirmation.
#[derive(Clone, Copy, Debug)]
struct HalfOpen<A> {
    from: A,
    peer_epoch: u32,
    epoch: u32,
    hello: Hello,
    first_sequence: u32,
    /// `HelloAck`s sent: the packet numbers used up.
    replies: u64,
    since_ns: u64,
    /// Timestamp of the last of them.
    last_tx_ns: u64,
}

/// Takes Hellos; `A` is an address of the Port.
#[derive(Debug)]
pub struct Listener<A> {
    config: Config,
    half_open: Vec<HalfOpen<A>>,
}

impl<A: Copy + Eq> Listener<A> {
    /// A listener whose sessions are set up so.
    pub fn new(config: &Config) -> Self {
        let config = config.clamped();
        Self { half_open: Vec::with_capacity(config.half_open as usize), config }
    }

    /// Whether this epoch, the `dst_epoch` of a frame, is that of a half-open session.
    pub fn is_half_open(&self, epoch: u32) -> bool {
        self.half_open.iter().any(|entry| entry.epoch == epoch)
    }

    /// Takes a Hello whose `dst_epoch` is 0 or half-open. `fresh_epoch` is a random number, not 0 and not the epoch of
    /// a session; it is used if this Hello is a new one. A reply is written to `reply`, of at least
    /// [`etherslot_wire::frame::MIN_FRAME_BYTES`].
    pub fn handle_hello(
        &mut self,
        now_ns: u64,
        from: A,
        header: &Header,
        body: &[u8],
        fresh_epoch: u32,
        reply: &mut [u8],
    ) -> Heard {
        let Some(hello) = Hello::parse(body).filter(|_| header.kind == Kind::Hello && header.src_epoch != 0)
        else {
            return Heard::Dropped(Refusal::Malformed);
        };
        let lifetime_ns = self.config.dead_after_ns;
        self.half_open.retain(|entry| now_ns.saturating_sub(entry.since_ns) < lifetime_ns);
        if header.dst_epoch != 0 {
            return self.confirm(now_ns, from, header);
        }
        let known = self
            .half_open
            .iter()
            .position(|entry| entry.from == from && entry.peer_epoch == header.src_epoch);
        let at = match known {
            Some(at) => at,
            None if fresh_epoch == 0 || self.is_half_open(fresh_epoch) => {
                return Heard::Dropped(Refusal::Caller);
            }
            None => {
                if self.half_open.len() >= self.config.half_open as usize {
                    // In the order of their coming: the first is the oldest.
                    self.half_open.remove(0);
                }
                self.half_open.push(HalfOpen {
                    from,
                    peer_epoch: header.src_epoch,
                    epoch: fresh_epoch,
                    hello,
                    first_sequence: header.sequence,
                    replies: 0,
                    since_ns: now_ns,
                    last_tx_ns: 0,
                });
                self.half_open.len() - 1
            }
        };
        match self.reply(now_ns, at, header, reply) {
            Some(bytes) => Heard::Reply(bytes),
            None => Heard::Dropped(Refusal::Caller),
        }
    }

    fn reply(&mut self, now_ns: u64, at: usize, header: &Header, reply: &mut [u8]) -> Option<usize> {
        let entry = self.half_open.get_mut(at)?;
        let answer = Header {
            kind: Kind::HelloAck,
            flags: 0,
            body_len: Hello::BYTES as u16,
            dst_epoch: entry.peer_epoch,
            src_epoch: entry.epoch,
            sequence: self.config.first_sequence,
            packet_number: entry.replies,
            tx_ts_ns: now_ns.max(entry.last_tx_ns + 1) as u32,
            ack: None,
            echo: Some(Echo { ts_ns: header.tx_ts_ns, hold_ns: 0 }),
            sack: None,
        };
        let bytes = answer.len() + Hello::BYTES + CHECK_BYTES;
        let reply = reply.get_mut(..bytes)?;
        let at = answer.emit(reply)?;
        self.config.hello().emit(reply.get_mut(at..)?)?;
        put_check(reply, crate::crc32c)?;
        entry.replies += 1;
        entry.last_tx_ns = now_ns.max(entry.last_tx_ns + 1);
        Some(bytes)
    }

    fn confirm(&mut self, now_ns: u64, from: A, header: &Header) -> Heard {
        let known = self.half_open.iter().position(|entry| {
            entry.epoch == header.dst_epoch && entry.from == from && entry.peer_epoch == header.src_epoch
        });
        let Some(at) = known else { return Heard::Dropped(Refusal::Unknown) };
        let entry = self.half_open.remove(at);
        // What this node began before belongs to lives that are over: a confirmation of one that comes late must not end
        // this one.
        let mut index = 0;
        self.half_open.retain(|other| {
            index += 1;
            index > at || other.hello.node != entry.hello.node
        });
        Heard::Accept(Box::new(Session::accept(
            &self.config,
            now_ns,
            header,
            &Accepted {
                epoch: entry.epoch,
                peer_epoch: entry.peer_epoch,
                peer: entry.hello,
                peer_first_sequence: entry.first_sequence,
                packet_number: entry.replies,
                last_tx_ns: entry.last_tx_ns,
            },
        )))
    }
}
