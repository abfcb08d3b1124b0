//! Which QEMU runs the guests: the machine's own if it is new enough, else one from Debian's backports.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::packages::{Selection, Tree, find_program};
use crate::process::{self, mortal};

const NAME: &str = "qemu-system-x86_64";
/// The first release with a vfio-user client.
const OLDEST: (u32, u32) = (10, 1);

pub(crate) const PACKAGES: Selection<'static> = Selection { packages: &["qemu-system-x86"], backports: true };

/// A QEMU with `vfio-user-pci`, and how to run it.
#[derive(Clone, Debug)]
pub struct Qemu {
    program: PathBuf,
    prefix: Vec<String>,
    modules: Option<PathBuf>,
    version: String,
}

impl Qemu {
    /// The one on the PATH, if it can serve.
    pub(crate) fn of_machine() -> Option<Self> {
        let program = find_program(NAME)?;
        let version = process::output(Command::new(&program).arg("--version")).ok()?;
        if parse_version(&version)? < OLDEST {
            return None;
        }
        let devices = process::output(Command::new(&program).args(["-device", "help"])).ok()?;
        devices.contains("\"vfio-user-pci\"").then(|| Self {
            program,
            prefix: Vec::new(),
            modules: None,
            version: first_line(&version),
        })
    }

    /// The one in an unpacked tree of [`PACKAGES`].
    pub(crate) fn of_tree(tree: &Tree, version: String) -> Self {
        let (program, mut prefix) = tree.invocation(&format!("usr/bin/{NAME}"), NAME);
        for folder in ["usr/share/qemu", "usr/share/seabios"] {
            prefix.push("-L".to_owned());
            prefix.push(tree.path(folder).display().to_string());
        }
        let modules = Some(tree.path("usr/lib/x86_64-linux-gnu/qemu"));
        Self { program, prefix, modules, version }
    }

    /// Asks the program in `tree` for its version; an error if it does not run.
    pub(crate) fn version_of_tree(tree: &Tree) -> Result<String> {
        process::output(tree.command(&format!("usr/bin/{NAME}"), NAME).arg("--version"))
            .map(|text| first_line(&text))
    }

    /// As it names itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A shell script that runs it as it is, with whatever arguments.
    pub fn script(&self) -> String {
        let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
        let words = std::iter::once(self.program.display().to_string()).chain(self.prefix.iter().cloned());
        let words: Vec<String> = words.map(|word| quoted(&word)).collect();
        let modules = self.modules.as_ref().map(|folder| quoted(&folder.display().to_string()));
        let modules = modules.map(|folder| format!("QEMU_MODULE_DIR={folder} ")).unwrap_or_default();
        format!("#!/bin/sh\n{modules}exec {} \"$@\"\n", words.join(" "))
    }

    /// A command with the arguments that every start needs; it dies with the lab.
    pub(crate) fn command(&self) -> Command {
        let mut command = mortal(None, Path::new(&self.program));
        command.args(&self.prefix);
        if let Some(modules) = &self.modules {
            command.env("QEMU_MODULE_DIR", modules);
        }
        command
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().skip_while(|word| *word != "version").nth(1)?;
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, parse_version};

    #[test]
    fn versions_compare_by_number_and_not_by_text() {
        assert_eq!(
            parse_version("QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)"),
            Some((11, 1))
        );
        assert!(parse_version("QEMU emulator version 7.2.15").unwrap() < OLDEST);
        assert!(parse_version("QEMU emulator version 10.1.0").unwrap() >= OLDEST);
        assert_eq!(parse_version("something else"), None);
    }
}
