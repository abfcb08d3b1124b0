//! What must hold, checked outside the code under test.

use std::cell::RefCell;
use std::rc::Rc;

pub(crate) mod history;
pub(crate) mod order;
pub(crate) mod verdict;
pub(crate) mod wire;

/// The checks of one device, which its box and its host share.
#[derive(Clone)]
pub(crate) struct Checks {
    /// What is sent against what arrives.
    pub(crate) order: Rc<RefCell<order::Order>>,
    /// What its blocks may hold.
    pub(crate) history: Rc<RefCell<history::History>>,
}
