//! A configuration as it is in effect: with its defaults, and what flags and environment change, as a file of its own.

use std::fmt::Display;
use std::time::Duration;

use etherslot_runtime::control;
use etherslot_runtime::fabric::usual_state_path;
use etherslot_runtime::options::{
    ANY, Address, Backing, BoxOptions, DeviceKind, DeviceOptions, FabricOptions, FailoverPolicy, HostOptions,
    HotPlugOptions, Interrupts, LinkKind, LinkOptions, LoopOptions, Name, NetworkOptions, NicOptions, Peers,
    PublicKey, SataController, SecurityOptions, SessionOptions, SlotOptions, Wanted, XdpMode,
};
use toml::Value;

/// What a daemon takes.
#[derive(Debug)]
pub(crate) enum Shown {
    /// Of a box.
    Box(BoxOptions),
    /// Of a host.
    Host(HostOptions),
}

impl Shown {
    /// Whose keys, if any.
    pub(crate) fn security(&self) -> &SecurityOptions {
        match self {
            Self::Box(options) => &options.security,
            Self::Host(options) => &options.security,
        }
    }
}

/// Lines of TOML.
#[derive(Default)]
struct Page(String);

impl Page {
    fn table(&mut self, header: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.line(header);
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn value(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        self.line(&format!("{key} = {value}"));
    }

    fn text(&mut self, key: &str, value: impl Display) {
        self.value(key, value.to_string());
    }

    fn texts<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        self.value(key, values.into_iter().map(|value| Value::from(value.to_string())).collect::<Vec<_>>());
    }

    fn time(&mut self, key: &str, time: Duration) {
        self.text(key, humantime::format_duration(time));
    }
}

/// The whole file. It holds no secret: keys are files, which are named and not read.
pub(crate) fn file(options: &Shown) -> String {
    let mut page = Page::default();
    match options {
        Shown::Box(BoxOptions { run, links, session, security, devices, fabric }) => {
            common(&mut page, run, links, session, security, true);
            if let Some(fabric) = fabric {
                of_fabric(&mut page, fabric, Some(&run.name));
            }
            for device in devices {
                of_device(&mut page, device);
            }
        }
        Shown::Host(HostOptions { run, links, session, security, slots, fabric }) => {
            common(&mut page, run, links, session, security, false);
            if let Some(fabric) = fabric {
                of_fabric(&mut page, fabric, None);
            }
            for slot in slots {
                of_slot(&mut page, slot);
            }
        }
    }
    page.0
}

fn common(
    page: &mut Page,
    run: &LoopOptions,
    links: &[LinkOptions],
    session: &SessionOptions,
    security: &SecurityOptions,
    is_box: bool,
) {
    page.table("[node]");
    page.text("name", &run.name);
    match run.busy_poll {
        Some(time) => page.time("busy_poll", time),
        None => page.line("# busy_poll: as long as it pays"),
    }
    let usual = || Some(control::folder()?.join(control::file_name(&run.name)));
    match run.control.clone().or_else(usual) {
        Some(path) => page.text("control", path.display()),
        None => page.line("# control: none, since XDG_RUNTIME_DIR is not set"),
    }
    if let Some(group) = run.control_group {
        page.text("control_group", group);
    }
    if let Some(address) = &run.metrics {
        page.table("[metrics]");
        page.text("listen", address);
    }
    for link in links {
        of_link(page, link);
    }

    page.table("[session]");
    page.value("paths", i64::from(session.paths));
    page.value("window_frames", i64::from(session.window()));
    page.time("dead_after", session.dead_after);
    page.time("heartbeat", session.heartbeat);
    if !is_box {
        page.value("max_payload", i64::from(session.max_payload));
    }
    page.value("read_ahead", session.read_ahead);
    page.value("one_tlp_a_frame", session.one_tlp_a_frame);
    page.value("classic", session.classic);

    page.table("[security]");
    match security {
        SecurityOptions::Keys { files, peers } => {
            page.text("key", files.fabric.display());
            page.text("node_key", files.node.display());
            match peers {
                Peers::Fabric => page.line("# peers: all nodes of the fabric"),
                Peers::Listed(peers) => page.texts("peers", peers),
            }
        }
        SecurityOptions::Plaintext => page.value("plaintext", true),
        SecurityOptions::Memory => page.line("# no keys: all links are memory of this user"),
    }
}

fn of_link(page: &mut Page, link: &LinkOptions) {
    page.table("[[link]]");
    page.text("kind", link.kind.name());
    match &link.kind {
        LinkKind::Packet { interface } => page.text("interface", interface),
        LinkKind::Udp { listen, mtu } => {
            page.text("listen", listen);
            of_mtu(page, *mtu);
        }
        LinkKind::Xdp { interface, queue, mode } => {
            page.text("interface", interface);
            page.value("queue", i64::from(*queue));
            let mode = match mode {
                XdpMode::Auto => "auto",
                XdpMode::Native => "native",
                XdpMode::Generic => "generic",
            };
            page.text("mode", mode);
        }
        LinkKind::Ring { hub, port } => {
            page.text("hub", hub.display());
            page.value("port", i64::from(*port));
        }
        LinkKind::Dpdk { device, eal, mtu, mac } => {
            page.text("device", device);
            page.texts("eal", eal);
            of_mtu(page, *mtu);
            match mac {
                Some(octets) => page.text("mac", Address::Mac(*octets)),
                None => page.line("# mac: the device's"),
            }
        }
    }
    if let Some(path) = &link.capture {
        page.text("capture", path.display());
    }
    if let Some(faults) = &link.impair {
        page.text("impair", faults);
    }
}

fn of_mtu(page: &mut Page, mtu: Option<u16>) {
    match mtu {
        Some(mtu) => page.value("mtu", i64::from(mtu)),
        None => page.line("# mtu: the interface's"),
    }
}

