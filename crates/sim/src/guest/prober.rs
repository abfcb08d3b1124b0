//! Somebody in the guest who looks at the device while its driver works, like `lspci -xxxx`.

use crate::guest::cpu::Cpu;
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
