//! What is copied, as it stands on the command line.

use std::path::PathBuf;
use std::str::FromStr;

use crate::nvme::shape;

/// A source or a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A remote disk, or a part of it.
    Disk {
        /// As [`crate::nvme::Reach`] takes it.
        name: String,
        /// Its first byte.
        offset: u64,
        /// How much, if that is said.
        bytes: Option<u64>,
    },
    /// A file or block device of this machine, or a part of it.
    File {
        /// Where it is.
        path: PathBuf,
        /// The first byte, if a part is meant.
        offset: Option<u64>,
        /// How much, if that is said.
        bytes: Option<u64>,
    },
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // An address has colons, too, but no plus sign; a path may have both.
        let is_file = text.contains('/');
        let range = text.rsplit_once(':').and_then(|(name, range)| Some((name, range.split_once('+')?)));
        let range =
            range.filter(|(_, (offset, _))| !is_file || offset.starts_with(|one: char| one.is_ascii_digit()));
        let (name, offset, bytes) = match range {
            None => (text, None, None),
            Some((name, (offset, ""))) => (name, Some(shape::bytes(offset)?), None),
            Some((name, (offset, bytes))) => (name, Some(shape::bytes(offset)?), Some(shape::bytes(bytes)?)),
        };
        Ok(if is_file {
            Self::File { path: PathBuf::from(name), offset, bytes }
        } else {
            Self::Disk { name: name.to_owned(), offset: offset.unwrap_or(0), bytes }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, offset: u64, bytes: Option<u64>) -> Place {
        Place::Disk { name: name.to_owned(), offset, bytes }
    }

    fn file(path: &str, offset: Option<u64>, bytes: Option<u64>) -> Place {
        Place::File { path: path.into(), offset, bytes }
    }

    #[test]
    fn a_place_is_a_disk_a_part_of_one_or_a_file() {
        for (text, place) in [
            ("disk@10.0.0.1:4700", disk("disk@10.0.0.1:4700", 0, None)),
            ("disk@10.0.0.1:4700:1g+512m", disk("disk@10.0.0.1:4700", 1 << 30, Some(512 << 20))),
            ("disk@02:00:00:00:00:01:4k+", disk("disk@02:00:00:00:00:01", 4096, None)),
            ("disk@[::1]:4700:0+512", disk("disk@[::1]:4700", 0, Some(512))),
            ("disk", disk("disk", 0, None)),
            ("disk:8+8", disk("disk", 8, Some(8))),
            ("./image", file("./image", None, None)),
            ("/dev/nvme0n1:4k+1m", file("/dev/nvme0n1", Some(4096), Some(1 << 20))),
            ("/tmp/a:0+", file("/tmp/a", Some(0), None)),
            ("/tmp/g++/a:b", file("/tmp/g++/a:b", None, None)),
            ("/tmp/a:c++", file("/tmp/a:c++", None, None)),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for text in ["disk:1x+2", "disk:+2", "disk:1+many", "/tmp/a:1+many"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
