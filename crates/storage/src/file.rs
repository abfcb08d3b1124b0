//! A regular file or a block device as a medium, by `io_uring`.
//!
//! Direct I/O where the file takes it at the granularity asked for, else through the page cache. Every Request is one
//! slot of a table as large as the ring, so neither ring can overflow; the slot owns the Buf until the kernel is done
//! with it. The file is locked against a second user.

mod open;
mod ring;

pub use open::{Direct, OpenError, Options};
pub use ring::FileMedium;
