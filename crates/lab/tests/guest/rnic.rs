//! RNICs of a box in stock guests: a program has the Function by vfio-pci behind the guest's IOMMU, and Debian's verbs programs run on it,
//! between two guests, and between a guest and a process of this machine.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use etherslot_lab::{
    Cache, Daemon, Guest, GuestDevice, GuestFile, GuestOptions, Job, Process, Role, Run, ensure_programs,
    etherslot_binary, mortal,
};

use crate::story::{SOON, Story};

/// Where box, host, both RNICs and the process are: on loopback, apart from others' tests.
const IP: &str = "127.0.77.1";
/// Slots of the RNICs, and of the process, which is a peer of the first.
const SLOTS: [u16; 2] = [0, 1];
const PROCESS_SLOT: u16 = 2;
const FIRST_PORT: u16 = 18_944;
/// Where servers in the guests, and on this machine, listen for what programs tell each other beside verbs. The ports of a guest are
/// this machine's, too.
const PORTS: [u16; 2] = [18_871, 18_872];
const PROCESS_PORT: u16 = 18_873;
/// This machine, seen from a guest.
const MACHINE: &str = "10.0.2.2";
/// Programs in guests without KVM take their time.
const PATIENCE: Duration = Duration::from_mins(4);
/// Where the programs are in the guests.
const FOLDER: &str = "/opt/verbs";
const PROGRAMS: &[(&str, &str)] = &[("ibv_rc_pingpong", "ibverbs-utils"), ("ib_write_bw", "perftest")];

/// What runs between two of them, with the same arguments on both sides; `-c` of the pingpongs compares every buffer.
const PAIRS: &[&str] = &[
    "ibv_rc_pingpong -g 0 -c -n 200",
    "ibv_rc_pingpong -g 0 -c -e -n 50",
    "ibv_rc_pingpong -g 0 -c -s 100000 -n 20",
    "ibv_ud_pingpong -g 0 -c -n 100 -s 1024",
    "ibv_srq_pingpong -g 0 -c -q 4 -n 100",
    "ib_write_bw -n 100",
    "ib_read_bw -n 50",
    "ib_send_lat -n 100 -s 8",
];

/// A copy without what debuggers want, which would fill a guest's memory.
fn stripped(run: &Run, file: &Path) -> PathBuf {
    let copy = run.path(&file.file_name().unwrap().to_string_lossy());
    let status = Command::new("strip").arg("--strip-debug").arg("-o").arg(&copy).arg(file).status();
    assert!(status.is_ok_and(|status| status.success()), "strip, of the binutils that the build needs");
    copy
}

/// The programs with the libraries that they need, ours before Debian's; and the binary.
fn files(run: &Run) -> Vec<GuestFile> {
    let mut programs: Vec<&str> = PAIRS.iter().filter_map(|pair| pair.split(' ').next()).collect();
    programs.extend(["ibv_devinfo"]);
    programs.sort_unstable();
    programs.dedup();
    let binary = etherslot_binary().unwrap();
    let mut files = vec![(stripped(run, &binary), format!("{FOLDER}/etherslot"))];
    let mut libraries = needed(&binary);
    for library in ["libibverbs.so.1", "librdmacm.so.1", "paths.so"] {
        let path = binary.with_file_name("").join("verbs").join(library);
        libraries.extend(needed(&path));
        files.push((stripped(run, &path), format!("{FOLDER}/verbs/{library}")));
    }
    for program in programs {
        let path = Path::new("/usr/bin").join(program);
        libraries.extend(needed(&path));
        files.push((path, format!("{FOLDER}/{program}")));
    }
    libraries.sort();
    libraries.dedup();
    for library in libraries {
        let name = library.file_name().unwrap().to_string_lossy().into_owned();
        files.push((library, format!("{FOLDER}/lib/{name}")));
    }
    files
}

/// The shared objects that a program loads, without those of the C library, which is the guest's own, and those that are ours.
fn needed(program: &Path) -> Vec<PathBuf> {
    const OTHERS: [&str; 8] = [
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "libresolv.so.2",
        "libibverbs.so.1",
        "librdmacm.so.1",
    ];
    let output = Command::new("ldd").arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| line.split_once("=> ")?.1.split(' ').next())
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && !OTHERS.iter().any(|other| path.ends_with(other)))
        .collect()
}

