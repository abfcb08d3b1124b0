//! What a session sends: Data, acknowledgements, and the frames of its beginning and end.

use etherslot_wire::frame::{self, Ack, CHECK_BYTES, Header, flag};

use crate::path::PathId;
use crate::send::{BURST_FRAMES, Cause};
use crate::session::{DeadReason, Session, State};

/// Takes frames that leave on a path; says how many, from the front, it took.
type Send<'a> = &'a mut dyn FnMut(PathId, &[&[u8]]) -> usize;

impl Session {
    /// Hands the frames that may leave now to `send`, in bursts of at most 64; `send` says how many, from the front, it
    /// has taken. The rest stays first in line. Whether any was taken. For an owner that knows one path only;
    /// [`Session::transmit_paths`] names the path of each burst.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&[&[u8]]) -> usize) -> bool {
        self.transmit_paths(now_ns, &mut |_, frames| send(frames))
    }

    /// Hands the frames that may leave now to `send`, with the path on which they are to.
    pub fn transmit_paths(&mut self, now_ns: u64, send: &mut dyn FnMut(PathId, &[&[u8]]) -> usize) -> bool {
        self.now_ns = self.now_ns.max(now_ns);
        match self.state {
            State::Connecting => self.transmit_hello(now_ns, send),
            State::Up => {
                let mut any = self.transmit_data(now_ns, send);
                for at in 0..self.sender.used_paths() {
                    any |= self.transmit_ack(now_ns, at, send);
                }
                any
            }
            State::Closing => self.transmit_close(now_ns, send),
            State::Dead(_) => false,
        }
    }

    fn header(&mut self, now_ns: u64, at: usize, kind: frame::Kind) -> Header {
        let acknowledger = &self.acknowledgers[at];
        let ack = Ack {
            next: self.receiver.next(),
            credit: self.receiver.credit(),
            receiver_cap_bytes: self.receiver.cap_bytes(),
        };
        Header {
            kind,
            flags: if acknowledger.is_congested() { flag::CONGESTED } else { 0 },
            body_len: 0,
            dst_epoch: self.peer_epoch,
            src_epoch: self.epoch,
            sequence: self.sender.next(),
            packet_number: self.next_packet_number,
            tx_ts_ns: now_ns.max(self.last_tx_ns + 1) as u32,
            ack: (self.peer_epoch != 0).then_some(ack),
            echo: acknowledger.echo(now_ns).filter(|_| self.peer_epoch != 0),
            sack: if self.state == State::Up { self.receiver.sack() } else { None },
        }
    }

    fn transmit_data(&mut self, now_ns: u64, send: Send<'_>) -> bool {
        let mut any = false;
        let mut tried = 0;
        while let Some((at, most)) = self.sender.choose(tried, self.owing()) {
            self.burst.clear();
            self.sender.plan(now_ns, (at, most), &mut self.burst);
            if self.burst.frames().is_empty() {
                tried |= 1 << at;
                continue;
            }
            let mut header = self.header(now_ns, at, frame::Kind::Data);
            let first_tx_ns = now_ns.max(self.last_tx_ns + 1);
            for (index, planned) in self.burst.frames_mut().iter_mut().enumerate() {
                header.flags = header.flags & flag::CONGESTED
                    | if self.is_header_checked { flag::HEADER_CHECK } else { 0 }
                    | if planned.asks_ack { flag::ACK_NOW } else { 0 }
                    | if planned.cause == Cause::New { 0 } else { flag::RETRANSMISSION };
                header.sequence = planned.sequence;
                header.packet_number = self.next_packet_number + index as u64;
                header.tx_ts_ns = (first_tx_ns + index as u64) as u32;
                header.body_len = self.sender.pack.body_bytes(planned.sequence);
                planned.header_bytes = header.len();
                self.sender.pack.emit(planned.sequence, &header);
                // One SACK block a burst is enough.
                header.sack = None;
            }
            let mut frames: [&[u8]; BURST_FRAMES] = [&[]; BURST_FRAMES];
            let planned = self.burst.frames();
            for (frame, planned) in frames.iter_mut().zip(planned) {
                *frame = self.sender.pack.frame(planned.sequence, planned.header_bytes);
            }
            let taken = send(PathId::new(at), &frames[..planned.len()]).min(planned.len());
            self.counters.frames_sent += taken as u64;
            self.counters.bytes_sent += frames[..taken].iter().map(|frame| frame.len() as u64).sum::<u64>();
            for (index, planned) in planned[..taken].iter().enumerate() {
                let tx_ns = first_tx_ns + index as u64;
                self.sender.commit(now_ns, tx_ns, at, planned, &mut self.counters);
            }
            if taken > 0 {
                self.next_packet_number += taken as u64;
                self.last_tx_ns = first_tx_ns + taken as u64 - 1;
                self.acknowledgers[at].on_sent();
                any = true;
            }
            if taken < planned.len() {
                tried |= 1 << at;
            }
        }
        any
    }

    /// The paths that owe an acknowledgement, a bit each.
    fn owing(&self) -> u8 {
        let joined = self.acknowledgers[..self.sender.used_paths()].iter().enumerate();
        joined.fold(0, |owing, (at, of)| owing | u8::from(of.is_owed()) << at)
    }

    fn transmit_ack(&mut self, now_ns: u64, at: usize, send: Send<'_>) -> bool {
        let asks = self.sender.paths[at].health.is_ask_due();
        if !asks && !self.acknowledgers[at].is_due(now_ns) {
            return false;
        }
        let mut header = self.header(now_ns, at, frame::Kind::Ack);
        if asks {
            header.flags |= flag::ACK_NOW;
        }
        if !self.transmit_control(now_ns, at, &mut header, |_| Some(0), send) {
            return false;
        }
        self.counters.acks_sent += 1;
        self.counters.heartbeats_sent += u64::from(asks);
        self.sender.paths[at].health.on_asked();
        self.acknowledgers[at].on_sent();
        true
    }

    fn transmit_hello(&mut self, now_ns: u64, send: Send<'_>) -> bool {
        if !self.handshake.is_due(now_ns) {
            return false;
        }
        let hello = self.config.hello();
        self.peer_epoch = self.handshake.confirms(now_ns);
        let mut header = self.header(now_ns, 0, frame::Kind::Hello);
        let taken = self.transmit_control(now_ns, 0, &mut header, |body| hello.emit(body), send);
        if taken {
            self.handshake.on_sent(now_ns);
        }
        taken
    }

    fn transmit_close(&mut self, now_ns: u64, send: Send<'_>) -> bool {
        let Some(closing) = self.closing.as_ref().filter(|closing| now_ns >= closing.next_ns) else {
            return false;
        };
        let reason = closing.reason;
        let mut taken = false;
        for at in 0..self.sender.used_paths() {
            let mut header = self.header(now_ns, at, frame::Kind::Close);
            let emit = |body: &mut [u8]| {
                *body.first_mut()? = reason as u8;
                Some(1)
            };
            taken |= self.transmit_control(now_ns, at, &mut header, emit, send);
        }
        if let Some(closing) = self.closing.as_mut().filter(|_| taken) {
            closing.frames_left -= 1;
            closing.next_ns = now_ns + closing.interval_ns;
            if closing.frames_left == 0 {
                self.state = State::Dead(DeadReason::Closed(reason));
            }
        }
        taken
    }

    /// Hands over a frame that takes no sequence.
    fn transmit_control(
        &mut self,
        now_ns: u64,
        at: usize,
        header: &mut Header,
        body: impl FnOnce(&mut [u8]) -> Option<usize>,
        send: Send<'_>,
    ) -> bool {
        let start = header.len();
        let Some(bytes) = self.control.get_mut(start..).and_then(body) else { return false };
        header.body_len = bytes as u16;
        let Some(frame) = self.control.get_mut(..start + bytes + CHECK_BYTES) else { return false };
        let written = header.emit(frame).and_then(|_| frame::put_check(frame, crate::crc32c));
        if written.is_none() || send(PathId::new(at), &[frame]) == 0 {
            return false;
        }
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += (start + bytes + CHECK_BYTES) as u64;
        self.next_packet_number += 1;
        self.last_tx_ns = now_ns.max(self.last_tx_ns + 1);
        true
    }
}
