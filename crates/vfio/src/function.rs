//! A Function: taken from the kernel, and given back.

use std::fs::OpenOptions;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use vfio_bindings::bindings::vfio::{
    VFIO_API_VERSION, VFIO_DEVICE_FLAGS_PCI, VFIO_GROUP_FLAGS_VIABLE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_TYPE1v2_IOMMU, vfio_device_info, vfio_group_status, vfio_irq_info,
    vfio_irq_set, vfio_region_info,
};

use crate::bar::Bar;
use crate::dma::Dma;
use crate::ioctl;
use crate::sysfs;

const DRIVER: &str = "vfio-pci";
/// BARs of a Function.
const BARS: u32 = 6;
/// The Command register of the configuration space: Memory Space, and Bus Master.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 0b110;
/// Vectors of a Function are not more [PCI Local Bus 3.0, 6.8.2].
const MAX_VECTORS: usize = 2048;

/// Why a Function can't be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("this machine has no PCI Function {0}")]
    NoFunction(String),
    /// It has another driver.
    #[error("{address} has {driver}: bind it to vfio-pci (driverctl set-override {address} vfio-pci)")]
    Driver {
        /// The Function.
        address: String,
        /// What it has.
        driver: String,
    },
    /// Nothing keeps it from memory that is not the program's.
    #[error(
        "{0} is behind no IOMMU that the kernel uses: a machine needs one switched on, a guest of QEMU `-device intel-iommu,caching-mode=on` \
         and its kernel `intel_iommu=on`"
    )]
    NoIommu(String),
    /// It is in use.
    #[error("another program has {0}")]
    Busy(String),
    /// A neighbour is the kernel's.
    #[error(
        "{0} shares its IOMMU group with a Function that the kernel uses: bind that one to vfio-pci, too"
    )]
    Shared(String),
    /// It has not what it should have.
    #[error("{address}: the kernel offers no {what}")]
    Lacks {
        /// The Function.
        address: String,
        /// What.
        what: &'static str,
    },
    /// The system.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let what = what.into();
    move |source| OpenError::Io { what, source }
}

/// A PCI Function that this program has, alone.
#[derive(Debug)]
pub struct Function {
    address: String,
    bars: [Option<Bar>; BARS as usize],
    dma: Dma,
    vectors: u32,
    device: OwnedFd,
    _group: OwnedFd,
}

impl Function {
    /// Takes the Function at this address, as in `0000:03:00.0`, whose driver is `vfio-pci`. It is as after a reset, and may make
    /// requests.
    pub fn open(address: &str) -> Result<Self, OpenError> {
        let number = group(address)?;
        let container = open(Path::new("/dev/vfio/vfio"))?;
        let version = ioctl::number(container.as_fd(), ioctl::GET_API_VERSION, 0);
        let version = version.map_err(failed("ask VFIO for its version"))?;
        let kind = u64::from(VFIO_TYPE1v2_IOMMU);
        let is_known = ioctl::number(container.as_fd(), ioctl::CHECK_EXTENSION, kind);
        if version.cast_unsigned() != VFIO_API_VERSION || !matches!(is_known, Ok(1..)) {
            return Err(lacks(address, "IOMMU of type 1 (module vfio_iommu_type1)"));
        }
        let path = format!("/dev/vfio/{number}");
        let group = open(Path::new(&path)).map_err(|error| match error {
            OpenError::Io { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => {
                OpenError::Busy(address.to_owned())
            }
            other => other,
        })?;
        let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, flags: 0 };
        // SAFETY: the structure of this call.
        unsafe { ioctl::structure(group.as_fd(), ioctl::GROUP_GET_STATUS, &mut status) }
            .map_err(failed(format!("ask for the state of {path}")))?;
        if status.flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(OpenError::Shared(address.to_owned()));
        }
        // The argument is the address of the descriptor's number.
        let mut descriptor = container.as_raw_fd();
        // SAFETY: as this call asks for.
        unsafe { ioctl::structure(group.as_fd(), ioctl::GROUP_SET_CONTAINER, &mut descriptor) }
            .map_err(failed(format!("give {path} an address space")))?;
        ioctl::number(container.as_fd(), ioctl::SET_IOMMU, kind)
            .map_err(failed(format!("use the IOMMU for {address}")))?;
        let dma = Dma::new(container).map_err(failed("ask for the IOMMU's addresses"))?;
        let device = device(group.as_fd(), address)?;
        let mut bars = [const { None }; BARS as usize];
        for (index, bar) in (0..BARS).zip(&mut bars) {
            *bar = map_bar(device.as_fd(), index).map_err(failed(format!("map BAR {index} of {address}")))?;
        }
        let vectors = vectors(device.as_fd()).map_err(failed("ask for the vectors of MSI-X"))?;
        let function = Self { address: address.to_owned(), bars, dma, vectors, device, _group: group };
        function.switch_on().map_err(failed(format!("let {address} make requests")))?;
        Ok(function)
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A BAR.
    pub fn bar(&self, index: u8) -> Option<&Bar> {
        self.bars.get(usize::from(index))?.as_ref()
    }

    /// What it reaches of memory.
    pub fn dma(&self) -> &Dma {
        &self.dma
    }

    /// Vectors of MSI-X.
    pub fn vectors(&self) -> u32 {
        self.vectors
    }

