//! A virtual machine: QEMU with a stock kernel, and disks below the ports of a PCI Express switch.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::accel::Accel;
use crate::agent::{Agent, Job, Output};
use crate::boot::Firmware;
use crate::cache::Cache;
use crate::error::{Error, Result, tail};
use crate::initramfs;
use crate::process::Process;
use crate::qmp::Qmp;
use crate::run::Run;

const SOCKET_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
const DMESG_TIMEOUT: Duration = Duration::from_secs(20);

/// A device of the guest.
#[derive(Clone, Debug)]
pub enum GuestDevice {
    /// One that a vfio-user server offers on a socket; the server must be listening.
    VfioUser {
        /// The server's socket.
        socket: PathBuf,
        /// QEMU's name for the device.
        id: String,
    },
    /// QEMU's own NVMe controller with one namespace.
    LocalNvme {
        /// The disk image.
        file: PathBuf,
        /// Serial number; also QEMU's name for the device.
        serial: String,
    },
}

impl GuestDevice {
    fn id(&self) -> &str {
        match self {
            Self::VfioUser { id, .. } => id,
            Self::LocalNvme { serial, .. } => serial,
        }
    }

    fn properties(&self, bus: &str) -> Map<String, Value> {
        let mut properties = Map::new();
        match self {
            Self::VfioUser { socket, .. } => {
                properties.insert("driver".to_owned(), json!("vfio-user-pci"));
                properties.insert("socket".to_owned(), json!({ "type": "unix", "path": socket }));
            }
            Self::LocalNvme { serial, .. } => {
                properties.insert("driver".to_owned(), json!("nvme"));
                properties.insert("serial".to_owned(), json!(serial));
                properties.insert("drive".to_owned(), json!(drive(serial)));
            }
        }
        properties.insert("id".to_owned(), json!(self.id()));
        properties.insert("bus".to_owned(), json!(bus));
        properties
    }

    /// The block node a device stands on.
    fn block_node(&self) -> Option<Value> {
        let Self::LocalNvme { file, serial } = self else { return None };
        let direct = supports_direct(file);
        Some(json!({
            "driver": "raw", "node-name": drive(serial),
            "cache": { "direct": direct, "no-flush": false },
            "file": { "driver": "file", "filename": file, "aio": block_engine(direct),
                      "cache": { "direct": direct, "no-flush": false } },
        }))
    }
}

fn drive(serial: &str) -> String {
    format!("drive-{serial}")
}

fn supports_direct(file: &Path) -> bool {
    let flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flag).open(file).is_ok()
}

/// What a careful operator would choose, so that the comparison is with QEMU at its best.
fn block_engine(direct: bool) -> &'static str {
    let forbidden = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    match (forbidden.as_deref().map(str::trim), direct) {
        (Ok("0") | Err(_), _) => "io_uring",
        (_, true) => "native",
        (_, false) => "threads",
    }
}

/// A file of this machine put in the guest.
pub type GuestFile = (PathBuf, String);

/// Where the guest's console goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Console {
    /// Only to the log.
    #[default]
    Log,
    /// To this process's terminal, with a shell, and to the log.
    Terminal,
}

/// How a guest is made.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Devices, each below a downstream port of one switch, in this order.
    pub devices: Vec<GuestDevice>,
    /// Downstream ports beyond those, for [`Guest::plug`].
    pub spare_ports: usize,
    /// Virtual processors.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Words for the kernel's command line, such as `nvme_core.io_timeout=5`.
    pub kernel_arguments: Vec<String>,
    /// Starts from a device by firmware, and not with the lab's kernel; then that device has kernel, arguments and files.
    pub firmware: Option<Firmware>,
    /// More of QEMU's arguments.
    pub qemu_arguments: Vec<String>,
    /// Whether devices reach memory through an IOMMU, which the kernel uses. Programs can have devices of their own then.
    pub iommu: bool,
    /// Files to put in (here, path there).
    pub files: Vec<GuestFile>,
    /// Whether a reset of the machine starts the guest anew; without it a reset ends QEMU.
    pub reboots: bool,
    /// A socket for one more monitor, such as that of a host daemon.
    pub monitor: Option<PathBuf>,
    /// Where the console goes.
    pub console: Console,
    /// How long it may take until the guest answers.
    pub boot_timeout: Duration,
}

