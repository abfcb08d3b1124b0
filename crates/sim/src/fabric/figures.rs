//! What was measured.

/// Least, middle and most of some times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// The least, ns.
    pub least_ns: u64,
    /// Half of them are not more, ns.
    pub p50_ns: u64,
    /// 99 of 100 are not more, ns.
    pub p99_ns: u64,
    /// The most, ns.
    pub most_ns: u64,
}

impl Spread {
    pub(super) fn of(mut times_ns: Vec<u64>) -> Self {
        times_ns.sort_unstable();
        let at = |percent: usize| {
            let index = (times_ns.len() * percent).div_ceil(100);
            times_ns.get(index.max(1) - 1).copied().unwrap_or(0)
        };
        Self { count: times_ns.len(), least_ns: at(0), p50_ns: at(50), p99_ns: at(99), most_ns: at(100) }
    }
}

/// Traffic that every node hears.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Frames in a second.
    pub frames_a_second: u64,
    /// Bits of them with all of Ethernet around them, in a second.
    pub bits_a_second: u64,
    /// The most frames in 10 ms.
    pub peak_frames: u64,
}

/// After the switch was away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Storm {
    /// The traffic in the second after it.
    pub load: Load,
    /// Until every device is with its host again.
    pub leases_ns: Option<u64>,
    /// Until every listener knows it.
    pub known_ns: Option<u64>,
    /// Devices that were another host's for a moment.
    pub strayed: usize,
}

/// All of it.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Heartbeats when nothing happens.
    pub rest: Load,
    /// Time of this machine to take one heartbeat, ns.
    pub cost: u64,
    /// Until a node that comes late knows all devices, ns.
    pub joined_ns: u64,
    /// From the death of a host until a listener finds it silent.
    pub found: Spread,
    /// From an order until the asker hears that it is done.
    pub moves: Spread,
    /// The restart of the switch.
    pub storm: Storm,
}
