//! Where a command's data are in memory: the Physical Region Descriptor Table of AHCI (1.3.1, 4.2.3.3), and the Scatter/Gather Entries
//! of the `SiI3132`.
//!
//! A [`List`] is walked, not expanded: it holds one window of memory, which is asked for piece by piece. The controllers first read
//! command headers and tables through the same window.

/// Bytes of a window.
pub(crate) const WINDOW_BYTES: usize = 4096;
/// Bytes of an entry, of either form.
const ENTRY_BYTES: u32 = 16;
/// Entries without data that one command may have.
const MAX_IDLE_ENTRIES: u32 = 1024;
/// How much of Scatter/Gather Tables is read at a time; one has 64 bytes.
const TABLES_BYTES: u32 = 256;

/// Flags of a Scatter/Gather Entry.
mod sge {
    pub(super) const TERMINATE: u32 = 1 << 31;
    pub(super) const LINK: u32 = 1 << 30;
    /// Data to the host that go nowhere.
    pub(super) const DISCARD: u32 = 1 << 29;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Physical Region Descriptors: so many are left behind the window.
    Regions(u32),
    /// Scatter/Gather Entries, up to one that says so.
    Tables,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Data from or to here. [`List::consume`] says how much was done.
    Data { address: u64, bytes: u32 },
    /// Data that go nowhere.
    Nowhere { bytes: u32 },
    /// More of the list is needed: [`List::wants`] until all of it has been asked for, then it has to come.
    Waiting,
    /// There is no more.
    End,
    /// It leads nowhere: misaligned, or without end.
    Bad,
}

/// The way through a list.
#[derive(Debug)]
pub(crate) struct List {
    window: Box<[u8]>,
    /// Where the window is in memory, how much of it is wanted, has been asked for, and has come.
    base: u64,
    wanted: u32,
    asked: u32,
    received: u32,
    /// The next entry in the window.
    at: u32,
    form: Form,
    /// The piece under way.
    address: u64,
    left: u32,
    is_nowhere: bool,
    is_last: bool,
    idle: u32,
    /// An entry that was used asked for an interrupt.
    pub(crate) interrupt: bool,
}

impl List {
    pub(crate) fn new() -> Self {
        Self {
            window: vec![0; WINDOW_BYTES].into_boxed_slice(),
            base: 0,
            wanted: 0,
            asked: 0,
            received: 0,
            at: 0,
            form: Form::Regions(0),
            address: 0,
            left: 0,
            is_nowhere: false,
            is_last: true,
            idle: 0,
            interrupt: false,
        }
    }

    /// Wants the `bytes` bytes from `base` on in the window.
    pub(crate) fn fetch(&mut self, base: u64, bytes: u32) {
        (self.base, self.wanted) = (base, bytes.min(WINDOW_BYTES as u32));
        (self.asked, self.received, self.at) = (0, 0, 0);
    }

    /// What should be asked for: address and bytes.
    pub(crate) fn wants(&self) -> Option<(u64, u32)> {
        let address = self.base.wrapping_add(u64::from(self.asked));
        (self.asked < self.wanted).then_some((address, self.wanted - self.asked))
    }

    /// Where what is asked for next goes in the window.
    pub(crate) fn window_at(&self) -> u32 {
        self.asked
    }

    /// `bytes` bytes have been asked for.
    pub(crate) fn asked(&mut self, bytes: u32) {
        self.asked += bytes;
    }

    /// Bytes have come, for `at` in the window. Every byte asked for comes once.
    pub(crate) fn received(&mut self, at: u32, data: &[u8]) {
        let at = at as usize;
        if let Some(place) = self.window.get_mut(at..at + data.len()) {
            place.copy_from_slice(data);
            self.received += data.len() as u32;
        }
    }

    /// Whether all that was wanted is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.received >= self.wanted
    }

    /// The window.
    pub(crate) fn window(&self) -> &[u8] {
        &self.window[..self.wanted as usize]
    }

    /// Begins with the Physical Region Descriptors at `at` of the window, of which there are `entries`.
    pub(crate) fn begin_regions(&mut self, at: u32, entries: u32) {
        let here = (self.wanted.saturating_sub(at) / ENTRY_BYTES).min(entries);
        self.begin(at, Form::Regions(entries - here));
        self.is_last = entries == 0;
    }

    /// Begins with the Scatter/Gather Entries at `at` of the window.
    pub(crate) fn begin_tables(&mut self, at: u32) {
        self.begin(at, Form::Tables);
    }

    fn begin(&mut self, at: u32, form: Form) {
        (self.at, self.form) = (at, form);
        (self.left, self.idle, self.is_last, self.interrupt) = (0, 0, false, false);
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if self.left > 0 {
                let bytes = self.left;
                let address = self.address;
                return if self.is_nowhere { Next::Nowhere { bytes } } else { Next::Data { address, bytes } };
            }
            if self.is_last {
                return Next::End;
            }
            if !self.is_complete() {
                return Next::Waiting;
            }
            if self.at + ENTRY_BYTES > self.wanted {
                let behind = self.base.wrapping_add(u64::from(self.wanted));
                match &mut self.form {
                    Form::Regions(0) => return Next::End,
                    Form::Regions(entries) => {
                        let now = (*entries).min(WINDOW_BYTES as u32 / ENTRY_BYTES);
                        *entries -= now;
                        self.fetch(behind, now * ENTRY_BYTES);
                    }
                    Form::Tables => self.fetch_tables(behind),
                }
                continue;
            }
            let at = self.at as usize;
            self.at += ENTRY_BYTES;
            let field = |at: usize| {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&self.window[at..at + 4]);
                u32::from_le_bytes(bytes)
            };
            let address = u64::from(field(at)) | u64::from(field(at + 4)) << 32;
            let (third, fourth) = (field(at + 8), field(at + 12));
            let is_usable = match self.form {
                Form::Regions(_) => self.region(address, fourth),
                Form::Tables => self.table_entry(address, third, fourth),
            };
            if !is_usable {
                return Next::Bad;
            }
        }
    }

    /// Whole words: bit 0 of the address is 0, that of the count of bytes less one is 1.
    fn region(&mut self, address: u64, count: u32) -> bool {
        (self.address, self.left) = (address & !1, (count & 0x3f_ffff | 1) + 1);
        self.is_nowhere = false;
        self.interrupt |= count >> 31 != 0;
        true
    }

    fn table_entry(&mut self, address: u64, bytes: u32, flags: u32) -> bool {
        if bytes == 0 || flags & sge::LINK != 0 {
            self.idle += 1;
            if self.idle > MAX_IDLE_ENTRIES {
                return false;
            }
        }
        if flags & sge::LINK != 0 {
            self.fetch_tables(address);
            return address.is_multiple_of(8);
        }
        (self.address, self.left) = (address, bytes);
        self.is_nowhere = flags & sge::DISCARD != 0;
        self.is_last = flags & sge::TERMINATE != 0;
        true
    }

    /// Some tables, within a page: what is behind the last one may not be there.
    fn fetch_tables(&mut self, address: u64) {
        let in_page = 4096 - (address & 4095) as u32;
        self.fetch(address, (in_page & !(ENTRY_BYTES - 1)).clamp(ENTRY_BYTES, TABLES_BYTES));
    }

    /// `bytes` of the piece are done.
    pub(crate) fn consume(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.left);
        self.left -= bytes;
        self.address = self.address.wrapping_add(u64::from(bytes));
    }
}
