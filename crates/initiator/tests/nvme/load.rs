//! Many requests at once on disjoint blocks, with a model of what the disk holds.

use std::collections::HashMap;

use etherslot_initiator::{DiskError, Done, Op, Request};

use crate::world::World;

/// Places of the disk that are read and written, with at most one request each.
pub(crate) struct Load {
    blocks: u32,
    places: u64,
    random: u64,
    under_way: HashMap<u64, (u64, Op, u8)>,
    /// What each place holds for sure.
    holds: HashMap<u64, u8>,
    next: u64,
    pub(crate) done: u64,
    pub(crate) errors: Vec<DiskError>,
}

impl Load {
    pub(crate) fn new(seed: u64, blocks: u32) -> Self {
        let places = (16 << 20) / 512 / u64::from(blocks);
        let (under_way, holds) = (HashMap::new(), HashMap::new());
        Self { blocks, places, random: seed, under_way, holds, next: 0, done: 0, errors: Vec::new() }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Keeps `depth` requests under way.
    pub(crate) fn submit(&mut self, world: &mut World, depth: usize) {
        while self.under_way.len() < depth {
            let place = self.random() % self.places.min(256);
            if self.under_way.values().any(|&(other, ..)| other == place) {
                continue;
            }
            let bytes = self.blocks as usize * 512;
            let Some(buffer) = world.disk().take_buffer(bytes) else { return };
            let fill = self.random() as u8;
            let op = match self.random() % 8 {
                0..4 => Op::Read,
                4..7 => Op::Write { durable: false },
                _ => Op::WriteZeroes { unmap: false },
            };
            world.disk().data_mut(&buffer)[..bytes].fill(fill);
            let first_block = place * u64::from(self.blocks);
            let request =
                Request { token: self.next, op, first_block, blocks: self.blocks, buffer: Some(buffer) };
            if let Err(refused) = world.disk().submit(request) {
                world.disk().give_back(refused.request.buffer.unwrap());
                return;
            }
            self.under_way.insert(self.next, (place, op, fill));
            self.next += 1;
        }
    }

    /// Takes what is done and compares it with the model.
    pub(crate) fn poll(&mut self, world: &mut World) {
        let mut ended = Vec::new();
        world.disk().poll(&mut |done| ended.push(done));
        for Done { token, buffer, result } in ended {
            let (place, op, fill) = self.under_way.remove(&token).expect("ends once");
            let buffer = buffer.expect("comes back");
            self.done += 1;
            match (result, op) {
                (Err(error), op) => {
                    self.errors.push(error);
                    if op.is_writing() {
                        self.holds.remove(&place);
                    }
                }
                (Ok(()), Op::Read) => {
                    let data = &world.disk().data(&buffer)[..self.blocks as usize * 512];
                    if let Some(&held) = self.holds.get(&place) {
                        assert!(data.iter().all(|&byte| byte == held), "place {place} does not hold {held}");
                    }
                }
                (Ok(()), Op::Write { .. }) => {
                    self.holds.insert(place, fill);
                }
                (Ok(()), _) => {
                    self.holds.insert(place, 0);
                }
            }
            world.disk().give_back(buffer);
        }
    }

    pub(crate) fn run(&mut self, world: &mut World, depth: usize, operations: u64) {
        let until = self.done + operations;
        world.wait(|world| {
            self.poll(world);
            self.submit(world, depth);
            self.done >= until
        });
    }

    /// Waits for the rest, and looks at the medium past all of the way.
    pub(crate) fn finish(&mut self, world: &mut World) {
        world.wait(|world| {
            self.poll(world);
            self.under_way.is_empty()
        });
        let mut data = vec![0; self.blocks as usize * 512];
        for (&place, &held) in &self.holds {
            world.medium.peek(place * u64::from(self.blocks) * 512, &mut data);
            assert!(data.iter().all(|&byte| byte == held), "the medium's place {place} does not hold {held}");
        }
    }
}
