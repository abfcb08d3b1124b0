//! A guest kernel as Debian ships it: the image, and those of its modules that a guest here may load.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::packages::{Selection, Tree};
use crate::process;

/// Where a guest kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSource {
    /// How options and folders name it.
    pub name: &'static str,
    package: &'static str,
    backports: bool,
}

/// The kernels a guest can run; the first is the default.
pub const KERNELS: [KernelSource; 2] = [
    KernelSource { name: "stable", package: "linux-image-amd64", backports: false },
    KernelSource { name: "backports", package: "linux-image-amd64", backports: true },
];

/// Modules to have, with all they depend on. One that a kernel lacks is passed over: its driver is built in or gone.
const MODULES: [&str; 20] = [
    "8021q",
    "ahci",
    "crc32c_generic",
    "dm_mod",
    "ext4",
    "igb",
    "loop",
    "nvme",
    "nvme_tcp",
    "nvmet",
    "nvmet_tcp",
    "raid1",
    "rdma_rxe",
    "sata_sil24",
    "sd_mod",
    "ublk_drv",
    "vfio_iommu_type1",
    "vfio_pci",
    "virtio_net",
    "xfs",
];

impl KernelSource {
    pub(crate) fn selection(&self) -> Selection<'_> {
        Selection { packages: std::slice::from_ref(&self.package), backports: self.backports }
    }

    pub(crate) fn recipe(&self) -> String {
        format!("{}; modules {}", self.selection().recipe(), MODULES.join(" "))
    }

    /// Unpacks the packages below `scratch` and keeps image, release and modules in `folder`. `tools` brings the
    /// programs that know modules.
    pub(crate) fn build(&self, scratch: &Path, folder: &Path, tools: &Tree) -> Result<()> {
        let tree = Tree::unpack(scratch, &self.selection())?;
        let release = only_entry(&tree.path("usr/lib/modules"))?;
        // Newer kernels keep the image with their modules.
        let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
        let image =
            places.iter().map(|place| tree.path(place)).find(|image| image.is_file()).ok_or_else(|| {
                Error::unexpected(
                    format!("find the image of kernel {release}"),
                    format!("it is neither of {places:?}"),
                )
            })?;
        copy(&image, &folder.join("vmlinuz"))?;
        keep_modules(&tree, &release, folder, tools)?;
        write(&folder.join("release"), release.as_bytes())?;
        fs::remove_dir_all(scratch).map_err(Error::io(format!("remove {}", scratch.display())))
    }
}

/// Copies the wanted modules, unpacked, to `folder/lib/modules/RELEASE`, with an index of just these.
fn keep_modules(tree: &Tree, release: &str, folder: &Path, tools: &Tree) -> Result<()> {
    depmod(tools, &tree.root, release)?;
    let from = tree.path(&format!("lib/modules/{release}"));
    let index = read(&from.join("modules.dep"))?;
    let to = folder.join("lib/modules").join(release);
    for path in closure(&index, &MODULES) {
        let source = from.join(&path);
        let unpacked = path.strip_suffix(".xz");
        let target = to.join(unpacked.unwrap_or(&path));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(Error::io(format!("create {}", parent.display())))?;
        }
        if unpacked.is_some() {
            let output =
                fs::File::create(&target).map_err(Error::io(format!("create {}", target.display())))?;
            let mut unpack = tools.command("usr/bin/xz", "xz");
            let status = unpack
                .args(["--decompress", "--stdout"])
                .arg(&source)
                .stdout(output)
                .status()
                .map_err(Error::io("run xz"))?;
            if !status.success() {
                return Err(Error::unexpected(format!("unpack {}", source.display()), status.to_string()));
            }
        } else {
            copy(&source, &target)?;
        }
    }
    for list in ["modules.order", "modules.builtin", "modules.builtin.modinfo"] {
        copy(&from.join(list), &to.join(list))?;
    }
    depmod(tools, folder, release)
}

fn depmod(tools: &Tree, root: &Path, release: &str) -> Result<()> {
    process::output(tools.command("usr/bin/kmod", "depmod").arg("--basedir").arg(root).arg(release)).map(drop)
}

/// The paths of the modules named and of all they depend on, from the text of `modules.dep`.
fn closure(index: &str, names: &[&str]) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for line in index.lines() {
        let Some((path, dependencies)) = line.split_once(':') else { continue };
        let file = path.rsplit('/').next().unwrap_or(path);
        let module = file.split(".ko").next().unwrap_or(file).replace('-', "_");
        if names.contains(&module.as_str()) {
            wanted.insert(path.to_owned());
            wanted.extend(dependencies.split_whitespace().map(str::to_owned));
        }
    }
    wanted
}

fn only_entry(folder: &Path) -> Result<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_err(Error::io(format!("list {}", folder.display())))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => {
            Err(Error::unexpected(format!("one kernel release in {}", folder.display()), "none, or several"))
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).map_err(Error::io(format!("write {}", path.display())))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).map_err(Error::io(format!("copy {} to {}", from.display(), to.display())))
}

#[cfg(test)]
mod tests {
    use super::closure;

    #[test]
    fn a_module_comes_with_all_it_depends_on_whatever_its_spelling() {
        let index = "kernel/a/nvme-core.ko.xz:\n\
                     kernel/a/nvme.ko.xz: kernel/a/nvme-core.ko.xz\n\
                     kernel/b/nvme-tcp.ko.xz: kernel/b/fabrics.ko.xz kernel/a/nvme-core.ko.xz\n\
                     kernel/c/other.ko.xz: kernel/c/more.ko.xz\n";
        let paths: Vec<String> = closure(index, &["nvme", "nvme_tcp"]).into_iter().collect();
        assert_eq!(
            paths,
            [
                "kernel/a/nvme-core.ko.xz",
                "kernel/a/nvme.ko.xz",
                "kernel/b/fabrics.ko.xz",
                "kernel/b/nvme-tcp.ko.xz"
            ]
        );
    }
}