impl Default for GuestOptions {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            spare_ports: 1,
            cpus: 2,
            memory_mib: 512,
            kernel_arguments: Vec::new(),
            firmware: None,
            qemu_arguments: Vec::new(),
            iommu: false,
            files: Vec::new(),
            reboots: false,
            monitor: None,
            console: Console::Log,
            boot_timeout: Duration::from_mins(2),
        }
    }
}

/// Severity of a kernel message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `KERN_ERR` and worse.
    Error,
    /// `KERN_WARNING` and worse.
    Warning,
    /// Everything.
    Debug,
}

/// A running guest.
pub struct Guest {
    process: Process,
    agent: Agent,
    qmp: Qmp,
    console: PathBuf,
    ports: usize,
}

impl Guest {
    /// Starts QEMU and waits until the guest takes commands.
    pub fn start(run: &Run, cache: &Cache, options: &GuestOptions) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("guest{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let files = Files::new(run, &name);
        let mut process = launch(run, cache, options, &name, &files)?;
        let qmp = Qmp::new(connect(&files.monitor, &mut process)?)?;
        let agent =
            Agent::new(connect(&files.agent, &mut process)?).map_err(Error::io("talk to the guest"))?;
        let ports = options.devices.len() + options.spare_ports;
        let mut guest = Self { process, agent, qmp, console: files.console, ports };
        if options.console == Console::Log {
            guest.wait_boot(0, options.boot_timeout)?;
        }
        Ok(guest)
    }

    /// Runs shell text in the guest, to its end.
    pub fn run(&self, command: &str, timeout: Duration) -> Result<Output> {
        self.spawn(command)?.wait(timeout).map_err(|error| self.explain(error))
    }

    /// [`Guest::run`], where any status but 0 is an error.
    pub fn check(&self, command: &str, timeout: Duration) -> Result<String> {
        let output = self.run(command, timeout)?;
        if output.status == 0 {
            return Ok(output.stdout);
        }
        Err(Error::Command {
            command: format!("{} (in the guest)", command.trim()),
            status: format!("status {}", output.status),
            output: tail("output", &output.stdout, 30),
        })
    }

    /// Starts shell text in the guest and goes on.
    pub fn spawn(&self, command: &str) -> Result<Job> {
        self.agent.start(command)
    }

    /// The kernel's messages of `level` and worse, without time stamps.
    pub fn dmesg(&self, level: Level) -> Result<String> {
        let levels = match level {
            Level::Error => "--level=emerg,alert,crit,err",
            Level::Warning => "--level=emerg,alert,crit,err,warn",
            Level::Debug => "",
        };
        self.check(&format!("dmesg --kernel --notime {levels}"), DMESG_TIMEOUT)
    }

    /// What the console has shown since QEMU started.
    pub fn console(&self) -> String {
        fs::read(&self.console).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// QEMU's monitor.
    pub fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    /// QEMU.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// QEMU's name of the bus below downstream port `port`, from 0; the devices of the options come first.
    pub fn port_bus(port: usize) -> String {
        format!("port{port}")
    }

    /// Plugs a device into a free downstream port.
    pub fn plug(&mut self, device: &GuestDevice, port: usize) -> Result<()> {
        assert!(port < self.ports, "the guest was made with {} ports", self.ports);
        if let Some(node) = device.block_node() {
            self.qmp.execute("blockdev-add", &node)?;
        }
        self.qmp.device_add(&device.properties(&Self::port_bus(port)))
    }

    /// Asks the guest to give a device back and waits until it has.
    pub fn unplug(&mut self, device: &GuestDevice, timeout: Duration) -> Result<()> {
        self.qmp.device_del(device.id())?;
        let gone = self.qmp.wait_event(timeout, |event| {
            event.name == "DEVICE_DELETED" && event.data["device"] == device.id()
        })?;
        if gone.is_none() {
            let error = Error::Timeout {
                what: format!("the guest's release of {}", device.id()),
                after: timeout,
                evidence: String::new(),
            };
            return Err(self.explain(error));
        }
        if let GuestDevice::LocalNvme { serial, .. } = device {
            self.qmp.execute("blockdev-del", &json!({ "node-name": drive(serial) }))?;
        }
        Ok(())
    }

    /// Resets the machine as its button does, and waits until the guest is up again. Needs
    /// [`GuestOptions::reboots`].
    pub fn reset(&mut self, timeout: Duration) -> Result<()> {
        let boots = self.agent.boots();
        self.qmp.execute("system_reset", &json!({}))?;
        self.wait_boot(boots, timeout)
    }

    /// Shuts the guest down in order and waits for QEMU's end.
    pub fn power_off(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.spawn("sync; umount -a -r 2>/dev/null; poweroff -f")?;
        let result = self.process.wait(timeout);
        result.map_err(|error| self.explain(error))
    }

    /// Waits for QEMU's end, which the guest or the person at its console brings about.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.process.wait(timeout)
    }

