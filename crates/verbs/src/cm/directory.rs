//! To which process of a node a port belongs, without a daemon.
//!
//! A process that has a port holds a socket of an abstract name of it: the kernel lets one have it, in a network namespace as
//! the address is, and takes it back when the process ends. One that listens holds a second name, of the port and its slot,
//! which any process of the node can try. Those who listen share the node's *desk*, a UDP port: whichever of them gets a
//! question looks up the slot, and answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};

use etherslot_wire::cm::{DESK_PORT, Enquiry, Says, Space};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{CmError, Question};
use crate::place;

/// When a process tries again to be at the desk, where others are.
pub(crate) const TURN_NS: u64 = 250_000_000;
/// Questions answered in one go.
const BURST: usize = 64;
/// The slot that each of the latest ports was found at: where to look first.
const KNOWN: usize = 256;

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The desk says so.
    Says {
        /// The question.
        serial: u32,
        /// What.
        says: Says,
    },
    /// Nobody is at the desk.
    Refused {
        /// The question.
        serial: u32,
    },
    /// It cannot be asked: a negative number of an error.
    Unreachable {
        /// The question.
        serial: u32,
        /// Why.
        status: i32,
    },
}

/// Questions to one node, repeated as often, that wait for an answer, and where it comes.
#[derive(Debug)]
struct Asked {
    socket: UdpSocket,
    questions: Vec<Question>,
}

/// The sockets of a process.
#[derive(Debug)]
pub struct Directory {
    ip: Ipv4Addr,
    slot: u8,
    /// Ports that are ours; those that we listen at with their second name.
    ports: HashMap<(Space, u16), (UnixDatagram, Option<UnixDatagram>)>,
    desk: Option<UdpSocket>,
    /// Tries names.
    probe: UnixDatagram,
    known: HashMap<(Space, u16), u8>,
    /// By node, and how often they were asked before.
    asked: HashMap<(Ipv4Addr, u8), Asked>,
}

