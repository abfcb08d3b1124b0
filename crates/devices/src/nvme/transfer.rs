//! From the data pointer of a command to the pieces of memory it names: PRPs (NVMe Base 1.4, 4.3) and SGLs (4.4).
//!
//! A [`Transfer`] is walked, not expanded: it holds one window of a list at a time, says which piece of memory comes next or which
//! part of a list it needs, and checks each entry as it comes to it. So a list may be as long as it likes, and one
//! that gets nowhere is given up.

use super::bits::PAGE_BYTES;
use super::command::Sqe;
use super::status::Status;

/// Bytes of a list held at a time: a PRP list is fetched page by page.
pub(crate) const WINDOW_BYTES: usize = PAGE_BYTES as usize;

/// SGL descriptors without data (empty ones, chains) that one command may have.
const MAX_IDLE_DESCRIPTORS: u32 = 1024;

const SGL_BYTES: usize = 16;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Data from or to here. [`Transfer::consume`] says how much was done.
    Data { address: u64, bytes: u32 },
    /// Part of a list has to be read from here. [`Transfer::asked`] says how much was asked for.
    List { address: u64, bytes: u32 },
    /// The part of a list that has been asked for.
    Waiting,
    /// Nothing: all is done.
    End,
    /// The data pointer is wrong.
    Bad(Status),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One more page.
    SecondPrp(u64),
    PrpList,
    /// A Segment: its last descriptor is of the next one.
    SglSegment,
    /// The Last Segment: data only.
    SglLast,
    /// There is no more than what is under way.
    Exhausted,
}

/// The way through a data pointer.
#[derive(Debug)]
pub(crate) struct Transfer {
    to_host: bool,
    total: u32,
    done: u32,
    /// The piece under way.
    address: u64,
    left: u32,
    kind: Kind,
    idle: u32,
    /// Of the list: what is not asked for, what is on its way, and what has come.
    list_address: u64,
    list_left: u32,
    asked: u32,
    received: u32,
    window: Box<[u8]>,
    /// The next entry of the window, and its end once it is known.
    at: u32,
    wanted: u32,
}

impl Transfer {
    /// For one slot; used again and again.
    pub(crate) fn new() -> Self {
        Self {
            to_host: false,
            total: 0,
            done: 0,
            address: 0,
            left: 0,
            kind: Kind::Exhausted,
            idle: 0,
            list_address: 0,
            list_left: 0,
            asked: 0,
            received: 0,
            window: vec![0; WINDOW_BYTES].into_boxed_slice(),
            at: 0,
            wanted: 0,
        }
    }

    /// Begins with the data pointer of `sqe`, for `total` bytes (0: none).
    pub(crate) fn begin(&mut self, sqe: &Sqe, total: u32, to_host: bool) -> Result<(), Status> {
        (self.to_host, self.total, self.done, self.idle) = (to_host, total, 0, 0);
        (self.left, self.at, self.wanted, self.asked, self.received) = (0, 0, 0, 0, 0);
        self.list_left = 0;
        self.kind = Kind::Exhausted;
        if total == 0 {
            return Ok(());
        }
        if sqe.psdt() == 0 {
            let first = sqe.prp1();
            if first & 3 != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            self.address = first;
            self.left = total.min(PAGE_BYTES - page_offset(first));
            self.second_prp(sqe.prp2())
        } else {
            self.descriptor(sqe.sgl1(), None)?;
            if matches!(self.kind, Kind::SglSegment | Kind::SglLast) { self.sgl_entry() } else { Ok(()) }
        }
    }

    /// How many bytes of data are done: where in the Buf the next piece starts.
    pub(crate) fn done(&self) -> u32 {
        self.done
    }

    /// How many bytes of data there are.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// No more of it.
    pub(crate) fn stop(&mut self) {
        self.total = self.done;
        self.left = 0;
    }

