//! The process's memory, as the engine uses it.

use std::sync::atomic::{AtomicU64, Ordering};

use etherslot_rdma::{Memory, Trouble};
use etherslot_wire::rdmap::AtomicRequest;

/// Addresses are those of the process. The engine asks for those of registered regions only, which a program may not unmap
/// before it has deregistered them.
#[derive(Debug)]
pub(crate) struct ProcessMemory;

impl Memory for ProcessMemory {
    #[inline]
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        // SAFETY: the range is of a region that the program has registered, and so keeps mapped. The program may write to it
        // meanwhile; what is read then is of no use to anybody, as with any RNIC.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    #[inline]
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        // SAFETY: as above; regions that are written to were registered for it.
        unsafe { etherslot_mem::store(address as *mut u8, data) };
        Ok(())
    }

    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble> {
        if !address.is_multiple_of(8) {
            return Err(Trouble::Fault);
        }
        // SAFETY: as above, and aligned.
        let word = unsafe { AtomicU64::from_ptr(address as *mut u64) };
        let done =
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| Some(operation.apply(before)));
        done.map_err(|_| Trouble::Fault)
    }
}
