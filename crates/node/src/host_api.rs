//! What the host node is to its surroundings: the guest's accesses in, and what they cause out.

/// What the host node needs of the guests that use its slots.
pub trait Guest {
    /// Reads guest memory; false if any byte of it is not there or not readable by devices.
    fn read(&mut self, slot: usize, address: u64, data: &mut [u8]) -> bool;

    /// Writes guest memory; false, and nothing need be written, if any byte is not there or not writable by devices.
    fn write(&mut self, slot: usize, address: u64, data: &[u8]) -> bool;

    /// The device interrupts. All of its writes before have been made.
    fn interrupt(&mut self, slot: usize, interrupt: Interrupt);

    /// The access of this number has ended. A read's data is all ones where the device did not answer.
    fn completed(&mut self, slot: usize, access: u64, data: &[u8]);

    /// The slot's device was attached and enumerated. Called again each time it comes back after its loss.
    fn attached(&mut self, slot: usize, device: &Device);

    /// The box wants the slot's device back within `window_ns`. True: the guest is asked to stop using it, and
    /// [`HostNode::release`](crate::HostNode::release) follows; the box may take it away when the time is over. False:
    /// it may have it at once.
    fn recalled(&mut self, _slot: usize, _window_ns: u64) -> bool {
        false
    }

    /// The box lets the guest keep the device after all.
    fn kept(&mut self, _slot: usize) {}

    /// The slot's device was lost: its box is dead or out of reach, or gave it up. Accesses read all ones until it is back.
    fn lost(&mut self, slot: usize);
}

/// An interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The message of this vector (MSI or MSI-X, whichever [`Interrupts`] says).
    Message(u16),
    /// The level of INTA.
    IntX(bool),
}

/// Which interrupts the guest has set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// None, or `INTx`, which needs no setting up.
    #[default]
    Legacy,
    /// MSI with this many vectors, a power of two up to 32.
    Msi(u16),
    /// MSI-X.
    MsiX,
}

/// A device, as its guest has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Vendor and device ID.
    pub id: (u16, u16),
    /// Bytes of each BAR, 0 where there is none.
    pub bar_bytes: [u64; 6],
    /// MSI vectors it can have.
    pub msi_vectors: u16,
    /// MSI-X vectors it has, 0 if hidden.
    pub msix_vectors: u16,
    /// Whether it has an interrupt pin.
    pub intx: bool,
}

/// Why an access is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Longer than 4096 bytes or outside the space or BAR.
    Range,
    /// Too many accesses are under way for this slot.
    Busy,
}

/// What becomes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// [`Guest::completed`] follows.
    Later,
    /// It is done; a read's answer is all ones.
    AllOnes,
}
