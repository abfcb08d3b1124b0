//! The same programs as Debian 13 has them: another C library, another rdma-core, UCX and libfabric.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use etherslot_lab::{Root, ensure_programs, etherslot_binary};

use crate::Story;
use crate::place::{Place, Report};
use crate::{connections, fabric, mpi, programs, ucx};

#[test]
#[ignore = "needs root: ./run test verbs"]
fn programs_of_debian_13_run_unmodified_as_nobody() {
    let story = Story::begin();
    let (place, mut report) = (Place::cable_of_13(), Report::default());
    programs::run(&place, &mut report);
    connections::run(&place, &mut report, usize::MAX);
    fabric::run(&place, &mut report);
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn ucx_of_debian_13_runs_over_reliable_connections_and_over_datagrams() {
    let story = Story::begin();
    let (place, mut report) = (Place::cable_of_13(), Report::default());
    ucx::run_on_terminals(&place, &mut report);
    report.end(&place);
    story.tell("done");
}

/// Open MPI 5 and its UCX, with a program that was made for the machine's: their ABI is one.
#[test]
#[ignore = "needs root: ./run test verbs"]
fn mpi_of_debian_13_runs_as_nobody() {
    let story = Story::begin();
    mpi::run(&Place::cable_of_13());
    story.tell("done");
}

/// What a library exports, as `name@VERSION`.
fn exports(library: &Path) -> BTreeSet<String> {
    let output =
        Command::new("readelf").args(["--wide", "--dyn-syms"]).arg(library).output().expect("readelf");
    let text = String::from_utf8(output.stdout).expect("text");
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Number, value, size, type, binding, visibility, section, name.
        let (section, name) = (fields.get(6)?, fields.get(7)?);
        (*section != "UND" && name.contains('@')).then(|| name.replace("@@", "@"))
    };
    let exports: BTreeSet<String> = text.lines().filter_map(of).collect();
    assert!(!exports.is_empty(), "{} exports nothing", library.display());
    exports
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn everything_that_the_libraries_of_rdma_core_export_is_exported() {
    let story = Story::begin();
    ensure_programs(&[("readelf", "binutils"), ("rping", "rdmacm-utils")]).unwrap();
    // Both are one object (docs/verbs.md).
    let ours = exports(&etherslot_binary().unwrap().with_file_name("verbs/libibverbs.so.1"));
    let root = Root::ensure().unwrap();
    for release in [PathBuf::from("/"), root.path().to_owned()] {
        for library in ["libibverbs.so.1", "librdmacm.so.1"] {
            let theirs = exports(&release.join("usr/lib/x86_64-linux-gnu").join(library));
            // The ABI of before 2007, whose structures were others; but for what has remained as it was.
            let is_old = |name: &str| name.ends_with("@IBVERBS_1.0");
            let missing: Vec<_> = theirs.difference(&ours).filter(|name| !is_old(name)).collect();
            println!("{} of {}: {} names", library, release.display(), theirs.len());
            assert!(missing.is_empty(), "{missing:?}");
        }
    }
    story.tell("done");
}
