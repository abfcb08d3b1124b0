//! What is at the other end of a network controller's cable: it checks each frame that comes, and sends it back.

use std::collections::VecDeque;
use std::rc::Rc;

use etherslot_devices::cable::End;

use crate::checkers::verdict::{Rule, Verdict};
use crate::random::mix;

/// Its address.
pub(crate) const MAC: [u8; 6] = [0x02, 0, 0, 0, 0x57, 0x01];
/// Bytes of the shortest and the longest frame, without FCS.
pub(crate) const LEAST_BYTES: usize = 60;
pub(crate) const MOST_BYTES: usize = 1514;
/// For local experiments.
const ETHER_TYPE: [u8; 2] = [0x88, 0xB6];
const HEADER_BYTES: usize = 14;
/// Frames that it keeps while the cable is full.
const MOST_WAITING: usize = 64;

/// A frame with this number: its bytes tell which it is and where each of them belongs.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &ETHER_TYPE, &number.to_le_bytes()].concat();
    let words = (0..).flat_map(|at: u64| mix(mix(number) ^ at).to_le_bytes());
    frame.extend(words.take(bytes.saturating_sub(HEADER_BYTES + 8)));
    frame
}

/// The number of a frame of this kind.
pub(crate) fn number(frame: &[u8]) -> Option<u64> {
    let ether_type = frame.get(HEADER_BYTES - 2..HEADER_BYTES)?;
    let number = frame.get(HEADER_BYTES..)?.first_chunk()?;
    (ether_type == ETHER_TYPE).then(|| u64::from_le_bytes(*number))
}

/// The station.
pub(crate) struct Station {
    end: End,
    name: String,
    verdict: Rc<Verdict>,
    /// The number of the frame that came last. It outlives the box.
    last: Option<u64>,
    /// Every frame comes: only frames of the network below are lost.
    is_gapless: bool,
    waiting: VecDeque<Vec<u8>>,
}

impl Station {
    /// At this end of a cable; `last` is the number of the frame that came last to the one before.
    pub(crate) fn new(
        end: End,
        name: String,
        verdict: Rc<Verdict>,
        last: Option<u64>,
        is_gapless: bool,
    ) -> Self {
        Self { end, name, verdict, last, is_gapless, waiting: VecDeque::new() }
    }

    /// The number of the frame that came last.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Takes frames and sends them back, as far as there is room. True if it did anything.
    pub(crate) fn poll(&mut self) -> bool {
        let mut any = false;
        while self.waiting.len() < MOST_WAITING
            && let Some(frame) = self.end.receive()
        {
            self.take(&frame);
            self.end.done(frame);
            any = true;
        }
        while self.end.room() != 0
            && let Some(frame) = self.waiting.pop_front()
        {
            self.end.send_copy(&frame);
            any = true;
        }
        any
    }

    fn take(&mut self, bytes: &[u8]) {
        let broken = |detail: String| self.verdict.broken(Rule::Data, || format!("{}: {detail}", self.name));
        let from = bytes.get(6..12).and_then(|from| from.first_chunk()).copied();
        let (Some(number), Some(from)) = (number(bytes), from) else {
            return broken(format!("a frame of {} bytes that no driver sent", bytes.len()));
        };
        if *bytes != frame(MAC, from, number, bytes.len()) {
            return broken(format!("frame {number} is not as it was sent"));
        }
        match self.last {
            Some(last) if number <= last => broken(format!("frame {number} came after {last}")),
            Some(last) if self.is_gapless && number != last + 1 => {
                broken(format!("frame {number} came after {last}, and none between"));
            }
            _ => {}
        }
        self.last = Some(number);
        self.waiting.push_back(frame(from, MAC, number, bytes.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_devices::cable::cable;

    #[test]
    fn frames_go_back_as_they_are_and_what_is_wrong_with_them_is_told() {
        let guest = [2, 0, 0, 0, 0, 9];
        let bad: [&dyn Fn() -> Vec<Vec<u8>>; 4] = [
            &|| vec![frame(MAC, guest, 2, 80), frame(MAC, guest, 2, 80)],
            &|| vec![frame(MAC, guest, 1, 80), frame(MAC, guest, 3, 80)],
            &|| {
                let mut frame = frame(MAC, guest, 1, 80);
                frame[79] ^= 1;
                vec![frame]
            },
            &|| vec![vec![0; 60]],
        ];
        for frames in bad {
            let (near, far) = cable(8);
            let verdict = Rc::new(Verdict::new(false, false));
            let mut station = Station::new(far, "nic".to_owned(), Rc::clone(&verdict), None, true);
            assert!(near.send_copy(&frame(MAC, guest, 0, 80)) && station.poll());
            let back = near.receive().unwrap();
            assert_eq!(*back, frame(guest, MAC, 0, 80));
            assert!(!verdict.is_broken());
            for frame in frames() {
                near.send_copy(&frame);
            }
            station.poll();
            assert!(verdict.is_broken());
        }
    }
}
