//! A box and a host node side by side, with a small DMA engine as the device.

use std::collections::VecDeque;

use etherslot_node::{
    Accepted, BoxLimits, BoxNode, Device, Guest, HostNode, Interrupt, Interrupts, Refused, SlotConfig,
};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::{BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ResetKind};
use etherslot_session::Config;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

const MS: u64 = 1_000_000;
const BAR_ADDRESS: u64 = 0xFEB0_0000;
const COMMAND: u64 = 0x04;
const BAR0: u64 = 0x10;

/// Registers: 0 scratch; 8 address; 16 length: a write starts "copy `length` bytes from `address` to `address + length`,
/// then interrupt vector 1".
#[derive(Default)]
struct Engine {
    scratch: [u8; 8],
    address: u64,
    data: Vec<u8>,
    asked: usize,
    arrived: usize,
    sent: usize,
    interrupt: bool,
}

impl Function for Engine {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0x1234,
            subsystem: 1,
            revision: 1,
            class: [0xFF, 0, 0],
            bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: 0x4000 }],
            msix: Some(MsixSpec { vectors: 4, bar: 0, table_offset: 0x2000, pba_offset: 0x3000 }),
            msi_vectors: 4,
            intx: true,
            serial: None,
        }
    }

    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if offset == 0 {
            data.copy_from_slice(&self.scratch[..data.len()]);
        }
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let value = || u64::from_le_bytes(data.try_into().unwrap());
        match offset {
            0 => self.scratch[..data.len()].copy_from_slice(data),
            8 => self.address = value(),
            16 => {
                self.data = vec![0; value() as usize];
                (self.asked, self.arrived, self.sent, self.interrupt) = (0, 0, 0, true);
            }
            _ => {}
        }
    }

    fn read_completed(&mut self, _token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let at = (address - self.address) as usize;
        if let Ok(data) = result {
            self.data[at..at + bytes].copy_from_slice(data);
        }
        self.arrived += bytes;
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let total = self.data.len();
        if !bus.is_master() || total == 0 {
            return false;
        }
        if self.asked < total {
            let asked = bus.read(self.address + self.asked as u64, total - self.asked, 7);
            self.asked += asked;
            return asked != 0;
        }
        if self.arrived == total && self.sent < total {
            let sent = bus.write(self.address + (total + self.sent) as u64, &self.data[self.sent..]);
            self.sent += sent;
            return sent != 0;
        }
        if self.sent == total && self.interrupt && bus.interrupt(1) {
            self.interrupt = false;
            return true;
        }
        false
    }

    fn reset(&mut self, _kind: ResetKind) {
        *self = Self::default();
    }
}

/// A guest that keeps what happens to it.
#[derive(Default)]
struct Machine {
    memory: Vec<u8>,
    interrupts: Vec<Interrupt>,
    answers: VecDeque<(u64, Vec<u8>)>,
    attached: Vec<Device>,
    lost: usize,
    /// What the target of the DMA held when the interrupt came.
    seen_at_interrupt: Vec<u8>,
    watch: std::ops::Range<usize>,
}

impl Guest for Machine {
    fn read(&mut self, _slot: usize, address: u64, data: &mut [u8]) -> bool {
        let at = address as usize;
        self.memory.get(at..at + data.len()).map(|memory| data.copy_from_slice(memory)).is_some()
    }

    fn write(&mut self, _slot: usize, address: u64, data: &[u8]) -> bool {
        let at = address as usize;
        self.memory.get_mut(at..at + data.len()).map(|memory| memory.copy_from_slice(data)).is_some()
    }

    fn interrupt(&mut self, _slot: usize, interrupt: Interrupt) {
        self.interrupts.push(interrupt);
        self.seen_at_interrupt = self.memory[self.watch.clone()].to_vec();
    }

    fn completed(&mut self, _slot: usize, access: u64, data: &[u8]) {
        self.answers.push_back((access, data.to_vec()));
    }

    fn attached(&mut self, _slot: usize, device: &Device) {
        self.attached.push(*device);
    }

    fn lost(&mut self, _slot: usize) {
        self.lost += 1;
    }
}

