//! Where two programs run, and how they are started: as nobody, on loopback or in two namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherslot_lab::{
    BOX_IP, Cable, HOST_IP, NetOptions, Process, Run, Side, ensure_programs, etherslot_binary, mortal,
};

/// The user `nobody`.
const NOBODY: &str = "65534";
/// How long a program may take to listen, and to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// State of a socket in /proc/PID/net/tcp that listens.
const LISTENS: &str = "0A";

/// What the programs come in.
const PACKAGES: &[(&str, &str)] =
    &[("ibv_rc_pingpong", "ibverbs-utils"), ("ib_write_bw", "perftest"), ("rping", "rdmacm-utils")];

/// Where a server can be seen to listen.
#[derive(Clone, Copy)]
pub(crate) enum Port {
    /// A port of TCP.
    Tcp(u16),
    /// One of connections by verbs.
    Connections(u16),
}

impl From<u16> for Port {
    fn from(port: u16) -> Self {
        Self::Tcp(port)
    }
}

/// Two places for programs: on the same machine, or joined by a cable.
pub(crate) struct Place {
    pub(crate) run: Run,
    cable: Option<Cable>,
    /// A copy of the binary and its libraries that nobody may read.
    folder: PathBuf,
    count: std::cell::Cell<u32>,
}

impl Place {
    /// On the machine itself, reached by loopback.
    pub(crate) fn loopback() -> Self {
        Self::new("loopback", false)
    }

    /// Two namespaces, joined by a veth pair.
    pub(crate) fn cable() -> Self {
        Self::new("cable", true)
    }

    fn new(name: &str, has_cable: bool) -> Self {
        ensure_programs(PACKAGES).unwrap();
        let run = Run::new(&format!("verbs-{name}")).unwrap();
        let cable = has_cable.then(|| Cable::new(&run, name, NetOptions { mtu: 1500 }).unwrap());
        // The checkout may be where only its owner looks.
        let folder = std::env::temp_dir().join(format!("etherslot-verbs-{}", run.id()));
        fs::create_dir_all(folder.join("verbs")).unwrap();
        let binary = etherslot_binary().unwrap();
        fs::copy(&binary, folder.join("etherslot")).unwrap();
        for library in ["verbs/libibverbs.so.1", "verbs/librdmacm.so.1"] {
            fs::copy(binary.with_file_name("").join(library), folder.join(library))
                .expect("`./run build` makes the libraries");
        }
        for path in [folder.clone(), folder.join("verbs"), folder.join("etherslot")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { run, cable, folder, count: std::cell::Cell::new(0) }
    }

    /// The address of a side.
    pub(crate) fn ip(&self, side: Side) -> &'static str {
        match (&self.cable, side) {
            (None, _) => "127.0.0.1",
            (Some(_), Side::Host) => HOST_IP,
            (Some(_), Side::Box | Side::OtherBox) => BOX_IP,
        }
    }

    /// Drops so many of a million packets in both directions.
    pub(crate) fn lose(&self, per_million: u32) {
        let cable = self.cable.as_ref().expect("a cable to lose on");
        for side in [Side::Host, Side::Box] {
            cable.set_loss(side, per_million).unwrap();
        }
    }

    /// Where nobody may read: a file of the programs'.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The namespace of a side, if it has one.
    pub(crate) fn namespace(&self, side: Side) -> Option<&str> {
        self.cable.as_ref().map(|cable| cable.namespace(side))
    }

    /// Starts a program as nobody.
    pub(crate) fn start(&self, side: Side, program: &[&str]) -> Process {
        let mut command = mortal(self.namespace(side), Path::new("setpriv"));
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--pdeathsig", "KILL", "--"]);
        command.arg(self.folder.join("etherslot")).args(["verbs", "run", "--"]).args(program);
        self.count.set(self.count.get() + 1);
        let name = program[0].rsplit('/').next().unwrap_or(program[0]);
        let log = self.run.path(&format!("{}-{name}.log", self.count.get()));
        Process::start(name, command, &log).unwrap()
    }

    /// Starts a server, and when it listens a client, which is given the server's address behind its arguments.
    pub(crate) fn begin(
        &self,
        server: &[&str],
        client: &[&str],
        port: impl Into<Port>,
    ) -> Result<(Process, Process), String> {
        let port = port.into();
        let mut serving = self.start(Side::Box, server);
        serving
            .wait_until("that it listens", PATIENCE, |process| listens(process, port))
            .map_err(|error| error.to_string())?;
        let mut client = client.to_vec();
        client.push(self.ip(Side::Box));
        Ok((serving, self.start(Side::Host, &client)))
    }

    /// Runs a server, and a client that is given the server's address behind its arguments. What went wrong, if anything.
    pub(crate) fn pair(
        &self,
        server: &[&str],
        client: &[&str],
        port: impl Into<Port>,
    ) -> Result<String, String> {
        let (mut serving, mut asking) = self.begin(server, client, port)?;
        for process in [&mut asking, &mut serving] {
            let status = process.wait(PATIENCE).map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("{status}\n{}", process.log()));
            }
        }
        Ok(asking.log())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether somebody in the namespace of a process listens at this port. Who does for connections has a socket with a name that
/// ends in port and slot (docs/verbs.md).
fn listens(process: &Process, port: Port) -> bool {
    let port = match port {
        Port::Tcp(port) => format!(":{port:04X}"),
        Port::Connections(port) => {
            let names = fs::read_to_string(format!("/proc/{}/net/unix", process.pid())).unwrap_or_default();
            return names.lines().any(|line| {
                let name =
                    line.rsplit_once("@etherslot-cm/").map(|(_, name)| name.split('/').collect::<Vec<_>>());
                name.is_some_and(|name| name.len() == 4 && name[2] == port.to_string())
            });
        }
    };
    ["tcp", "tcp6"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{}/net/{table}", process.pid())).unwrap_or_default();
        text.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&LISTENS)
        })
    })
}
