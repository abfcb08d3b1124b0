//! Controllers that lie: nothing that they write may do more than cost time.

use std::cell::Cell;

use etherslot_devices::nvme::Nvme;
use etherslot_initiator::nvme::Config;
use etherslot_netio::impair::Impairment;
use etherslot_pci::function::{Bus, Fault, Function, FunctionSpec, InterruptMode, ResetKind};
use etherslot_wire::FunctionId;

use crate::load::Load;
use crate::world::{MS, World, config};

/// Where the initiator's memory is, by its documentation.
const MEMORY: std::ops::Range<u64> = 0x1000_0000..0x1030_0000;
/// And in it the Admin Completion Queue.
const ADMIN_CQ: std::ops::Range<u64> = 0x1000_1000..0x1000_2000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Completions of commands that there are not, behind the real ones.
    Strays,
    /// Real completions with another identifier, queue or status.
    Twisted,
    /// No completions but those of Admin commands.
    Mute,
    /// Anything, anywhere in the memory that it reaches, and beyond.
    Noise,
}

thread_local! {
    /// What the controllers of this test do now.
    static LIE: Cell<Lie> = const { Cell::new(Lie::None) };
}

struct Liar {
    nvme: Nvme,
    random: u64,
}

struct Twist<'a> {
    bus: &'a mut dyn Bus,
    random: &'a mut u64,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Bus for Twist<'_> {
    fn now_ns(&self) -> u64 {
        self.bus.now_ns()
    }

    fn is_master(&self) -> bool {
        self.bus.is_master()
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        if LIE.get() == Lie::Mute && data.len() == 16 && !ADMIN_CQ.contains(&address) {
            return data.len();
        }
        // The size of a Completion Queue Entry.
        if data.len() == 16 && random(self.random).is_multiple_of(20) {
            let mut entry: [u8; 16] = std::array::from_fn(|at| data[at]);
            match (LIE.get(), random(self.random) % 3) {
                (Lie::Strays, _) => {
                    entry[12] ^= random(self.random) as u8 | 1;
                    self.bus.write(address + 16, &entry);
                    return self.bus.write(address, data);
                }
                (Lie::Twisted, 0) => entry[12..14].fill(random(self.random) as u8),
                (Lie::Twisted, 1) => entry[10] ^= 0x55,
                (Lie::Twisted, _) => entry[14] ^= 1,
                _ => {}
            }
            return self.bus.write(address, &entry);
        }
        self.bus.write(address, data)
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        self.bus.read(address, bytes, token)
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.bus.interrupt_mode()
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        self.bus.interrupt(vector)
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        self.bus.set_intx(asserted)
    }
}

impl Function for Liar {
    fn spec(&self) -> FunctionSpec {
        self.nvme.spec()
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.nvme.bar_read(bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.nvme.bar_write(bar, offset, data);
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.nvme.read_completed(token, address, bytes, result);
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        if LIE.get() == Lie::Noise && bus.is_master() && random(&mut self.random).is_multiple_of(10) {
            let bytes = 1 + (random(&mut self.random) % 64) as usize;
            let word = random(&mut self.random).to_le_bytes();
            let noise: Vec<u8> = (0..bytes).map(|at| word[at % 8]).collect();
            let queues = random(&mut self.random).is_multiple_of(2);
            let span = if queues { 0x8000 } else { MEMORY.end - MEMORY.start + 0x1000 };
            bus.write(MEMORY.start + random(&mut self.random) % span, &noise);
        }
        self.nvme.poll(&mut Twist { bus, random: &mut self.random })
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.nvme.deadline_ns()
    }

    fn reset(&mut self, kind: ResetKind) {
        self.nvme.reset(kind);
    }

    fn identified(&mut self, id: FunctionId) {
        self.nvme.identified(id);
    }
}

fn liar(nvme: Nvme) -> Box<dyn Function> {
    Box::new(Liar { nvme, random: 0x1234_5678_9ABC_DEF1 })
}

fn world(config: Config) -> World {
    LIE.set(Lie::None);
    let mut world = World::with(config, &Impairment::default(), liar);
    world.wait(|world| world.initiator.is_ready());
    world
}

#[test]
fn completions_of_no_command_are_counted_and_the_work_goes_on() {
    let mut world = world(Config { command_timeout_ns: 20 * MS, ..config() });
    let mut load = Load::new(5, 8);
    LIE.set(Lie::Strays);
    load.run(&mut world, 16, 300);
    LIE.set(Lie::None);
    load.finish(&mut world);
    assert_ne!(world.initiator.counters().stray_completions, 0);
    assert_eq!(load.errors, []);
}

#[test]
fn completions_that_were_twisted_cost_a_reset_and_no_request() {
    let mut world = world(Config { command_timeout_ns: 20 * MS, ..config() });
    let mut load = Load::new(6, 8);
    LIE.set(Lie::Twisted);
    load.run(&mut world, 16, 300);
    LIE.set(Lie::None);
    load.finish(&mut world);
    let counters = world.initiator.counters();
    assert!(counters.stray_completions > 0 && counters.resets > 0, "{counters:?}");
    assert_eq!(load.errors, []);
}

#[test]
fn a_controller_that_completes_nothing_is_reset_until_the_request_is_given_up() {
    let mut world = world(Config { command_timeout_ns: 100 * MS, give_up_ns: 1_000 * MS, ..config() });
    LIE.set(Lie::Mute);
    let (done, _) = world.one(etherslot_initiator::Op::Read, 0, 8, &[]);
    assert_eq!(done.result, Err(etherslot_initiator::DiskError::TimedOut));
    let resets = world.initiator.counters().resets;
    assert!((5..=10).contains(&resets), "{resets}");
    LIE.set(Lie::None);
    assert_eq!(world.one(etherslot_initiator::Op::Read, 0, 8, &[]).0.result, Ok(()));
}

#[test]
fn noise_in_all_memory_ends_with_every_request_answered_once() {
    let mut world = world(Config { command_timeout_ns: 20 * MS, give_up_ns: 3_000 * MS, ..config() });
    LIE.set(Lie::Noise);
    let mut tokens = std::collections::HashSet::new();
    let mut next = 0;
    let mut ended = Vec::new();
    for _ in 0..100_000 {
        world.disk().poll(&mut |done| ended.push(done));
        for done in ended.drain(..) {
            assert!(tokens.remove(&done.token), "ended twice");
            world.disk().give_back(done.buffer.unwrap());
        }
        while let Some(buffer) = world.disk().take_buffer(4096) {
            let op = etherslot_initiator::Op::Read;
            let request = etherslot_initiator::Request {
                token: next,
                op,
                first_block: 0,
                blocks: 8,
                buffer: Some(buffer),
            };
            match world.disk().submit(request) {
                Ok(()) => tokens.insert(next),
                Err(refused) => {
                    world.disk().give_back(refused.request.buffer.unwrap());
                    break;
                }
            };
            next += 1;
        }
        world.step();
    }
    LIE.set(Lie::None);
    world.wait(|world| {
        world.disk().poll(&mut |done| {
            assert!(tokens.remove(&done.token), "ended twice");
        });
        tokens.is_empty()
    });
    assert!(next > 1000, "{next}");
}
