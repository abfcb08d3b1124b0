//! An active and a passive side with a link between them that loses, doubles and reorders.
#![allow(dead_code, unreachable_pub, missing_docs)] // Each test file uses a part.

use etherslot_seal::{
    Active, ActiveState, Channel, Credentials, Entropy, FabricKey, Heard, NodeKey, Passive, Peers, Rejected,
    Suites, Timing,
};
use etherslot_wire::handshake::MAX_BYTES;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

pub const MS: u64 = 1_000_000;
pub const TIMING: Timing = Timing { interval_ns: 100 * MS, patience_ns: 1000 * MS };

pub fn credentials(fabric: u8, node: u8) -> Credentials {
    Credentials {
        fabric: FabricKey::from_bytes([fabric; 32]),
        node: NodeKey::from_bytes([node; 32]),
        peers: Peers::Fabric,
        suites: Suites::ALL,
    }
}

pub struct PassiveSide {
    pub credentials: Credentials,
    pub passive: Passive<u32>,
    pub agreed: Vec<Channel>,
}

impl PassiveSide {
    pub fn new(credentials: Credentials) -> Self {
        Self::born(credentials, 9)
    }

    /// One whose secrets come from `seed`.
    pub fn born(credentials: Credentials, seed: u8) -> Self {
        let passive = Passive::new(Entropy::new([seed; 32]), TIMING.patience_ns);
        Self { credentials, passive, agreed: Vec::new() }
    }

    /// What it answers.
    pub fn hear(&mut self, now_ns: u64, from: u32, frame: &[u8]) -> Result<Option<Vec<u8>>, Rejected> {
        let mut reply = [0; MAX_BYTES];
        let agreed = &self.agreed;
        let is_taken = |epoch| agreed.iter().any(|channel| channel.epoch == epoch);
        let Self { credentials, passive, .. } = self;
        match passive.handle(now_ns, credentials, &from, frame, &is_taken, &mut reply)? {
            Heard::Reply(bytes) => Ok(Some(reply[..bytes].to_vec())),
            Heard::Agreed(channel) => {
                self.agreed.push(*channel);
                Ok(None)
            }
        }
    }
}

pub struct ActiveSide {
    pub credentials: Credentials,
    pub active: Active,
    pub address: u32,
    pub agreed: Option<Channel>,
}

impl ActiveSide {
    pub fn new(credentials: Credentials, epoch: u32, now_ns: u64) -> Self {
        let active = Active::new(&credentials, Entropy::new([7; 32]), TIMING, epoch, now_ns);
        Self { credentials, active, address: epoch, agreed: None }
    }

    pub fn say(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.active.handle_timeout(&self.credentials, now_ns);
        let mut said = None;
        self.active.transmit(now_ns, &mut |frame| {
            said = Some(frame.to_vec());
            true
        });
        said
    }

    pub fn hear(&mut self, now_ns: u64, frame: &[u8]) -> Result<(), Rejected> {
        let Self { credentials, active, .. } = self;
        if let Some(channel) = active.handle(now_ns, credentials, None, frame)? {
            assert!(self.agreed.replace(channel).is_none(), "keys are agreed on once");
        }
        Ok(())
    }
}

/// Frames on their way, each with the time at which it arrives.
pub struct Link {
    random: StdRng,
    loss: f64,
    frames: Vec<(u64, bool, Vec<u8>)>,
    /// All that ever was on it.
    pub seen: Vec<(bool, Vec<u8>)>,
}

impl Link {
    pub fn new(seed: u64, loss: f64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), loss, frames: Vec::new(), seen: Vec::new() }
    }

    pub fn send(&mut self, now_ns: u64, to_passive: bool, frame: &[u8]) {
        self.seen.push((to_passive, frame.to_vec()));
        for _ in 0..if self.random.random_bool(self.loss) { 2 } else { 1 } {
            if !self.random.random_bool(self.loss) {
                let delay_ns = self.random.random_range(20_000..400_000);
                self.frames.push((now_ns + delay_ns, to_passive, frame.to_vec()));
            }
        }
    }

    fn arrived(&mut self, now_ns: u64) -> Vec<(bool, Vec<u8>)> {
        let (now, later) = self.frames.drain(..).partition(|&(at_ns, ..)| at_ns <= now_ns);
        self.frames = later;
        let now: Vec<(u64, bool, Vec<u8>)> = now;
        now.into_iter().map(|(_, to_passive, frame)| (to_passive, frame)).collect()
    }
}

/// Lets both go on until `until_ns`, or both have the keys. The time then.
pub fn run(
    active: &mut ActiveSide,
    passive: &mut PassiveSide,
    link: &mut Link,
    mut now_ns: u64,
    until_ns: u64,
) -> u64 {
    while now_ns < until_ns {
        for (to_passive, frame) in link.arrived(now_ns) {
            if to_passive {
                if let Ok(Some(reply)) = passive.hear(now_ns, active.address, &frame) {
                    link.send(now_ns, false, &reply);
                }
            } else {
                let _ = active.hear(now_ns, &frame);
            }
        }
        if let Some(frame) = active.say(now_ns) {
            link.send(now_ns, true, &frame);
        }
        if active.active.state() == ActiveState::Failed
            || active.agreed.is_some() && !passive.agreed.is_empty()
        {
            break;
        }
        now_ns += 50_000;
    }
    now_ns
}
