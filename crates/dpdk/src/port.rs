//! A Port on a device of DPDK.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;

use etherslot_netio::{Address, Counters, ETHERTYPE, MAX_FRAME_BYTES, MIN_FRAME_BYTES, Port};

use crate::device::{Device, SHARED_MTU};
use crate::shim::{self, BURST, Config, Frame, Info, RawPort, Shim, Stats};
use crate::{DpdkConfig, OpenError, eal, stale};

const HEADER_BYTES: usize = 14;
/// After a burst that did not fit, one of this size is tried first: what finds no room has been copied in vain.
const SMALL_BURST: usize = 4;
/// Between two looks at the counters and the link of the device.
const LOOK_NS: u64 = 1_000_000;
const STATS_NS: u64 = 100_000_000;
/// Between two calls to a peer that is not there, and how long one that took the call has to bring the link up. A
/// call that is given up may find a server in the middle of taking it, which DPDK 22.11 does not survive.
const CALL_NS: u64 = 100_000_000;
const ANSWER_NS: u64 = 2_000_000_000;

/// One device, one queue each way. It stays with the thread that opened it.
pub struct DpdkPort {
    shim: &'static Shim,
    raw: NonNull<RawPort>,
    name: String,
    max_frame_bytes: usize,
    mac: [u8; 6],
    /// How many frames the next burst may have.
    burst: usize,
    is_up: bool,
    /// Whether it was since it was started.
    was_up: bool,
    is_caller: bool,
    /// Whether the device runs: a caller's does not if nobody took its call.
    is_started: bool,
    look_ns: u64,
    stats_ns: u64,
    /// When to call again, while the link is down.
    call_ns: Option<u64>,
    seen: Stats,
    counters: Counters,
}

impl DpdkPort {
    /// Opens a device; the first one starts DPDK.
    pub fn open(config: &DpdkConfig) -> Result<Self, OpenError> {
        let device = Device(&config.device);
        if !device.is_plausible() {
            return Err(OpenError::NoDevice(config.device.clone()));
        }
        let name = device.name().to_owned();
        let checked = |bytes| in_bounds(&name, bytes);
        let wanted = config.max_frame_bytes.map(checked).transpose()?;
        let shim = Shim::get()?;
        eal::start(shim, &config.eal)?;
        let mtu = wanted.unwrap_or_else(|| usual_mtu(shim, device));
        // A device that is not virtual is asked, with 0.
        let arguments = if mtu == 0 { device.0.to_owned() } else { device.arguments(mtu) };
        tracing::debug!(device = arguments, mtu, "opening");
        if let Some(path) = device.listens_at() {
            stale::remove(path);
        }
        let (raw, info) = open(shim, device, &arguments, config.mac, mtu)?;
        let driver = CStr::from_bytes_until_nul(&info.driver).unwrap_or_default().to_string_lossy();
        let mut port = Self {
            shim,
            raw,
            max_frame_bytes: (info.mtu as usize).min(MAX_FRAME_BYTES),
            mac: info.mac,
            name,
            burst: BURST,
            is_up: false,
            was_up: false,
            is_caller: device.is_caller(),
            is_started: info.is_started != 0,
            look_ns: 0,
            stats_ns: 0,
            call_ns: None,
            seen: Stats::default(),
            counters: Counters::default(),
        };
        // Dropped, and closed, if it isn't.
        in_bounds(&port.name, port.max_frame_bytes)?;
        port.look();
        tracing::info!(
            device = port.name,
            %driver,
            mac = %port.address(),
            max_frame_bytes = port.max_frame_bytes,
            up = port.is_up,
            "DPDK device opened"
        );
        Ok(port)
    }

    /// Whether the link is up, as last seen.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Looks at the link; whether it is surely down.
    fn look(&mut self) -> bool {
        // SAFETY: `raw` is open until `self` is dropped.
        let is_up = match unsafe { (self.shim.link)(self.raw.as_ptr()) } {
            0 => false,
            1 => true,
            _ => return false,
        };
        if is_up != self.is_up {
            self.is_up = is_up;
            self.was_up |= is_up;
            tracing::info!(device = self.name, "link is {}", if is_up { "up" } else { "down" });
        }
        !is_up
    }

