//! The keys of one direction: a row of them, each derived from the one before, which is forgotten.

use ring::{aead, hkdf};
use zeroize::Zeroizing;

use crate::keys::expand;
use crate::suite::Suite;

/// Frames that one key protects: phase `n` has the packet numbers from `n * PHASE_FRAMES` on. AES-GCM bounds it: of 2^22
/// frames of 9216 bytes somebody learns anything with a probability below 2^-66 (docs/security.md).
pub const PHASE_FRAMES: u64 = 1 << 22;

/// What the keys of one direction come from.
pub struct TrafficSecret(Zeroizing<[u8; 32]>);

impl TrafficSecret {
    /// That of phase 0.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn prk(&self) -> hkdf::Prk {
        hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &*self.0)
    }

    /// That of the next phase, from which this one can't be found.
    pub(crate) fn next(&self) -> Self {
        let mut next = Zeroizing::new([0; 32]);
        expand(&self.prk(), b"etherslot next", &mut *next);
        Self(next)
    }

    pub(crate) fn key(&self, suite: Suite) -> PhaseKey {
        let mut bytes = Zeroizing::new([0; 32]);
        let prk = self.prk();
        expand(&prk, b"etherslot key", &mut *bytes);
        let mut iv = [0; 12];
        expand(&prk, b"etherslot iv", &mut iv);
        let key = aead::UnboundKey::new(suite.algorithm(), &*bytes);
        PhaseKey { key: aead::LessSafeKey::new(key.expect("both suites have keys of 32 bytes")), iv }
    }
}

impl std::fmt::Debug for TrafficSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrafficSecret(…)")
    }
}

/// The key of one phase.
#[derive(Debug)]
pub(crate) struct PhaseKey {
    key: aead::LessSafeKey,
    iv: [u8; 12],
}

impl PhaseKey {
    /// The packet number, on the last 8 bytes of the IV.
    fn nonce(&self, packet_number: u64) -> aead::Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(packet_number.to_be_bytes()) {
            *byte ^= number;
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `body` in place; the tag.
    pub(crate) fn seal(&self, packet_number: u64, associated: &[u8], body: &mut [u8]) -> Option<aead::Tag> {
        let associated = aead::Aad::from(associated);
        self.key.seal_in_place_separate_tag(self.nonce(packet_number), associated, body).ok()
    }

    /// Decrypts what stands in `body_and_tag` in place. Nothing of it may be used if this says false.
    pub(crate) fn open(&self, packet_number: u64, associated: &[u8], body_and_tag: &mut [u8]) -> bool {
        let associated = aead::Aad::from(associated);
        self.key.open_in_place(self.nonce(packet_number), associated, body_and_tag).is_ok()
    }
}
