//! A serial port on PCI, to try a QEMU by hand: what the guest sends to it comes out here.
//!
//!     cargo run -p etherslot-vfio-user --example uart -- /run/uart
//!     qemu-system-x86_64 … -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/run/uart"}}'
//!
//! A Linux guest finds another ttyS. It is an 8250 that is always ready to send, which is enough to see INTx rise and
//! fall. BAR 1 has a DMA engine: write an address to 0, a length to 8, and 1 to 12 to have that much memory
//! incremented, byte by byte.

use std::io::Write as _;

use etherslot_mem::GuestMemory;
use etherslot_vfio_user::message::region;
use etherslot_vfio_user::{Answer, DeviceInfo, Handler, MessageId, RegionInfo, Server};
use rustix::event::{PollFd, PollFlags, poll};

// Registers of an 8250, and the bits that matter.
const THR: u64 = 0;
const IER: u64 = 1;
const IIR: u64 = 2;
const LCR: u64 = 3;
const LSR: u64 = 5;
const IER_SENT: u8 = 1 << 1;
const IIR_NONE: u8 = 1;
const IIR_SENT: u8 = 2;
const LCR_DIVISOR: u8 = 1 << 7;
const LSR_IDLE: u8 = 0x60;

struct Uart {
    config: Vec<u8>,
    registers: [u8; 8],
    /// All is sent, and the driver has not been told.
    sent: bool,
    dma: [u8; 16],
}

impl Uart {
    fn new() -> Self {
        let mut config = vec![0; 256];
        // Vendor (none's), device, command, status, revision, class 07.00.02 (16550).
        config[..12].copy_from_slice(&[0x34, 0x12, 0x50, 0x82, 0, 0, 0, 0, 0, 2, 0, 7]);
        config[0x10] = 1; // BAR 0 is I/O space.
        config[0x3d] = 1; // INTA.
        Self { config, registers: [0; 8], sent: false, dma: [0; 16] }
    }

    fn interrupts(&self) -> bool {
        self.sent && self.registers[IER as usize] & IER_SENT != 0
    }

    fn latched(&self) -> bool {
        self.registers[LCR as usize] & LCR_DIVISOR != 0
    }

    fn run_dma(&mut self, server: &Server) {
        let [address, length] = [&self.dma[..8], &self.dma[8..12]]
            .map(|bytes| bytes.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte)));
        if std::mem::take(&mut self.dma[12]) & 1 == 0 {
            return;
        }
        let mut data = vec![0; length.min(1 << 20) as usize];
        let mut result = server.memory().read(address, &mut data);
        for byte in &mut data {
            *byte = byte.wrapping_add(1);
        }
        result = result.and_then(|()| server.memory().write(address, &data));
        eprintln!("[dma of {length} bytes at {address:#x}: {result:?}]");
    }
}

impl Handler for Uart {
    fn connected(&mut self) {
        eprintln!("[connected]");
    }

    fn disconnected(&mut self) {
        eprintln!("[disconnected]");
        *self = Self::new();
    }

    fn read(&mut self, _id: MessageId, region: u32, offset: u64, data: &mut [u8]) -> Answer {
        match region {
            region::CONFIG => data.copy_from_slice(&self.config[offset as usize..][..data.len()]),
            region::BAR0 => {
                data.fill(match offset {
                    IIR if self.interrupts() => {
                        self.sent = false;
                        IIR_SENT
                    }
                    IIR => IIR_NONE,
                    LSR => LSR_IDLE,
                    _ => self.registers[offset as usize & 7],
                });
            }
            _ => data.fill(0),
        }
        Answer::Done
    }

    fn write(
        &mut self,
        _id: Option<MessageId>,
        region: u32,
        offset: u64,
        data: &[u8],
        _memory: &GuestMemory,
    ) -> Answer {
        match (region, offset) {
            (region::CONFIG, _) => {
                // The client keeps the BARs.
                for (at, byte) in (offset as usize..).zip(data) {
                    if matches!(at, 4 | 5 | 0x3c) {
                        self.config[at] = *byte;
                    }
                }
            }
            (region::BAR0, THR) if !self.latched() => {
                let _ = std::io::stdout().write_all(&data[..1]).and_then(|()| std::io::stdout().flush());
                self.sent = true;
            }
            (region::BAR0, _) => {
                let enabled = self.interrupts();
                self.registers[offset as usize & 7] = data[0];
                // An 8250 that has nothing to send says so when it is first asked to.
                self.sent |= offset == IER && !self.latched() && !enabled;
            }
            (_, 0..16) => {
                for (byte, value) in self.dma.iter_mut().skip(offset as usize).zip(data) {
                    *byte = *value;
                }
            }
            _ => {}
        }
        Answer::Done
    }

    fn reset(&mut self, _id: Option<MessageId>) -> Answer {
        eprintln!("[reset]");
        *self = Self::new();
        Answer::Done
    }

    fn irqs_changed(&mut self, index: u32) {
        eprintln!("[interrupts of type {index} changed]");
    }

    fn memory_changed(&mut self) {}

    fn room(&self) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: uart SOCKET")?;
    let mut info = DeviceInfo::default();
    info.regions[region::CONFIG as usize] = RegionInfo::read_write(256);
    info.regions[0] = RegionInfo::read_write(8);
    info.regions[1] = RegionInfo::read_write(4096);
    info.irqs[0] = 1;
    let mut server = Server::bind(path, info)?;
    let mut uart = Uart::new();
    loop {
        poll(&mut [PollFd::from_borrowed_fd(server.fd(), PollFlags::IN)], None)?;
        while server.poll(&mut uart) {
            server.set_intx_level(uart.interrupts());
            uart.run_dma(&server);
        }
        server.set_intx_level(uart.interrupts());
    }
}