struct World {
    now_ns: u64,
    box_node: Option<BoxNode<u8>>,
    host: HostNode<u8>,
    machine: Machine,
    lives: u64,
    next_access: u64,
}

const BOX: u8 = 1;
const HOST: u8 = 2;

fn new_box(life: u64) -> BoxNode<u8> {
    let config = Config { node: NodeId([BOX; 16]), ..Config::default() };
    let endpoint = Box::new(Endpoint::new(Box::<Engine>::default(), EndpointConfig::default()));
    BoxNode::new(&config, BoxLimits::default(), life, vec![(Name::new("engine").unwrap(), endpoint)])
}

fn new_host(life: u64, hide_msix: bool) -> HostNode<u8> {
    let config = Config { node: NodeId([HOST; 16]), ..Config::default() };
    HostNode::new(config, life, &[SlotConfig { name: Name::new("engine").unwrap(), address: BOX, hide_msix }])
}

impl World {
    fn new() -> Self {
        Self::with(false)
    }

    fn with(hide_msix: bool) -> Self {
        let machine = Machine { memory: vec![0; 1 << 20], ..Machine::default() };
        let (box_node, host) = (Some(new_box(1)), new_host(2, hide_msix));
        let mut world = Self { now_ns: MS, box_node, host, machine, lives: 2, next_access: 0 };
        world.run(200 * MS);
        world
    }

    fn run(&mut self, for_ns: u64) {
        let until = self.now_ns + for_ns;
        while self.now_ns < until {
            self.step();
        }
    }

    /// 20 us: frames cross in one step.
    fn step(&mut self) {
        self.now_ns += 20_000;
        let now_ns = self.now_ns;
        let mut frames: Vec<Vec<u8>> = Vec::new();
        self.host.poll(now_ns, &mut self.machine);
        self.host.transmit(now_ns, &mut |_, burst| {
            frames.extend(burst.iter().map(|frame| frame.to_vec()));
            burst.len()
        });
        let Some(box_node) = &mut self.box_node else { return };
        for frame in frames.drain(..) {
            box_node.receive(now_ns, &HOST, &frame);
        }
        box_node.poll(now_ns);
        box_node.transmit(now_ns, &mut |_, burst| {
            frames.extend(burst.iter().map(|frame| frame.to_vec()));
            burst.len()
        });
        for frame in frames {
            self.host.receive(now_ns, &BOX, &frame, &mut self.machine);
        }
    }

    fn answer(&mut self, outcome: Result<Accepted, Refused>, bytes: usize) -> Vec<u8> {
        match outcome.unwrap() {
            Accepted::AllOnes => vec![0xFF; bytes],
            Accepted::Later => {
                let until = self.now_ns + 1_100 * MS;
                while self.machine.answers.is_empty() {
                    assert!(self.now_ns < until, "an access was not answered in time");
                    self.step();
                }
                let (access, data) = self.machine.answers.pop_front().unwrap();
                assert_eq!(access, self.next_access);
                data
            }
        }
    }

    fn config_read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.next_access += 1;
        let outcome = self.host.config_read(self.now_ns, 0, self.next_access, offset, bytes);
        self.answer(outcome, bytes)
    }

    fn config_write(&mut self, offset: u64, data: &[u8]) {
        self.next_access += 1;
        let outcome = self.host.config_write(self.now_ns, 0, self.next_access, offset, data);
        self.answer(outcome, 0);
    }

    fn bar_read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.next_access += 1;
        let outcome = self.host.bar_read(self.now_ns, 0, self.next_access, 0, offset, bytes);
        self.answer(outcome, bytes)
    }

    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let until = self.now_ns + 1_100 * MS;
        while !self.host.has_room(0) {
            assert!(self.now_ns < until, "posted writes are not drained");
            self.step();
        }
        self.host.bar_write(0, 0, offset, data).unwrap();
    }

    /// What a guest's kernel does.
    fn set_up(&mut self) {
        self.config_write(BAR0, &(BAR_ADDRESS as u32).to_le_bytes());
        self.config_write(BAR0 + 4, &0u32.to_le_bytes());
        self.config_write(COMMAND, &6u16.to_le_bytes());
        self.host.set_interrupts(0, Interrupts::MsiX);
        self.run(MS);
    }

    fn copy(&mut self, address: usize, bytes: usize) {
        for (at, byte) in self.machine.memory[address..address + bytes].iter_mut().enumerate() {
            *byte = (at * 7 + 3) as u8;
        }
        self.machine.watch = address + bytes..address + 2 * bytes;
        self.bar_write(8, &(address as u64).to_le_bytes());
        self.bar_write(16, &(bytes as u64).to_le_bytes());
        self.run(20 * MS);
    }

    fn kill_box(&mut self) {
        self.box_node = None;
    }

    fn restart_box(&mut self) {
        self.lives += 1;
        self.box_node = Some(new_box(self.lives));
    }
}

