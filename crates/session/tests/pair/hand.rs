//! A peer made by hand: it says whatever the test wants.

use etherslot_session::{Config, Deliver, Session, State, parse_frame};
use etherslot_wire::NodeId;
use etherslot_wire::control::Hello;
use etherslot_wire::frame::{self, Ack, Header, flag};
use etherslot_wire::record::{self, Kind, Record};

/// Our epoch as the peer.
pub(crate) const EPOCH: u32 = 0xBBBB;

/// Counts records.
#[derive(Debug, Default)]
pub(crate) struct Count(pub(crate) u64);

impl Deliver for Count {
    fn record(&mut self, _kind: Kind, _stream: u16, _payload: &[u8]) {
        self.0 += 1;
    }
}

/// A session that is up, and the peer it talks to.
pub(crate) struct Hand {
    pub(crate) session: Session,
    pub(crate) now_ns: u64,
    pub(crate) packet_number: u64,
    pub(crate) delivered: Count,
}

impl Hand {
    /// Goes through the handshake; the peer has a receive window of so many frames.
    pub(crate) fn new(config: &Config, receive_window_frames: u16) -> Self {
        Self::with(config, receive_window_frames, 0)
    }

    /// The same with features.
    pub(crate) fn with(config: &Config, receive_window_frames: u16, features: u32) -> Self {
        let now_ns = 1_000_000_000;
        let session = Session::connect(config, 0xAAAA, now_ns);
        let mut hand = Self { session, now_ns, packet_number: 0, delivered: Count::default() };
        assert_eq!(hand.transmit().len(), 1);
        let hello = Hello { node: NodeId([7; 16]), max_frame_bytes: 1500, receive_window_frames, features };
        let mut body = [0; Hello::BYTES];
        hello.emit(&mut body).expect("room");
        let header = Header { ack: None, ..hand.header(frame::Kind::HelloAck) };
        hand.say(header, &body);
        let confirmed = hand.transmit();
        assert!(confirmed.iter().any(|(header, _)| header.dst_epoch == EPOCH));
        hand.say(hand.header(frame::Kind::Ack), &[]);
        assert_eq!(hand.session.state(), State::Up);
        hand
    }

    /// A header that is all right: sequence 0, nothing acknowledged, credit up to 0.
    pub(crate) fn header(&self, kind: frame::Kind) -> Header {
        Header {
            kind,
            flags: 0,
            body_len: 0,
            dst_epoch: self.session.epoch(),
            src_epoch: EPOCH,
            sequence: 0,
            packet_number: self.packet_number,
            tx_ts_ns: self.now_ns as u32,
            ack: Some(Ack { next: 0, credit: 0, receiver_cap_bytes: u32::MAX }),
            echo: None,
            sack: None,
        }
    }

    /// Sends it a frame, with the next packet number.
    pub(crate) fn say(&mut self, mut header: Header, body: &[u8]) {
        header.packet_number = self.packet_number;
        self.packet_number += 1;
        header.body_len = body.len() as u16;
        self.session.handle_frame(self.now_ns, &header, body, &mut self.delivered);
    }

    /// Sends it records in a Data frame.
    pub(crate) fn data(&mut self, sequence: u32, body: &[u8]) {
        self.say(Header { sequence, ..self.header(frame::Kind::Data) }, body);
    }

    /// Acknowledges.
    pub(crate) fn ack(&mut self, next: u32, credit: u32, asks: bool) {
        let header = Header {
            ack: Some(Ack { next, credit, receiver_cap_bytes: u32::MAX }),
            flags: if asks { flag::ACK_NOW } else { 0 },
            ..self.header(frame::Kind::Ack)
        };
        self.say(header, &[]);
    }

    /// What it sends now.
    pub(crate) fn transmit(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut out = Vec::new();
        self.session.transmit(self.now_ns, &mut |frames| {
            for frame in frames {
                let (header, body) = parse_frame(frame).expect("own frame");
                out.push((header, body.to_vec()));
            }
            frames.len()
        });
        out
    }

    /// Lets time pass up to its next timer, and takes what it sends then.
    pub(crate) fn tick(&mut self) -> Vec<(Header, Vec<u8>)> {
        self.now_ns = self.now_ns.max(self.session.deadline_ns().expect("a timer"));
        self.session.handle_timeout(self.now_ns);
        self.transmit()
    }
}

/// A part of a record, as bytes of a body.
pub(crate) fn part(stream: u16, stream_sequence: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; record::size(payload.len())];
    Record::emit_header(Kind::Tlp, flags, stream, stream_sequence, payload.len() as u16, &mut bytes)
        .expect("room");
    bytes[record::HEADER_BYTES..record::HEADER_BYTES + payload.len()].copy_from_slice(payload);
    bytes
}