    /// Kills QEMU.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    fn wait_boot(&mut self, boots: u32, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            if self.agent.wait_boot(boots, Duration::from_millis(100)).is_some() {
                return Ok(());
            }
            let error = if self.agent.is_closed() || !self.process.is_running() {
                Error::Ended { what: "QEMU".to_owned(), evidence: tail("QEMU", &self.process.log(), 20) }
            } else if start.elapsed() > timeout {
                Error::Timeout {
                    what: "the guest's boot".to_owned(),
                    after: timeout,
                    evidence: String::new(),
                }
            } else {
                continue;
            };
            return Err(self.explain(error));
        }
    }

    /// Adds the end of the console to an error that leaves one wondering.
    fn explain(&self, mut error: Error) -> Error {
        if let Error::Timeout { evidence, .. } | Error::Ended { evidence, .. } = &mut error {
            let _ = write!(evidence, "{}", tail("console", &self.console(), 25));
        }
        error
    }
}

/// The names of a guest's sockets and logs.
struct Files {
    monitor: PathBuf,
    agent: PathBuf,
    console: PathBuf,
    qemu_log: PathBuf,
}

impl Files {
    fn new(run: &Run, name: &str) -> Self {
        Self {
            monitor: run.path(&format!("{name}.qmp")),
            agent: run.path(&format!("{name}.agent")),
            console: run.path(&format!("{name}.console.log")),
            qemu_log: run.path(&format!("{name}.qemu.log")),
        }
    }
}

/// QEMU for whoever brings the devices; with `boots`, a guest with a shell on this terminal.
pub fn bare_qemu(cache: &Cache, boots: bool) -> Command {
    let mut command = cache.qemu().command();
    if boots {
        let options = GuestOptions { console: Console::Terminal, ..GuestOptions::default() };
        command.args(["-display", "none", "-vga", "none", "-no-reboot"]).args(cache.accel().arguments());
        command.arg("-kernel").arg(cache.kernel()).arg("-initrd").arg(cache.initramfs());
        command.arg("-append").arg(kernel_command_line(&options));
        // The lab's own programs in the guest look for a second port.
        command.args(["-serial", "mon:stdio", "-serial", "null"]);
    }
    command
}

fn connect(socket: &Path, process: &mut Process) -> Result<UnixStream> {
    let mut stream = None;
    process.wait_until("its socket", SOCKET_TIMEOUT, |_| {
        stream = UnixStream::connect(socket).ok();
        stream.is_some()
    })?;
    stream.ok_or_else(|| Error::unexpected(format!("connect to {}", socket.display()), "no connection"))
}

fn launch(run: &Run, cache: &Cache, options: &GuestOptions, name: &str, files: &Files) -> Result<Process> {
    let mut command = cache.qemu().command();
    command.current_dir(run.folder());
    machine(&mut command, cache.accel(), options);
    match &options.firmware {
        None => {
            let initramfs = if options.files.is_empty() {
                cache.initramfs().to_owned()
            } else {
                own_initramfs(&run.path(&format!("{name}.cpio")), cache.initramfs(), &options.files)?
            };
            command.arg("-kernel").arg(cache.kernel()).arg("-initrd").arg(initramfs);
            command.arg("-append").arg(kernel_command_line(options));
        }
        Some(Firmware::Bios) => {}
        Some(Firmware::Uefi(image)) => {
            command.arg("-bios").arg(image);
        }
    }
    if !options.reboots {
        command.arg("-no-reboot");
    }
    serial_ports(&mut command, options, files);
    if options.iommu {
        // In front of all devices, which look for it when they are made. Interrupts are remapped, or no program gets any.
        command.args(["-machine", "kernel-irqchip=split"]);
        command.args(["-device", "intel-iommu,caching-mode=on,intremap=on"]);
    }
    switch(&mut command, options);
    command.args(&options.qemu_arguments);
    let log =
        File::create(&files.qemu_log).map_err(Error::io(format!("create {}", files.qemu_log.display())))?;
    let copy = log.try_clone().map_err(Error::io("duplicate QEMU's log"))?;
    match options.console {
        Console::Log => command.stdin(Stdio::null()).stdout(copy).stderr(log),
        Console::Terminal => command.stderr(log),
    };
    Process::start_with_terminal("QEMU", command, &files.qemu_log)
}

