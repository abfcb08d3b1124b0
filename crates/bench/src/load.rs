//! A load, and what it measured.

use serde::{Deserialize, Serialize};

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Read, Self::Write];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// The word of fio and of others for accesses at random places.
    pub(crate) fn random(self) -> &'static str {
        match self {
            Self::Read => "randread",
            Self::Write => "randwrite",
        }
    }
}

/// Accesses at random places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) direction: Direction,
    /// Bytes of one access.
    pub(crate) block_bytes: u32,
    /// Accesses in flight.
    pub(crate) depth: u32,
}

impl Load {
    pub(crate) fn name(self) -> String {
        format!("{} {} QD{}", self.direction.random(), size(self.block_bytes), self.depth)
    }
}

/// Bytes in the largest binary unit that divides them.
pub(crate) fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// What one turn measured. Times are completion latencies in microseconds, from those who tell them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Accesses a second.
    pub(crate) iops: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p999_us: Option<f64>,
    /// CPU time of the serving side for one access, microseconds; with polling, waiting included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_us: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stand_in_the_largest_unit_that_divides_them() {
        let load = Load { direction: Direction::Write, block_bytes: 4096, depth: 32 };
        assert_eq!(load.name(), "randwrite 4 KiB QD32");
        assert_eq!([512, 1536, 1 << 20].map(size), ["512 B", "1536 B", "1 MiB"]);
    }
}