    /// Calls the peer of a memif again if it has not answered, or is gone.
    fn call(&mut self, now_ns: u64) {
        if self.is_up {
            self.call_ns = None;
            return;
        }
        let wait_ns = |is_started| if is_started { ANSWER_NS } else { CALL_NS };
        match self.call_ns {
            None => self.call_ns = Some(now_ns.saturating_add(wait_ns(self.is_started && !self.was_up))),
            Some(at) if at <= now_ns => {
                // SAFETY: `raw` is open until `self` is dropped.
                let result = eal::trying(|| unsafe { (self.shim.restart)(self.raw.as_ptr()) });
                self.is_started = result == 0;
                self.was_up = false;
                self.call_ns = Some(now_ns.saturating_add(wait_ns(self.is_started)));
            }
            Some(_) => {}
        }
    }

    fn read_stats(&mut self) {
        let mut stats = Stats::default();
        // SAFETY: `raw` is open until `self` is dropped, and `stats` is where the numbers are to be stored.
        unsafe { (self.shim.stats)(self.raw.as_ptr(), &raw mut stats) };
        // They start again with the device.
        self.counters.rx_overflow += stats.missed.saturating_sub(self.seen.missed);
        self.counters.tx_refused += stats.unsent.saturating_sub(self.seen.unsent);
        self.seen = stats;
    }

    /// Offers up to [`BURST`] frames that all fit the link.
    fn send_burst(&mut self, header: &[u8; HEADER_BYTES], frames: &[&[u8]]) -> usize {
        let mut list = [Frame { bytes: ptr::null(), len: 0, flags: 0 }; BURST];
        for (entry, frame) in list.iter_mut().zip(frames) {
            *entry = Frame { bytes: frame.as_ptr(), len: frame.len() as u32, flags: 0 };
        }
        let count = frames.len().min(BURST) as u32;
        // SAFETY: the first `count` entries are the caller's slices, which with the header live through the call; each is no
        // longer than the buffers, which hold `max_frame_bytes` and the header.
        unsafe { (self.shim.send)(self.raw.as_ptr(), header.as_ptr(), list.as_ptr(), count) as usize }
    }

    /// Takes the Ethernet header off a frame, if it is for this Port.
    fn payload<'a>(&mut self, frame: &'a [u8], flags: u32) -> Option<([u8; 6], &'a [u8])> {
        if flags & shim::TRUNCATED != 0 {
            self.counters.rx_truncated += 1;
            return None;
        }
        let parsed = Ethernet::parse(frame).filter(|frame| {
            let is_for_us = frame.to == self.mac || frame.to[0] & 1 != 0;
            is_for_us && frame.from != self.mac && frame.ethertype == ETHERTYPE && flags & shim::TAGGED == 0
        });
        let Some(Ethernet { from, payload, .. }) = parsed else {
            self.counters.rx_foreign += 1;
            return None;
        };
        // Room for a longer one is in the buffers of some devices.
        if payload.len() > self.max_frame_bytes {
            self.counters.rx_truncated += 1;
            return None;
        }
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += payload.len() as u64;
        Some((from, payload))
    }
}

fn in_bounds(device: &str, bytes: usize) -> Result<u16, OpenError> {
    let is_in_bounds = (MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&bytes);
    let out_of_bounds = OpenError::FrameSize { device: device.to_owned(), bytes };
    is_in_bounds.then_some(bytes as u16).ok_or(out_of_bounds)
}

/// The frame size of a device of which nothing was said; 0: what it is set to.
fn usual_mtu(shim: &Shim, device: Device<'_>) -> u16 {
    if device.is_shared_memory() {
        return SHARED_MTU;
    }
    let Some(name) = device.interface().and_then(|name| CString::new(name).ok()) else { return 0 };
    // SAFETY: a string that lives through the call.
    unsafe { (shim.interface_mtu)(name.as_ptr()) }.min(MAX_FRAME_BYTES as u16)
}