impl Directory {
    /// That of a process with this address and slot.
    pub fn new(ip: Ipv4Addr, slot: u8) -> io::Result<Self> {
        let probe = UnixDatagram::unbound()?;
        let (ports, known, asked) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Self { ip, slot, ports, desk: None, probe, known, asked })
    }

    fn name(&self, space: Space, port: u16, slot: Option<u8>) -> io::Result<UnixAddr> {
        let slot = slot.map(|slot| format!("/{slot}")).unwrap_or_default();
        UnixAddr::from_abstract_name(format!("etherslot-cm/{}/{:x}/{port}{slot}", self.ip, space as u16))
    }

    /// Takes a port; an error of kind `AddrInUse` if it is somebody's. As with sockets, ports below 1024 are root's.
    pub fn reserve(&mut self, space: Space, port: u16) -> Result<(), CmError> {
        if port < 1024 && !rustix::process::geteuid().is_root() {
            return Err(CmError::System(rustix::io::Errno::ACCESS.raw_os_error()));
        }
        let name = UnixDatagram::bind_addr(&self.name(space, port, None)?)?;
        self.ports.insert((space, port), (name, None));
        Ok(())
    }

    /// Can be found at a port that is ours.
    pub fn publish(&mut self, space: Space, port: u16) -> Result<(), CmError> {
        let name = UnixDatagram::bind_addr(&self.name(space, port, Some(self.slot))?)?;
        let (_, second) = self.ports.get_mut(&(space, port)).ok_or(CmError::State)?;
        *second = Some(name);
        match self.attend() {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Gives a port back.
    pub fn release(&mut self, space: Space, port: u16) {
        self.ports.remove(&(space, port));
        if !self.listens() {
            self.desk = None;
        }
    }

    fn listens(&self) -> bool {
        self.ports.values().any(|(_, second)| second.is_some())
    }

    /// Goes to the desk, if we listen. All processes of a user can be there; another's come when there is nobody.
    fn attend(&mut self) -> io::Result<()> {
        if self.desk.is_some() || !self.listens() {
            return Ok(());
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(self.ip, DESK_PORT))?;
        self.desk = Some(socket.into());
        Ok(())
    }

    /// Whether [`Directory::run`] is to be called every [`TURN_NS`].
    pub(crate) fn waits_for_turn(&self) -> bool {
        self.desk.is_none() && self.listens()
    }

    /// The slot of the process that listens there.
    fn find(&mut self, space: Space, port: u16) -> Option<u8> {
        let is_there =
            |name: io::Result<UnixAddr>| name.and_then(|name| self.probe.connect_addr(&name)).is_ok();
        if !is_there(self.name(space, port, None)) {
            return None;
        }
        let known = self.known.get(&(space, port)).copied();
        let slot = known
            .into_iter()
            .chain(0..place::SLOTS)
            .find(|&slot| is_there(self.name(space, port, Some(slot))))?;
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert((space, port), slot);
        Some(slot)
    }

    /// Asks a node's desk.
    pub fn ask(&mut self, question: Question) -> Result<(), Answer> {
        let serial = question.serial;
        let result = self.try_ask(question);
        result.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Answer::Refused { serial },
            _ => Answer::Unreachable { serial, status: CmError::from(error).status() },
        })
    }

    fn try_ask(&mut self, question: Question) -> io::Result<()> {
        let Question { serial, ip, space, port, repeats } = question;
        if let Some(before) = repeats.checked_sub(1)
            && let Some(asked) = self.asked.get_mut(&(ip, before))
        {
            asked.questions.retain(|other| other.serial != serial);
        }
        // Of several at a desk one may be stopped: which of them is asked depends on our port, so each time it is another. Where
        // others were asked before, answers are still to come.
        let asked = match self.asked.entry((ip, repeats)) {
            Entry::Occupied(asked) => asked.into_mut(),
            Entry::Vacant(place) => {
                let socket = UdpSocket::bind((self.ip, 0))?;
                socket.set_nonblocking(true)?;
                socket.connect((ip, DESK_PORT))?;
                place.insert(Asked { socket, questions: Vec::new() })
            }
        };
        let bytes = Enquiry { space, port, serial, says: Says::Who }.bytes();
        match asked.socket.send(&bytes) {
            // Told late, of one before: this one has not left.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => asked.socket.send(&bytes)?,
            result => result?,
        };
        asked.questions.push(question);
        Ok(())
    }

    /// Drops questions that nobody asks any more.
    pub fn forget(&mut self, is_asked: impl Fn(u32) -> bool) {
        self.asked.retain(|_, asked| {
            asked.questions.retain(|question| is_asked(question.serial));
            !asked.questions.is_empty()
        });
    }

    /// What becomes readable when there is something for [`Directory::run`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let desk = self.desk.iter().map(AsFd::as_fd);
        desk.chain(self.asked.values().map(|asked| asked.socket.as_fd()))
    }

    /// Answers others, and takes answers.
    pub fn run(&mut self, mut take: impl FnMut(Answer)) {
        // Somebody else is there: the next time, then.
        let _ = self.attend();
        self.serve();
        let mut bytes = [0; Enquiry::BYTES];
        self.asked.retain(|_, asked| {
            for _ in 0..BURST {
                match asked.socket.recv(&mut bytes) {
                    Ok(length) => {
                        let Some(Enquiry { serial, says, .. }) = Enquiry::parse(&bytes[..length]) else {
                            continue;
                        };
                        asked.questions.retain(|question| question.serial != serial);
                        take(Answer::Says { serial, says });
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        // Once each, however many refusals there are: they are of one moment.
                        for question in asked.questions.drain(..) {
                            take(Answer::Refused { serial: question.serial });
                        }
                        break;
                    }
                    Err(_) => break,
                }
            }
            !asked.questions.is_empty()
        });
    }

    fn serve(&mut self) {
        let mut bytes = [0; Enquiry::BYTES];
        for _ in 0..BURST {
            let Some(desk) = &self.desk else { return };
            let Ok((length, from)) = desk.recv_from(&mut bytes) else { return };
            let Some(enquiry) = Enquiry::parse(&bytes[..length]) else { continue };
            if enquiry.says != Says::Who {
                continue;
            }
            let says = self.find(enquiry.space, enquiry.port).map_or(Says::Nobody, Says::Slot);
            if let (Some(desk), SocketAddr::V4(_)) = (&self.desk, from) {
                // One that is lost is asked for again.
                let _ = desk.send_to(&Enquiry { says, ..enquiry }.bytes(), from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    use super::*;

    /// An address that no other test, and no process, has a desk at.
    fn ip(last: u8) -> Ipv4Addr {
        let [.., high, low] = std::process::id().to_be_bytes();
        Ipv4Addr::new(127, high | 1, low, last)
    }

    fn question(ip: Ipv4Addr, port: u16) -> Question {
        Question { serial: 7, ip, space: Space::Tcp, port, repeats: 0 }
    }

    /// Asks, and lets both go on until there is an answer.
    fn ask(asking: &mut Directory, answering: &mut Directory, question: Question) -> Answer {
        if let Err(answer) = asking.ask(question) {
            return answer;
        }
        loop {
            answering.run(|_| {});
            let mut answer = None;
            asking.run(|one| answer = Some(one));
            if let Some(answer) = answer {
                return answer;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_port_is_of_one_process_and_of_the_next_when_it_is_given_back() {
        let (mut one, mut other) = (Directory::new(ip(1), 1).unwrap(), Directory::new(ip(1), 2).unwrap());
        assert_eq!(one.reserve(Space::Tcp, 7471), Ok(()));
        assert_eq!(other.reserve(Space::Tcp, 7471), Err(CmError::InUse));
        assert_eq!(one.reserve(Space::Tcp, 7471), Err(CmError::InUse));
        assert_eq!(other.reserve(Space::Udp, 7471), Ok(()));
        one.release(Space::Tcp, 7471);
        assert_eq!(other.reserve(Space::Tcp, 7471), Ok(()));
    }

    #[test]
    fn the_desk_knows_who_listens_and_that_nobody_does() {
        let (server, client) = (ip(2), ip(3));
        let (mut one, mut other) = (Directory::new(server, 3).unwrap(), Directory::new(server, 200).unwrap());
        let mut asking = Directory::new(client, 9).unwrap();
        // Whoever of them is at the desk.
        for (directory, port) in [(&mut one, 7471), (&mut other, 7472)] {
            directory.reserve(Space::Tcp, port).unwrap();
            directory.publish(Space::Tcp, port).unwrap();
        }
        one.reserve(Space::Tcp, 7473).unwrap();
        one.desk = None;
        let says = |says| Answer::Says { serial: 7, says };
        assert_eq!(ask(&mut asking, &mut other, question(server, 7471)), says(Says::Slot(3)));
        assert_eq!(ask(&mut asking, &mut other, question(server, 7471)), says(Says::Slot(3)));
        assert_eq!(ask(&mut asking, &mut other, question(server, 7472)), says(Says::Slot(200)));
        assert_eq!(ask(&mut asking, &mut other, question(server, 7473)), says(Says::Nobody));
        // Another listens there now.
        one.release(Space::Tcp, 7471);
        other.reserve(Space::Tcp, 7471).unwrap();
        assert_eq!(ask(&mut asking, &mut other, question(server, 7471)), says(Says::Nobody));
        other.publish(Space::Tcp, 7471).unwrap();
        assert_eq!(ask(&mut asking, &mut other, question(server, 7471)), says(Says::Slot(200)));
    }

    #[test]
    fn each_of_many_questions_that_are_repeated_together_is_answered() {
        let (server, client) = (ip(8), ip(9));
        let mut one = Directory::new(server, 3).unwrap();
        let mut asking = Directory::new(client, 9).unwrap();
        one.reserve(Space::Tcp, 7471).unwrap();
        one.publish(Space::Tcp, 7471).unwrap();
        let questions = 0..32_u32;
        for repeats in [1, 2] {
            for serial in questions.clone() {
                assert_eq!(asking.ask(Question { serial, repeats, ..question(server, 7471) }), Ok(()));
            }
        }
        let mut answered = HashSet::new();
        let until = Instant::now() + Duration::from_secs(20);
        while answered.len() < questions.len() && Instant::now() < until {
            one.run(|_| {});
            asking.run(|answer| {
                if let Answer::Says { serial, says: Says::Slot(3) } = answer {
                    answered.insert(serial);
                }
            });
            std::thread::yield_now();
        }
        assert_eq!(answered, questions.collect());
    }

    #[test]
    fn a_node_without_a_desk_refuses() {
        let mut asking = Directory::new(ip(4), 9).unwrap();
        let mut idle = Directory::new(ip(5), 9).unwrap();
        let refused = Answer::Refused { serial: 7 };
        assert_eq!(ask(&mut asking, &mut idle, question(ip(5), 7471)), refused);
    }

    #[test]
    fn questions_asked_together_are_refused_once_each() {
        let (nobody, mut asking) = (ip(10), Directory::new(ip(11), 9).unwrap());
        let mut refused = HashMap::new();
        for repeats in [0, 1] {
            for serial in 0..32 {
                assert_eq!(asking.ask(Question { serial, repeats, ..question(nobody, 7471) }), Ok(()));
            }
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                asking.run(|answer| {
                    if let Answer::Refused { serial } = answer {
                        *refused.entry(serial).or_insert(0) += 1;
                    }
                });
                std::thread::yield_now();
            }
        }
        assert_eq!(refused, (0..32).map(|serial| (serial, 2)).collect());
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        let mut one = Directory::new(ip(6), 3).unwrap();
        one.reserve(Space::Tcp, 7471).unwrap();
        one.publish(Space::Tcp, 7471).unwrap();
        let stranger = UdpSocket::bind((ip(7), 0)).unwrap();
        stranger.connect((ip(6), DESK_PORT)).unwrap();
        let answer = Enquiry { space: Space::Tcp, port: 7471, serial: 1, says: Says::Nobody }.bytes();
        let question = Enquiry { space: Space::Tcp, port: 7471, serial: 2, says: Says::Who }.bytes();
        for bytes in [&b"x"[..], &[0; 2000], &answer, &question[..15], &question] {
            stranger.send(bytes).unwrap();
        }
        let mut bytes = [0; 64];
        stranger.set_nonblocking(true).unwrap();
        let length = loop {
            one.run(|_| {});
            if let Ok(length) = stranger.recv(&mut bytes) {
                break length;
            }
        };
        let answer = Enquiry::parse(&bytes[..length]).unwrap();
        assert_eq!((answer.serial, answer.says), (2, Says::Slot(3)));
    }
}
