//! Frames with whatever in them: the dissector never ends in an error of Lua's, nor in an exception of Wireshark's.

use etherslot_lab::Run;

use crate::tshark::{Link, read, write};
use crate::{captured, vectors};

const MUTANTS: usize = 4000;

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}

fn mutate(random: &mut Random, frame: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(frame.len());
        match random.below(8) {
            0 => frame.truncate(at),
            1 => frame.splice(at.., other[random.below(other.len())..].iter().copied()).for_each(drop),
            2 => frame.extend_from_slice(&other[..random.below(other.len())]),
            3 if frame.len() > at + 1 => frame[at..at + 2].copy_from_slice(&[0xFF; 2]),
            4 if at < frame.len() => frame[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
            // Where headers are.
            5 if frame.len() > 100 => frame[random.below(100)] = random.below(256) as u8,
            6 => {
                frame.drain(at..(at + random.below(9)).min(frame.len()));
            }
            _ if at < frame.len() => frame[at] ^= 1 << random.below(8),
            _ => {}
        }
    }
}

#[test]
#[ignore = "needs tshark: ./run test wireshark"]
fn no_frame_ends_in_an_error_of_the_dissector() {
    crate::ready();
    let run = Run::new("mutants").unwrap();
    let mut seeds: Vec<Vec<u8>> = vectors::cases().into_iter().map(|case| case.bytes).collect();
    seeds.extend(captured::traffic(&run));
    seeds.retain(|seed| !seed.is_empty());
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mutants: Vec<Vec<u8>> = (0..MUTANTS)
        .map(|_| {
            let mut frame = seeds[random.below(seeds.len())].clone();
            let other = seeds[random.below(seeds.len())].clone();
            mutate(&mut random, &mut frame, &other);
            frame.truncate(9216);
            frame
        })
        .collect();
    let capture = run.path("mutants.pcap");
    let fields = ["_ws.malformed", "_ws.expert.message", "etherslot.version", "etherslot.refused"];
    for link in [Link::Ethernet, Link::Udp(4700)] {
        write(&capture, mutants.iter().map(|frame| (link, &frame[..])));
        // With the check, damage would end most frames early; without, it gets further.
        let rows = read(&run, &capture, &["etherslot.udp_port:4700"], &fields);
        assert_eq!(rows.len(), MUTANTS);
        let mut refused = 0;
        for (frame, row) in mutants.iter().zip(&rows) {
            let messages = row.all("_ws.expert.message");
            let is_broken =
                row.has("_ws.malformed") || messages.iter().any(|message| message.contains("Lua"));
            assert!(!is_broken, "{messages:?}: {frame:02x?}");
            assert_eq!(row.has("etherslot.version"), !frame.is_empty());
            refused += usize::from(row.has("etherslot.refused"));
        }
        assert!(refused > MUTANTS / 10 && refused < MUTANTS, "{refused} refused");
    }
}
