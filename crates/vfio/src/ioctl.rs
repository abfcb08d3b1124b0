//! The kernel's calls (include/uapi/linux/vfio.h).

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};

/// A call's number: `_IO(VFIO_TYPE, VFIO_BASE + number)`.
#[derive(Clone, Copy)]
pub(crate) struct Call(c_ulong);

impl Call {
    const fn new(number: u32) -> Self {
        Self(((VFIO_TYPE as u32) << 8 | (VFIO_BASE + number)) as c_ulong)
    }
}

pub(crate) const GET_API_VERSION: Call = Call::new(0);
pub(crate) const CHECK_EXTENSION: Call = Call::new(1);
pub(crate) const SET_IOMMU: Call = Call::new(2);
pub(crate) const GROUP_GET_STATUS: Call = Call::new(3);
pub(crate) const GROUP_SET_CONTAINER: Call = Call::new(4);
pub(crate) const GROUP_GET_DEVICE_FD: Call = Call::new(6);
pub(crate) const DEVICE_GET_INFO: Call = Call::new(7);
pub(crate) const DEVICE_GET_REGION_INFO: Call = Call::new(8);
pub(crate) const DEVICE_GET_IRQ_INFO: Call = Call::new(9);
pub(crate) const DEVICE_SET_IRQS: Call = Call::new(10);
pub(crate) const IOMMU_GET_INFO: Call = Call::new(12);
pub(crate) const IOMMU_MAP_DMA: Call = Call::new(13);
pub(crate) const IOMMU_UNMAP_DMA: Call = Call::new(14);

/// A call whose argument is a number, or none (0).
pub(crate) fn number(fd: BorrowedFd<'_>, call: Call, argument: c_ulong) -> io::Result<c_int> {
    // SAFETY: of the calls that are made this way none takes its argument for an address.
    result(unsafe { libc::ioctl(fd.as_raw_fd(), call.0, argument) })
}

/// A call whose argument is the address of a structure.
///
/// # Safety
/// `argument` is of the type that the call asks for, and says how long it is if that may differ.
pub(crate) unsafe fn structure<T: ?Sized>(
    fd: BorrowedFd<'_>,
    call: Call,
    argument: &mut T,
) -> io::Result<c_int> {
    // SAFETY: as the caller says; it lives through the call.
    result(unsafe { libc::ioctl(fd.as_raw_fd(), call.0, std::ptr::from_mut(argument).cast::<u8>()) })
}

fn result(answer: c_int) -> io::Result<c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_numbers_of_the_header() {
        // `_IO(';', 100)`, and `_IO(';', 100 + 13)`.
        assert_eq!((GET_API_VERSION.0, IOMMU_MAP_DMA.0), (0x3B64, 0x3B71));
    }
}
