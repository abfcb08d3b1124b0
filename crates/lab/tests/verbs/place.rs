//! Where two programs run, and how they are started: as nobody, on loopback or in two namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use etherslot_lab::{
    BOX_IP, Cable, HOST_IP, NetOptions, Process, Root, Run, Side, ensure_programs, etherslot_binary, mortal,
};

/// The user `nobody`.
pub(crate) const NOBODY: &str = "65534";
/// How long a program may take to listen, and to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// How long a server may take to end whose client has failed.
const GRACE: Duration = Duration::from_secs(5);

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
    /// Whose programs, if not the machine's.
    root: Option<Root>,
    /// A copy of the binary and its libraries that nobody may read.
    folder: PathBuf,
    /// The link of the programs, if not UDP, and what they need to open it.
    link: Option<(String, &'static str)>,
    count: std::cell::Cell<u32>,
}

impl Place {
    /// On the machine itself, reached by loopback.
    pub(crate) fn loopback() -> Self {
        Self::new("loopback", false, None)
    }

    /// Two namespaces, joined by a veth pair.
    pub(crate) fn cable() -> Self {
        Self::new("cable", true, None)
    }

    /// The same, with the programs of Debian 13.
    pub(crate) fn cable_of_13() -> Self {
        Self::new("cable-13", true, Some(Root::ensure().unwrap()))
    }

    fn new(name: &str, has_cable: bool, root: Option<Root>) -> Self {
        ensure_programs(PACKAGES).unwrap();
        let run = Run::new(&format!("verbs-{name}")).unwrap();
        let cable = has_cable.then(|| Cable::new(&run, name, NetOptions { mtu: 1500 }).unwrap());
        // The checkout may be where only its owner looks.
        let folder = std::env::temp_dir().join(format!("etherslot-verbs-{}", run.id()));
        fs::create_dir_all(folder.join("verbs")).unwrap();
        let binary = etherslot_binary().unwrap();
        fs::copy(&binary, folder.join("etherslot")).unwrap();
        for library in ["verbs/libibverbs.so.1", "verbs/librdmacm.so.1", "verbs/paths.so"] {
            fs::copy(binary.with_file_name("").join(library), folder.join(library))
                .expect("`./run build` makes the libraries");
        }
        for path in [folder.clone(), folder.join("verbs"), folder.join("etherslot")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { run, cable, root, folder, link: None, count: std::cell::Cell::new(0) }
    }

    /// Takes another link from now on, for programs that are nobody's but have these capabilities: a list of `setpriv`.
    pub(crate) fn set_link(&mut self, link: &str, capabilities: &'static str) {
        self.link = Some((link.to_owned(), capabilities));
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

    /// The same, as the programs see it.
    pub(crate) fn inside(&self, file: &str) -> PathBuf {
        if self.root.is_some() { Root::shared(file) } else { self.path(file) }
    }

    /// Compiles a C program of the folder of this file; where it is. Its warnings are errors.
    pub(crate) fn compile(&self, name: &str, libraries: &[&str]) -> String {
        ensure_programs(&[("gcc", "gcc")]).unwrap();
        let program = self.path(name);
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs")).join(format!("{name}.c"));
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program).arg(source).args(libraries);
        assert!(gcc.status().expect("gcc").success(), "{name}.c: `./run test verbs` installs what it needs");
        program.display().to_string()
    }

    /// The namespace of a side, if it has one.
    pub(crate) fn namespace(&self, side: Side) -> Option<&str> {
        self.cable.as_ref().map(|cable| cable.namespace(side))
    }

    /// Starts a program as nobody.
    pub(crate) fn start(&self, side: Side, program: &[&str]) -> Process {
        self.start_with(side, &[], program)
    }

    /// The same, who has more privileges: options of `setpriv`.
    pub(crate) fn start_with(&self, side: Side, privileges: &[&str], program: &[&str]) -> Process {
        let namespace = self.namespace(side);
        let mut command = match &self.root {
            None => mortal(namespace, Path::new("setpriv")),
            Some(root) => {
                let mut command = root.enter(namespace, &self.folder);
                command.arg("setpriv");
                command
            }
        };
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--pdeathsig", "KILL"]);
        command.args(privileges);
        if let Some((_, list)) = self.link.as_ref().filter(|(_, list)| !list.is_empty()) {
            command.args([format!("--inh-caps={list}"), format!("--ambient-caps={list}")]);
        }
        command.arg("--").arg(self.inside("etherslot")).args(["verbs", "run"]);
        if let Some((link, _)) = &self.link {
            command.args(["--link", link]);
        }
        command.arg("--").args(program);
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
        self.pair_within(PATIENCE, server, client, port)
    }

    /// The same, of programs that need so long.
    pub(crate) fn pair_within(
        &self,
        patience: Duration,
        server: &[&str],
        client: &[&str],
        port: impl Into<Port>,
    ) -> Result<String, String> {
        let (mut serving, mut asking) = self.begin(server, client, port)?;
        let asked = asking.wait(patience).map_err(|error| error.to_string());
        // When the client has failed, its server's last words say more.
        let patience = if asked.as_ref().is_ok_and(ExitStatus::success) { patience } else { GRACE };
        let served = serving.wait(patience).map_err(|error| error.to_string());
        let is_well = |result: &Result<ExitStatus, String>| result.as_ref().is_ok_and(ExitStatus::success);
        if is_well(&asked) && is_well(&served) {
            return Ok(asking.log());
        }
        let end = |result| match result {
            Ok(status) => format!("{status}"),
            Err(error) => error,
        };
        Err(format!("{}\n{}\nIts server: {}\n{}", end(asked), asking.log(), end(served), serving.log()))
    }
}

/// What went wrong. Of each program a line is printed.
#[derive(Default)]
pub(crate) struct Report(Vec<String>);

impl Report {
    /// What became of a program.
    pub(crate) fn tell<T>(&mut self, name: &str, result: Result<T, String>) {
        println!("{name} {}", if result.is_ok() { "ok" } else { "FAILED" });
        self.0.extend(result.err().map(|error| format!("{name}: {error}")));
    }

    /// Panics if something went wrong.
    pub(crate) fn end(self, place: &Place) {
        if !self.0.is_empty() {
            place.run.keep_logs();
            panic!("{}", self.0.join("\n\n"));
        }
    }
}

/// The words of a line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether somebody in the namespace of a process listens at this port. Who does for connections has a socket with a name that
/// ends in port and slot (docs/verbs.md).
fn listens(process: &Process, port: Port) -> bool {
    match port {
        Port::Tcp(port) => process.listens_at(port),
        Port::Connections(port) => {
            let names = fs::read_to_string(format!("/proc/{}/net/unix", process.pid())).unwrap_or_default();
            names.lines().any(|line| {
                let name =
                    line.rsplit_once("@etherslot-cm/").map(|(_, name)| name.split('/').collect::<Vec<_>>());
                name.is_some_and(|name| name.len() == 4 && name[2] == port.to_string())
            })
        }
    }
}
