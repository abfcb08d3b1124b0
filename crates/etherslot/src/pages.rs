//! `etherslot man` and `etherslot completions`: made of the definition of the command line itself, so they tell what is true.

use std::fs;
use std::io::{self, Write as _, stdout};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::Cli;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell that is to complete commands; it reads what is printed.
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct Man {
    /// Write a page for each command into this folder, which is made if need be; without it, the page of `etherslot` is printed.
    folder: Option<PathBuf>,
}

impl Completions {
    pub(crate) fn run(self) -> Result<()> {
        printed(&script(self.shell))
    }
}

impl Man {
    pub(crate) fn run(self) -> Result<()> {
        let Some(folder) = self.folder else {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            return printed(&page);
        };
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        clap_mangen::generate_to(Cli::command(), &folder)
            .with_context(|| format!("cannot write the pages to {}", folder.display()))
    }
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "etherslot", &mut script);
    script
}

/// To whoever reads it, which may have read enough.
fn printed(bytes: &[u8]) -> Result<()> {
    match stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// By lexgrog and man themselves where they are installed.
    #[test]
    fn every_command_has_a_page_that_man_can_read() {
        let folder = tempfile::tempdir().unwrap();
        Man { folder: Some(folder.path().join("man1")) }.run().unwrap();
        let mut pages: Vec<PathBuf> =
            fs::read_dir(folder.path().join("man1")).unwrap().map(|entry| entry.unwrap().path()).collect();
        pages.sort();
        let names: Vec<String> =
            pages.iter().map(|page| page.file_name().unwrap().to_string_lossy().into_owned()).collect();
        for name in ["etherslot.1", "etherslot-box.1", "etherslot-config-check.1", "etherslot-nvme-bench.1"] {
            assert!(names.iter().any(|known| known == name), "no {name} in {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("keeper")), "it is nobody's to call");
        for page in &pages {
            let text = fs::read_to_string(page).unwrap();
            for part in [".TH", ".SH NAME", ".SH SYNOPSIS"] {
                assert!(text.lines().any(|line| line.starts_with(part)), "no {part} in {}", page.display());
            }
            let Ok(named) = Command::new("lexgrog").arg(page).output() else { continue };
            assert!(named.status.success(), "lexgrog finds no name in {}", page.display());
            let shown =
                Command::new("man").args(["--warnings", "-l"]).arg(page).env("MANWIDTH", "100").output();
            let shown = shown.unwrap();
            let complaints = String::from_utf8_lossy(&shown.stderr).into_owned();
            assert!(shown.status.success() && complaints.is_empty(), "{}: {complaints}", page.display());
            assert!(!shown.stdout.is_empty());
        }
    }

    /// By the shells themselves where they are installed.
    #[test]
    fn completions_are_such_in_every_shell() {
        for (shell, program) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
            let script = script(shell);
            let text = String::from_utf8(script.clone()).unwrap();
            for word in ["assign", "completions", "doctor"] {
                assert!(text.contains(word), "{shell} does not know {word}");
            }
            let Ok(mut checked) = Command::new(program).arg("-n").stdin(Stdio::piped()).spawn() else {
                eprintln!("not checked: {program} is not installed");
                continue;
            };
            checked.stdin.take().unwrap().write_all(&script).unwrap();
            assert!(checked.wait().unwrap().success(), "{program} -n");
        }
    }
}