#[test]
fn a_device_is_attached_and_described() {
    let world = World::new();
    let [device] = world.machine.attached[..] else {
        panic!("attached {} times", world.machine.attached.len())
    };
    assert_eq!(device.id, (0x1234, 0x5678));
    assert_eq!(device.bar_bytes, [0x4000, 0, 0, 0, 0, 0]);
    assert_eq!((device.msi_vectors, device.msix_vectors, device.intx), (4, 4, true));
}

#[test]
fn configuration_space_reads_in_one_piece_and_in_bytes() {
    let mut world = World::new();
    let whole = world.config_read(0, 4096);
    assert_eq!(&whole[..4], &[0x34, 0x12, 0x78, 0x56]);
    for offset in [0, 1, 2, 3, 0x2C, 0x2D] {
        assert_eq!(world.config_read(offset, 1), whole[offset as usize..][..1]);
    }
    assert_eq!(world.config_read(1, 2), whole[1..3]);
    assert_eq!(world.host.config_read(0, 0, 9, 4095, 2), Err(Refused::Range));
}

#[test]
fn a_hidden_msix_capability_is_not_in_the_list() {
    for hide in [false, true] {
        let mut world = World::with(hide);
        let space = world.config_read(0, 4096);
        let mut at = space[0x34] as usize;
        let mut seen = Vec::new();
        while at != 0 {
            seen.push(space[at]);
            at = space[at + 1] as usize;
        }
        assert_eq!(seen.contains(&0x11), !hide, "{seen:x?}");
        assert!(seen.contains(&0x05) && seen.contains(&0x10));
        assert_eq!(world.machine.attached[0].msix_vectors == 0, hide);
    }
}

