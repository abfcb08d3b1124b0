//! Asynchronous Events (NVMe Base 1.4, 5.2): told by completing one of the Requests the host has left with us.
//!
//! After an event of a type is told, others of the type wait until the host has read the log page that goes with it.

use super::bits::log;

/// Asynchronous Event Requests that can be left with us (AERL + 1).
pub(crate) const LIMIT: usize = 4;

/// Asynchronous Event Configuration: the SMART warnings, and Namespace Attribute Notices.
pub(crate) const CONFIGURABLE: u32 = 0x1ff;
/// The bit of the latter, also in OAES.
pub(crate) const NAMESPACE_NOTICES: u32 = 1 << 8;

/// What can happen (Figures 147 to 149).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A doorbell of a queue that does not exist was written.
    InvalidDoorbell,
    /// A doorbell was written with a value that can't be.
    InvalidDoorbellValue,
    /// The reliability of the medium is at stake, or it can only be read.
    Reliability,
    /// The temperature has crossed a threshold.
    Temperature,
    /// The Identify data of a namespace have changed.
    NamespaceChanged,
}

const ALL: [Event; 5] = [
    Event::InvalidDoorbell,
    Event::InvalidDoorbellValue,
    Event::Reliability,
    Event::Temperature,
    Event::NamespaceChanged,
];

impl Event {
    fn kind(self) -> u8 {
        match self {
            Self::InvalidDoorbell | Self::InvalidDoorbellValue => 0,
            Self::Reliability | Self::Temperature => 1,
            Self::NamespaceChanged => 2,
        }
    }

    fn information(self) -> u8 {
        match self {
            Self::InvalidDoorbell | Self::Reliability | Self::NamespaceChanged => 0,
            Self::InvalidDoorbellValue | Self::Temperature => 1,
        }
    }

    fn log_page(self) -> u8 {
        match self.kind() {
            0 => log::ERROR_INFORMATION,
            1 => log::SMART,
            _ => log::CHANGED_NAMESPACES,
        }
    }

    /// Dword 0 of the completion (Figure 146).
    fn dword0(self) -> u32 {
        u32::from(self.log_page()) << 16 | u32::from(self.information()) << 8 | u32::from(self.kind())
    }
}

/// Requests left with us, and events not yet told.
#[derive(Debug, Default)]
pub(crate) struct Events {
    requests: [u16; LIMIT],
    left: usize,
    /// By the index in `ALL`.
    pending: u8,
    /// Types that are not told until their log page has been read.
    masked: u8,
}

impl Events {
    /// Leaves a Request with us. False if there are too many.
    pub(crate) fn leave(&mut self, cid: u16) -> bool {
        if self.left == LIMIT {
            return false;
        }
        self.requests[self.left] = cid;
        self.left += 1;
        true
    }

    /// Takes a Request back. False if there is none with that identifier.
    pub(crate) fn take_back(&mut self, cid: u16) -> bool {
        let Some(at) = self.requests[..self.left].iter().position(|request| *request == cid) else {
            return false;
        };
        self.requests.copy_within(at + 1..self.left, at);
        self.left -= 1;
        true
    }

    /// Something happened.
    pub(crate) fn raise(&mut self, event: Event) {
        let at = ALL.iter().position(|other| *other == event).expect("all are listed");
        self.pending |= 1 << at;
    }

    /// The host has read a log page.
    pub(crate) fn log_was_read(&mut self, page: u8) {
        for event in ALL.iter().filter(|event| event.log_page() == page) {
            self.masked &= !(1 << event.kind());
        }
    }

    /// An event to be told now: the Request it completes, and dword 0.
    pub(crate) fn next(&mut self) -> Option<(u16, u32)> {
        if self.left == 0 {
            return None;
        }
        let told = |at: &usize| self.pending & 1 << at != 0 && self.masked & 1 << ALL[*at].kind() == 0;
        let at = (0..ALL.len()).find(told)?;
        self.pending &= !(1 << at);
        self.masked |= 1 << ALL[at].kind();
        let cid = self.requests[0];
        self.take_back(cid);
        Some((cid, ALL[at].dword0()))
    }

    /// Whether [`Events::next`] could have one.
    pub(crate) fn has_next(&self) -> bool {
        self.left > 0 && self.pending != 0
    }

    /// Forgets all.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_completes_the_oldest_request_with_type_information_and_log_page() {
        let mut events = Events::default();
        events.raise(Event::NamespaceChanged);
        assert_eq!(events.next(), None);
        assert!(events.leave(7) && events.leave(8));
        assert_eq!(events.next(), Some((7, 0x0004_0002)));
        assert_eq!(events.next(), None);
        events.raise(Event::InvalidDoorbellValue);
        assert_eq!(events.next(), Some((8, 0x0001_0100)));
    }

    #[test]
    fn a_type_is_masked_until_its_log_page_is_read() {
        let mut events = Events::default();
        (0..4).for_each(|cid| assert!(events.leave(cid)));
        assert!(!events.leave(4));
        events.raise(Event::InvalidDoorbell);
        events.raise(Event::InvalidDoorbellValue);
        events.raise(Event::Reliability);
        assert_eq!(events.next(), Some((0, 0x0001_0000)));
        assert_eq!(events.next(), Some((1, 0x0002_0001)), "another type");
        assert_eq!(events.next(), None);
        events.log_was_read(log::SMART);
        assert_eq!(events.next(), None);
        events.log_was_read(log::ERROR_INFORMATION);
        assert_eq!(events.next(), Some((2, 0x0001_0100)));
    }

    #[test]
    fn a_request_can_be_taken_back() {
        let mut events = Events::default();
        (1..4).for_each(|cid| assert!(events.leave(cid)));
        assert!(events.take_back(2) && !events.take_back(2));
        events.raise(Event::InvalidDoorbell);
        events.raise(Event::Temperature);
        assert_eq!(events.next().map(|next| next.0), Some(1));
        assert_eq!(events.next().map(|next| next.0), Some(3));
    }
}
