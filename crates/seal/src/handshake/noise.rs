//! The key exchange: `Noise_XXpsk3_25519_ChaChaPoly_SHA256`, by the crate `snow`.

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::entropy::Entropy;
use crate::keys::{Credentials, PublicKey};
use crate::traffic::TrafficSecret;

const PATTERN: &str = "Noise_XXpsk3_25519_ChaChaPoly_SHA256";

/// The first message: e, and the tag of an empty payload.
pub(crate) const FIRST_BYTES: usize = 32 + 16;
/// The second one: e, s, and its payload.
pub(crate) const SECOND_BYTES: usize = 32 + 48 + PAYLOAD_BYTES + 16;
/// The third one: s, and its payload.
pub(crate) const THIRD_BYTES: usize = 48 + PAYLOAD_BYTES + 16;
/// A number of suites, and 3 bytes reserved.
pub(crate) const PAYLOAD_BYTES: usize = 4;

/// Randomness of ours in place of the operating system's.
struct Seeded(Zeroizing<[u8; 32]>);

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Generator(Entropy::new(*self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct Generator(Entropy);

impl Random for Generator {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        for part in out.chunks_mut(32) {
            part.copy_from_slice(&self.0.bytes()[..part.len()]);
        }
        Ok(())
    }
}

/// The public half of a static key.
pub(crate) fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    let mut public = [0; 32];
    if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
        dh.set(secret);
        public.copy_from_slice(dh.pubkey());
    }
    public
}

/// What the exchange came to.
pub(crate) struct Keys {
    pub(crate) peer: PublicKey,
    pub(crate) from_active: TrafficSecret,
    pub(crate) from_passive: TrafficSecret,
}

/// One side of the exchange.
pub(crate) struct Exchange(Box<HandshakeState>);

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exchange(…)")
    }
}

impl Exchange {
    /// The beginning of an exchange that belongs to `prologue`.
    pub(crate) fn new(
        is_active: bool,
        credentials: &Credentials,
        entropy: &mut Entropy,
        prologue: &[u8],
    ) -> Option<Self> {
        Self::build(is_active, credentials, Seeded(entropy.bytes()), prologue, None)
    }

    fn build(
        is_active: bool,
        credentials: &Credentials,
        seeded: Seeded,
        prologue: &[u8],
        ephemeral: Option<&[u8; 32]>,
    ) -> Option<Self> {
        let params: NoiseParams = PATTERN.parse().ok()?;
        let mut builder = Builder::with_resolver(params, Box::new(seeded))
            .local_private_key(credentials.node.secret())
            .and_then(|builder| builder.prologue(prologue))
            .and_then(|builder| builder.psk(3, credentials.fabric.psk()))
            .ok()?;
        if let Some(ephemeral) = ephemeral {
            builder = builder.fixed_ephemeral_key_for_testing_only(ephemeral);
        }
        let state = if is_active { builder.build_initiator() } else { builder.build_responder() };
        state.ok().map(|state| Self(Box::new(state)))
    }

    /// The next message of ours.
    pub(crate) fn write(&mut self, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.write_message(payload, out).ok()
    }

    /// Takes a message of the peer's; its payload. One that is refused leaves everything as it was.
    pub(crate) fn read(&mut self, message: &[u8], payload: &mut [u8]) -> Option<usize> {
        self.0.read_message(message, payload).ok()
    }

    /// The peer's static key, once it has come.
    pub(crate) fn peer(&self) -> Option<PublicKey> {
        let bytes = self.0.get_remote_static()?.first_chunk::<32>()?;
        Some(PublicKey(*bytes))
    }

    /// The end, after the third message.
    pub(crate) fn keys(mut self) -> Option<Keys> {
        if !self.0.is_handshake_finished() {
            return None;
        }
        let peer = self.peer()?;
        let (from_active, from_passive) = self.0.dangerously_get_raw_split();
        Some(Keys {
            peer,
            from_active: TrafficSecret::new(from_active),
            from_passive: TrafficSecret::new(from_passive),
        })
    }
}

#[cfg(test)]
mod tests {
    use etherslot_wire::handshake::Handshake;

    use super::*;
    use crate::keys::{FabricKey, NodeKey, Peers};
    use crate::suite::Suites;

    fn hex(value: &serde_json::Value) -> Vec<u8> {
        let text = value.as_str().expect("a text");
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    }

    fn key(value: &serde_json::Value) -> [u8; 32] {
        hex(value).try_into().expect("32 bytes")
    }

    /// The whole exchange with keys that are known, against messages that were derived apart from this code.
    #[test]
    fn the_exchange_is_that_of_the_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/exchanges.json");
        let text = std::fs::read_to_string(path).expect("the vectors");
        let rows: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for row in rows.as_array().expect("an array") {
            let side = |is_active: bool, node: &str, ephemeral: &str| {
                let fabric = FabricKey::from_bytes(key(&row["fabric_key"]));
                for frame in row["frames"].as_array().expect("frames") {
                    let bytes = hex(&frame["bytes"]);
                    let (_, covered, tag) = Handshake::parse(&bytes).expect("a frame");
                    assert!(fabric.verify_handshake(covered, tag));
                }
                let credentials = Credentials {
                    fabric,
                    node: NodeKey::from_bytes(key(&row[node])),
                    peers: Peers::Fabric,
                    suites: Suites::ALL,
                };
                let prologue = hex(&row["prologue"]);
                let ephemeral = Some(key(&row[ephemeral]));
                let seeded = Seeded(Zeroizing::new([0; 32]));
                Exchange::build(is_active, &credentials, seeded, &prologue, ephemeral.as_ref())
                    .expect("an exchange")
            };
            let mut active = side(true, "active_key", "active_ephemeral");
            let mut passive = side(false, "passive_key", "passive_ephemeral");
            let (mut out, mut payload) = ([0; 200], [0; 200]);
            let messages = row["messages"].as_array().expect("messages");
            let payloads = row["payloads"].as_array().expect("payloads");
            for (number, (message, said)) in messages.iter().zip(payloads).enumerate() {
                let (from, to) =
                    if number == 1 { (&mut passive, &mut active) } else { (&mut active, &mut passive) };
                let bytes = from.write(&hex(said), &mut out).expect("a message");
                assert_eq!(out[..bytes], hex(message), "message {number}");
                let bytes = to.read(&hex(message), &mut payload).expect("a good message");
                assert_eq!(payload[..bytes], hex(said));
            }
            let (active, passive) = (active.keys().expect("keys"), passive.keys().expect("keys"));
            assert_eq!(passive.peer, NodeKey::from_bytes(key(&row["active_key"])).public());
            assert_eq!(active.peer, NodeKey::from_bytes(key(&row["passive_key"])).public());
            for keys in [active, passive] {
                assert_eq!(keys.from_active.bytes(), &key(&row["from_active"]));
                assert_eq!(keys.from_passive.bytes(), &key(&row["from_passive"]));
            }
        }
    }
}
