//! The interrupts of a device: what SET_IRQS has made of them.
//!
//! All types have masks here. INTx is a level and masks itself when it triggers (VFIO_IRQ_INFO_AUTOMASKED): the
//! client unmasks it when the guest has ended the interrupt, and it triggers again if the level is still high. A masked
//! MSI or MSI-X vector that triggers stays pending until it is unmasked.

use std::os::fd::{AsFd, OwnedFd};

use crate::eventfd::Eventfd;
use crate::message::{Errno, IrqAction, IrqData, IrqInfoReply, SetIrqs, irq};
use crate::poller::Poller;

#[derive(Debug, Default)]
struct Vector {
    eventfd: Option<Eventfd>,
    masked: bool,
    pending: bool,
}

#[derive(Debug)]
pub(crate) struct Irqs {
    types: [Vec<Vector>; irq::COUNT],
    /// The level of INTx.
    level: bool,
    /// Eventfds by which the client masks and unmasks INTx without a message (KVM's resampling).
    mask: Option<Eventfd>,
    unmask: Option<Eventfd>,
    /// Eventfds written.
    pub(crate) signalled: u64,
}

impl Irqs {
    pub(crate) fn new(counts: &[u32; irq::COUNT]) -> Self {
        let types = counts.map(|count| (0..count).map(|_| Vector::default()).collect());
        Self { types, level: false, mask: None, unmask: None, signalled: 0 }
    }

    /// None of the types that a device never has here, as the kernel does: QEMU complains about a count of 0.
    pub(crate) fn info(&self, index: u32) -> Option<IrqInfoReply> {
        if index > irq::MSIX {
            return None;
        }
        let count = self.types.get(index as usize)?.len() as u32;
        Some(IrqInfoReply {
            index,
            eventfd: true,
            maskable: true,
            automasked: index == irq::INTX,
            // MSI messages are a block that starts at one address; MSI-X vectors come and go one by one.
            noresize: index == irq::MSI,
            count,
        })
    }

    pub(crate) fn is_assigned(&self, index: u32, vector: u32) -> bool {
        self.vector(index, vector).is_some_and(|vector| vector.eventfd.is_some())
    }

    pub(crate) fn is_masked(&self, index: u32, vector: u32) -> bool {
        self.vector(index, vector).is_some_and(|vector| vector.masked)
    }

    pub(crate) fn assigned(&self, index: u32) -> usize {
        let vectors = self.types.get(index as usize).map_or(&[][..], Vec::as_slice);
        vectors.iter().filter(|vector| vector.eventfd.is_some()).count()
    }

    fn vector(&self, index: u32, vector: u32) -> Option<&Vector> {
        self.types.get(index as usize)?.get(vector as usize)
    }

