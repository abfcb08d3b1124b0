//! A hostile driver, user and peer of the RNIC as a Function: registers, tables, QP pages, queues in memory, segments, reset at any
//! moment, a bus without room. Whatever they do, nothing panics or works without end, and after a reset the RNIC serves.

#![no_main]

#[path = "../../crates/devices/tests/nvme/bus.rs"]
mod bus;
#[path = "../../crates/devices/tests/rnic/chaos.rs"]
mod chaos;
#[path = "../../crates/devices/tests/rnic/pair.rs"]
mod pair;

use etherslot_fuzz::Input;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let mut world = chaos::begin();
    while !input.is_empty() {
        chaos::act(&mut world, &mut |bound| match bound {
            0..=256 => u32::from(input.u8()) % bound.max(1),
            257..=0x1_0000 => u32::from(input.u16()) % bound,
            _ => input.u32() % bound,
        });
    }
    chaos::serves(&mut world);
});
