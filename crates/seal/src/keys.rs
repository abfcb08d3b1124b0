//! The keys that an operator hands out: the fabric's, which all its nodes have, and each node's own.

use std::fmt;
use std::str::FromStr;

use etherslot_wire::NodeId;
use ring::{digest, hkdf, hmac};
use zeroize::{Zeroize as _, Zeroizing};

use crate::entropy::Entropy;
use crate::handshake::noise;
use crate::suite::Suites;
use crate::text;

const FABRIC_WORD: &str = "etherslot-fabric-key:";
const NODE_WORD: &str = "etherslot-node-key:";
/// Salt of what is derived from a fabric key (docs/wire.md, section 4.1).
const SALT: &[u8] = b"etherslot fabric 1";

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Another kind of key, or none.
    #[error("it does not begin with {0:?}")]
    Word(&'static str),
    /// Not the digits of a key.
    #[error("a key has 64 hexadecimal digits")]
    Digits,
    /// A key with which no secret can be agreed on.
    #[error("this is no public key")]
    Weak,
}

/// Reads `WORD` and digits, with white space around.
fn read(text: &str, word: &'static str) -> Result<[u8; 32], KeyError> {
    let digits = text.trim().strip_prefix(word).ok_or(KeyError::Word(word))?;
    text::read(digits.trim()).ok_or(KeyError::Digits)
}

/// The length of what HKDF is asked for.
pub(crate) struct Length(pub(crate) usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand (RFC 5869) with SHA-256.
pub(crate) fn expand(prk: &hkdf::Prk, label: &[u8], out: &mut [u8]) {
    let info = [label];
    let filled = prk.expand(&info, Length(out.len())).and_then(|made| made.fill(out));
    assert!(filled.is_ok(), "HKDF gives up to 8160 bytes");
}

/// What all nodes of a fabric share. Who does not have it is a stranger: he gets no answer.
#[derive(Clone)]
pub struct FabricKey {
    bytes: Zeroizing<[u8; 32]>,
    handshake: hmac::Key,
    announcement: hmac::Key,
    psk: Zeroizing<[u8; 32]>,
}

impl FabricKey {
    /// A new fabric's key.
    pub fn generate(entropy: &mut Entropy) -> Self {
        Self::from_bytes(*entropy.bytes())
    }

    /// The key of these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(&*bytes);
        let derive = |label: &[u8]| {
            let mut out = Zeroizing::new([0; 32]);
            expand(&prk, label, &mut *out);
            out
        };
        let mac = |label: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, &*derive(label));
        Self { handshake: mac(b"handshake"), announcement: mac(b"announcement"), psk: derive(b"psk"), bytes }
    }

    /// The text of a key file. A secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{FABRIC_WORD}{}\n", Hex(&self.bytes)))
    }

    /// The tag by which an announcement (heartbeat of discovery) shows that a node of this fabric made it. It says nothing
    /// about which node, nor when: an announcement has to carry what tells an old one.
    pub fn announcement_tag(&self, announcement: &[u8]) -> [u8; 32] {
        tag(&self.announcement, announcement)
    }

    /// Whether a node of this fabric made the announcement; in constant time.
    pub fn verify_announcement(&self, announcement: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&self.announcement, announcement, tag).is_ok()
    }

    pub(crate) fn handshake_tag(&self, covered: &[u8]) -> [u8; 32] {
        tag(&self.handshake, covered)
    }

    pub(crate) fn verify_handshake(&self, covered: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&self.handshake, covered, tag).is_ok()
    }

    pub(crate) fn psk(&self) -> &[u8; 32] {
        &self.psk
    }
}

fn tag(key: &hmac::Key, covered: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(hmac::sign(key, covered).as_ref());
    out
}

impl FromStr for FabricKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        read(text, FABRIC_WORD).map(Self::from_bytes)
    }
}

impl fmt::Debug for FabricKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FabricKey(…)")
    }
}

struct Hex<'a>(&'a [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(f, self.0)
    }
}

/// A node's own static key (X25519): who has it is this node.
#[derive(Clone)]
pub struct NodeKey {
    secret: Zeroizing<[u8; 32]>,
    public: PublicKey,
}

impl NodeKey {
    /// A new node's key.
    pub fn generate(entropy: &mut Entropy) -> Self {
        Self::from_bytes(*entropy.bytes())
    }

    /// The key of these bytes.
    pub fn from_bytes(mut bytes: [u8; 32]) -> Self {
        let secret = Zeroizing::new(bytes);
        bytes.zeroize();
        let public = PublicKey(noise::public_of(&secret));
        Self { secret, public }
    }

    /// What others know the node by.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The text of a key file. A secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{NODE_WORD}{}\n", Hex(&self.secret)))
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl FromStr for NodeKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        read(text, NODE_WORD).map(Self::from_bytes)
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({})", self.public)
    }
}

