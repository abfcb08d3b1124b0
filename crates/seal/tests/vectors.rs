//! The vectors in `vectors/`, which are derived from the specifications apart from this crate, hold in both directions.

use std::path::Path;

use etherslot_seal::{FabricKey, Opener, Sealer, Suite, TrafficSecret, Unopened};
use etherslot_wire::frame::{Error, Header, MAX_FRAME_BYTES};
use etherslot_wire::handshake::{Handshake, Step};
use serde_json::Value;

fn rows(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a vector file is an array")
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("bytes are a text of hexadecimal digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn suite(row: &Value) -> Suite {
    match row["suite"].as_str().expect("a suite") {
        "aes-256-gcm" => Suite::Aes256Gcm,
        "chacha20-poly1305" => Suite::ChaCha20Poly1305,
        other => panic!("suite {other}"),
    }
}

#[test]
fn sealed_frames_hold_in_both_directions() {
    let mut room = [0; MAX_FRAME_BYTES];
    for row in rows("sealed.json") {
        let name = row["name"].as_str().expect("a name");
        let secret = || TrafficSecret::new(hex(&row["secret"]).try_into().expect("32 bytes"));
        let (mut sealer, mut opener) =
            (Sealer::new(suite(&row), secret()), Opener::new(suite(&row), &secret()));
        if let Some(expected) = row["error"].as_str() {
            let error = match opener.open(&hex(&row["bytes"]), &mut room).expect_err(name) {
                Unopened::Malformed(Error::Truncated) => "truncated",
                Unopened::Malformed(Error::Flags(_)) => "flags",
                Unopened::Malformed(other) => panic!("{name}: {other}"),
                Unopened::Phase => "phase",
                Unopened::Forged => "forged",
            };
            assert_eq!(error, expected, "{name}");
            continue;
        }
        for frame in row["frames"].as_array().expect("frames") {
            let (mut plain, sealed) = (hex(&frame["plain"]), hex(&frame["sealed"]));
            let mut out = vec![0; sealed.len()];
            assert_eq!(sealer.seal(&plain, &mut out), Ok(sealed.len()), "{name}");
            assert_eq!(out, sealed, "{name}");
            // The flag of a check that is not there any more.
            plain[1] &= 0x7F;
            let padded = [&sealed[..], &[0xAA; 7]].concat();
            assert_eq!(opener.open(&padded, &mut room), Ok(Header::parse(&plain).expect(name)), "{name}");
        }
    }
}

#[test]
fn frames_of_handshakes_hold_in_both_directions() {
    for row in rows("exchanges.json") {
        let fabric = FabricKey::from_bytes(hex(&row["fabric_key"]).try_into().expect("32 bytes"));
        for frame in row["frames"].as_array().expect("frames") {
            let bytes = hex(&frame["bytes"]);
            let (parsed, covered, _) = Handshake::parse(&bytes).expect("a good frame");
            let step = match frame["step"].as_str().expect("a step") {
                "knock" => Step::Knock,
                "cookie" => Step::Cookie,
                "open" => Step::Open,
                "answer" => Step::Answer,
                _ => Step::Finish,
            };
            let number =
                |name: &str| frame[name].as_u64().and_then(|number| u32::try_from(number).ok()).expect(name);
            let body = hex(&frame["body"]);
            let expected = Handshake {
                step,
                dst_epoch: number("dst_epoch"),
                src_epoch: number("src_epoch"),
                body: &body,
            };
            assert_eq!(parsed, expected);
            let mut again = vec![0; bytes.len()];
            assert_eq!(parsed.emit(&mut again), Some(covered.len()));
            assert_eq!(again[..covered.len()], *covered);
            for end in 0..bytes.len() {
                assert!(Handshake::parse(&bytes[..end]).is_err());
            }
        }
        assert_ne!(fabric.announcement_tag(b""), [0; 32]);
    }
}