    /// The part of a list that should be asked for, even if there is data to be moved before it is needed.
    pub(crate) fn wants_list(&self) -> Option<(u64, u32)> {
        (self.asked < self.wanted && self.done < self.total)
            .then_some((self.list_address, self.wanted - self.asked))
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            if self.done == self.total {
                return Next::End;
            }
            if self.left > 0 {
                return Next::Data { address: self.address, bytes: self.left };
            }
            if let Some((address, bytes)) = self.wants_list() {
                return Next::List { address, bytes };
            }
            if self.received < self.wanted {
                return Next::Waiting;
            }
            let step = match self.kind {
                Kind::SecondPrp(page) => {
                    self.kind = Kind::Exhausted;
                    self.prp_page(page)
                }
                Kind::PrpList => self.prp_entry(),
                Kind::SglSegment | Kind::SglLast => self.sgl_entry(),
                Kind::Exhausted => Err(Status::DATA_SGL_LENGTH_INVALID),
            };
            if let Err(status) = step {
                return Next::Bad(status);
            }
        }
    }

    /// `bytes` of the data piece are done.
    pub(crate) fn consume(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.left);
        self.done += bytes;
        self.left -= bytes;
        self.address = self.address.wrapping_add(u64::from(bytes));
    }

    /// `bytes` of the list piece have been asked for.
    pub(crate) fn asked(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.wanted - self.asked);
        self.asked += bytes;
        self.list_address = self.list_address.wrapping_add(u64::from(bytes));
    }

    /// How much of the window has been asked for: where what is asked for next goes.
    pub(crate) fn window_at(&self) -> u32 {
        self.asked
    }

    /// A part of the list has come, and goes to `at` in the window. Every byte asked for comes once.
    pub(crate) fn received(&mut self, at: u32, data: &[u8]) {
        let at = at as usize;
        if let Some(place) = self.window.get_mut(at..at + data.len()) {
            place.copy_from_slice(data);
            self.received += data.len() as u32;
        }
    }

    /// What is left after the piece under way.
    fn remaining(&self) -> u32 {
        self.total - self.done - self.left
    }

    /// PRP2: nothing, the second page, or a list, by how much the first leaves (Figure 105).
    fn second_prp(&mut self, second: u64) -> Result<(), Status> {
        match self.remaining() {
            0 => Ok(()),
            1..=PAGE_BYTES if page_offset(second) != 0 => Err(Status::PRP_OFFSET_INVALID),
            1..=PAGE_BYTES => {
                self.kind = Kind::SecondPrp(second);
                Ok(())
            }
            _ if second & 7 != 0 => Err(Status::PRP_OFFSET_INVALID),
            _ => {
                self.prp_list(second);
                Ok(())
            }
        }
    }

    /// A page whose entry may have no offset.
    fn prp_page(&mut self, entry: u64) -> Result<(), Status> {
        if page_offset(entry) != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        self.address = entry;
        self.left = self.remaining().min(PAGE_BYTES);
        Ok(())
    }

    fn prp_list(&mut self, address: u64) {
        let entries = self.remaining().div_ceil(PAGE_BYTES).min((PAGE_BYTES - page_offset(address)) / 8);
        self.kind = Kind::PrpList;
        self.list_address = address;
        self.fetch(entries * 8);
    }

    fn fetch(&mut self, bytes: u32) {
        (self.at, self.asked, self.received, self.wanted) = (0, 0, 0, bytes);
    }

    fn prp_entry(&mut self) -> Result<(), Status> {
        let at = self.at as usize;
        let mut entry = [0; 8];
        entry.copy_from_slice(&self.window[at..at + 8]);
        let entry = u64::from_le_bytes(entry);
        self.at += 8;
        // The last entry of a page is the next list's, if one page more is not all there is.
        if self.at == self.wanted && self.remaining() > PAGE_BYTES {
            if page_offset(entry) != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            self.prp_list(entry);
            return Ok(());
        }
        self.prp_page(entry)
    }

    fn sgl_entry(&mut self) -> Result<(), Status> {
        if self.at == self.wanted {
            if self.list_left == 0 {
                return Err(Status::DATA_SGL_LENGTH_INVALID);
            }
            let bytes = self.list_left.min(WINDOW_BYTES as u32);
            self.list_left -= bytes;
            self.fetch(bytes);
            return Ok(());
        }
        let at = self.at as usize;
        let mut descriptor = [0; SGL_BYTES];
        descriptor.copy_from_slice(&self.window[at..at + SGL_BYTES]);
        self.at += SGL_BYTES as u32;
        let is_last = self.at == self.wanted && self.list_left == 0;
        self.descriptor(descriptor, Some(is_last))
    }

    /// One SGL descriptor: of the command (`last_of_list` is None), or of a list, where it may be the last.
    fn descriptor(&mut self, descriptor: [u8; SGL_BYTES], last_of_list: Option<bool>) -> Result<(), Status> {
        let address = u64::from_le_bytes(descriptor[..8].try_into().expect("8 bytes"));
        let length = u32::from_le_bytes(descriptor[8..12].try_into().expect("4 bytes"));
        // Sub Type 0: an address. Offsets are for fabrics.
        if descriptor[15] & 15 != 0 {
            return Err(Status::SGL_TYPE_INVALID);
        }
        let may_chain = match last_of_list {
            None => true,
            Some(last) => last && self.kind == Kind::SglSegment,
        };
        match descriptor[15] >> 4 {
            // Data Block.
            0 if last_of_list == Some(true) && self.kind == Kind::SglSegment => {
                Err(Status::INVALID_SGL_SEGMENT)
            }
            0 => {
                (self.address, self.left) = (address, length.min(self.remaining()));
                self.idle_if(length == 0)
            }
            // Bit Bucket: data to the host is thrown away; from the host there is none.
            1 if self.to_host => {
                self.done += length.min(self.remaining());
                self.idle_if(length == 0)
            }
            1 => self.idle_if(true),
            kind @ (2 | 3) => {
                if !may_chain || length == 0 || !length.is_multiple_of(SGL_BYTES as u32) {
                    return Err(Status::INVALID_SGL_SEGMENT);
                }
                self.kind = if kind == 2 { Kind::SglSegment } else { Kind::SglLast };
                (self.list_address, self.list_left) = (address, length);
                self.fetch(0);
                self.idle_if(true)
            }
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    fn idle_if(&mut self, idle: bool) -> Result<(), Status> {
        self.idle += u32::from(idle);
        if self.idle > MAX_IDLE_DESCRIPTORS { Err(Status::INVALID_SGL_COUNT) } else { Ok(()) }
    }
}

fn page_offset(address: u64) -> u32 {
    address as u32 & (PAGE_BYTES - 1)
}
