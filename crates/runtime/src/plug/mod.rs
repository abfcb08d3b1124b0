//! Hot plug: devices enter and leave running guests as they come and go, by QEMU's monitor.

mod monitor;
mod place;

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::options::HotPlugOptions;
use crate::sleeper::Sleeper;
use monitor::{Monitor, Refusal, Word};
use place::{Ask, News, Place};

/// QEMU's type of a switch's port.
const DOWNSTREAM_PORT: &str = "xio3130-downstream";

/// The slots' places in guests, and the monitors of those.
#[derive(Debug)]
pub(crate) struct Plugs {
    monitors: Vec<Monitor>,
    /// By slot; none for a slot that no guest is asked about.
    sockets: Vec<Option<Socket>>,
    /// Commands under way: their numbers, slots, and what was asked.
    asked: VecDeque<(u64, usize, Ask)>,
    numbers: u64,
    /// Slots whose devices have entered or left their guests.
    moves: VecDeque<(usize, Move)>,
    now_ns: u64,
}

/// Where a slot's device is plugged in.
#[derive(Debug)]
struct Socket {
    monitor: usize,
    options: HotPlugOptions,
    /// The vfio-user socket, as QEMU finds it.
    path: String,
    place: Place,
    /// The ports that QEMU has told of, by their names.
    ports: Vec<String>,
    /// Why QEMU does not let the device in.
    refusal: Option<String>,
}

/// How a device has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Into its guest.
    In,
    /// Out of it.
    Out {
        /// The box waits for it.
        is_recalled: bool,
    },
}

impl Plugs {
    pub(crate) fn new() -> Self {
        Self {
            monitors: Vec::new(),
            sockets: Vec::new(),
            asked: VecDeque::new(),
            numbers: 0,
            moves: VecDeque::new(),
            now_ns: 0,
        }
    }

    /// The next slot's plug, if it has one; `path` is its vfio-user socket.
    pub(crate) fn add(&mut self, options: Option<HotPlugOptions>, path: String) {
        let socket = options.map(|options| {
            let known = self.monitors.iter().position(|monitor| monitor.path() == options.monitor);
            let monitor = known.unwrap_or_else(|| {
                self.monitors.push(Monitor::new(options.monitor.clone()));
                self.monitors.len() - 1
            });
            Socket {
                monitor,
                path,
                place: Place::new(options.grace.as_nanos() as u64),
                options,
                ports: Vec::new(),
                refusal: None,
            }
        });
        self.sockets.push(socket);
    }

    fn place(&mut self, slot: usize) -> Option<&mut Place> {
        self.sockets[slot].as_mut().map(|socket| &mut socket.place)
    }

    /// Whether a slot's device enters and leaves a running guest.
    pub(crate) fn has(&self, slot: usize) -> bool {
        self.sockets[slot].is_some()
    }

