//! What a network controller of the box is plugged into: its cable, joined to a TAP interface or to a link of its own.

use std::os::fd::{AsFd as _, BorrowedFd};

use etherslot_devices::cable::{self, End, Frame};
use etherslot_netio::tuntap::{Deleted, TapInterface};
use etherslot_netio::{Address, Port};

use crate::options::{LinkOptions, NetworkOptions};
use crate::{StartError, link};

/// Frames that a cable holds each way: the packet buffer of the controller, 64 KiB, in frames of full length, and some for frames on their way.
const CABLE_FRAMES: usize = 128;
/// Frames each way in one round.
const BURST_FRAMES: usize = 64;

/// A network, and the end of the cable that leads to the controller.
pub(crate) struct Network {
    device: String,
    end: End,
    place: Place,
    /// A frame for which the network had no room.
    waiting: Option<Frame>,
}

enum Place {
    Tap(TapInterface),
    Link {
        port: Box<dyn Port>,
        peer: Address,
    },
    /// It was lost while the box ran.
    Gone,
}

impl Network {
    /// Opens the network of a controller; returns the controller's end of the cable, too.
    pub(crate) fn open(device: &str, options: &NetworkOptions) -> Result<(End, Self), StartError> {
        let place = match options {
            NetworkOptions::Tap(name) => {
                let failed = |source| StartError::Network { device: device.to_owned(), source };
                Place::Tap(TapInterface::open(name).map_err(failed)?)
            }
            NetworkOptions::Link { kind, peer } => {
                let options = LinkOptions { kind: kind.clone(), capture: None, impair: None };
                Place::Link { port: link::open(&options)?, peer: *peer }
            }
        };
        let (controllers, end) = cable::cable(CABLE_FRAMES);
        Ok((controllers, Self { device: device.to_owned(), end, place, waiting: None }))
    }

    /// What becomes readable when frames arrive, if there is such a thing.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            Place::Tap(tap) => Some(tap.as_fd()),
            Place::Link { port, .. } => port.fd(),
            Place::Gone => None,
        }
    }

    /// Whether the owner may sleep on [`Network::fd`]: no frames have arrived.
    pub(crate) fn before_sleep(&mut self) -> bool {
        match &mut self.place {
            Place::Link { port, .. } => port.fd().is_none() || port.before_sleep(),
            Place::Tap(_) | Place::Gone => true,
        }
    }

    /// When [`Network::poll`] should be called even if nothing happens.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match &self.place {
            Place::Link { port, .. } => port.poll_at(),
            Place::Tap(_) | Place::Gone => None,
        }
    }

    /// Carries frames both ways, as far as there is room. True if there were any.
    pub(crate) fn poll(&mut self, now_ns: u64) -> bool {
        let Self { end, place, waiting, .. } = self;
        let moved = match place {
            Place::Tap(tap) => through_tap(end, tap, waiting),
            Place::Link { port, peer } => {
                port.tick(now_ns);
                Ok(through_port(end, port.as_mut(), peer, waiting))
            }
            Place::Gone => Ok(false),
        };
        moved.unwrap_or_else(|error| {
            tracing::error!(device = self.device, %error, "no network any more");
            self.place = Place::Gone;
            self.end.set_carrier(false);
            true
        })
    }
}

fn through_tap(end: &End, tap: &TapInterface, waiting: &mut Option<Frame>) -> Result<bool, Deleted> {
    let mut any = false;
    for _ in 0..BURST_FRAMES {
        let Some(frame) = waiting.take().or_else(|| end.receive()) else { break };
        match tap.send(&frame) {
            Ok(false) => {
                *waiting = Some(frame);
                break;
            }
            sent => {
                end.done(frame);
                sent?;
            }
        }
        any = true;
    }
    for _ in 0..BURST_FRAMES {
        let Some(mut frame) = buffer(end) else { break };
        let came = tap.receive(frame.bytes());
        let Ok(Some(bytes)) = came else {
            frame.unused(end);
            came?;
            break;
        };
        frame.came(end, bytes);
        any = true;
    }
    Ok(any)
}

/// Room for a frame from the network.
enum Room {
    Buffer(Frame),
    /// There is none, and the controller did not ask for patience.
    Lost([u8; 64]),
}

fn buffer(end: &End) -> Option<Room> {
    match end.buffer() {
        Some(frame) => Some(Room::Buffer(frame)),
        None if end.is_flow_controlled() => None,
        None => Some(Room::Lost([0; 64])),
    }
}

impl Room {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(frame) => frame.room(),
            Self::Lost(scratch) => scratch,
        }
    }

    fn unused(self, end: &End) {
        if let Self::Buffer(frame) = self {
            end.unused(frame);
        }
    }

    fn came(self, end: &End, bytes: usize) {
        match self {
            Self::Buffer(mut frame) => {
                frame.set_len(bytes);
                end.send(frame);
            }
            Self::Lost(_) => end.count_lost(),
        }
    }
}

fn through_port(end: &End, port: &mut dyn Port, peer: &Address, waiting: &mut Option<Frame>) -> bool {
    let mut any = false;
    for _ in 0..BURST_FRAMES {
        let Some(frame) = waiting.take().or_else(|| end.receive()) else { break };
        if port.send(peer, &[&frame]) == 0 {
            *waiting = Some(frame);
            break;
        }
        end.done(frame);
        any = true;
    }
    // A frame stays in the Port while the controller wants it to wait.
    if end.is_flow_controlled() && end.room() < etherslot_netio::BURST_FRAMES {
        return any;
    }
    let mut receive = |from: &Address, frame: &[u8]| {
        if from == peer {
            end.send_copy(frame);
        }
    };
    any | (port.receive(&mut receive) > 0)
}
