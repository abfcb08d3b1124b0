//! Values of the configuration that are checked as they are read, so that what is wrong is told with its line.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use etherslot_runtime::options::{
    Address, Group, Impairment, ListenAddress, MAX_PATHS, MAX_PAYLOAD_BYTES, Name, PublicKey,
};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, de};

/// `value` as it was written, unless `check` says what to write instead.
fn checked<'de, D, T, U, E>(deserializer: D, check: impl FnOnce(T) -> Result<U, E>) -> Result<U, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    E: Display,
{
    check(T::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Text without control characters, since it is shown to people and told to peers.
fn text(text: String, bytes: RangeInclusive<usize>) -> Result<String, String> {
    if bytes.contains(&text.len()) && !text.chars().any(char::is_control) {
        Ok(text)
    } else {
        Err(format!("{text:?} has to be {} to {} bytes of text", bytes.start(), bytes.end()))
    }
}

/// Text of a device's Identify data: printable ASCII.
fn ascii(text: String, most: usize) -> Result<String, String> {
    if (1..=most).contains(&text.len()) && text.bytes().all(|byte| (0x20..0x7F).contains(&byte)) {
        Ok(text)
    } else {
        Err(format!("{text:?} has to be 1 to {most} printable ASCII characters"))
    }
}

fn in_range(value: u16, range: RangeInclusive<u16>) -> Result<u16, String> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("{value} is out of range: use {} to {}", range.start(), range.end()))
    }
}

/// A number with its unit.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    checked(deserializer, |text: String| {
        let form = "write a number and its unit, as in \"50us\", \"100ms\" or \"2s\"";
        humantime::parse_duration(&text).map(Some).map_err(|error| format!("{error}; {form}"))
    })
}

/// `[node] name`.
pub(crate) fn node_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, |name| text(name, 1..=255))
}

/// `[link] listen`.
pub(crate) fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    checked(deserializer, |text: String| {
        text.parse().map(Some).map_err(|_| format!("{text:?} is not ADDRESS:PORT, as in \"0.0.0.0:4700\""))
    })
}

/// `[metrics] listen`.
pub(crate) fn place_to_listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ListenAddress, D::Error> {
    checked(deserializer, |text: String| {
        let wrong =
            |_| format!("{text:?} is no place to listen at: write \"127.0.0.1:9464\" or \"unix:/PATH\"");
        text.parse().map_err(wrong)
    })
}

/// `[link] queue`.
pub(crate) fn queue<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    checked(deserializer, |queue| in_range(queue, 0..=1023).map(|queue| Some(u32::from(queue))))
}

/// Public keys of nodes.
pub(crate) fn public_keys<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<PublicKey>>, D::Error> {
    checked(deserializer, |texts: Vec<String>| {
        texts.iter().map(|text| key(text)).collect::<Result<_, _>>().map(Some)
    })
}

/// A public key of a node.
pub(crate) fn public_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PublicKey>, D::Error> {
    checked(deserializer, |text: String| key(&text).map(Some))
}

fn key(text: &str) -> Result<PublicKey, String> {
    let told = "`etherslot keygen` on the node shows its public key";
    text.parse().map_err(|error| format!("{text:?} is no public key: {error}; {told}"))
}

/// A group of users: its name in /etc/group, or its number.
pub(crate) fn user_group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    checked(deserializer, |name: String| {
        if let Ok(number) = name.parse() {
            return Ok(Some(number));
        }
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        let number = groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(&name)).then(|| fields.nth(1)?.parse().ok()).flatten()
        });
        number
            .map(Some)
            .ok_or_else(|| format!("there is no group {name:?} in /etc/group: make it, or write a number"))
    })
}

/// An Ethernet address.
pub(crate) fn mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 6]>, D::Error> {
    checked(deserializer, |text: String| match text.parse() {
        Ok(Address::Mac(octets)) => Ok(Some(octets)),
        _ => Err(format!("{text:?} is no MAC address, as \"02:00:00:00:00:01\" is one")),
    })
}

/// `[link] impair`.
pub(crate) fn faults<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    checked(deserializer, |text: String| text.parse::<Impairment>().map(|_| Some(text)))
}

/// `[session] max_payload`.
pub(crate) fn max_payload<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    checked(deserializer, |bytes| payload(bytes).map(Some))
}

/// A `Max_Payload_Size` that PCI Express knows.
pub(crate) fn payload(bytes: u16) -> Result<u16, String> {
    if bytes.is_power_of_two() && (128..=MAX_PAYLOAD_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{bytes} has to be a power of two from 128 to {MAX_PAYLOAD_BYTES}"))
    }
}

/// `[session] window_frames`.
pub(crate) fn window_frames<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    checked(deserializer, |frames| in_range(frames, 16..=4096).map(Some))
}

/// What QEMU takes for an ID: it goes into its commands as it is.
pub(crate) fn as_qemu_id(id: String) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if id.len() <= 64 && id.bytes().all(is_plain) && id.starts_with(|first: char| first.is_ascii_alphabetic())
    {
        Ok(id)
    } else {
        Err(format!("{id:?} has to be a letter, then letters, digits, '-', '.' and '_', 64 in all at most"))
    }
}

/// `[[slot]] hot_plug.bus`.
pub(crate) fn qemu_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, as_qemu_id)
}

/// `[[slot]] hot_plug.id`.
pub(crate) fn some_qemu_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    checked(deserializer, |id| as_qemu_id(id).map(Some))
}

/// `[[device]] standby`.
pub(crate) fn host_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Name>, D::Error> {
    checked(deserializer, |names: Vec<String>| {
        let name = |text: String| {
            Name::new(&text).ok_or_else(|| format!("{text:?} is no name of a host: those have 1 to 32 bytes"))
        };
        names.into_iter().map(name).collect::<Result<_, _>>()
    })
}