    /// From now on the first vectors add 1 to these eventfds, one each.
    pub fn set_interrupts(&self, eventfds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if eventfds.len() > MAX_VECTORS.min(self.vectors as usize) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The structure, and an array of descriptors behind it.
        let words = size_of::<vfio_irq_set>() / 4;
        let mut set = vec![0_u32; words + eventfds.len()];
        set[0] = (set.len() * 4) as u32;
        set[1] = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        set[2] = VFIO_PCI_MSIX_IRQ_INDEX;
        set[4] = eventfds.len() as u32;
        for (word, eventfd) in set[words..].iter_mut().zip(eventfds) {
            *word = eventfd.as_raw_fd().cast_unsigned();
        }
        // SAFETY: the structure of this call, as long as it says.
        unsafe { ioctl::structure(self.device.as_fd(), ioctl::DEVICE_SET_IRQS, set.as_mut_slice()) }.map(drop)
    }

    /// Memory Space and Bus Master.
    fn switch_on(&self) -> io::Result<()> {
        let at = region(self.device.as_fd(), VFIO_PCI_CONFIG_REGION_INDEX)?.offset + COMMAND;
        let mut command = [0; 2];
        rustix::io::pread(&self.device, &mut command, at)?;
        let value = u16::from_le_bytes(command) | MEMORY_AND_MASTER;
        rustix::io::pwrite(&self.device, &value.to_le_bytes(), at)?;
        Ok(())
    }
}

fn lacks(address: &str, what: &'static str) -> OpenError {
    OpenError::Lacks { address: address.to_owned(), what }
}

/// The group of a Function that is ours to take.
fn group(address: &str) -> Result<String, OpenError> {
    let folder = Path::new(sysfs::DEVICES).join(address);
    // An address that leads elsewhere is none.
    if address.is_empty() || address.contains('/') || !folder.is_dir() {
        return Err(OpenError::NoFunction(address.to_owned()));
    }
    match sysfs::last(&folder.join("driver")) {
        Some(driver) if driver == DRIVER => {}
        other => {
            let driver = other.map_or_else(|| "no driver".to_owned(), |name| format!("the driver {name}"));
            return Err(OpenError::Driver { address: address.to_owned(), driver });
        }
    }
    let number = sysfs::last(&folder.join("iommu_group"));
    // Without an IOMMU a kernel may be told to hand out Functions all the same, and makes up a group.
    number
        .filter(|number| Path::new("/dev/vfio").join(number).exists())
        .ok_or_else(|| OpenError::NoIommu(address.to_owned()))
}

fn open(path: &Path) -> Result<OwnedFd, OpenError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(failed(format!("open {}", path.display())))
}

/// The descriptor of the Function itself.
fn device(group: BorrowedFd<'_>, address: &str) -> Result<OwnedFd, OpenError> {
    let mut name: Vec<u8> = address.bytes().chain([0]).collect();
    // SAFETY: the call takes a string that ends with 0.
    let fd = unsafe { ioctl::structure(group, ioctl::GROUP_GET_DEVICE_FD, name.as_mut_slice()) };
    let fd = fd.map_err(failed(format!("take {address}")))?;
    // SAFETY: it was made for us just now.
    let device = unsafe { OwnedFd::from_raw_fd(fd) };
    let _ = rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::CLOEXEC);
    let mut info =
        vfio_device_info { argsz: size_of::<vfio_device_info>() as u32, ..vfio_device_info::default() };
    // SAFETY: the structure of this call.
    unsafe { ioctl::structure(device.as_fd(), ioctl::DEVICE_GET_INFO, &mut info) }
        .map_err(failed(format!("ask what {address} is")))?;
    if info.flags & VFIO_DEVICE_FLAGS_PCI == 0 {
        return Err(lacks(address, "PCI Function of that name"));
    }
    Ok(device)
}

fn region(device: BorrowedFd<'_>, index: u32) -> io::Result<vfio_region_info> {
    let mut info = vfio_region_info {
        argsz: size_of::<vfio_region_info>() as u32,
        index,
        ..vfio_region_info::default()
    };
    // SAFETY: the structure of this call.
    unsafe { ioctl::structure(device, ioctl::DEVICE_GET_REGION_INFO, &mut info)? };
    Ok(info)
}

/// A BAR, if it is memory that can be mapped.
fn map_bar(device: BorrowedFd<'_>, index: u32) -> io::Result<Option<Bar>> {
    let info = region(device, index)?;
    if info.size == 0 || info.flags & VFIO_REGION_INFO_FLAG_MMAP == 0 {
        return Ok(None);
    }
    Bar::map(device, info.offset, info.size).map(Some)
}

fn vectors(device: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = vfio_irq_info {
        argsz: size_of::<vfio_irq_info>() as u32,
        index: VFIO_PCI_MSIX_IRQ_INDEX,
        ..vfio_irq_info::default()
    };
    // SAFETY: the structure of this call.
    unsafe { ioctl::structure(device, ioctl::DEVICE_GET_IRQ_INFO, &mut info)? };
    Ok(info.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_function_is_said_to_be_none() {
        for address in ["ffff:ff:1f.7", "", "../../..", "0000:00:00.0/../0000:00:00.0"] {
            let error = Function::open(address).expect_err(address);
            assert!(matches!(error, OpenError::NoFunction(_)), "{address}: {error}");
        }
    }
}
