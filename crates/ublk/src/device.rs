//! The life of a block device: added, started, stopped, deleted.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use etherslot_initiator::DiskInfo;

use crate::abi::{self, Request};
use crate::ring::{Control, Payload, Rings};
use crate::server::Queue;

const CONTROL: &str = "/dev/ublk-control";
/// The file of a queue appears soon after its device was added.
const FILE_TRIES: u32 = 200;
const FILE_PAUSE: Duration = Duration::from_millis(10);

/// Why there is no block device, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The driver is not there.
    #[error(
        "{CONTROL} can't be opened: {0}: load the module ublk_drv (Linux 6.5 or newer, CONFIG_BLK_DEV_UBLK), as root"
    )]
    Driver(#[source] io::Error),
    /// The kernel is too old.
    #[error("this kernel's ublk_drv is too old: Linux 6.5 or newer is needed")]
    Old,
    /// A step failed.
    #[error("{step}: {source}")]
    Step {
        /// Which.
        step: &'static str,
        /// How.
        source: io::Error,
    },
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> DeviceError {
    move |source| DeviceError::Step { step, source }
}

/// Where a device is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The kernel makes the block device, and reads from it already.
    Starting,
    /// Programs can use it.
    Live,
    /// It takes no more; what is under way is to be ended.
    Stopping,
    /// The kernel has no request any more.
    Stopped,
}

/// A block device, served by us.
pub struct Device {
    number: u32,
    state: State,
    /// Gone before `control`, which deletes the device only when nobody has it open.
    rings: Option<Rings>,
    control: Control,
}

impl Device {
    /// Adds a block device for a disk that is as `info` says, of which up to `depth` requests of up to `most_bytes` (a multiple of 4096)
    /// are under way at once, and begins to start it. It is served by the thread that calls this, and by no other.
    ///
    /// # Errors
    /// The kernel has no such driver, or refuses.
    pub fn add(info: &DiskInfo, read_only: bool, depth: u16, most_bytes: u32) -> Result<Self, DeviceError> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(DeviceError::Driver)?;
        let mut control = Control::new(file).map_err(failed("make a ring"))?;
        let about = Payload::Info(Box::new(abi::device_info(depth, most_bytes)));
        control.run(abi::ADD_DEV, abi::ANY_DEVICE, about, 0).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::EOPNOTSUPP) => DeviceError::Old,
                _ => failed("add the device")(source),
            }
        })?;
        let (number, depth, features) = control.info().map(abi::granted).unwrap_or_default();
        // From here on it is deleted if something fails.
        let mut device = Self { number, state: State::Stopped, rings: None, control };
        if features & abi::FEATURES != abi::FEATURES {
            return Err(DeviceError::Old);
        }
        let parameters = Payload::Parameters(Box::new(abi::parameters(info, read_only, most_bytes)));
        device.control.run(abi::SET_PARAMS, number, parameters, 0).map_err(failed("set its parameters"))?;
        let file = device.open_queue().map_err(failed("open its queue"))?;
        device.rings = Some(Rings::new(file, depth).map_err(failed("make its queue"))?);
        device
            .control
            .start(abi::START_DEV, number, Payload::None, std::process::id().into())
            .map_err(failed("start it"))?;
        device.state = State::Starting;
        Ok(device)
    }

    fn open_queue(&self) -> io::Result<std::fs::File> {
        let path = format!("/dev/ublkc{}", self.number);
        let mut tries = 0;
        loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < FILE_TRIES => {
                    tries += 1;
                    sleep(FILE_PAUSE);
                }
                other => return other,
            }
        }
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.number).into()
    }

    /// Where it is in its life.
    pub fn state(&self) -> State {
        self.state
    }

    /// Readable when there is something to do; both of them.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [Some(self.control.fd()), self.rings.as_ref().map(Rings::fd)].into_iter().flatten()
    }

    /// Goes on with its life. Requests are to be served in every state but the last.
    ///
    /// # Errors
    /// The kernel refused to start or stop it.
    pub fn poll(&mut self) -> Result<bool, DeviceError> {
        if let Some(rings) = &mut self.rings {
            rings.submit().map_err(failed("answer requests"))?;
        }
        let Some(ended) = self.control.ended() else { return Ok(false) };
        match self.state {
            State::Starting => {
                ended.map_err(failed("start it"))?;
                self.state = State::Live;
            }
            State::Stopping => {
                ended.map_err(failed("stop it"))?;
                self.state = State::Stopped;
            }
            State::Live | State::Stopped => {}
        }
        Ok(true)
    }

    /// Begins to stop it: the kernel writes back what it has, then takes the block device away. Whoever has it open gets errors.
    ///
    /// # Errors
    /// The kernel takes no command now.
    pub fn stop(&mut self) -> Result<(), DeviceError> {
        if self.state == State::Live {
            self.control.start(abi::STOP_DEV, self.number, Payload::None, 0).map_err(failed("stop it"))?;
            self.state = State::Stopping;
        }
        Ok(())
    }
}

impl Queue for Device {
    fn next(&mut self) -> Option<Request> {
        let rings = self.rings.as_mut()?;
        loop {
            match rings.next()? {
                (_, Ok(request)) => return Some(request),
                // `UBLK_IO_RES_ABORT` and the like: the Tag is gone with the device.
                (_, Err(_)) => {}
            }
        }
    }

    fn read_data(&mut self, tag: u16, to: &mut [u8]) -> io::Result<()> {
        self.rings.as_ref().ok_or(io::ErrorKind::NotConnected)?.read_data(tag, to)
    }

    fn write_data(&mut self, tag: u16, from: &[u8]) -> io::Result<()> {
        self.rings.as_ref().ok_or(io::ErrorKind::NotConnected)?.write_data(tag, from)
    }

    fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.rings.as_mut().ok_or(io::ErrorKind::NotConnected)?.commit(tag, result)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // With the queue, what was under way ends in errors, and nothing that the deletion waits for waits for us.
        self.rings = None;
        if self.control.is_busy() {
            let _ = self.control.wait();
        }
        let _ = self.control.run(abi::DEL_DEV, self.number, Payload::None, 0);
    }
}
