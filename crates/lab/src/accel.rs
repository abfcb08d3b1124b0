//! What executes a guest's instructions: KVM where it really works, else QEMU's translator.

use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::guest::{Guest, GuestOptions};
use crate::run::Run;

const CHOICE_VARIABLE: &str = "ETHERSLOT_LAB_ACCEL";
const TRIAL: Duration = Duration::from_secs(20);

/// QEMU's accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// Hardware virtualisation.
    Kvm,
    /// Translation.
    Tcg,
}

impl Accel {
    /// QEMU's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// QEMU's options for it.
    pub(crate) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Kvm, Self::Tcg].into_iter().find(|accel| accel.name() == name)
    }
}

/// KVM only after a guest has come up under it: that the device node opens says little inside a virtual machine.
/// The answer holds until the machine boots again or QEMU or the kernel of the guest change.
pub(crate) fn choose(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Accel> {
    if let Ok(name) = env::var(CHOICE_VARIABLE) {
        return Accel::parse(&name)
            .ok_or_else(|| Error::setup(format!("{CHOICE_VARIABLE}={name} is not known"), "use kvm or tcg"));
    }
    if !Path::new("/dev/kvm").exists() {
        return Ok(Accel::Tcg);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let premise = format!("{}\n{}\n", boot.trim(), cache.qemu().version());
    let note = Cache::folder().join(format!("accel-{}", cache.kernel_release()));
    if let Ok(known) = fs::read_to_string(&note)
        && let Some(accel) = known.strip_prefix(&premise).and_then(|name| Accel::parse(name.trim()))
    {
        return Ok(accel);
    }
    say("trying whether KVM runs guests here");
    let accel = if boots_under_kvm(cache) { Accel::Kvm } else { Accel::Tcg };
    say(&format!("  guests run under {}", accel.name()));
    fs::write(&note, format!("{premise}{}\n", accel.name()))
        .map_err(Error::io(format!("write {}", note.display())))?;
    Ok(accel)
}

fn boots_under_kvm(cache: &Cache) -> bool {
    let Ok(run) = Run::new("kvm-trial") else { return false };
    let options = GuestOptions { boot_timeout: TRIAL, ..GuestOptions::default() };
    let works = Guest::start(&run, &cache.with_accel(Accel::Kvm), &options).is_ok();
    run.forget();
    works
}