/// A device's name, in the box and for a slot.
pub(crate) fn device_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, |name| text(name, 1..=32))
}

/// `[[device]] serial`.
pub(crate) fn serial<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, |serial| ascii(serial, 20))
}

/// `[[device]] model`.
pub(crate) fn model<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    checked(deserializer, |model| ascii(model, 40).map(Some))
}

/// `[[device]] queue_pairs`.
pub(crate) fn queue_pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    checked(deserializer, |pairs| in_range(pairs, 1..=64).map(Some))
}

/// `[[device]] ports`.
pub(crate) fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    checked(deserializer, |ports| in_range(ports, 1..=8).map(|ports| Some(ports as u8)))
}

/// `[[device]] cmb_bytes`.
pub(crate) fn cmb_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    checked(deserializer, |bytes: u32| {
        if bytes.is_power_of_two() && (4096..=64 << 20).contains(&bytes) {
            Ok(Some(bytes))
        } else {
            Err(format!("{bytes} has to be a power of two from 4096 to 67108864"))
        }
    })
}

/// `[[device]] max_transfer`.
pub(crate) fn max_transfer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    checked(deserializer, |text: String| match text.parse::<ByteSize>() {
        Err(_) => Err(format!("{text:?} is no size: write a number and its unit, as in \"4 MiB\"")),
        Ok(ByteSize(bytes)) if bytes.is_power_of_two() && (4 << 10..=16 << 20).contains(&bytes) => {
            Ok(Some(bytes as u32))
        }
        Ok(ByteSize(bytes)) => Err(format!(
            "{text:?} is {bytes} bytes: use a power of two from 4 KiB to 16 MiB, with KiB or MiB"
        )),
    })
}

/// `[[slot]] domain`.
pub(crate) fn domain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    checked(deserializer, |domain| in_range(domain, 1..=65535))
}

/// `[[device]] size`.
pub(crate) fn dc_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    checked(deserializer, |text: String| match text.parse::<ByteSize>() {
        Err(_) => Err(format!("{text:?} is no size: write a number and its unit, as in \"256 MiB\"")),
        Ok(ByteSize(bytes)) if bytes.is_power_of_two() && (64 << 10..=1 << 36).contains(&bytes) => {
            Ok(Some(bytes))
        }
        Ok(ByteSize(bytes)) => Err(format!(
            "{text:?} is {bytes} bytes: use a power of two from 64 KiB to 64 GiB, with KiB, MiB or GiB"
        )),
    })
}

/// `[[device]] rate`.
pub(crate) fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroU64>, D::Error> {
    checked(deserializer, |text: String| {
        let size = text.strip_suffix("/s").and_then(|size| size.trim_end().parse::<ByteSize>().ok());
        let rate = size.and_then(|ByteSize(bytes)| NonZeroU64::new(bytes));
        rate.map(Some).ok_or_else(|| {
            format!("{text:?} is no rate: write a number, its unit and /s, as in \"250 MB/s\"")
        })
    })
}

/// `[[device.namespace]] block_bytes`.
pub(crate) fn block_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    checked(deserializer, |bytes| match bytes {
        512 | 4096 => Ok(bytes),
        _ => Err(format!("{bytes} is not possible: use 512 or 4096")),
    })
}

/// `[[device.namespace]] memory`.
pub(crate) fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    checked(deserializer, |text: String| match text.parse::<ByteSize>() {
        Err(_) => Err(format!("{text:?} is no size: write a number and its unit, as in \"1 GiB\"")),
        Ok(ByteSize(bytes)) if bytes != 0 && bytes.is_multiple_of(4096) => Ok(Some(bytes)),
        Ok(ByteSize(bytes)) => Err(format!(
            "{text:?} is {bytes} bytes: use a multiple of 4096, as in \"1 GiB\" (\"1 GB\" is 10^9)"
        )),
    })
}

/// `[session] paths`.
pub(crate) fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    checked(deserializer, |paths| in_range(paths, 1..=MAX_PATHS as u16).map(|paths| Some(paths as u8)))
}

/// One value as it is, or a list of values.
#[derive(Debug)]
pub(crate) enum OneOrMore<T, One = T> {
    One(One),
    More(Vec<T>),
}

impl<'de, T: Deserialize<'de>, One: Deserialize<'de>> Deserialize<'de> for OneOrMore<T, One> {
    // By hand, since an untagged enum would lose the lines and the words of what is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T, One>(PhantomData<(T, One)>);
        impl<'de, T: Deserialize<'de>, One: Deserialize<'de>> Visitor<'de> for Either<T, One> {
            type Value = OneOrMore<T, One>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                One::deserialize(text.into_deserializer()).map(OneOrMore::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                One::deserialize(MapAccessDeserializer::new(map)).map(OneOrMore::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMore::More)
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// An assignment group.
pub(crate) fn group<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Group>, D::Error> {
    checked(deserializer, |number: u16| {
        let wrong = || format!("{number} is no group: use 1 to {}", Group::MAX);
        Group::new(number).map(Some).ok_or_else(wrong)
    })
}

/// `[[slot]] box`.
pub(crate) fn some_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Address>>, D::Error> {
    addresses(deserializer).map(Some)
}

/// `[[slot]] serial`.
pub(crate) fn some_serial<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    serial(deserializer).map(Some)
}

/// `[[slot]] device`.
pub(crate) fn some_device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    checked(deserializer, |name| text(name, 1..=65).map(Some))
}

/// `[fabric] peers`.
pub(crate) fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Address>, D::Error> {
    checked(deserializer, |texts: OneOrMore<String>| {
        let texts = match texts {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        };
        texts.iter().map(|text| text.parse::<Address>()).collect::<Result<_, _>>()
    })
}