/// The public half of a node's key: its identity. As text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

/// Bytes of a node ID that come from the node's key.
const KEYED_BYTES: usize = 12;

impl PublicKey {
    /// The node ID of the owner of this key that it has by this name: the first 12 bytes of SHA-256 of the key, and 4 of the name's
    /// SHA-256. Nobody with another key can have it.
    pub fn node_id(&self, name: &str) -> NodeId {
        let mut id = [0; 16];
        let (keyed, named) = id.split_at_mut(KEYED_BYTES);
        keyed.copy_from_slice(&self.keyed_id());
        named.copy_from_slice(&sha256(name.as_bytes())[..4]);
        NodeId(id)
    }

    /// What the IDs of all nodes with this key begin with.
    pub fn keyed_id(&self) -> [u8; KEYED_BYTES] {
        let mut keyed = [0; KEYED_BYTES];
        keyed.copy_from_slice(&sha256(&self.0)[..KEYED_BYTES]);
        keyed
    }

    /// Whether this is the ID of a node with this key.
    pub fn owns(&self, id: &NodeId) -> bool {
        id.0.starts_with(&self.keyed_id())
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(f, &self.0)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = text::read(text.trim()).ok_or(KeyError::Digits)?;
        // The one that comes of an empty file; others of low order give no secret, which the handshake sees.
        if bytes == [0; 32] { Err(KeyError::Weak) } else { Ok(Self(bytes)) }
    }
}

/// Which nodes of the fabric a node speaks with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// All that have the fabric's key.
    #[default]
    Fabric,
    /// These alone.
    Listed(Vec<PublicKey>),
}

impl Peers {
    /// Whether this node is one of them.
    pub fn allow(&self, node: &PublicKey) -> bool {
        match self {
            Self::Fabric => true,
            Self::Listed(keys) => keys.contains(node),
        }
    }
}

/// All that a node needs to protect its sessions.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The fabric's key.
    pub fabric: FabricKey,
    /// The node's own.
    pub node: NodeKey,
    /// Whom it speaks with.
    pub peers: Peers,
    /// The ciphers that it offers.
    pub suites: Suites,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_text_and_no_other_kind_is_taken_for_them() {
        let mut entropy = Entropy::new([1; 32]);
        let (fabric, node) = (FabricKey::generate(&mut entropy), NodeKey::generate(&mut entropy));
        let again: FabricKey = fabric.to_text().parse().unwrap();
        assert_eq!(again.handshake_tag(b"x"), fabric.handshake_tag(b"x"));
        assert_ne!(fabric.announcement_tag(b"x"), fabric.handshake_tag(b"x"));
        assert!(again.verify_announcement(b"x", &fabric.announcement_tag(b"x")));
        assert!(!again.verify_announcement(b"y", &fabric.announcement_tag(b"x")));
        assert!(!again.verify_announcement(b"x", &fabric.announcement_tag(b"x")[..31]));
        let again: NodeKey = node.to_text().parse().unwrap();
        assert_eq!(again.public(), node.public());
        assert_eq!(node.public().to_string().parse(), Ok(node.public()));
        assert_eq!(node.to_text().parse::<FabricKey>().unwrap_err(), KeyError::Word(FABRIC_WORD));
        assert_eq!(fabric.to_text().parse::<NodeKey>().unwrap_err(), KeyError::Word(NODE_WORD));
        for bad in ["", "etherslot-node-key:", "etherslot-node-key:0g", &node.to_text()[..80]] {
            assert!(bad.parse::<NodeKey>().is_err(), "{bad}");
        }
        assert_eq!("00".repeat(32).parse::<PublicKey>(), Err(KeyError::Weak));
        assert_eq!("é".repeat(32).parse::<PublicKey>(), Err(KeyError::Digits));
    }

    #[test]
    fn a_node_id_belongs_to_one_key() {
        let [one, other] = [1, 2].map(|byte| NodeKey::from_bytes([byte; 32]).public());
        assert!(one.owns(&one.node_id("host")) && one.owns(&one.node_id("disk")));
        assert_ne!(one.node_id("host"), one.node_id("disk"));
        assert!(!other.owns(&one.node_id("host")));
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let mut entropy = Entropy::new([2; 32]);
        let node = NodeKey::generate(&mut entropy);
        let secret = format!("{}", Hex(&node.secret));
        let credentials = Credentials {
            fabric: FabricKey::from_bytes([3; 32]),
            node,
            peers: Peers::Fabric,
            suites: Suites::ALL,
        };
        let shown = format!("{credentials:?}");
        assert!(!shown.contains(&secret) && !shown.contains("0303"), "{shown}");
    }
}
