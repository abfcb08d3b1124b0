//! Any bytes against what a stranger, and a node of the fabric gone bad, can reach: the handshake of both sides, and the opening of
//! sealed frames.
//!
//! An input is a row of steps, each a byte that says what, a length, and so many bytes. Those are taken as they are, or change a
//! frame that was said before.

#![no_main]

use etherslot_seal::{
    Active, ActiveState, Channel, Credentials, Entropy, FabricKey, Heard, NodeKey, Opener, Passive, Peers,
    Sealer, Suite, Suites, Timing, TrafficSecret,
};
use etherslot_wire::frame::MAX_FRAME_BYTES;
use etherslot_wire::handshake::{Handshake, MAX_BYTES};
use libfuzzer_sys::fuzz_target;

const MS: u64 = 1_000_000;

struct World {
    now_ns: u64,
    credentials: [Credentials; 2],
    active: Active,
    passive: Passive<u8>,
    said: Vec<(bool, Vec<u8>)>,
    agreed: [Option<Channel>; 2],
}

fn credentials(node: u8) -> Credentials {
    Credentials {
        fabric: FabricKey::from_bytes([1; 32]),
        node: NodeKey::from_bytes([node; 32]),
        peers: Peers::Fabric,
        suites: Suites::ALL,
    }
}

impl World {
    fn new() -> Self {
        let credentials = [credentials(2), credentials(3)];
        let timing = Timing { interval_ns: 100 * MS, patience_ns: 1000 * MS };
        let active = Active::new(&credentials[0], Entropy::new([4; 32]), timing, 77, 0);
        let passive = Passive::new(Entropy::new([5; 32]), 1000 * MS);
        Self { now_ns: 0, credentials, active, passive, said: Vec::new(), agreed: [None, None] }
    }

    /// The active side says what is due.
    fn speak(&mut self) {
        self.active.handle_timeout(&self.credentials[0], self.now_ns);
        let said = &mut self.said;
        self.active.transmit(self.now_ns, &mut |frame| {
            said.push((true, frame.to_vec()));
            true
        });
    }

    fn hear(&mut self, to_passive: bool, from: u8, frame: &[u8]) {
        if to_passive {
            let mut reply = [0; MAX_BYTES];
            let heard =
                self.passive.handle(self.now_ns, &self.credentials[1], &from, frame, &|_| false, &mut reply);
            match heard {
                Ok(Heard::Reply(bytes)) => self.said.push((false, reply[..bytes].to_vec())),
                Ok(Heard::Agreed(channel)) => self.agreed[1] = Some(*channel),
                Err(_) => {}
            }
        } else if let Ok(Some(channel)) = self.active.handle(self.now_ns, &self.credentials[0], None, frame) {
            assert!(self.agreed[0].replace(channel).is_none(), "keys are agreed on once");
            assert_eq!(self.active.state(), ActiveState::Finishing);
        }
    }
}

/// Frames of handshakes and sealed ones, as bytes alone.
fn opened(bytes: &[u8]) {
    let mut room = [0; MAX_FRAME_BYTES];
    let mut sealed = vec![0; bytes.len() + 16];
    for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
        let mut opener = Opener::new(suite, &TrafficSecret::new([6; 32]));
        assert!(opener.open(bytes, &mut room).is_err(), "a frame opens that nobody sealed");
        let mut sealer = Sealer::new(suite, TrafficSecret::new([6; 32]));
        // A packet number far away asks for as many derivations, which a session's never does.
        let mut frame = bytes.to_vec();
        if let Some(number) = frame.get_mut(16..20) {
            number.fill(0);
        }
        if let Ok(length) = sealer.seal(&frame, &mut sealed) {
            let _ = opener.open(&sealed[..length], &mut room);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut world = World::new();
    let mut rest = input;
    while let [what, length, bytes @ ..] = rest {
        let (bytes, behind) = bytes.split_at(bytes.len().min(usize::from(*length)));
        rest = behind;
        let to_passive = what & 0x80 != 0;
        match what & 7 {
            0 => world.now_ns += u64::from(*length) * 10 * MS,
            1 => world.speak(),
            // The last frame said reaches whom it is for; or one before it.
            2 => {
                let back = usize::from(*length) % (world.said.len() + 1);
                if let Some((to_passive, frame)) = world.said.iter().rev().nth(back).cloned() {
                    world.hear(to_passive, 9, &frame);
                }
            }
            3 => world.hear(to_passive, 9, bytes),
            4 => opened(bytes),
            // The last frame said with some bits turned.
            5 => {
                if let Some((to_passive, mut frame)) = world.said.last().cloned() {
                    let turned = bytes.iter().any(|bits| *bits != 0);
                    frame.iter_mut().zip(bytes).for_each(|(byte, bits)| *byte ^= bits);
                    let before = world.passive.counters().agreed;
                    world.hear(to_passive, 9, &frame);
                    assert!(!turned || world.passive.counters().agreed == before);
                }
            }
            6 => world.hear(to_passive, *length, bytes),
            _ => {
                let _ = Handshake::parse(bytes);
            }
        }
    }
    if let [Some(active), Some(passive)] = &world.agreed {
        assert_eq!((active.epoch, active.peer_epoch), (passive.peer_epoch, passive.epoch));
    }
});
