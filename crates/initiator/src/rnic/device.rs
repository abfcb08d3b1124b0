//! What the driver needs of its device and of the memory that they share.

/// The device, and memory that it reaches.
pub trait Device {
    /// A posted write of up to 64 bytes to a BAR. False, and nothing is written, if there is no room now.
    fn write(&mut self, bar: u8, offset: u32, data: &[u8]) -> bool;

    /// Asks for a register of 4 or 8 bytes; what was asked before is forgotten. False if that cannot be now.
    fn ask(&mut self, bar: u8, offset: u32, bytes: u16) -> bool;

    /// The answer, once it has come.
    fn answer(&mut self) -> Option<u64>;

    /// Stores into memory of the driver's.
    fn store(&mut self, address: u64, data: &[u8]);

    /// Loads from memory of the driver's.
    fn load(&self, address: u64, data: &mut [u8]);
}