/// `of_box`: the name of the box, if it is one.
fn of_fabric(page: &mut Page, fabric: &FabricOptions, of_box: Option<&str>) {
    let FabricOptions { group, interval, misses, peers, rendezvous, orders, hold, recall, offer, state } =
        fabric;
    page.table("[fabric]");
    match group {
        Some(group) => page.value("group", i64::from(group.get())),
        None => page.line("# group: none"),
    }
    page.time("interval", *interval);
    page.value("misses", i64::from(*misses));
    page.texts("peers", peers);
    page.value("rendezvous", *rendezvous);
    if let Some(name) = of_box {
        page.value("orders", *orders);
        page.time("hold", *hold);
        page.time("recall", *recall);
        page.time("offer", *offer);
        match state.clone().or_else(|| usual_state_path(name)) {
            Some(path) => page.text("state", path.display()),
            None => page.line("# state: nowhere, since XDG_STATE_HOME is not set"),
        }
    }
}

fn of_device(page: &mut Page, device: &DeviceOptions) {
    let DeviceOptions { name, serial, group, failover, owners, kind } = device;
    page.table("[[device]]");
    let (kind_name, model, table) = match kind {
        DeviceKind::Nvme(nvme) => ("nvme", Some(&nvme.model), "[[device.namespace]]"),
        DeviceKind::Sata(sata) => {
            let kind = match sata.controller {
                SataController::Ahci => "ahci",
                SataController::Sil3132 => "sil3132",
            };
            (kind, Some(&sata.model), "[[device.disk]]")
        }
        DeviceKind::Dc { .. } => ("dc", None, ""),
        DeviceKind::E82576(_) => ("82576", None, ""),
        DeviceKind::Rnic(_) => ("rnic", None, ""),
    };
    page.text("kind", kind_name);
    page.text("name", name);
    page.text("serial", serial);
    if let Some(model) = model {
        page.text("model", model);
    }
    match group {
        Some(group) => page.value("group", i64::from(group.get())),
        None => page.line("# group: none"),
    }
    match failover {
        Some(FailoverPolicy { standby }) => {
            page.value("on_host_loss", "move");
            page.texts("standby", standby.iter().map(Name::as_str));
        }
        None => page.value("on_host_loss", "keep"),
    }
    match owners {
        Some(owners) => page.texts::<&PublicKey>("owners", owners),
        None => page.line("# owners: all nodes"),
    }
    match kind {
        DeviceKind::Nvme(nvme) => {
            page.value("queue_pairs", i64::from(nvme.queue_pairs));
            if let Some(bytes) = nvme.cmb_bytes {
                page.value("cmb_bytes", i64::from(bytes));
            }
            page.text("max_transfer", format_args!("{} B", nvme.max_transfer_bytes));
            if let Some(rate) = nvme.rate {
                page.text("rate", format_args!("{rate} B/s"));
            }
        }
        DeviceKind::Sata(sata) if sata.controller == SataController::Ahci => {
            page.value("ports", i64::from(sata.ports));
        }
        DeviceKind::Sata(_) => {}
        DeviceKind::Dc { bytes } => page.text("size", format_args!("{bytes} B")),
        DeviceKind::E82576(nic) => of_nic(page, nic),
        DeviceKind::Rnic(rnic) => {
            page.text("link", &rnic.link);
            page.texts("peers", &rnic.peers);
            page.value("plaintext", true);
        }
    }
    for store in device.stores() {
        page.table(table);
        match &store.backing {
            Backing::File(path) => page.text("path", path.display()),
            Backing::Memory(bytes) => page.text("memory", format_args!("{bytes} B")),
        }
        page.value("block_bytes", i64::from(store.block_bytes));
        page.value("read_only", store.read_only);
        if matches!(kind, DeviceKind::Sata(_)) {
            page.value("removable", store.removable);
        }
    }
}

fn of_nic(page: &mut Page, NicOptions { mac, network }: &NicOptions) {
    match mac {
        Some(mac) => page.text("mac", Address::Mac(*mac)),
        None => page.line("# mac: from the serial number"),
    }
    match network {
        NetworkOptions::Tap(name) => page.line(&format!("network = {{ tap = {} }}", Value::from(&**name))),
        NetworkOptions::Link { kind, peer } => {
            let (link, peer) = (Value::from(kind.to_string()), Value::from(peer.to_string()));
            page.line(&format!("network = {{ link = {link}, peer = {peer} }}"));
        }
    }
}

fn of_slot(page: &mut Page, slot: &SlotOptions) {
    let SlotOptions { device: _, wanted, routes, box_key, socket, interrupts, hot_plug, domain } = slot;
    page.table("[[slot]]");
    match wanted {
        Wanted::Name(name) => page.text("device", name),
        Wanted::Serial(serial) => page.text("serial", serial),
        Wanted::Any => page.text("device", ANY),
    }
    match routes {
        Some(routes) => page.texts("box", routes.iter().map(|via| via.address)),
        None => page.line("# box: found in the fabric"),
    }
    if let Some(key) = box_key {
        page.text("box_key", key);
    }
    page.text("socket", socket.display());
    let interrupts = match interrupts {
        Interrupts::MsiX => "msi-x",
        Interrupts::Msi => "msi",
    };
    page.text("interrupts", interrupts);
    if *domain != 0 {
        page.value("domain", i64::from(*domain));
    }
    if let Some(HotPlugOptions { monitor, bus, id, grace }) = hot_plug {
        page.table("[slot.hot_plug]");
        page.text("monitor", monitor.display());
        page.text("bus", bus);
        page.text("id", id);
        page.time("grace", *grace);
    }
}