    /// Does what a SET_IRQS with the descriptors `fds` asks; nothing if it is an error. True if vectors were assigned or
    /// unassigned.
    pub(crate) fn set(
        &mut self,
        request: &SetIrqs<'_>,
        fds: &mut Vec<OwnedFd>,
        poller: &Poller,
    ) -> Result<bool, Errno> {
        let vectors = self.types.get_mut(request.index as usize).ok_or(Errno::INVAL)?;
        if request.count == 0 {
            // Disables the whole type.
            let disables =
                request.action == IrqAction::Trigger && request.data == IrqData::None && request.start == 0;
            if !disables {
                return Err(Errno::INVAL);
            }
            vectors.fill_with(Vector::default);
            if request.index == irq::INTX {
                Self::watch(&mut self.mask, None, poller)?;
                Self::watch(&mut self.unmask, None, poller)?;
            }
            return Ok(true);
        }
        let start = request.start as usize;
        let range = start..start.saturating_add(request.count as usize);
        let vectors = vectors.get_mut(range.clone()).ok_or(Errno::INVAL)?;
        if request.data == IrqData::Eventfd {
            if !fds.is_empty() && fds.len() != vectors.len() {
                return Err(Errno::INVAL);
            }
            let eventfds: Option<Vec<_>> = fds.drain(..).map(Eventfd::new).collect();
            let mut eventfds = eventfds.ok_or(Errno::INVAL)?.into_iter();
            match request.action {
                IrqAction::Trigger => {
                    for vector in vectors {
                        *vector = Vector { eventfd: eventfds.next(), ..Vector::default() };
                    }
                    if request.index == irq::INTX {
                        self.assert_intx();
                    }
                }
                IrqAction::Mask if request.index == irq::INTX => {
                    Self::watch(&mut self.mask, eventfds.next(), poller)?;
                }
                IrqAction::Unmask if request.index == irq::INTX => {
                    Self::watch(&mut self.unmask, eventfds.next(), poller)?;
                }
                IrqAction::Mask | IrqAction::Unmask => return Err(Errno::NOTSUP),
            }
            return Ok(request.action == IrqAction::Trigger);
        }
        let chosen = |at: usize| match request.data {
            IrqData::Bool(flags) => flags.get(at).is_some_and(|&flag| flag != 0),
            _ => true,
        };
        for at in (0..request.count as usize).filter(|&at| chosen(at)) {
            let number = (start + at) as u32;
            match request.action {
                IrqAction::Mask => self.mask(request.index, number),
                IrqAction::Unmask => self.unmask(request.index, number),
                IrqAction::Trigger => {
                    self.trigger(request.index, number);
                }
            }
        }
        Ok(false)
    }

    fn watch(place: &mut Option<Eventfd>, eventfd: Option<Eventfd>, poller: &Poller) -> Result<(), Errno> {
        if let Some(old) = place.take() {
            poller.remove(old.as_fd());
        }
        if let Some(new) = &eventfd {
            poller.add(new.as_fd()).map_err(|_| Errno::INVAL)?;
        }
        *place = eventfd;
        Ok(())
    }

    fn mask(&mut self, index: u32, number: u32) {
        self.types[index as usize][number as usize].masked = true;
    }

    fn unmask(&mut self, index: u32, number: u32) {
        let vector = &mut self.types[index as usize][number as usize];
        vector.masked = false;
        let pending = std::mem::take(&mut vector.pending);
        if index == irq::INTX {
            self.assert_intx();
        } else if pending {
            self.trigger(index, number);
        }
    }

    /// Signals the vector's eventfd, or leaves it pending if it is masked. True if it was signalled.
    pub(crate) fn trigger(&mut self, index: u32, number: u32) -> bool {
        let vectors = self.types.get_mut(index as usize).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(vector) = vectors.get_mut(number as usize) else { return false };
        let Some(eventfd) = &vector.eventfd else { return false };
        if vector.masked {
            vector.pending = index != irq::INTX;
            return false;
        }
        vector.masked = index == irq::INTX;
        let signalled = eventfd.signal();
        self.signalled += u64::from(signalled);
        signalled
    }

    /// Sets the level of INTx; true if that triggered it.
    pub(crate) fn set_intx_level(&mut self, high: bool) -> bool {
        let rises = high && !self.level;
        self.level = high;
        rises && self.assert_intx()
    }

    pub(crate) fn intx_level(&self) -> bool {
        self.level
    }

    fn assert_intx(&mut self) -> bool {
        self.level && self.trigger(irq::INTX, 0)
    }

    /// Takes note of what the client has signalled by eventfd. True if it has.
    pub(crate) fn poll(&mut self) -> bool {
        let masked = self.mask.as_ref().is_some_and(Eventfd::take);
        let unmasked = self.unmask.as_ref().is_some_and(Eventfd::take);
        if masked {
            self.mask(irq::INTX, 0);
        }
        if unmasked {
            self.unmask(irq::INTX, 0);
        }
        masked || unmasked
    }

    /// Forgets all that a client has set; the level of INTx, which is the device's, stays.
    pub(crate) fn clear(&mut self, poller: &Poller) {
        for vector in self.types.iter_mut().flatten() {
            *vector = Vector::default();
        }
        for eventfd in [&mut self.mask, &mut self.unmask] {
            let _ = Self::watch(eventfd, None, poller);
        }
    }
}
