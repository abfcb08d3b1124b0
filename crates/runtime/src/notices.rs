//! What is wrong and would stay silent: each is told once, with its remedy, when it has lasted for a while, and shown while it lasts.

use std::collections::BTreeMap;

use etherslot_node::GuardCounters;

use crate::stat::NodeStat;

/// How often is looked what is wrong.
const LOOK_NS: u64 = 1_000_000_000;
/// What ends sooner by itself is not worth a word.
const PATIENCE_NS: u64 = 5_000_000_000;
/// What was told is not told again before it was gone for so long.
const FORGET_NS: u64 = 600_000_000_000;
/// Things that are kept in mind; more wait until one of them is forgotten.
const MOST: usize = 64;

/// What is wrong at a node, by its words.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    all: BTreeMap<String, Notice>,
    looked_ns: u64,
    look_ns: u64,
}

#[derive(Debug)]
struct Notice {
    since_ns: u64,
    last_ns: u64,
    is_told: bool,
}

impl Notices {
    /// Looks if it is time to; `wrong` says what is wrong now, in words that stay the same while it lasts.
    pub(crate) fn look(&mut self, now_ns: u64, wrong: impl FnOnce() -> Vec<String>) {
        if now_ns < self.look_ns {
            return;
        }
        let before_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        self.look_ns = now_ns + LOOK_NS;
        for text in wrong() {
            if self.all.len() >= MOST && !self.all.contains_key(&text) {
                continue;
            }
            let fresh = Notice { since_ns: now_ns, last_ns: before_ns, is_told: false };
            let notice = self.all.entry(text).or_insert(fresh);
            if notice.last_ns < before_ns {
                notice.since_ns = now_ns;
            }
            notice.last_ns = now_ns;
        }
        for (text, notice) in self.all.iter_mut().filter(|(_, it)| it.last_ns == now_ns && !it.is_told) {
            notice.is_told = now_ns - notice.since_ns >= PATIENCE_NS;
            if notice.is_told {
                tracing::warn!("{text}");
            }
        }
        self.all.retain(|_, it| {
            it.last_ns == now_ns || it.is_told && now_ns.saturating_sub(it.last_ns) < FORGET_NS
        });
    }

    /// When there is something to look at.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.look_ns
    }

    /// `stat` with what is wrong and was told.
    pub(crate) fn shown_in(&self, stat: NodeStat) -> NodeStat {
        let lasting = self.all.iter().filter(|(_, it)| it.is_told && it.last_ns == self.looked_ns);
        NodeStat { notices: lasting.map(|(text, _)| text.clone()).collect(), ..stat }
    }
}

/// Who knocks at a box and can't be let in: a slot or a program without [fabric] tells its box nothing else.
#[derive(Debug, Default)]
pub(crate) struct Knocks {
    strangers: u64,
    plain: u64,
}

impl Knocks {
    /// What was counted since the last look.
    pub(crate) fn look(&mut self, counters: Option<GuardCounters>) -> impl Iterator<Item = String> {
        let GuardCounters { handshake_strangers, plain_frames, .. } = counters.unwrap_or_default();
        let strangers = std::mem::replace(&mut self.strangers, handshake_strangers) < handshake_strangers;
        let plain = std::mem::replace(&mut self.plain, plain_frames) < plain_frames;
        let told = [
            (
                strangers,
                "somebody whose fabric.key is another wants a session: it needs this node's (handshake_strangers)",
            ),
            (plain, "somebody without keys wants a session: it needs this node's fabric.key (plain_frames)"),
        ];
        told.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a second from `from` to `to`, ms excluded; what is shown then.
    fn shown(notices: &mut Notices, seconds: std::ops::Range<u64>, wrong: &[&str]) -> Vec<String> {
        for second in seconds {
            let wrong = || wrong.iter().map(|&text| text.to_owned()).collect();
            notices.look(second * LOOK_NS, wrong);
        }
        let told = notices.all.iter().filter(|(_, it)| it.is_told && it.last_ns == notices.looked_ns);
        told.map(|(text, _)| text.clone()).collect()
    }

    #[test]
    fn what_lasts_is_shown_and_what_passes_is_not() {
        let mut notices = Notices::default();
        assert!(shown(&mut notices, 1..6, &["a"]).is_empty());
        assert_eq!(shown(&mut notices, 6..7, &["a", "b"]), ["a"]);
        assert!(shown(&mut notices, 7..8, &[]).is_empty());
        assert_eq!(notices.all.len(), 1, "the passing one is forgotten");
        assert_eq!(shown(&mut notices, 8..9, &["a"]), ["a"], "it was told, and is not told again");
        assert!(shown(&mut notices, 9..12, &["b"]).is_empty());
        assert!(shown(&mut notices, 13..14, &[]).is_empty());
        assert!(shown(&mut notices, 14..18, &["b"]).is_empty(), "it began anew");
    }

    #[test]
    fn who_knocks_is_told_while_he_does() {
        let counters = |strangers, plain| {
            Some(GuardCounters {
                handshake_strangers: strangers,
                plain_frames: plain,
                ..GuardCounters::default()
            })
        };
        let mut knocks = Knocks::default();
        assert_eq!(knocks.look(counters(0, 0)).count(), 0);
        let told: Vec<String> = knocks.look(counters(3, 0)).collect();
        assert!(told.len() == 1 && told[0].contains("fabric.key is another"), "{told:?}");
        assert_eq!(knocks.look(counters(3, 0)).count(), 0);
        assert!(knocks.look(counters(3, 1)).all(|text| text.contains("without keys")));
        assert_eq!(knocks.look(counters(4, 2)).count(), 2);
        assert_eq!(knocks.look(None).count(), 0);
    }

    #[test]
    fn a_flood_of_troubles_is_not_kept_in_mind() {
        let mut notices = Notices::default();
        for second in 1..100 {
            let wrong = |number| format!("{}", number + second * 100);
            notices.look(second * LOOK_NS, || (0..100).map(wrong).collect());
            assert!(notices.all.len() <= MOST);
        }
    }
}
