//! Others in the guest: one who looks at the device while its driver works, like `lspci -xxxx`, and one who writes to it.

use etherslot_node::Interrupts;

use crate::guest::cpu::Cpu;
use crate::guest::sata::AHCI_BAR;
use crate::random::Random;

const CONFIG_BYTES: u64 = 4096;
const REGISTERS_BYTES: u64 = 0x40;

/// Reads configuration space and registers at random, for ever.
pub(crate) async fn probe(cpu: Cpu, mut random: Random) {
    loop {
        cpu.sleep(random.magnitude(100_000, 100_000_000)).await;
        for _ in 0..random.magnitude(1, 16) {
            let bytes = random.pick(&[1, 2, 4]);
            if random.percent(70) {
                let offset = random.below(CONFIG_BYTES / 4) * 4 + random.below(4) / bytes * bytes;
                cpu.config_read(offset, bytes as usize).await;
            } else {
                cpu.read32(random.below(REGISTERS_BYTES / 4) * 4).await;
            }
        }
    }
}

/// Writes configuration space and registers at random, for ever.
pub(crate) async fn vandalise(cpu: Cpu, mut random: Random) {
    // Registers and doorbells of an NVMe controller; of a SATA controller, those of all and of its ports.
    let spans = match cpu.registers() {
        0 => [(0, 0x50), (0x1000, 0x80)],
        AHCI_BAR => [(0, 0x20), (0x100, 0x180)],
        _ => [(0x1000, 0x20), (0x1C00, 0x100)],
    };
    loop {
        cpu.sleep(random.magnitude(100_000, 50_000_000)).await;
        let bar_bytes =
            cpu.machine(|machine| machine.device.map_or(0, |device| device.bar_bytes[cpu.registers()]));
        for _ in 0..random.magnitude(1, 64) {
            let value = match random.below(4) {
                0 => 0,
                1 => u32::MAX,
                2 => random.below(256) as u32,
                _ => random.bits() as u32,
            };
            match random.below(100) {
                0..=39 => {
                    let bytes = random.pick(&[1, 2, 4]);
                    let span = if random.percent(80) { 256 } else { CONFIG_BYTES };
                    let offset = random.below(span / 4) * 4 + random.below(4) / bytes * bytes;
                    cpu.config_write(offset, bytes as usize, value).await;
                }
                // What is known, then anything in the BAR: the MSI-X table, what is reserved.
                40..=79 if bar_bytes >= 0x2000 => {
                    let (first, span) = random.pick(&spans);
                    let offset = first + random.below(span / 4) * 4;
                    cpu.write32(offset, value).await;
                }
                80..=94 if bar_bytes >= 8 => {
                    cpu.write64(random.below(bar_bytes / 8) * 8, u64::from(value)).await;
                }
                95 => cpu.reset().await,
                96 | 97 => {
                    let choices = [Interrupts::Legacy, Interrupts::Msi(4), Interrupts::MsiX];
                    cpu.set_interrupts(random.pick(&choices)).await;
                }
                _ => cpu.sleep(random.magnitude(1_000, 1_000_000)).await,
            }
        }
    }
}
