//! What is known of a device before DPDK has it: its name, its driver, and arguments that its driver needs for the frame size.

use std::fmt::Write as _;
use std::path::Path;

/// Frames that stay in memory shared by two processes may be this long unless told otherwise.
pub(crate) const SHARED_MTU: u16 = 9000;
/// The Ethernet header and a VLAN tag.
const HEADER_BYTES: usize = 18;
/// What stands before a frame in a slot of a packet ring (`TPACKET2_HDRLEN`, aligned), and its alignment.
const PACKET_HEADER_BYTES: usize = 64;
/// Slots of packet rings are multiples of this, and blocks, of a page's worth of such steps, multiples of a page.
const SLOT_STEP: usize = 128;
const PAGE_BYTES: usize = 4096;

/// Buffers of a memif's ring, as a power of two. A ring is gone through in turn, so what it has beyond the frames on their way costs caches, and the
/// driver's own 1024 are more than caches hold.
const RING_SIZE_LOG2: u8 = 8;

/// A device with its arguments, as DPDK's own tools take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device<'a>(pub(crate) &'a str);

impl<'a> Device<'a> {
    /// Whether some device could be called that.
    pub(crate) fn is_plausible(self) -> bool {
        !self.name().is_empty() && !self.0.contains(|char: char| char.is_whitespace() || char == '\0')
    }

    /// `net_memif0`, `0000:03:00.0`.
    pub(crate) fn name(self) -> &'a str {
        self.0.split(',').next().unwrap_or_default()
    }

    fn is_of(self, driver: &str) -> bool {
        self.name()
            .strip_prefix(driver)
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }

    fn argument(self, name: &str) -> Option<&'a str> {
        let arguments = self.0.split(',').skip(1).filter_map(|argument| argument.split_once('='));
        arguments.filter(|(key, _)| *key == name).map(|(_, value)| value).last()
    }

    /// Whether frames go through memory that a peer process shares, and no network limits them.
    pub(crate) fn is_shared_memory(self) -> bool {
        ["net_memif", "net_vhost", "net_virtio_user"].into_iter().any(|driver| self.is_of(driver))
    }

    /// Whether it is the end of a memif that calls: it calls once, when it is started, and has to be started
    /// again for another try.
    pub(crate) fn is_caller(self) -> bool {
        self.is_of("net_memif") && !matches!(self.argument("role"), Some("server" | "master"))
    }

    /// The file of the socket at which it listens for its peer.
    pub(crate) fn listens_at(self) -> Option<&'a Path> {
        if self.is_of("net_memif") {
            let is_file = self.argument("socket-abstract") != Some("yes");
            return self.argument("socket").filter(|_| is_file && !self.is_caller()).map(Path::new);
        }
        let listens = self.is_of("net_vhost") && !matches!(self.argument("client"), Some("1"));
        self.argument("iface").filter(|_| listens).map(Path::new)
    }

    /// The kernel interface behind it.
    pub(crate) fn interface(self) -> Option<&'a str> {
        ["net_af_packet", "net_af_xdp"]
            .into_iter()
            .any(|driver| self.is_of(driver))
            .then(|| self.argument("iface"))
            .flatten()
    }

    /// The device with what its driver needs for frames of `mtu` bytes, unless it was said.
    pub(crate) fn arguments(self, mtu: u16) -> String {
        let mut all = self.0.to_owned();
        let bytes = mtu as usize + HEADER_BYTES;
        if self.is_of("net_memif") {
            if self.argument("bsize").is_none() {
                // A frame in one buffer.
                let _ = write!(all, ",bsize={}", bytes.next_multiple_of(64).max(2048));
            }
            if self.argument("rsize").is_none() {
                let _ = write!(all, ",rsize={RING_SIZE_LOG2}");
            }
            // A socket that has a path is a file, whose owner decides who may call.
            if self.argument("socket").is_some() && self.argument("socket-abstract").is_none() {
                all.push_str(",socket-abstract=no");
            }
        }
        if self.is_of("net_af_packet") {
            if ["framesz", "blocksz", "framecnt"].into_iter().all(|name| self.argument(name).is_none()) {
                // The driver wants room for a whole slot in each buffer of its pool (`SLACK_BYTES` of the shim), the kernel blocks of
                // whole pages.
                let slot = (bytes + PACKET_HEADER_BYTES).next_multiple_of(SLOT_STEP).max(2048);
                let _ = write!(all, ",framesz={slot},blocksz={},framecnt=512", slot * PAGE_BYTES / SLOT_STEP);
            }
            if self.argument("qdisc_bypass").is_none() {
                all.push_str(",qdisc_bypass=1");
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, Path};

    #[test]
    fn a_driver_gets_the_arguments_that_the_frame_size_asks_for() {
        let with = |device: &str, mtu| Device(device).arguments(mtu);
        assert_eq!(with("net_memif0,role=server", 1500), "net_memif0,role=server,bsize=2048,rsize=8");
        assert_eq!(with("net_memif0", 9000), "net_memif0,bsize=9024,rsize=8");
        assert_eq!(with("net_memif0,bsize=4096", 9000), "net_memif0,bsize=4096,rsize=8");
        assert_eq!(with("net_memif0,rsize=10", 9000), "net_memif0,rsize=10,bsize=9024");
        assert_eq!(
            with("net_memif0,bsize=4096,socket=/run/x", 9000),
            "net_memif0,bsize=4096,socket=/run/x,rsize=8,socket-abstract=no"
        );
        assert_eq!(
            with("net_af_packet1,iface=eth0", 1500),
            "net_af_packet1,iface=eth0,framesz=2048,blocksz=65536,framecnt=512,qdisc_bypass=1"
        );
        assert_eq!(
            with("net_af_packet1,iface=eth0,qdisc_bypass=0", 9000),
            "net_af_packet1,iface=eth0,qdisc_bypass=0,framesz=9088,blocksz=290816,framecnt=512"
        );
        assert_eq!(
            with("net_af_packet1,iface=eth0,framesz=4096,qdisc_bypass=0", 9000),
            "net_af_packet1,iface=eth0,framesz=4096,qdisc_bypass=0"
        );
        assert_eq!(with("0000:03:00.0", 9000), "0000:03:00.0");
    }

    #[test]
    fn devices_are_told_apart_by_their_driver() {
        assert!(Device("net_memif3,id=1").is_shared_memory() && Device("net_vhost0").is_shared_memory());
        assert!(!Device("net_af_packet0,iface=a").is_shared_memory());
        assert!(Device("net_memif0").is_caller() && Device("net_memif0,role=client").is_caller());
        assert!(!Device("net_memif0,role=server").is_caller() && !Device("net_vhost0").is_caller());
        assert_eq!(Device("net_af_xdp0,iface=eth1,start_queue=0").interface(), Some("eth1"));
        assert_eq!(Device("net_tap0,iface=eth1").interface(), None);
        let socket = Some(Path::new("/run/m"));
        assert_eq!(Device("net_memif0,role=server,socket=/run/m").listens_at(), socket);
        assert_eq!(Device("net_vhost0,iface=/run/m").listens_at(), socket);
        for other in [
            "net_memif0,socket=/run/m",
            "net_memif0,role=server,socket=/run/m,socket-abstract=yes",
            "net_vhost0,iface=/run/m,client=1",
            "net_virtio_user0,path=/run/m",
            "net_af_packet0,iface=/run/m",
        ] {
            assert_eq!(Device(other).listens_at(), None, "{other}");
        }
        assert!(!Device("").is_plausible() && !Device(",role=server").is_plausible());
        assert!(!Device("net_memif0, role=server").is_plausible());
    }
}