    /// Monitors at which nobody is, and devices that can't enter their guests.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let absent = self.monitors.iter().filter(|monitor| monitor.is_absent());
        let told = absent.map(|monitor| {
            let path = monitor.path().display();
            format!(
                "no QEMU at {path}, so no guest that devices could enter: start it with -qmp unix:{path},server=on,wait=off"
            )
        });
        let refused =
            self.sockets.iter().flatten().filter_map(|Socket { options, place, refusal, .. }| {
                let why = refusal.as_ref().filter(|_| place.is_kept_out())?;
                Some(format!("{} can't enter its guest at port {}: {why}", options.id, options.bus))
            });
        told.chain(refused).collect()
    }

    /// Where the device of a slot is, in a word.
    pub(crate) fn stage(&self, slot: usize) -> Option<&'static str> {
        self.sockets[slot].as_ref().map(|socket| socket.place.stage())
    }

    /// A slot's device was attached.
    pub(crate) fn attached(&mut self, slot: usize) {
        if let Some(place) = self.place(slot) {
            place.attached();
        }
    }

    /// A slot's device is out of reach.
    pub(crate) fn lost(&mut self, slot: usize) {
        let now_ns = self.now_ns;
        if let Some(place) = self.place(slot) {
            place.lost(now_ns);
        }
    }

    /// A slot's box wants the device back. False if no guest can be asked for it.
    pub(crate) fn recalled(&mut self, slot: usize) -> bool {
        self.place(slot).is_some_and(Place::recalled)
    }

    /// A slot's box wants the device back no more.
    pub(crate) fn kept(&mut self, slot: usize) {
        if let Some(place) = self.place(slot) {
            place.kept();
        }
    }

    /// A slot whose device has entered or left its guest.
    pub(crate) fn take_move(&mut self) -> Option<(usize, Move)> {
        self.moves.pop_front()
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let places = self.sockets.iter().flatten().filter_map(|socket| {
            self.monitors[socket.monitor].is_ready().then(|| socket.place.deadline_ns()).flatten()
        });
        self.monitors.iter().filter_map(Monitor::deadline_ns).chain(places).min()
    }

    /// Goes on. `is_connected` says of a slot whether a guest is at its socket. True if something was done.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        sleeper: &Sleeper,
        is_connected: &dyn Fn(usize) -> bool,
    ) -> bool {
        self.now_ns = now_ns;
        let mut progress = false;
        for monitor in 0..self.monitors.len() {
            let mut words = Vec::new();
            progress |= self.monitors[monitor].poll(now_ns, sleeper, &mut |word| words.push(word));
            for word in words {
                self.heard(now_ns, monitor, word);
            }
            if self.monitors[monitor].is_ready() {
                progress |= self.ask(now_ns, monitor, is_connected);
            } else {
                self.desert(monitor, is_connected);
            }
        }
        progress
    }

    /// Without its monitor a guest may live on; without its connection to the slot as well, it does not.
    fn desert(&mut self, of: usize, is_connected: &dyn Fn(usize) -> bool) {
        for slot in 0..self.sockets.len() {
            let socket = self.sockets[slot].as_mut().filter(|socket| socket.monitor == of);
            if let Some(socket) = socket.filter(|_| !is_connected(slot)) {
                let news = socket.place.deserted();
                self.tell(slot, news, "");
            }
        }
    }

    fn ask(&mut self, now_ns: u64, of: usize, is_connected: &dyn Fn(usize) -> bool) -> bool {
        let mut progress = false;
        let monitor = &mut self.monitors[of];
        for (slot, socket) in self.sockets.iter_mut().enumerate() {
            let Some(Socket { options, path, place, .. }) =
                socket.as_mut().filter(|socket| socket.monitor == of)
            else {
                continue;
            };
            while let Some(ask) = place.next(now_ns, is_connected(slot)) {
                let (id, bus) = (&options.id, &options.bus);
                let (command, arguments) = match ask {
                    Ask::List => ("qom-list", json!({ "path": "/machine/peripheral" })),
                    Ask::Add => {
                        let socket = json!({ "type": "unix", "path": path });
                        let driver = "vfio-user-pci";
                        ("device_add", json!({ "driver": driver, "id": id, "bus": bus, "socket": socket }))
                    }
                    // What a port reports whose Requests nobody answers: Completion Timeout (2.8), which is not fatal. After a fatal
                    // one, such as Surprise Down, Linux resets the link, waits a minute for the device, and only then removes it.
                    Ask::Report => {
                        let line = format!("pcie_aer_inject_error {bus} COMP_TIME");
                        ("human-monitor-command", json!({ "command-line": line }))
                    }
                    // What kind of port it is decides whether that does good.
                    Ask::Recover => {
                        let port = format!("/machine/peripheral/{bus}");
                        ("qom-get", json!({ "path": port, "property": "type" }))
                    }
                    Ask::Delete => ("device_del", json!({ "id": id })),
                };
                match ask {
                    Ask::List | Ask::Recover => {}
                    Ask::Add if place.was_refused() => {}
                    Ask::Add => tracing::info!(device = id, bus, "plugging the device into the guest"),
                    Ask::Report => {
                        tracing::warn!(device = id, bus, "telling the guest that its device is silent");
                    }
                    Ask::Delete => tracing::info!(device = id, "asking the guest to give the device back"),
                }
                self.numbers += 1;
                self.asked.push_back((self.numbers, slot, ask));
                monitor.execute(self.numbers, command, &arguments);
                progress = true;
            }
        }
        progress
    }

    fn heard(&mut self, now_ns: u64, monitor: usize, word: Word) {
        match word {
            Word::Answer(number, answer) => {
                let known = self.asked.iter().position(|&(asked, _, _)| asked == number);
                if let Some((_, slot, ask)) = known.and_then(|at| self.asked.remove(at)) {
                    self.answered(now_ns, slot, ask, answer);
                }
            }
            Word::Event(event) => {
                let mut slots = self.sockets.iter().enumerate();
                let is_it = |socket: &Socket| socket.monitor == monitor && socket.options.id == event.device;
                let slot =
                    slots.find_map(|(slot, socket)| socket.as_ref().filter(|it| is_it(it)).map(|_| slot));
                let Some(slot) = slot else { return };
                let Some(place) = self.place(slot) else { return };
                let news = match &*event.name {
                    "DEVICE_DELETED" => place.left(),
                    "DEVICE_UNPLUG_GUEST_ERROR" => place.stays(now_ns),
                    _ => News::None,
                };
                self.tell(slot, news, "the guest does not give the device back");
            }
            Word::Ready | Word::Gone => {
                for slot in 0..self.sockets.len() {
                    if let Some(socket) = self.sockets[slot].as_mut().filter(|it| it.monitor == monitor) {
                        socket.place.forget();
                        socket.refusal = None;
                        self.asked.retain(|&(_, asked, _)| asked != slot);
                    }
                }
            }
        }
    }

    fn answered(&mut self, now_ns: u64, slot: usize, ask: Ask, answer: Result<Value, Refusal>) {
        let Some(Socket { options, place, ports, refusal, .. }) = &mut self.sockets[slot] else { return };
        let (news, why) = match (ask, answer) {
            (Ask::List, Ok(list)) => {
                *ports = ports_of(&list);
                let is_there =
                    list.as_array().is_some_and(|list| list.iter().any(|it| it["name"] == *options.id));
                (place.listed(is_there), String::new())
            }
            // QEMU says in words whether it did that; a port without error reporting is not worse off.
            (Ask::Recover, Ok(kind)) => return self.recover(slot, kind.as_str()),
            // A port that is not asked about by its name, as that of a machine's own: the driver's timeouts have to do.
            (Ask::Recover, Err(_)) => return,
            (Ask::Report, Ok(said)) => {
                tracing::debug!(device = options.id, said = said.as_str(), "error reported");
                (News::None, String::new())
            }
            (ask, Ok(_)) => {
                refusal.take_if(|_| ask == Ask::Add);
                (place.done(ask), String::new())
            }
            (ask, Err(Refusal { class, text })) => {
                let is_missing = class == "DeviceNotFound";
                let names_bus = ask == Ask::Add && text.contains(&format!("Bus '{}'", options.bus));
                let text =
                    if names_bus { format!("{text}: its ports are {}", ports.join(", ")) } else { text };
                if ask == Ask::Add {
                    *refusal = Some(text.clone());
                }
                (place.refused(now_ns, ask, is_missing), text)
            }
        };
        self.tell(slot, news, &why);
    }

    /// The device was away: the link was down (Surprise Down, 6.2.10). That is a fatal error, so the guest resets what is below the port,
    /// and the driver sets its device up again; else it would wait as long as its own timeouts for what it had asked for.
    fn recover(&mut self, slot: usize, kind: Option<&str>) {
        let Some(Socket { monitor, options: HotPlugOptions { id, bus, .. }, .. }) = &self.sockets[slot]
        else {
            return;
        };
        // After a reset Linux waits for the link of a port that can tell of it, such as a Root Port; where ACPI does the hot plug, QEMU's never
        // does, and the device would be lost.
        if kind != Some(DOWNSTREAM_PORT) {
            tracing::info!(
                device = id,
                bus,
                kind,
                "the device was away; its driver has to find out by itself"
            );
            return;
        }
        tracing::warn!(device = id, bus, "telling the guest that its device was away");
        self.numbers += 1;
        self.asked.push_back((self.numbers, slot, Ask::Report));
        let line = format!("pcie_aer_inject_error {bus} SDN");
        let arguments = json!({ "command-line": line });
        self.monitors[*monitor].execute(self.numbers, "human-monitor-command", &arguments);
    }

    fn tell(&mut self, slot: usize, news: News, why: &str) {
        let Some(Socket { options, .. }) = &self.sockets[slot] else { return };
        let device = &*options.id;
        match news {
            News::None => {}
            News::In => {
                tracing::info!(device, "the device is in the guest");
                self.moves.push_back((slot, Move::In));
            }
            News::Out { is_recalled } => {
                tracing::info!(device, "the device is not in the guest");
                self.moves.push_back((slot, Move::Out { is_recalled }));
            }
            News::Refused { is_first: true } => {
                tracing::warn!(device, why, "QEMU or the guest refuses; it is asked again, each time later");
            }
            News::Refused { is_first: false } => tracing::debug!(device, why, "refused again"),
        }
    }
}

