//! Where clients come, in one word: `unix:/run/disk.sock`, `/run/disk.sock`, `127.0.0.1:10809`, `[::1]:10809`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A socket of the file system, for the owner of the process alone.
    Unix(PathBuf),
    /// TCP, for everybody who reaches it.
    Tcp(SocketAddr),
}

/// A text that names no place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place to listen at: write unix:/PATH, or ADDRESS:PORT such as 127.0.0.1:PORT")]
pub struct AddressError(String);

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with(['/', '.']).then_some(text));
        match path {
            Some("") => Err(AddressError(text.to_owned())),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| AddressError(text.to_owned())),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_an_address_with_a_port() {
        for (text, shown) in [
            ("unix:/run/a", "unix:/run/a"),
            ("/run/a:1", "unix:/run/a:1"),
            ("./a", "unix:./a"),
            ("unix:a", "unix:a"),
            ("127.0.0.1:10809", "127.0.0.1:10809"),
            ("[::1]:1", "[::1]:1"),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse(), Ok(address));
        }
        for text in ["", "unix:", "a", "10809", "127.0.0.1", "localhost:10809"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }
}
