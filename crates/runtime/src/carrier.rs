//! Whether frames can pass the interfaces of a node's links.

use etherslot_netio::has_carrier;

use crate::events::{Event, Teller};
use crate::options::{LinkKind, LinkOptions};
use crate::stat::NodeStat;

/// While somebody listens, interfaces are looked at this often.
const LOOK_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Carrier {
    link: usize,
    interface: String,
    /// What those who listen know; nothing while nobody does.
    known: Option<bool>,
}

/// Those of links that are over an interface of the kernel.
#[derive(Debug)]
pub(crate) struct Carriers {
    /// Asks the kernel.
    look: fn(&str) -> bool,
    all: Vec<Carrier>,
    next_ns: u64,
}

impl Default for Carriers {
    fn default() -> Self {
        Self { look: has_carrier, all: Vec::new(), next_ns: 0 }
    }
}

impl Carriers {
    /// Those of these links.
    pub(crate) fn of(links: &[LinkOptions]) -> Self {
        let carriers = links.iter().enumerate().filter_map(|(link, options)| match &options.kind {
            LinkKind::Packet { interface } | LinkKind::Xdp { interface, .. } => {
                Some(Carrier { link, interface: interface.clone(), known: None })
            }
            LinkKind::Udp { .. } | LinkKind::Ring { .. } | LinkKind::Dpdk { .. } => None,
        });
        Self { all: carriers.collect(), ..Self::default() }
    }

    /// Puts into `stat` what is known of the links.
    pub(crate) fn show(&self, stat: &mut NodeStat) {
        for carrier in &self.all {
            if let Some(link) = stat.links.get_mut(carrier.link) {
                link.is_up = Some((self.look)(&carrier.interface));
            }
        }
    }

    /// Tells what has changed, now and then, to those who listen; `has_listeners`: whether anybody does.
    pub(crate) fn poll(&mut self, now_ns: u64, has_listeners: bool, teller: &Teller) {
        if !has_listeners {
            if std::mem::take(&mut self.next_ns) != 0 {
                self.all.iter_mut().for_each(|carrier| carrier.known = None);
            }
            return;
        }
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + LOOK_NS;
        for Carrier { link, interface, known } in &mut self.all {
            let now = (self.look)(interface);
            if known.replace(now).is_some_and(|known| known != now) {
                teller.tell(|| Event::Link { link: *link, interface: interface.clone(), is_up: now });
            }
        }
    }

    /// When [`Carriers::poll`] looks again.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        (!self.all.is_empty()).then_some(self.next_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(static IS_UP: Cell<bool> = const { Cell::new(true) });

    #[test]
    fn a_carrier_that_goes_and_comes_is_told_once_each() {
        let carrier = Carrier { link: 1, interface: "eth0".to_owned(), known: None };
        let mut carriers = Carriers { look: |_| IS_UP.get(), all: vec![carrier], next_ns: 0 };
        let teller = Teller::default();
        teller.set_listeners(true);
        let mut now_ns = 0;
        for (is_up, is_told) in [(true, false), (false, true), (false, false), (true, true)] {
            IS_UP.set(is_up);
            carriers.poll(now_ns, true, &teller);
            let event = teller.take().map(|(_, event)| event);
            let told = Event::Link { link: 1, interface: "eth0".to_owned(), is_up };
            assert_eq!(event, is_told.then_some(told));
            now_ns += LOOK_NS;
        }
        IS_UP.set(false);
        carriers.poll(now_ns - 1, true, &teller);
        assert_eq!(teller.take(), None, "not looked at yet");
        carriers.poll(now_ns, true, &teller);
        assert!(matches!(teller.take(), Some((_, Event::Link { is_up: false, .. }))));
        carriers.poll(now_ns, false, &teller);
        IS_UP.set(true);
        carriers.poll(now_ns, true, &teller);
        assert_eq!(teller.take(), None, "who begins to listen has a snapshot");
    }
}
