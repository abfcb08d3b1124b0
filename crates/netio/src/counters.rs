//! What a Port counts.

/// Counters of one Port since it was opened. Bytes are those of session frames, without link headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames given to the link.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Calls of `send` that ended early because the link had no room.
    pub tx_no_room: u64,
    /// Frames dropped because the link or the interface was down, or the peer's port closed.
    pub tx_link_down: u64,
    /// Frames dropped because they are longer than the link takes.
    pub tx_too_long: u64,
    /// Frames dropped because the address belongs to another kind of link.
    pub tx_foreign: u64,
    /// Frames dropped because the kernel refused them for another reason (a firewall, no route).
    pub tx_refused: u64,
    /// Frames handed over.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames lost because the receive buffer of this Port was full.
    pub rx_overflow: u64,
    /// Frames dropped because they were longer than this Port's buffers.
    pub rx_truncated: u64,
    /// Frames dropped because they were not for this Port: another station's, a VLAN's, or its own.
    pub rx_foreign: u64,
    /// Errors that `receive` met, such as the interface going down.
    pub rx_errors: u64,
    /// Peers cut off because what they wrote to shared memory, or asked for, cannot be.
    pub cut_off: u64,
}

impl Counters {
    pub(crate) fn sent(&mut self, frames: &[&[u8]]) {
        self.tx_frames += frames.len() as u64;
        self.tx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }

    pub(crate) fn received(&mut self, frame: &[u8]) {
        self.rx_frames += 1;
        self.rx_bytes += frame.len() as u64;
    }

    /// Every counter with its name, for exporters.
    pub fn named(&self) -> [(&'static str, u64); 14] {
        [
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("tx_no_room", self.tx_no_room),
            ("tx_link_down", self.tx_link_down),
            ("tx_too_long", self.tx_too_long),
            ("tx_foreign", self.tx_foreign),
            ("tx_refused", self.tx_refused),
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
            ("rx_overflow", self.rx_overflow),
            ("rx_truncated", self.rx_truncated),
            ("rx_foreign", self.rx_foreign),
            ("rx_errors", self.rx_errors),
            ("cut_off", self.cut_off),
        ]
    }
}
