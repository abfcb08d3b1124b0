//! A disk that firmware boots from: GRUB for a BIOS and for UEFI, and one FAT partition with its configuration, a kernel and an initramfs.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::guest::{self, GuestOptions};
use crate::packages::{Selection, Tree};
use crate::process;

pub(crate) const PACKAGES: Selection<'static> = Selection {
    packages: &["grub-common", "grub-efi-amd64-bin", "grub-pc-bin", "mtools", "ovmf"],
    backports: false,
};

const SECTOR_BYTES: u64 = 512;
/// Where the partition begins; GRUB's image for a BIOS lies in front of it.
const PARTITION_SECTOR: u64 = 2048;
/// Of the partition table in an MBR, and of what GRUB's first sector may take of it.
const TABLE: usize = 446;
const BOOT_CODE_BYTES: usize = 440;
/// An EFI system partition; to a BIOS its type says nothing.
const EFI_SYSTEM: u8 = 0xEF;
/// Room for what GRUB adds to kernel and initramfs.
const SPARE_BYTES: u64 = 32 << 20;
/// Both read their configuration by these.
const MODULES: [&str; 6] = ["part_msdos", "fat", "linux", "normal", "serial", "terminal"];

/// What starts a guest that is not given a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// QEMU's own, `SeaBIOS`.
    Bios,
    /// The image in this file.
    Uefi(PathBuf),
}

/// The programs that make such a disk, and firmware.
#[derive(Clone, Debug)]
pub struct Boot {
    tools: Tree,
}

impl Boot {
    /// Fetches them if need be.
    pub fn ensure() -> Result<Self> {
        Ok(Self { tools: Tree { root: Cache::boot_tools()? } })
    }

    /// Firmware for UEFI, `OVMF`.
    pub fn uefi(&self) -> Firmware {
        Firmware::Uefi(self.tools.path("usr/share/ovmf/OVMF.fd"))
    }

    /// Makes a disk of the file at `path` that boots the kernel of `cache` with the command line of `options`.
    pub fn write_disk(&self, path: &Path, cache: &Cache, options: &GuestOptions) -> Result<()> {
        let failed = || format!("make a disk to boot from of {}", path.display());
        let length =
            |file: &Path| fs::metadata(file).map(|metadata| metadata.len()).map_err(Error::io(failed()));
        let mut bytes = PARTITION_SECTOR * SECTOR_BYTES + SPARE_BYTES;
        for file in [cache.kernel(), cache.initramfs()] {
            bytes += length(file)?;
        }
        let sectors = bytes.next_multiple_of(1 << 20) / SECTOR_BYTES;
        File::create(path)
            .and_then(|file| file.set_len(sectors * SECTOR_BYTES))
            .map_err(Error::io(failed()))?;

        let scratch = |name: &str| path.with_extension(name);
        let (bios, uefi, config) = (scratch("bios"), scratch("uefi"), scratch("cfg"));
        // From the drive that the BIOS started, and from the partition that UEFI did.
        self.grub("i386-pc", "(,msdos1)/boot/grub", Some("biosdisk"), &bios)?;
        self.grub("x86_64-efi", "/boot/grub", None, &uefi)?;
        fs::write(&config, grub_config(options)).map_err(Error::io(failed()))?;

        let partition = format!("{}@@{}", path.display(), PARTITION_SECTOR * SECTOR_BYTES);
        let size = (sectors - PARTITION_SECTOR).to_string();
        let shape = ["-F", "-T", &size, "-H", &PARTITION_SECTOR.to_string(), "-h", "255", "-s", "63", "::"];
        self.fat("mformat", &partition, shape)?;
        self.fat("mmd", &partition, ["::/boot", "::/boot/grub", "::/EFI", "::/EFI/BOOT"])?;
        for (from, to) in [
            (cache.kernel(), "::/boot/vmlinuz"),
            (cache.initramfs(), "::/boot/initramfs"),
            (&config, "::/boot/grub/grub.cfg"),
            (&uefi, "::/EFI/BOOT/BOOTX64.EFI"),
        ] {
            self.fat("mcopy", &partition, [&*from.display().to_string(), to])?;
        }
        self.write_front(path, &bios, sectors).map_err(Error::io(failed()))
    }

