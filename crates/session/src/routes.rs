//! The addresses of a session's paths, kept by whoever owns session and Ports.

use etherslot_wire::frame::Header;

use crate::path::{MAX_PATHS, PathId};
use crate::session::Session;

/// For each path of one session the address of the peer; `A` names our Port as well, if there are several.
#[derive(Clone, Copy, Debug)]
pub struct Routes<A>([Option<A>; MAX_PATHS]);

impl<A: Copy + Eq> Routes<A> {
    /// A session that is greeted, or has greeted, by this address.
    pub fn new(first: A) -> Self {
        let mut routes = [None; MAX_PATHS];
        routes[PathId::FIRST.index()] = Some(first);
        Self(routes)
    }

    /// The address of a path that has joined.
    pub fn address(&self, path: PathId) -> Option<A> {
        self.0[path.index()]
    }

    /// The path of an address.
    pub fn path(&self, from: &A) -> Option<PathId> {
        self.0.iter().position(|known| known.as_ref() == Some(from)).map(PathId::new)
    }

    /// The active side's: adds a path to this address, if the session takes one.
    pub fn add(&mut self, session: &mut Session, now_ns: u64, to: A) -> Option<PathId> {
        if self.path(&to).is_some() {
            return None;
        }
        let path = session.add_path(now_ns)?;
        self.0[path.index()] = Some(to);
        Some(path)
    }

    /// The passive side's: the path on which a frame came, which may join the session by it ([`Session::join`]).
    pub fn path_or_join(
        &mut self,
        session: &mut Session,
        now_ns: u64,
        from: &A,
        header: &Header,
    ) -> Option<PathId> {
        if let Some(known) = self.path(from) {
            return Some(known);
        }
        let path = session.join(now_ns, header)?;
        self.0[path.index()] = Some(*from);
        Some(path)
    }
}