fn open(
    shim: &Shim,
    device: Device<'_>,
    arguments: &str,
    mac: Option<[u8; 6]>,
    mtu: u16,
) -> Result<(NonNull<RawPort>, Info), OpenError> {
    let text = CString::new(arguments).map_err(|_| OpenError::NoDevice(arguments.to_owned()))?;
    let config = Config {
        device: text.as_ptr(),
        mtu,
        may_start_later: u8::from(device.is_caller()),
        fills: u8::from(!device.is_shared_memory()),
        has_mac: u8::from(mac.is_some()),
        mac: mac.unwrap_or_default(),
    };
    let (mut raw, mut info, mut step) = (ptr::null_mut(), Info::default(), c"".as_ptr());
    eal::forget_errors();
    // SAFETY: the configuration and its string live through the call, and the others are where results are to be stored.
    let mut call = || unsafe { (shim.open)(&raw const config, &raw mut raw, &raw mut info, &raw mut step) };
    // A peer that is not there yet is no mistake.
    let result = if device.is_caller() { eal::trying(call) } else { call() };
    match NonNull::new(raw) {
        Some(raw) if result == 0 => Ok((raw, info)),
        _ => {
            // SAFETY: the shim stores literals.
            let step = unsafe { CStr::from_ptr(step) }.to_string_lossy().into_owned();
            Err(OpenError::Device { device: device.name().to_owned(), step, reason: eal::reason(result) })
        }
    }
}

/// A frame as it came.
struct Ethernet<'a> {
    to: [u8; 6],
    from: [u8; 6],
    ethertype: u16,
    payload: &'a [u8],
}

impl<'a> Ethernet<'a> {
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        let (ethertype, payload) = rest.split_first_chunk::<2>()?;
        Some(Self { to: *to, from: *from, ethertype: u16::from_be_bytes(*ethertype), payload })
    }
}

/// Gives the buffers of a burst back, also if the one it was handed to panics.
struct Held<'a>(&'a Shim, NonNull<RawPort>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: the port is open, and nothing refers to the frames of its last burst any more.
        unsafe { (self.0.release)(self.1.as_ptr()) };
    }
}

impl Port for DpdkPort {
    fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    fn address(&self) -> Address {
        Address::Mac(self.mac)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let Address::Mac(to) = to else {
            self.counters.tx_foreign += frames.len() as u64;
            return frames.len();
        };
        let mut header = [0; HEADER_BYTES];
        header[..6].copy_from_slice(to);
        header[6..12].copy_from_slice(&self.mac);
        header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let mut taken = 0;
        while taken < frames.len() {
            let rest = &frames[taken..];
            let fit =
                rest.iter().take(self.burst).take_while(|frame| frame.len() <= self.max_frame_bytes).count();
            if fit == 0 {
                self.counters.tx_too_long += 1;
                taken += 1;
                continue;
            }
            let sent = self.send_burst(&header, &rest[..fit]);
            self.counters.tx_frames += sent as u64;
            self.counters.tx_bytes += rest[..sent].iter().map(|frame| frame.len() as u64).sum::<u64>();
            taken += sent;
            if sent == fit {
                self.burst = (self.burst * 2).min(BURST);
                continue;
            }
            self.burst = SMALL_BURST;
            if self.look() {
                let lost = frames.len() - taken;
                self.counters.tx_link_down += lost as u64;
                return frames.len();
            }
            self.counters.tx_no_room += 1;
            break;
        }
        taken
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let mut list = [MaybeUninit::<Frame>::uninit(); BURST];
        // SAFETY: there is room for a burst, and the port is open until `self` is dropped.
        let count = unsafe { (self.shim.receive)(self.raw.as_ptr(), list.as_mut_ptr().cast()) } as usize;
        if count == 0 {
            return 0;
        }
        let _held = Held(self.shim, self.raw);
        for entry in &list[..count.min(BURST)] {
            // SAFETY: the shim has stored `count` of them.
            let frame = unsafe { entry.assume_init() };
            // SAFETY: bytes of a buffer that is ours until the burst is released.
            let bytes = unsafe { slice::from_raw_parts(frame.bytes, frame.len as usize) };
            if let Some((from, payload)) = self.payload(bytes, frame.flags) {
                handle(&Address::Mac(from), payload);
            }
        }
        count
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// It can only be polled.
    fn before_sleep(&mut self) -> bool {
        false
    }

    fn tick(&mut self, now_ns: u64) {
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns.saturating_add(LOOK_NS);
        self.look();
        if self.is_caller {
            self.call(now_ns);
        }
        if now_ns >= self.stats_ns {
            self.stats_ns = now_ns.saturating_add(STATS_NS);
            self.read_stats();
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        // SAFETY: it was open until now, and `raw` is not used again.
        unsafe { (self.shim.close)(self.raw.as_ptr()) };
    }
}
