//! What is fetched and built once: QEMU, the guest's programs, kernels, initramfs images.
//!
//! Each stage is a folder that is built under another name and renamed when complete, with the recipe it was made by:
//! an interrupted set-up leaves no half stage, and a stage is rebuilt when its recipe changes. One set-up runs at a
//! time.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::accel::{self, Accel};
use crate::boot;
use crate::error::{Error, Result};
use crate::initramfs;
use crate::packages::{self, Selection, Tree};
use crate::qemu::{self, Qemu};
use crate::root;

pub use crate::kernel::{KERNELS, KernelSource};

/// Where the cache is, if not in the checkout.
const FOLDER_VARIABLE: &str = "ETHERSLOT_LAB_CACHE";
const RECIPE: &str = "recipe";

/// Everything a guest starts from.
#[derive(Clone, Debug)]
pub struct Cache {
    qemu: Qemu,
    accel: Accel,
    kernel: PathBuf,
    initramfs: PathBuf,
    release: String,
}

impl Cache {
    /// The cache with the default kernel, completed if need be; tells on standard error what it does.
    pub fn ensure() -> Result<Self> {
        Self::ensure_with(&KERNELS[0], &mut |text| eprintln!("lab: {text}"))
    }

    /// The cache with `kernel`; `say` hears every step that takes time.
    pub fn ensure_with(kernel: &KernelSource, say: &mut dyn FnMut(&str)) -> Result<Self> {
        packages::check_machine()?;
        let folder = Self::folder();
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        let _lock = exclusive(&folder, say)?;
        packages::ensure_host(say)?;
        let mut stages = Stages { folder: &folder, say };

        let qemu = match Qemu::of_machine() {
            Some(qemu) => qemu,
            None => stages.qemu()?,
        };
        let tools = Tree { root: stages.tools()? };
        let kernel_folder = stages.kernel(kernel, &tools)?;
        let image = stages.initramfs(kernel, &tools, &kernel_folder)?;
        let release = fs::read_to_string(kernel_folder.join("release"))
            .map_err(Error::io(format!("read {}/release", kernel_folder.display())))?;
        let mut cache = Self {
            accel: Accel::Tcg,
            qemu,
            kernel: kernel_folder.join("vmlinuz"),
            initramfs: image.join("initramfs.cpio"),
            release,
        };
        cache.accel = accel::choose(&cache, say)?;
        Ok(cache)
    }

    /// The cache's folder: that of the environment, or `.cache/lab` of the checkout.
    pub fn folder() -> PathBuf {
        env::var_os(FOLDER_VARIABLE)
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/lab"), PathBuf::from)
            .components()
            .fold(PathBuf::new(), |path, component| {
                // `canonicalize` would want the folder to exist.
                if component.as_os_str() == ".." {
                    path.parent().map(PathBuf::from).unwrap_or(path)
                } else {
                    path.join(component)
                }
            })
    }

    /// Debian 13 with what `packages` are, as the root of programs; tells on standard error what it does.
    pub(crate) fn root_of_13(packages: &Selection<'_>) -> Result<PathBuf> {
        packages::check_machine()?;
        let mut say = |text: &str| eprintln!("lab: {text}");
        let folder = Self::folder();
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        let _lock = exclusive(&folder, &mut say)?;
        packages::ensure_host(&mut say)?;
        let stage = Stages { folder: &folder, say: &mut say }.stage(
            "debian-13",
            &packages.recipe(),
            "fetching Debian 13's programs that use verbs",
            |folder, _| root::unpack(&folder.join("root"), packages),
        )?;
        Ok(stage.join("root"))
    }

    /// What makes disks to boot from, as a tree of programs; tells on standard error what it does.
    pub(crate) fn boot_tools() -> Result<PathBuf> {
        packages::check_machine()?;
        let mut say = |text: &str| eprintln!("lab: {text}");
        let folder = Self::folder();
        fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
        let _lock = exclusive(&folder, &mut say)?;
        packages::ensure_host(&mut say)?;
        let stage = Stages { folder: &folder, say: &mut say }.stage(
            "boot",
            &boot::PACKAGES.recipe(),
            "fetching GRUB, and firmware for UEFI",
            |folder, _| Tree::unpack(&folder.join("root"), &boot::PACKAGES).map(drop),
        )?;
        Ok(stage.join("root"))
    }

