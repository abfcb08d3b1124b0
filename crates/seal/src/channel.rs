//! Frames of one session on their way through its keys.

use etherslot_wire::frame::{Error, HEADER_BYTES, Header, MAX_FRAME_BYTES, SACK_BYTES, TAG_BYTES, flag};

use crate::keys::PublicKey;
use crate::suite::Suite;
use crate::traffic::{PHASE_FRAMES, PhaseKey, TrafficSecret};

/// Frames that fail to open, after which the keys are not to be used any more: AES-GCM allows many more (2^52 of such
/// frames, by RFC 9001, B.1.2), and nobody's link makes so many of good ones.
const MAX_FORGED: u64 = 1 << 36;

/// What two nodes have agreed on.
#[derive(Debug)]
pub struct Channel {
    /// Our epoch of the session that these keys are for.
    pub epoch: u32,
    /// The peer's.
    pub peer_epoch: u32,
    /// Who the peer is.
    pub peer: PublicKey,
    /// The cipher.
    pub suite: Suite,
    /// For what leaves.
    pub sealer: Sealer,
    /// For what comes.
    pub opener: Opener,
}

/// Why a frame was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsealed {
    /// A packet number that is not above all before: its nonce may have been used. The caller's error.
    #[error("the packet number may have been used")]
    Number,
    /// No frame of a session, or no room for it. The caller's error.
    #[error("no frame, or no room for it")]
    Malformed,
}

/// Seals what leaves. No packet number can pass twice.
#[derive(Debug)]
pub struct Sealer {
    suite: Suite,
    secret: TrafficSecret,
    key: PhaseKey,
    phase: u64,
    /// The least packet number that may come.
    next: u64,
}

impl Sealer {
    /// From the secret of phase 0.
    pub fn new(suite: Suite, secret: TrafficSecret) -> Self {
        Self { suite, key: secret.key(suite), secret, phase: 0, next: 0 }
    }

    /// The key phase of the last frame.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// Writes `frame`, which a session made (with a check, or room for it, behind its body), to the start of `out` as a sealed
    /// one. Bytes written: 12 more than came.
    pub fn seal(&mut self, frame: &[u8], out: &mut [u8]) -> Result<usize, Unsealed> {
        // What a session makes is a frame: the fields that matter are looked at where they stand.
        let head: &[u8; HEADER_BYTES] = frame.first_chunk().ok_or(Unsealed::Malformed)?;
        let start = HEADER_BYTES + if head[1] & flag::SACK == 0 { 0 } else { SACK_BYTES };
        let end = start + usize::from(u16::from_be_bytes([head[2], head[3]]));
        let plain = frame.get(..end).ok_or(Unsealed::Malformed)?;
        let out = out.get_mut(..end + TAG_BYTES).ok_or(Unsealed::Malformed)?;
        let mut number = [0; 8];
        number.copy_from_slice(&head[16..24]);
        let number = u64::from_be_bytes(number);
        if number < self.next || number == u64::MAX {
            return Err(Unsealed::Number);
        }
        while self.phase < number / PHASE_FRAMES {
            self.secret = self.secret.next();
            self.key = self.secret.key(self.suite);
            self.phase += 1;
        }
        out[..end].copy_from_slice(plain);
        out[1] = head[1] & !flag::HEADER_CHECK | flag::SEALED;
        let (associated, rest) = out.split_at_mut(start);
        let (body, tag) = rest.split_at_mut(end - start);
        let made = self.key.seal(number, associated, body).ok_or(Unsealed::Malformed)?;
        tag.copy_from_slice(made.as_ref());
        self.next = number + 1;
        Ok(end + TAG_BYTES)
    }
}

/// Why a frame was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// No sealed frame.
    #[error(transparent)]
    Malformed(#[from] Error),
    /// A packet number of a key that is gone, or far from due.
    #[error("a packet number of another phase")]
    Phase,
    /// Somebody else made it, or changed it, or it was damaged.
    #[error("the tag does not fit")]
    Forged,
}

/// Opens what comes. It takes frames in any order, of the key phase of the newest and of both next to it. Whether a packet number
/// came before is the session's matter, which sees all that this opens.
#[derive(Debug)]
pub struct Opener {
    suite: Suite,
    previous: Option<PhaseKey>,
    key: PhaseKey,
    /// Made before it is needed: what a stranger sends must not cost a derivation.
    next: PhaseKey,
    next_secret: TrafficSecret,
    phase: u64,
    forged: u64,
}

/// Room for what [`Opener::open`] makes of one frame.
pub type Opened = [u8; MAX_FRAME_BYTES];

impl Opener {
    /// From the secret of phase 0.
    pub fn new(suite: Suite, secret: &TrafficSecret) -> Self {
        let next_secret = secret.next();
        Self {
            suite,
            previous: None,
            key: secret.key(suite),
            next: next_secret.key(suite),
            next_secret,
            phase: 0,
            forged: 0,
        }
    }

    /// The key phase of the newest frame.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// Whether so many frames did not open that the keys must not be used any more.
    pub fn is_worn(&self) -> bool {
        self.forged >= MAX_FORGED
    }

    /// Opens a frame. Its header, and its body, which stands in `room` from its start on. If this fails, `room` holds nothing
    /// of use.
    pub fn open<'a>(&mut self, frame: &[u8], room: &'a mut Opened) -> Result<(Header, &'a [u8]), Unopened> {
        let (header, body, _) = Header::parse_sealed(frame)?;
        let (start, bytes) = (header.len(), body.len() + TAG_BYTES);
        let phase = header.packet_number / PHASE_FRAMES;
        let key = match phase.wrapping_sub(self.phase) {
            0 => &self.key,
            1 => &self.next,
            u64::MAX => self.previous.as_ref().ok_or(Unopened::Phase)?,
            _ => return Err(Unopened::Phase),
        };
        let room_for_it = room.get_mut(..bytes).ok_or(Error::Truncated)?;
        room_for_it.copy_from_slice(&frame[start..start + bytes]);
        if !key.open(header.packet_number, &frame[..start], room_for_it) {
            self.forged += 1;
            return Err(Unopened::Forged);
        }
        if phase == self.phase.wrapping_add(1) {
            self.turn();
        }
        Ok((header, &room[..body.len()]))
    }

    /// The next phase has begun.
    fn turn(&mut self) {
        let secret = self.next_secret.next();
        let next = secret.key(self.suite);
        let key = std::mem::replace(&mut self.next, next);
        self.previous = Some(std::mem::replace(&mut self.key, key));
        self.next_secret = secret;
        self.phase += 1;
    }
}