fn machine(command: &mut Command, accel: Accel, options: &GuestOptions) {
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"]);
    command.args(["-machine", "q35,memory-backend=m0,smbus=off,sata=off,usb=off,vmport=off,i8042=off"]);
    command.args(accel.arguments());
    command.arg("-smp").arg(options.cpus.to_string());
    command.arg("-m").arg(options.memory_mib.to_string());
    // Shared memory that a vfio-user server can map.
    command.arg("-object").arg(format!("memory-backend-memfd,id=m0,size={}M,share=on", options.memory_mib));
}

pub(crate) fn kernel_command_line(options: &GuestOptions) -> String {
    let mut line = String::from("console=ttyS0,115200 quiet loglevel=4 panic=-1 tsc=reliable no_timer_check");
    if options.console == Console::Terminal {
        line.push_str(" lab.shell");
    }
    if options.iommu {
        line.push_str(" intel_iommu=on");
    }
    for argument in &options.kernel_arguments {
        line.push(' ');
        line.push_str(argument);
    }
    line
}

fn serial_ports(command: &mut Command, options: &GuestOptions, files: &Files) {
    let log = comma_escaped(&files.console);
    let chardev = match options.console {
        Console::Log => format!("file,id=console,path={log}"),
        Console::Terminal => format!("stdio,id=console,mux=on,signal=off,logfile={log}"),
    };
    command.arg("-chardev").arg(chardev);
    command
        .arg("-chardev")
        .arg(format!("socket,id=agent,path={},server=on,wait=off", comma_escaped(&files.agent)));
    command
        .arg("-chardev")
        .arg(format!("socket,id=monitor,path={},server=on,wait=off", comma_escaped(&files.monitor)));
    command.args([
        "-device",
        "isa-serial,chardev=console,index=0",
        "-device",
        "isa-serial,chardev=agent,index=1",
    ]);
    command.args(["-mon", "chardev=monitor,mode=control"]);
    if let Some(path) = &options.monitor {
        let chardev = format!("socket,id=operator,path={},server=on,wait=off", comma_escaped(path));
        command.arg("-chardev").arg(chardev).args(["-mon", "chardev=operator,mode=control"]);
    }
}

/// In QEMU's options a comma within a value is doubled.
fn comma_escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A switch below a root port, and a device below each of its downstream ports.
fn switch(command: &mut Command, options: &GuestOptions) {
    // The slots are the kernel's own (pciehp) and not ACPI's, as on a machine with a real switch.
    command.args(["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]);
    let ports = options.devices.len() + options.spare_ports;
    if ports == 0 {
        return;
    }
    command.args(["-device", "pcie-root-port,id=root0,bus=pcie.0,chassis=1,slot=0"]);
    command.args(["-device", "x3130-upstream,id=upstream0,bus=root0"]);
    for port in 0..ports {
        let bus = Guest::port_bus(port);
        command.arg("-device");
        command
            .arg(format!("xio3130-downstream,id={bus},bus=upstream0,chassis=2,slot={port},addr={port:#x}.0"));
    }
    for (port, device) in options.devices.iter().enumerate() {
        if let Some(node) = device.block_node() {
            command.arg("-blockdev").arg(node.to_string());
        }
        let properties = device.properties(&Guest::port_bus(port));
        command.arg("-device").arg(Value::Object(properties).to_string());
    }
}

/// The image with more files in it: the kernel unpacks archives that follow each other.
fn own_initramfs(path: &Path, image: &Path, files: &[GuestFile]) -> Result<PathBuf> {
    let failed = || format!("write {}", path.display());
    let mut output = File::create(path).map_err(Error::io(failed()))?;
    let mut image = File::open(image).map_err(Error::io(format!("open {}", image.display())))?;
    io::copy(&mut image, &mut output).map_err(Error::io(failed()))?;
    initramfs::overlay(&mut output, files)?;
    Ok(path.to_owned())
}

impl Drop for Guest {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", tail("the guest's console", &self.console(), 60));
        }
        self.process.kill();
        thread::sleep(POLL);
    }
}
