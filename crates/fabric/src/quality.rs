//! How good a way between two nodes is, judged by the heartbeats that came and those that did not.

/// The last 64 heartbeats of a node on one of its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Bit 0 is the newest; set: it came.
    seen: u64,
    /// How many bits count.
    span: u32,
    /// The newest one's number.
    newest: u32,
}

impl Quality {
    /// A heartbeat came, the one that left as number `sent`.
    pub(crate) fn heard(&mut self, sent: u32) {
        let ahead = sent.wrapping_sub(self.newest);
        match ahead {
            _ if self.span == 0 => (self.seen, self.span) = (1, 1),
            0 => return,
            1..=63 => {
                self.seen = self.seen << ahead | 1;
                self.span = (self.span + ahead).min(64);
            }
            // So many missed, or a number of another life: nothing of the past says anything.
            64..=0x7FFF_FFFF => (self.seen, self.span) = (1, 64),
            // One that was overtaken.
            _ => {
                self.seen |= 1_u64.checked_shl(self.newest.wrapping_sub(sent)).unwrap_or(0);
                return;
            }
        }
        self.newest = sent;
    }

    /// A new life: counting begins anew.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// How many of the last heartbeats, up to 64, did not come: lost and expected.
    pub fn lost(&self) -> (u32, u32) {
        (self.span - self.seen.count_ones().min(self.span), self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_between_two_heartbeats_is_lost() {
        let mut quality = Quality::default();
        assert_eq!(quality.lost(), (0, 0));
        for sent in [u32::MAX - 1, u32::MAX, 0, 3] {
            quality.heard(sent);
        }
        assert_eq!(quality.lost(), (2, 6));
        quality.heard(2);
        assert_eq!(quality.lost(), (1, 6), "one was only late");
        quality.heard(3);
        assert_eq!(quality.lost(), (1, 6));
        for sent in 4..100 {
            quality.heard(sent);
        }
        assert_eq!(quality.lost(), (0, 64));
        quality.heard(10_000);
        assert_eq!(quality.lost(), (63, 64));
        quality.reset();
        quality.heard(7);
        assert_eq!(quality.lost(), (0, 1));
    }
}
