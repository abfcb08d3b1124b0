//! Compiles the shim into a shared object of its own, against the DPDK of this machine, if it has one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SOURCES: [&str; 3] = ["shim/eal.c", "shim/gate.c", "shim/port.c"];
const HEADERS: [&str; 2] = ["shim/gate.h", "shim/shim.h"];
/// Where packages put what `pkg-config` knows: a DPDK that comes or goes is seen there.
const PACKAGES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/pkgconfig",
    "/usr/lib/aarch64-linux-gnu/pkgconfig",
    "/usr/lib64/pkgconfig",
    "/usr/local/lib/pkgconfig",
];

fn main() {
    for file in SOURCES.iter().chain(&HEADERS).chain(&["build.rs"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    for folder in PACKAGES.iter().filter(|folder| Path::new(folder).is_dir()) {
        println!("cargo::rerun-if-changed={folder}");
    }
    for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "CC"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("shim.so");
    println!("cargo::rustc-env=ETHERSLOT_DPDK_SHIM={}", object.display());
    if let Some((flags, libraries)) = pkg_config("--cflags").zip(pkg_config("--libs")) {
        compile(&object, &flags, &libraries);
    } else {
        println!(
            "cargo::warning=built without links of kind `dpdk`: libdpdk is missing; install libdpdk-dev and pkg-config for them, and build again"
        );
        fs::write(&object, []).expect("OUT_DIR is writable");
    }
}

fn program(variable: &str, usual: &str) -> Command {
    Command::new(env::var_os(variable).unwrap_or_else(|| usual.into()))
}

/// What `pkg-config` says of libdpdk; nothing if one of them is missing.
fn pkg_config(what: &str) -> Option<Vec<String>> {
    let Output { status, stdout, .. } =
        program("PKG_CONFIG", "pkg-config").args([what, "libdpdk"]).output().ok()?;
    let text = String::from_utf8(stdout).ok()?;
    status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
}

/// A DPDK that is there but cannot be used is a mistake that has to be seen.
fn compile(object: &Path, flags: &[String], libraries: &[String]) {
    let status = program("CC", "cc")
        .args(["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"])
        // Interrupt handles of one's own, in DPDK since 21.11.
        .arg("-DALLOW_EXPERIMENTAL_API")
        .args(["-fPIC", "-shared", "-fvisibility=hidden", "-Wl,--as-needed,-z,defs", "-pthread", "-o"])
        .arg(object)
        .args(flags)
        .args(SOURCES)
        .args(libraries)
        .status()
        .expect("a C compiler (`cc`, or CC): install gcc");
    assert!(status.success(), "the C compiler failed on the shim of DPDK: its messages are above");
}
