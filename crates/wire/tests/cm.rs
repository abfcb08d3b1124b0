//! Messages of connections and questions at the desk, as docs/verbs.md draws them.

use etherslot_wire::cm::{Enquiry, MAX_BYTES, Message, Says, Service, Space, Terms};
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn terms() -> Terms {
    Terms {
        qp: 0x07_1234,
        number: 0x00AB_CDEF,
        responder_resources: 4,
        initiator_depth: 128,
        retries: 7,
        rnr_retries: 6,
        srq: true,
        flow_control: false,
    }
}

#[test]
fn messages_are_as_they_are_drawn() {
    let (from, to, terms, private) = (0x0001_0002, 0x0003_0004, terms(), &b"hi"[..]);
    let (space, port, source_port) = (Space::Tcp, 7471, 32_771);
    let rows = [
        (
            Message::Request { from, service: Service::Uc, space, port, source_port, terms, private },
            "20 01 0106 00010002 1d2f 8003 00071234 00abcdef 04 80 07 06 01 02 000000000000 6869",
        ),
        (
            Message::Reply { from, to, terms, private },
            "21 00 0000 00010002 00030004 00071234 00abcdef 04 80 07 06 01 02 000000000000 6869",
        ),
        (Message::Established { from, to }, "22 000000 00010002 00030004"),
        (Message::Reject { from: 0, to, reason: 28, private }, "23 00 001c 00000000 00030004 02 000000 6869"),
        (Message::Disconnect { from, to }, "24 000000 00010002 00030004"),
        (Message::Disconnected { from, to }, "25 000000 00010002 00030004"),
    ];
    for (message, hex) in rows {
        let mut out = [0xEE; MAX_BYTES];
        let length = message.emit(&mut out).unwrap();
        assert_eq!(out[..length], bytes(hex), "{message:?}");
        assert_eq!(Message::parse(&out[..length]), Some(message));
        // What a later version says behind it is ignored; what is short is none.
        let mut more = out[..length].to_vec();
        more.push(0xFF);
        assert_eq!(Message::parse(&more), Some(message));
        assert_eq!(Message::parse(&out[..length - 1]), None);
    }
    for (says, hex) in [
        (Says::Who, "4553434d 01 00 0111 1d2f 0000 00000007"),
        (Says::Slot(200), "4553434d 02 c8 0111 1d2f 0000 00000007"),
        (Says::Nobody, "4553434d 02 ff 0111 1d2f 0000 00000007"),
    ] {
        let enquiry = Enquiry { space: Space::Udp, port: 7471, serial: 7, says };
        assert_eq!(enquiry.bytes()[..], bytes(hex));
        assert_eq!(Enquiry::parse(&bytes(hex)), Some(enquiry));
    }
}

#[test]
fn what_breaks_a_rule_is_no_message() {
    for (what, hex) in [
        ("code 31", "1f 000000 00010002 00030004"),
        ("code 38", "26 000000 00010002 00030004"),
        ("sender 0", "22 000000 00000000 00030004"),
        ("receiver 0", "24 000000 00010002 00000000"),
        ("service 2", "20 02 0106 00010002 1d2f 8003 00071234 00abcdef 04 80 07 06 01 00 000000000000"),
        ("port space 7", "20 00 0007 00010002 1d2f 8003 00071234 00abcdef 04 80 07 06 01 00 000000000000"),
        ("private data that are not there", "23 00 001c 00000000 00030004 03 000000 6869"),
    ] {
        assert_eq!(Message::parse(&bytes(hex)), None, "{what}");
    }
    for (what, hex) in [
        ("another magic", "4553434e 01 00 0111 1d2f 0000 00000007"),
        ("kind 3", "4553434d 03 00 0111 1d2f 0000 00000007"),
        ("port space 7", "4553434d 01 00 0007 1d2f 0000 00000007"),
        ("short", "4553434d 01 00 0111 1d2f 0000 000000"),
    ] {
        assert_eq!(Enquiry::parse(&bytes(hex)), None, "{what}");
    }
    // More private data than the kind may have are neither taken nor written.
    let private = &[0; 200][..];
    let mut out = [0; 300];
    for (message, most) in [
        (
            Message::Request {
                from: 1,
                service: Service::Rc,
                space: Space::Tcp,
                port: 1,
                source_port: 1,
                terms: terms(),
                private,
            },
            56,
        ),
        (Message::Reply { from: 1, to: 1, terms: terms(), private }, 196),
        (Message::Reject { from: 1, to: 1, reason: 0, private }, 148),
    ] {
        assert_eq!(message.emit(&mut out), None);
        let (length_at, at) = if most == 148 { (12, 16) } else { (25, 32) };
        let short = match message {
            Message::Request { from, service, space, port, source_port, terms, .. } => {
                Message::Request { from, service, space, port, source_port, terms, private: &private[..most] }
            }
            Message::Reply { from, to, terms, .. } => {
                Message::Reply { from, to, terms, private: &private[..most] }
            }
            _ => Message::Reject { from: 1, to: 1, reason: 0, private: &private[..most] },
        };
        assert_eq!(short.emit(&mut out), Some(at + most));
        assert!(Message::parse(&out).is_some());
        out[length_at] += 1;
        assert_eq!(Message::parse(&out), None);
    }
}

proptest! {
    #[test]
    fn any_bytes_that_are_a_message_are_the_same_again(mut any in prop::collection::vec(any::<u8>(), 0..260), code in 31..39_u8) {
        if let Some(first) = any.first_mut() {
            *first = code;
        }
        if let Some(message) = Message::parse(&any) {
            let mut out = [0xEE; MAX_BYTES];
            let length = message.emit(&mut out).expect("there is room");
            prop_assert_eq!(Message::parse(&out[..length]), Some(message));
        }
        let _ = Enquiry::parse(&any);
    }
}
