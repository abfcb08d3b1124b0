//! The memory and the session of the RNIC, which watch what it does with them.

use etherslot_rdma::{Memory, PeerId, Trouble, Wire};
use etherslot_wire::ddp::Header;
use etherslot_wire::rdmap::AtomicRequest;

/// Where the memory that is ever registered begins, and its bytes.
pub const BASE: u64 = 0x10_0000;
pub const BYTES: usize = 0x4000;
/// Pages of a region that has more of them than are there.
pub const PAGES: [u64; 3] = [BASE, BASE + 0x3000, BASE + 0x1000];

/// Memory; whoever touches an address that was never registered panics.
pub struct Ram {
    bytes: Vec<u8>,
    pub is_pending: bool,
}

impl Default for Ram {
    fn default() -> Self {
        Self { bytes: vec![0; BYTES], is_pending: false }
    }
}

impl Ram {
    fn at(&mut self, address: u64, length: usize) -> &mut [u8] {
        let start = address.checked_sub(BASE).expect("an address that was never registered") as usize;
        self.bytes.get_mut(start..start + length).expect("an address that was never registered")
    }
}

impl Memory for Ram {
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        if self.is_pending {
            return Err(Trouble::Pending);
        }
        out.copy_from_slice(self.at(address, out.len()));
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        self.at(address, data.len()).copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble> {
        assert!(address.is_multiple_of(8));
        if self.is_pending {
            return Err(Trouble::Pending);
        }
        let place = self.at(address, 8);
        let before = u64::from_le_bytes((&*place).try_into().expect("8 bytes"));
        place.copy_from_slice(&operation.apply(before).to_le_bytes());
        Ok(before)
    }
}

/// A session that takes so many segments and no more.
#[derive(Default)]
pub struct Session {
    pub room: usize,
    pub longest: usize,
    pub sent: Vec<(PeerId, Vec<u8>)>,
}

impl Wire for Session {
    fn room(&mut self, _peer: PeerId, _stream: u16, _want: usize) -> usize {
        if self.room > 0 { self.longest } else { 0 }
    }

    fn send(
        &mut self,
        peer: PeerId,
        _stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        assert!(self.room > 0 && head.len() + data_len <= self.longest, "more than there is room for");
        let mut segment = head.to_vec();
        segment.resize(head.len() + data_len, 0);
        if !fill(&mut segment[head.len()..]) {
            return false;
        }
        Header::parse(&segment).expect("a segment of ours is well formed");
        self.room -= 1;
        self.sent.truncate(64);
        self.sent.push((peer, segment));
        true
    }
}
