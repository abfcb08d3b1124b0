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
    /// A file of this machine.
    File(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::File(PathBuf::from(text)));
        }
        // An address has colons, too, but no plus sign.
        let range = text.rsplit_once(':').filter(|(_, range)| range.contains('+'));
        let Some((name, range)) = range else {
            return Ok(Self::Disk { name: text.to_owned(), offset: 0, bytes: None });
        };
        let (offset, bytes) = range.split_once('+').unwrap_or((range, ""));
        let bytes = if bytes.is_empty() { None } else { Some(shape::bytes(bytes)?) };
        Ok(Self::Disk { name: name.to_owned(), offset: shape::bytes(offset)?, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, offset: u64, bytes: Option<u64>) -> Place {
        Place::Disk { name: name.to_owned(), offset, bytes }
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
            ("./image", Place::File("./image".into())),
            ("/tmp/a:1+2", Place::File("/tmp/a:1+2".into())),
        ] {
            assert_eq!(text.parse(), Ok(place), "{text}");
        }
        for text in ["disk:1x+2", "disk:+2", "disk:1+many"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
