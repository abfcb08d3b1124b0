//! An input as a row of choices.

/// The choices left in an input; at its end all are 0.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// Yes once in `times`.
    pub fn once_in(&mut self, times: u8) -> bool {
        self.u8() % times == times - 1
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound <= 256 { self.u8() as usize % bound } else { self.u16() as usize % bound }
    }

    /// One of `things`, of which there is at least one.
    pub fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    /// A number of those that limits are made of, or any.
    pub fn number(&mut self) -> u64 {
        let shape = self.u8();
        let low = u64::from(shape & 15);
        match shape >> 4 {
            0..=3 => low,
            4 | 5 => u64::from(self.u8()),
            6 | 7 => low << 12,
            8 => u64::from(self.u16()),
            9 => u64::MAX - low,
            10 => (u64::MAX << 12) - (low << 12),
            11 => 1 << (self.u8() % 64),
            12 => (1 << (self.u8() % 64)) - 1,
            13 => u64::from(u32::MAX) - low,
            14 => u64::from(self.u32()),
            _ => self.u64(),
        }
    }

    /// The next `count` bytes, or as many as there are.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