    fn grub(&self, format: &str, prefix: &str, module: Option<&str>, output: &Path) -> Result<()> {
        let modules = self.tools.path(&format!("usr/lib/grub/{format}"));
        let mut command = self.tools.command("usr/bin/grub-mkimage", "grub-mkimage");
        command.arg("--directory").arg(modules).arg("--output").arg(output);
        command.args(["--format", format, "--prefix", prefix]).args(MODULES).args(module);
        process::output(&mut command).map(drop)
    }

    fn fat<'a>(
        &self,
        tool: &str,
        partition: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<()> {
        let mut command = self.tools.command("usr/bin/mtools", tool);
        // Whoever it runs for may have a configuration.
        command.env("MTOOLSRC", "/dev/null").args(["-i", partition]).args(arguments);
        process::output(&mut command).map(drop)
    }

    /// MBR with one partition, and the BIOS's GRUB behind it.
    fn write_front(&self, path: &Path, bios: &Path, sectors: u64) -> std::io::Result<()> {
        let boot = fs::read(self.tools.path("usr/lib/grub/i386-pc/boot.img"))?;
        let core = fs::read(bios)?;
        assert!(
            core.len() as u64 <= (PARTITION_SECTOR - 1) * SECTOR_BYTES,
            "GRUB fits in front of the partition"
        );
        let disk = OpenOptions::new().write(true).open(path)?;
        disk.write_all_at(&master_boot_record(&boot, sectors), 0)?;
        disk.write_all_at(&core, SECTOR_BYTES)
    }
}

/// The first sector: what is GRUB's of it, and one bootable partition to the end of the disk.
fn master_boot_record(boot: &[u8], sectors: u64) -> [u8; SECTOR_BYTES as usize] {
    let mut sector = [0; SECTOR_BYTES as usize];
    sector[..BOOT_CODE_BYTES].copy_from_slice(&boot[..BOOT_CODE_BYTES]);
    let entry = &mut sector[TABLE..TABLE + 16];
    // Bootable; cylinders and heads say that they are too small to tell.
    entry[..8].copy_from_slice(&[0x80, 0xFE, 0xFF, 0xFF, EFI_SYSTEM, 0xFE, 0xFF, 0xFF]);
    entry[8..12].copy_from_slice(&(PARTITION_SECTOR as u32).to_le_bytes());
    entry[12..].copy_from_slice(&((sectors - PARTITION_SECTOR) as u32).to_le_bytes());
    sector[SECTOR_BYTES as usize - 2..].copy_from_slice(&[0x55, 0xAA]);
    sector
}

fn grub_config(options: &GuestOptions) -> String {
    format!(
        "serial --unit=0 --speed=115200\nterminal_input serial\nterminal_output serial\nset timeout=0\n\
         menuentry lab {{\n linux /boot/vmlinuz {}\n initrd /boot/initramfs\n}}\n",
        guest::kernel_command_line(options)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sector_has_grubs_code_and_one_partition_to_the_end() {
        let sector = master_boot_record(&[0x11; 512], 10_000);
        assert!(sector[..440].iter().all(|&byte| byte == 0x11) && sector[440..446] == [0; 6]);
        assert_eq!((sector[446], sector[450]), (0x80, 0xEF));
        assert_eq!(sector[454..462], [0, 8, 0, 0, 0x10, 0x1F, 0, 0], "2048, and 7952 sectors");
        assert_eq!(sector[462..510], [0; 48]);
        assert_eq!(sector[510..], [0x55, 0xAA]);
    }

    #[test]
    fn the_configuration_boots_with_the_guests_command_line() {
        let options =
            GuestOptions { kernel_arguments: vec!["lab.from=disk".to_owned()], ..GuestOptions::default() };
        let text = grub_config(&options);
        assert!(text.contains("linux /boot/vmlinuz console=ttyS0,115200 "), "{text}");
        assert!(text.contains(" lab.from=disk\n initrd /boot/initramfs\n}\n"), "{text}");
    }
}