    /// Removes the cache; the packages installed on the machine stay.
    pub fn remove() -> Result<()> {
        let folder = Self::folder();
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", folder.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// The QEMU to run guests in.
    pub fn qemu(&self) -> &Qemu {
        &self.qemu
    }

    /// What runs the guest's instructions.
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// The kernel's image.
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// The kernel's release (`uname -r`).
    pub fn kernel_release(&self) -> &str {
        &self.release
    }

    /// The initramfs image that goes with the kernel.
    pub fn initramfs(&self) -> &Path {
        &self.initramfs
    }

    pub(crate) fn with_accel(&self, accel: Accel) -> Self {
        Self { accel, ..self.clone() }
    }
}

fn exclusive(folder: &Path, say: &mut dyn FnMut(&str)) -> Result<File> {
    let path = folder.join("lock");
    let failed = || format!("lock {}", path.display());
    let file = File::create(&path).map_err(Error::io(failed()))?;
    if file.try_lock().is_err() {
        say("waiting for another set-up to finish");
        file.lock().map_err(Error::io(failed()))?;
    }
    Ok(file)
}

struct Stages<'a> {
    folder: &'a Path,
    say: &'a mut dyn FnMut(&str),
}

impl Stages<'_> {
    fn qemu(&mut self) -> Result<Qemu> {
        let folder = self.stage(
            "qemu",
            &qemu::PACKAGES.recipe(),
            "fetching QEMU with vfio-user (the machine has none)",
            |folder, _| {
                let tree = Tree::unpack(&folder.join("root"), &qemu::PACKAGES)?;
                let version = Qemu::version_of_tree(&tree)?;
                fs::write(folder.join("version"), version).map_err(Error::io("note QEMU's version"))
            },
        )?;
        let version = fs::read_to_string(folder.join("version")).map_err(Error::io("read QEMU's version"))?;
        Ok(Qemu::of_tree(&Tree { root: folder.join("root") }, version))
    }

    fn tools(&mut self) -> Result<PathBuf> {
        let folder = self.stage(
            "tools",
            &initramfs::PACKAGES.recipe(),
            "fetching the guest's programs (fio, nvme-cli, …)",
            |folder, _| Tree::unpack(&folder.join("root"), &initramfs::PACKAGES).map(drop),
        )?;
        Ok(folder.join("root"))
    }

    fn kernel(&mut self, kernel: &KernelSource, tools: &Tree) -> Result<PathBuf> {
        self.stage(
            &format!("kernel-{}", kernel.name),
            &kernel.recipe(),
            &format!("fetching the guest's kernel ({})", kernel.name),
            |folder, scratch| kernel.build(scratch, folder, tools),
        )
    }

    fn initramfs(&mut self, kernel: &KernelSource, tools: &Tree, kernel_folder: &Path) -> Result<PathBuf> {
        let recipe = initramfs::recipe(&initramfs::PACKAGES.recipe(), &kernel.recipe());
        self.stage(
            &format!("initramfs-{}", kernel.name),
            &recipe,
            &format!("building the guest's initramfs ({})", kernel.name),
            |folder, _| initramfs::build(&folder.join("initramfs.cpio"), tools, kernel_folder),
        )
    }

    /// The folder of stage `name`, made by `build(folder, scratch path)` unless it is there by the same recipe.
    fn stage(
        &mut self,
        name: &str,
        recipe: &str,
        doing: &str,
        build: impl FnOnce(&Path, &Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if fs::read_to_string(folder.join(RECIPE)).is_ok_and(|made_by| made_by == recipe) {
            return Ok(folder);
        }
        (self.say)(doing);
        let start = Instant::now();
        let half = self.folder.join(format!("{name}.half"));
        let scratch = self.folder.join(format!("{name}.scratch"));
        for leftover in [&half, &scratch, &folder] {
            if leftover.exists() {
                fs::remove_dir_all(leftover).map_err(Error::io(format!("remove {}", leftover.display())))?;
            }
        }
        fs::create_dir(&half).map_err(Error::io(format!("create {}", half.display())))?;
        build(&half, &scratch)?;
        fs::write(half.join(RECIPE), recipe)
            .map_err(Error::io(format!("write {}/{RECIPE}", half.display())))?;
        fs::rename(&half, &folder).map_err(Error::io(format!("rename {}", half.display())))?;
        (self.say)(&format!("  took {:.0?}", start.elapsed()));
        Ok(folder)
    }
}