/// The names of ports among what QEMU lists: devices with a name whose type says so. Those of switches first: what else is below a
/// Root Port, such as the switch, leaves no room there.
fn ports_of(list: &Value) -> Vec<String> {
    let of = |kinds: &'static [&str]| {
        let is_it =
            |it: &&Value| it["type"].as_str().is_some_and(|it| kinds.iter().any(|kind| it.contains(kind)));
        list.as_array().into_iter().flatten().filter(is_it).filter_map(|it| it["name"].as_str())
    };
    of(&[DOWNSTREAM_PORT]).chain(of(&["root-port", "ioh3420"])).map(str::to_owned).take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_told_from_other_devices() {
        let list = json!([
            { "name": "rp1", "type": "child<pcie-root-port>" },
            { "name": "disk0", "type": "child<vfio-user-pci>" },
            { "name": "switch", "type": "child<x3130-upstream>" },
            { "name": "port0", "type": "child<xio3130-downstream>" },
            { "name": "type", "type": "string" },
        ]);
        assert_eq!(ports_of(&list), ["port0", "rp1"]);
        assert!(ports_of(&json!(null)).is_empty());
    }

    fn plugs() -> Plugs {
        let mut plugs = Plugs::new();
        let options = HotPlugOptions {
            monitor: "/run/none.qmp".into(),
            bus: "rp1".to_owned(),
            id: "d".to_owned(),
            grace: std::time::Duration::ZERO,
        };
        plugs.add(Some(options), "/run/d.sock".to_owned());
        plugs
    }

    #[test]
    fn a_short_outage_is_told_to_the_guest_below_a_switch_only() {
        let unknown = Refusal { class: "DeviceNotFound".to_owned(), text: String::new() };
        for (kind, is_told) in [
            (Ok(json!("xio3130-downstream")), true),
            (Ok(json!("pcie-root-port")), false),
            (Ok(json!("ioh3420")), false),
            (Ok(json!(7)), false),
            (Err(unknown), false),
        ] {
            let mut plugs = plugs();
            let told = format!("{kind:?}");
            plugs.answered(0, 0, Ask::Recover, kind);
            let asked: Vec<Ask> = plugs.asked.iter().map(|&(_, _, ask)| ask).collect();
            assert_eq!(asked, if is_told { vec![Ask::Report] } else { vec![] }, "{told}");
        }
    }

    #[test]
    fn what_qemu_does_not_let_in_is_wrong_as_long_as_it_should_be_in() {
        let mut plugs = plugs();
        let list = json!([{ "name": "port0", "type": "child<xio3130-downstream>" }]);
        plugs.answered(0, 0, Ask::List, Ok(list));
        let text = "Bus 'rp1' not found".to_owned();
        plugs.answered(0, 0, Ask::Add, Err(Refusal { class: "GenericError".to_owned(), text }));
        let told = "d can't enter its guest at port rp1: Bus 'rp1' not found: its ports are port0";
        assert!(!plugs.wrong().contains(&told.to_owned()));
        plugs.attached(0);
        assert!(plugs.wrong().contains(&told.to_owned()), "{:?}", plugs.wrong());
    }

    #[test]
    fn a_monitor_at_which_nobody_is_is_told_with_the_flags_of_qemu() {
        let mut plugs = plugs();
        plugs.add(None, "/run/e.sock".to_owned());
        let wrong = plugs.wrong();
        assert!(wrong[0].contains("-qmp unix:/run/none.qmp,server=on"), "{wrong:?}");
        assert_eq!(wrong.len(), 1);
    }
}