fn box_config() -> String {
    let mut text = format!("[node]\nname = \"box\"\n[link]\nkind = \"udp\"\nlisten = \"{IP}:4700\"\n");
    let port = |slot: u16| FIRST_PORT + slot;
    let peers = [vec![SLOTS[1], PROCESS_SLOT], vec![SLOTS[0]]];
    for (slot, peers) in SLOTS.into_iter().zip(peers) {
        let peers: Vec<String> = peers.into_iter().map(|peer| format!("\"{IP}:{}\"", port(peer))).collect();
        let _ = write!(
            text,
            "[[device]]\nkind = \"rnic\"\nname = \"rnic{slot}\"\nserial = \"RNIC{slot}\"\nlink = \"udp:{IP}:{}\"\npeers = [{}]\n\
             plaintext = true\n",
            port(slot),
            peers.join(", ")
        );
    }
    text
}

fn host_config(run: &Run) -> String {
    let mut text = format!("[node]\nname = \"host\"\n[link]\nkind = \"udp\"\nlisten = \"{IP}:0\"\n");
    for slot in SLOTS {
        let socket = run.path(&format!("rnic{slot}.sock"));
        let _ = write!(
            text,
            "[[slot]]\ndevice = \"rnic{slot}\"\nbox = \"{IP}:4700\"\nsocket = \"{}\"\n",
            socket.display()
        );
    }
    text
}

/// A guest whose RNIC has vfio-pci, and a network by which programs find each other.
fn guest(run: &Run, cache: &Cache, slot: u16, files: &[GuestFile]) -> Guest {
    let port = PORTS[usize::from(slot)];
    let options = GuestOptions {
        devices: vec![GuestDevice::VfioUser {
            socket: run.path(&format!("rnic{slot}.sock")),
            id: format!("rnic{slot}"),
        }],
        spare_ports: 0,
        // Programs that poll would take a processor each from those who serve them.
        cpus: 1,
        memory_mib: 768,
        iommu: true,
        qemu_arguments: [
            "-netdev",
            &format!("user,id=net0,hostfwd=tcp:127.0.0.1:{port}-:{port}"),
            "-device",
            "virtio-net-pci,netdev=net0,romfile=",
        ]
        .map(str::to_owned)
        .to_vec(),
        kernel_arguments: vec!["lab.modules=virtio_net,vfio_pci,vfio_iommu_type1".to_owned()],
        files: files.to_vec(),
        ..GuestOptions::default()
    };
    let guest = Guest::start(run, cache, &options).unwrap();
    let setting = "set -e
        ip link set lo up
        ip link set eth0 up
        ip address add 10.0.2.15/24 dev eth0
        for device in /sys/bus/pci/devices/*; do
            [ $(cat $device/vendor)$(cat $device/device) = 0xe5100x0002 ] || continue
            echo vfio-pci >$device/driver_override
            echo ${device##*/} >/sys/bus/pci/drivers_probe
            [ $(basename $(readlink $device/driver)) = vfio-pci ]
            echo ${device##*/}
        done";
    let found = guest.check(setting, SOON).unwrap();
    assert_eq!(found.lines().count(), 1, "one RNIC: {found}");
    guest
}

/// The command that runs a program on the RNIC.
fn on_rnic(program: &str) -> String {
    format!("cd {FOLDER} && LD_LIBRARY_PATH={FOLDER}/lib ./etherslot verbs run -- ./{program}")
}

/// Starts a server in a guest, and waits until it listens.
fn serve(guest: &Guest, program: &str, port: u16) -> Result<Job, String> {
    let server = guest.spawn(&on_rnic(&format!("{program} -p {port}"))).map_err(|error| error.to_string())?;
    // State 0A is that of a socket that listens.
    let listens =
        format!("grep -qE '^ *[0-9]+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A' /proc/net/tcp /proc/net/tcp6");
    let begun = Instant::now();
    while guest.run(&listens, SOON).map_err(|error| error.to_string())?.status != 0 {
        if server.is_done() {
            return Err(format!("the server: {:?}", server.wait(SOON)));
        }
        assert!(begun.elapsed() < PATIENCE, "{program} does not listen");
    }
    Ok(server)
}

/// Ends of a pair, both of which have to be of success.
fn both(ends: [Result<etherslot_lab::Output, String>; 2]) -> Result<String, String> {
    let mut all = String::new();
    for end in ends {
        let output = end?;
        all += &output.stdout;
        if output.status != 0 {
            return Err(format!("status {}\n{}", output.status, output.stdout));
        }
    }
    Ok(all)
}

fn wait(job: &Job) -> Result<etherslot_lab::Output, String> {
    job.wait(PATIENCE).map_err(|error| error.to_string())
}