#[test]
fn bars_can_be_used_once_memory_is_enabled() {
    let mut world = World::new();
    assert_eq!(world.bar_read(0, 4), [0xFF; 4]);
    world.set_up();
    world.bar_write(0, &[1, 2, 3, 4]);
    assert_eq!(world.bar_read(0, 8), [1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(world.host.bar_read(0, 0, 9, 0, 0x4000, 4), Err(Refused::Range));
    assert_eq!(world.host.bar_read(0, 0, 9, 1, 0, 4), Err(Refused::Range));
}

#[test]
fn dma_of_any_alignment_and_length_is_exact_and_before_its_interrupt() {
    let mut world = World::new();
    world.set_up();
    for (address, bytes) in
        [(0x1000, 4096), (0x2001, 1), (0x3003, 5), (0x4FFE, 8), (0x8000, 40_000), (0x2_0007, 30_001)]
    {
        world.machine.interrupts.clear();
        world.copy(address, bytes);
        let memory = &world.machine.memory;
        assert_eq!(
            memory[address + bytes..address + 2 * bytes],
            memory[address..address + bytes],
            "{address:#x}"
        );
        assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
        assert_eq!(
            world.machine.seen_at_interrupt,
            memory[address..address + bytes],
            "interrupt before data"
        );
    }
}

#[test]
fn dma_outside_of_memory_faults_and_the_device_goes_on() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(8, &(1u64 << 40).to_le_bytes());
    world.bar_write(16, &4096u64.to_le_bytes());
    world.run(20 * MS);
    assert!(world.host.slot_counters().next().unwrap().dma_faults >= 2);
    world.copy(0x1000, 512);
    assert_eq!(world.machine.memory[0x1200..0x1400], world.machine.memory[0x1000..0x1200]);
}

#[test]
fn msi_takes_the_place_of_msix() {
    let mut world = World::with(true);
    world.set_up();
    world.host.set_interrupts(0, Interrupts::Msi(4));
    world.run(MS);
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn the_guests_message_settings_do_not_reach_the_device() {
    let mut world = World::new();
    world.set_up();
    let space = world.config_read(0, 256);
    let msi = (0..256).find(|&at| at == space[0x34] as usize && space[at] == 5);
    let mut at = space[0x34] as usize;
    let mut found = msi;
    while at != 0 && found.is_none() {
        found = (space[at] == 5).then_some(at);
        at = space[at + 1] as usize;
    }
    let capability = found.unwrap() as u64;
    world.config_write(capability + 4, &0xDEAD_BEE0u32.to_le_bytes());
    assert_eq!(
        world.config_read(capability + 4, 4),
        0xDEAD_BEE0u32.to_le_bytes(),
        "the guest sees what it wrote"
    );
    world.host.set_interrupts(0, Interrupts::Msi(4));
    world.run(MS);
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn a_dead_box_reads_all_ones_in_bounded_time() {
    let mut world = World::new();
    world.set_up();
    world.kill_box();
    assert_eq!(world.bar_read(0, 4), [0xFF; 4]);
    world.run(2_000 * MS);
    assert_eq!(world.machine.lost, 1);
    assert_eq!(world.config_read(0, 4), [0xFF; 4]);
    world.bar_write(0, &[1; 4]);
}

#[test]
fn a_box_that_comes_back_is_set_up_as_the_guest_had_it() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(0, &[9; 8]);
    world.kill_box();
    world.run(2_000 * MS);
    world.restart_box();
    world.run(1_000 * MS);
    assert_eq!(world.machine.attached.len(), 2);
    assert_eq!(world.config_read(BAR0, 4)[1..], (BAR_ADDRESS as u32).to_le_bytes()[1..]);
    assert_eq!(world.bar_read(0, 8), [0; 8], "a device that comes back is a device after reset");
    world.copy(0x1000, 4096);
    assert_eq!(world.machine.memory[0x2000..0x3000], world.machine.memory[0x1000..0x2000]);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn a_host_that_comes_back_finds_the_device_reset() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(0, &[9; 8]);
    world.run(MS);
    world.host = new_host(77, false);
    world.run(300 * MS);
    world.set_up();
    assert_eq!(world.bar_read(0, 8), [0; 8]);
}

#[test]
fn a_reset_by_the_guest_forgets_its_settings() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(0, &[9; 8]);
    world.next_access += 1;
    let outcome = world.host.reset(world.now_ns, 0, Some(world.next_access));
    world.answer(outcome, 0);
    assert_eq!(world.config_read(COMMAND, 2)[0] & 6, 0);
    assert_eq!(world.bar_read(0, 8), [0xFF; 8], "memory decoding is off");
    world.set_up();
    assert_eq!(world.bar_read(0, 8), [0; 8]);
}

#[test]
fn a_function_level_reset_keeps_the_interrupts_that_the_guest_set_up() {
    let mut world = World::new();
    world.set_up();
    let space = world.config_read(0, 256);
    let mut at = space[0x34] as usize;
    while space[at] != 0x10 {
        at = space[at + 1] as usize;
    }
    let control = at as u64 + 8;
    world.config_write(control, &[space[at + 8], space[at + 9] | 0x80]);
    world.run(100 * MS);
    world.config_write(BAR0, &(BAR_ADDRESS as u32).to_le_bytes());
    world.config_write(COMMAND, &6u16.to_le_bytes());
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn a_closed_session_gives_the_device_back_at_once() {
    let mut world = World::new();
    world.set_up();
    world.host.close();
    world.run(50 * MS);
    assert_eq!(world.box_node.as_ref().unwrap().hosts().count(), 0);
}
