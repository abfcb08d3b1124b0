//! VERSION: the body, and the JSON in it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::bytes::Reader;

/// What the sender can do. A field that is absent has the protocol's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// File descriptors it takes in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_msg_fds: Option<u64>,
    /// Bytes of data it takes in one message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_data_xfer_size: Option<u64>,
    /// DMA windows at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_dma_maps: Option<u64>,
    /// Sizes of pages, or'ed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgsizes: Option<u64>,
    /// Whether it knows REGION_WRITE_MULTI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_multiple: Option<bool>,
}

#[derive(Serialize)]
struct Document<'a> {
    capabilities: &'a Capabilities,
}

impl Capabilities {
    fn parse(json: &[u8]) -> Option<Self> {
        // Asked for as objects: a derived decoder would take arrays as well.
        let document: Map<String, Value> = serde_json::from_slice(json).ok()?;
        match document.get("capabilities") {
            None => Some(Self::default()),
            Some(capabilities @ Value::Object(_)) => Self::deserialize(capabilities).ok(),
            Some(_) => None,
        }
    }
}

/// The body of VERSION, both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Incompatible with others.
    pub major: u16,
    /// Compatible with lower ones.
    pub minor: u16,
    /// Capabilities.
    pub capabilities: Capabilities,
}

impl Version {
    /// Decodes a body; `None` if it is too short, not terminated, or no JSON of the right shape. Capabilities that are not known are
    /// passed over.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let (major, minor) = (reader.u16()?, reader.u16()?);
        let capabilities = match reader.rest() {
            [] | [0] => Capabilities::default(),
            [json @ .., 0] => Capabilities::parse(json)?,
            _ => return None,
        };
        Some(Self { major, minor, capabilities })
    }

    /// Encodes a body.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&self.major.to_ne_bytes());
        bytes.extend_from_slice(&self.minor.to_ne_bytes());
        let document = Document { capabilities: &self.capabilities };
        // Numbers and booleans under fixed names always serialise.
        bytes.extend(serde_json::to_vec(&document).unwrap_or_default());
        bytes.push(0);
        bytes
    }
}
