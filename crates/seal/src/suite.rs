//! Which AEAD protects the frames.

use std::fmt;

use ring::aead;

/// An AEAD with keys of 32 bytes, nonces of 12 and tags of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM (NIST SP 800-38D).
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305 = 2,
}

impl Suite {
    /// The suite of this number on the wire.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Aes256Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    pub(crate) fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

/// A set of suites, as a node offers it: a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suites(pub u8);

impl Suites {
    /// All of them.
    pub const ALL: Self = Self(0b11);
    /// Only the one that is quick without instructions of its own.
    pub const WITHOUT_AES: Self = Self(0b10);

    /// What this machine is quick at: AES-GCM needs instructions for AES and for carry-less multiplication.
    pub fn of_this_machine() -> Self {
        #[cfg(target_arch = "x86_64")]
        let has_aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { Self::ALL } else { Self::WITHOUT_AES }
    }

    /// Whether it has this one.
    pub fn has(self, suite: Suite) -> bool {
        self.0 & 1 << (suite as u8 - 1) != 0
    }

    /// The one to use where both sides offer these.
    pub fn choose(self, other: Self) -> Option<Suite> {
        [Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
            .into_iter()
            .find(|&suite| self.has(suite) && other.has(suite))
    }
}
