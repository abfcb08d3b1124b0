//! A medium that is no quicker than is said: what is done before its time waits for it, and so does whoever peeks and pokes.

use crate::{Done, Info, Medium, Op, Request};
use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// A rate that all media with a clone of it share, as the namespaces of a device do.
#[derive(Clone, Debug)]
pub struct Rate {
    bytes_per_s: NonZeroU64,
    /// When all that was asked for is through.
    through_ns: Rc<Cell<u64>>,
}

impl Rate {
    /// So many bytes a second, read and written together.
    pub fn new(bytes_per_s: NonZeroU64) -> Self {
        Self { bytes_per_s, through_ns: Rc::new(Cell::new(0)) }
    }

    /// When `bytes` more are through.
    fn take(&self, now_ns: u64, bytes: u64) -> u64 {
        let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s.get());
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let through_ns = self.through_ns.get().max(now_ns).saturating_add(cost_ns);
        self.through_ns.set(through_ns);
        through_ns
    }
}

/// A medium behind a [`Rate`].
pub struct Paced {
    medium: Box<dyn Medium>,
    rate: Rate,
    /// Requests under way: token, and when it may be done; by the order in which they came, which is that of their times.
    under_way: VecDeque<(u64, u64, Option<Done>)>,
    /// Given out for the requests below, and for what passes.
    next: u64,
}

impl Paced {
    /// `medium`, no quicker than `rate`.
    pub fn new(medium: Box<dyn Medium>, rate: Rate) -> Self {
        Self { medium, rate, under_way: VecDeque::new(), next: 0 }
    }
}

impl Medium for Paced {
    fn info(&self) -> Info {
        self.medium.info()
    }

    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Request> {
        let moves = matches!(request.op, Op::Read | Op::Write { .. });
        let (token, bytes) = (request.token, if moves { request.bytes } else { 0 });
        self.medium
            .submit(now_ns, Request { token: self.next, ..request })
            .map_err(|request| Request { token, ..request })?;
        self.under_way.push_back((token, self.rate.take(now_ns, bytes), None));
        self.next += 1;
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, done: &mut dyn FnMut(Done)) -> bool {
        let Self { medium, under_way, next, .. } = self;
        let first = *next - under_way.len() as u64;
        let mut progress = medium.poll(now_ns, &mut |one| {
            if let Some(place) = under_way.get_mut((one.token - first) as usize) {
                place.2 = Some(one);
            }
        });
        // One that is slow below holds up those behind it: times are in order, and so is this.
        while let Some((token, _, one)) =
            under_way.pop_front_if(|(_, due_ns, one)| one.is_some() && *due_ns <= now_ns)
        {
            done(Done { token, ..one.expect("it is there") });
            progress = true;
        }
        progress
    }

    fn peek(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        self.medium.peek(offset, bytes)
    }

    fn poke(&mut self, offset: u64, data: &[u8]) -> bool {
        self.medium.poke(offset, data)
    }

    fn pass(&mut self, now_ns: u64, token: u64, bytes: u64) -> bool {
        let done = Done { token, buf: None, result: Ok(()) };
        self.under_way.push_back((token, self.rate.take(now_ns, bytes), Some(done)));
        self.next += 1;
        true
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.medium.fd()
    }

    fn deadline_ns(&self) -> Option<u64> {
        let due = self.under_way.front().filter(|(_, _, one)| one.is_some()).map(|&(_, due_ns, _)| due_ns);
        [due, self.medium.deadline_ns()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;
    use crate::memory::{Disk, Options};

    fn read(token: u64, bytes: u64) -> Request {
        Request { token, op: Op::Read, offset: 0, bytes, buf: Some(Buf::new(1 << 16)), buf_offset: 0 }
    }

    #[test]
    fn what_passes_without_a_buffer_waits_for_its_time_in_turn() {
        let rate = Rate::new(NonZeroU64::new(65_536_000).unwrap());
        let mut medium = Paced::new(Box::new(crate::ram::RamMedium::new(1 << 20, false).unwrap()), rate);
        assert!(medium.poke(4096, &[7; 512]) && medium.peek(4096, 512) == Some(&[7; 512][..]));
        assert!(medium.pass(0, 10, 1 << 16));
        medium.submit(0, read(11, 1 << 16)).unwrap();
        assert!(medium.pass(0, 12, 1 << 16));
        let mut ended = Vec::new();
        for now_ns in (0..4_000_000).step_by(500_000) {
            medium.poll(now_ns, &mut |done| ended.push((done.token, done.buf.is_some(), now_ns / 1_000_000)));
        }
        assert_eq!(ended, [(10, false, 1), (11, true, 2), (12, false, 3)]);
    }

    #[test]
    fn bytes_are_through_at_the_rate_that_is_said_over_all_media_that_share_it() {
        let disk = Disk::new(Options::default());
        // 64 KiB take a millisecond.
        let rate = Rate::new(NonZeroU64::new(65_536_000).unwrap());
        let mut media = [disk.medium(), Disk::new(Options::default()).medium()]
            .map(|medium| Paced::new(Box::new(medium), rate.clone()));
        for token in 0..4 {
            media[token as usize % 2].submit(1_000, read(10 + token, 1 << 16)).unwrap();
        }
        let mut ended = Vec::new();
        for now_ns in (0..10_000_000).step_by(100_000) {
            for medium in &mut media {
                medium.poll(now_ns, &mut |done| ended.push((done.token, now_ns.div_ceil(1_000_000))));
            }
        }
        assert_eq!(ended, [(10, 2), (11, 3), (12, 4), (13, 5)]);
        // A pause is not made up for.
        media[0].submit(50_000_000, read(20, 1 << 16)).unwrap();
        assert!(!media[0].poll(50_900_000, &mut |_| panic!("too early")) || media[0].deadline_ns().is_some());
        assert_eq!(media[0].deadline_ns(), Some(51_000_000));
        assert!(media[0].poll(51_000_000, &mut |done| assert_eq!(done.token, 20)));
        assert_eq!(media[0].deadline_ns(), None);
    }
}
