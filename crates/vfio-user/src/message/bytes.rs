//! Numbers in byte strings, in the machine's byte order.

/// Takes numbers off the front of a byte string.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*number)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}