/// Between two guests.
fn between_guests(server: &Guest, client: &Guest, program: &str) -> Result<String, String> {
    let serving = serve(server, program, PORTS[0])?;
    let asking = client.spawn(&on_rnic(&format!("{program} -p {} {MACHINE}", PORTS[0])));
    let asked = wait(&asking.map_err(|error| error.to_string())?);
    both([asked, wait(&serving)])
}

/// A process of this machine, with the RNIC in it.
fn process(run: &Run, name: &str, arguments: &[String]) -> Process {
    let mut command = mortal(None, &etherslot_binary().unwrap());
    let slot = PROCESS_SLOT.to_string();
    command.args(["verbs", "run", "--ip", IP, "--slot", &slot, "--function", "none", "--"]).args(arguments);
    Process::start(name, command, &run.path(&format!("{name}.log"))).unwrap()
}

fn output_of(process: &mut Process) -> Result<etherslot_lab::Output, String> {
    let status = process.wait(PATIENCE).map_err(|error| error.to_string())?;
    Ok(etherslot_lab::Output { status: status.code().unwrap_or(-1), stdout: process.log() })
}

/// Between a guest and a process, either of which may be the server.
fn with_process(run: &Run, guest: &Guest, program: &str, guest_serves: bool) -> Result<String, String> {
    let port = if guest_serves { PORTS[0] } else { PROCESS_PORT };
    let mut words: Vec<String> = program.split(' ').map(str::to_owned).collect();
    words.extend(["-p".to_owned(), port.to_string()]);
    let name = format!("{}-{guest_serves}", words[0]);
    if guest_serves {
        let serving = serve(guest, program, port)?;
        words.push("127.0.0.1".to_owned());
        let asked = output_of(&mut process(run, &name, &words));
        return both([asked, wait(&serving)]);
    }
    let mut serving = process(run, &name, &words);
    let listens = format!(":{port:04X} ");
    serving
        .wait_until("that it listens", PATIENCE, |_| {
            ["tcp", "tcp6"].iter().any(|table| {
                let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
                text.lines().any(|line| line.contains(&listens) && line.contains(" 0A "))
            })
        })
        .map_err(|error| error.to_string())?;
    let asking = guest.spawn(&on_rnic(&format!("{program} -p {port} {MACHINE}")));
    let asked = wait(&asking.map_err(|error| error.to_string())?);
    both([asked, output_of(&mut serving)])
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn verbs_programs_run_on_rnics_of_a_box_in_two_guests_and_with_a_process() {
    let story = Story::begin();
    ensure_programs(PROGRAMS).unwrap();
    let cache = Cache::ensure().unwrap();
    let run = Run::new("rnic").unwrap();
    let mut io_box = Daemon::start_here(&run, Role::Box, "box", &box_config()).unwrap();
    let mut host = Daemon::start_here(&run, Role::Host, "host", &host_config(&run)).unwrap();
    let files = files(&run);
    let guests = SLOTS.map(|slot| {
        let guest = guest(&run, &cache, slot, &files);
        story.tell(format!("guest {slot} is up, and its RNIC is a program's to take"));
        guest
    });
    let info = guests[0].check(&on_rnic("ibv_devinfo -v"), SOON).unwrap();
    assert!(info.contains(&format!("::ffff:{IP}")), "{info}");
    let has_qps = |line: &str| line.trim_start().starts_with("max_qp:") && line.ends_with("256");
    assert!(info.lines().any(has_qps), "it is the Function: {info}");
    let mut failed = Vec::new();
    let mut tell = |name: String, result: Result<String, String>| {
        story.tell(format!("{name} {}", if result.is_ok() { "ok" } else { "FAILED" }));
        if let Err(error) = result {
            failed.push(format!("{name}: {error}"));
        }
    };
    for program in PAIRS {
        tell(format!("between guests: {program}"), between_guests(&guests[0], &guests[1], program));
    }
    for program in [PAIRS[0], "ib_write_bw -n 100"] {
        for guest_serves in [false, true] {
            let who = if guest_serves { "guest" } else { "process" };
            let result = with_process(&run, &guests[0], program, guest_serves);
            tell(format!("guest and process, the {who} serves: {program}"), result);
        }
    }
    if !failed.is_empty() {
        run.keep_logs();
        panic!("{}", failed.join("\n\n"));
    }
    for daemon in [&mut host, &mut io_box] {
        assert_eq!(daemon.stop().unwrap().code(), Some(0), "{}", daemon.log());
    }
}
