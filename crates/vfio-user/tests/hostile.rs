//! Bytes that no client in its right mind would send.

mod rig;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use etherslot_vfio_user::message::{
    Capabilities, HEADER_BYTES, Header, IrqAction, IrqData, IrqInfoReply, RegionInfoReply, Request, SetIrqs,
    Version, WriteMulti,
};
use etherslot_vfio_user::{Client, Handler, Server};
use proptest::prelude::*;
use rig::{Scratch, event, memfd};

fn header(command: u16) -> Header {
    Header { id: 0, command, bytes: 16, reply: false, no_reply: false, error: None }
}

fn action() -> impl Strategy<Value = IrqAction> {
    prop_oneof![Just(IrqAction::Mask), Just(IrqAction::Unmask), Just(IrqAction::Trigger)]
}

/// Numbers that are near to what matters, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..16,
        (0u64..16).prop_map(|n| n * 0x1000),
        (0u64..4).prop_map(|n| u64::MAX - n),
        (0u64..4).prop_map(|n| u64::MAX - n * 0x1000 - 0xfff),
        Just(1 << 63),
        any::<u64>(),
    ]
}

/// The body of a command that is well-formed, with its number.
fn command() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let word = || number().prop_map(|n| n as u32);
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let few = || prop_oneof![4 => 0u32..3, 1 => word()];
    let pages = || prop_oneof![3 => (0u64..8).prop_map(|n| n * 0x1000), 1 => number()];
    let encode = |request: Request<'_>| {
        let mut body = Vec::new();
        request.encode(&mut body);
        (request.command(), body)
    };
    prop_oneof![
        (any::<bool>(), any::<bool>(), pages(), pages(), pages()).prop_map(
            move |(readable, writable, offset, address, bytes)| {
                encode(Request::DmaMap { readable, writable, offset, address, bytes })
            }
        ),
        (any::<bool>(), number(), number()).prop_map(move |(all, address, bytes)| encode(
            Request::DmaUnmap { argsz: 24, all, address, bytes }
        )),
        word().prop_map(move |index| encode(Request::GetRegionInfo { index })),
        word().prop_map(move |index| encode(Request::GetIrqInfo { index })),
        word().prop_map(move |index| encode(Request::GetRegionIoFds { index })),
        (action(), 0u8..3, 0u32..6, few(), few(), bytes()).prop_map(
            move |(action, kind, index, start, count, flags)| {
                let (data, count) = match kind {
                    0 => (IrqData::None, count),
                    1 => (IrqData::Bool(&flags), flags.len() as u32),
                    _ => (IrqData::Eventfd, count),
                };
                encode(Request::SetIrqs(SetIrqs { action, data, index, start, count }))
            }
        ),
        (number(), 0u32..10, word()).prop_map(move |(offset, region, count)| encode(Request::RegionRead {
            offset,
            region,
            count
        })),
        (number(), 0u32..10, bytes()).prop_map(move |(offset, region, data)| encode(Request::RegionWrite {
            offset,
            region,
            data: &data
        })),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(move |seed| {
            let writes: Vec<u8> = seed.iter().flat_map(|&byte| [byte; 24]).collect();
            encode(Request::RegionWriteMulti(WriteMulti::new(&writes).unwrap()))
        }),
        Just(encode(Request::DeviceReset)),
        (any::<u16>(), bytes()),
        (0u16..20, bytes()),
    ]
}

#[derive(Clone, Debug)]
struct Step {
    command: u16,
    flags: u8,
    body: Vec<u8>,
    fds: usize,
    /// Where the message is cut in two, and whether the rest of it is sent.
    cut: usize,
    whole: bool,
}

fn step() -> impl Strategy<Value = Step> {
    // Mostly whole commands, with a reply or without.
    let flags = prop_oneof![8 => Just(0u8), 4 => Just(0x10), 1 => any::<u8>()];
    (
        command(),
        flags,
        prop_oneof![3 => Just(0usize), 5 => Just(1), 3 => 0usize..3, 1 => 0usize..17],
        any::<usize>(),
        prop::bool::weighted(0.97),
    )
        .prop_map(|((command, body), flags, fds, cut, whole)| Step {
            command,
            flags,
            body,
            fds,
            cut,
            whole,
        })
}

fn settle(server: &mut Server, scratch: &mut Scratch) {
    for round in 0.. {
        assert!(round < 10_000, "it never ends");
        if !server.poll(scratch) {
            return;
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(command in 0u16..20, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Request::parse(&header(command), &body).map(|request| match request {
            Request::RegionWriteMulti(writes) => writes.writes(0).flatten().count(),
            _ => 0,
        });
        let _ = Version::parse(&body);
        let _ = RegionInfoReply::parse(&body);
        let _ = IrqInfoReply::parse(&body);
        if let Some(bytes) = body.first_chunk::<HEADER_BYTES>()
            && let Ok(header) = Header::parse(bytes)
        {
            prop_assert_eq!(Header::parse(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn any_text_is_decoded_without_panic(text in "\\PC{0,80}") {
        let _ = Version::parse(&[&[0; 4], text.as_bytes(), &[0]].concat());
    }

    #[test]
    fn commands_come_back_as_they_were((number, body) in command()) {
        if let Some(request) = Request::parse(&header(number), &body)
            && request != Request::Unknown
        {
            let mut again = Vec::new();
            request.encode(&mut again);
            prop_assert_eq!(request.command(), number);
            prop_assert_eq!(Request::parse(&header(number), &again), Some(request));
        }
    }

    #[test]
    fn versions_come_back_as_they_were(
        major in any::<u16>(),
        minor in any::<u16>(),
        numbers in prop::array::uniform4(prop::option::of(any::<u64>())),
        write_multiple in prop::option::of(any::<bool>()),
    ) {
        let [max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes] = numbers;
        let capabilities = Capabilities { max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes, write_multiple };
        let version = Version { major, minor, capabilities };
        prop_assert_eq!(Version::parse(&version.encode()), Some(version));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_sequence_of_messages_breaks_the_server(steps in prop::collection::vec(step(), 1..40), answered in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut server = Server::bind(&path, rig::info()).unwrap();
        let mut scratch = Scratch::new();
        let (ram, eventfd) = (memfd(0x8000), event());
        let connect = |server: &mut Server, scratch: &mut Scratch| {
            let mut client = Client::connect(&path, Duration::from_secs(10)).unwrap();
            let capabilities = Capabilities::default();
            client.send(&Request::Version(Version { major: 0, minor: 1, capabilities }), false, &[]).unwrap();
            settle(server, scratch);
            assert!(server.is_connected());
            assert_eq!(client.receive().unwrap().header.error, None);
            rustix::io::ioctl_fionbio(&client, true).unwrap();
            client
        };
        let mut client = connect(&mut server, &mut scratch);
        for step in steps {
            let mut message = header(step.command).encode().to_vec();
            message[4..8].copy_from_slice(&((HEADER_BYTES + step.body.len()) as u32).to_ne_bytes());
            message[8] = step.flags;
            message.extend(&step.body);
            // The files are of both kinds that are of use.
            let fd = if step.cut % 2 == 0 { ram.as_fd() } else { eventfd.as_fd() };
            let fds: Vec<BorrowedFd<'_>> = vec![fd; step.fds];
            let cut = step.cut % message.len() + 1;
            let mut sent = client.send_bytes(&message[..cut], &fds).is_ok();
            settle(&mut server, &mut scratch);
            if step.whole {
                sent &= client.send_bytes(&message[cut..], &[]).is_ok();
                settle(&mut server, &mut scratch);
            }
            while client.receive().is_ok() {}
            if answered {
                for id in std::mem::take(&mut scratch.later) {
                    server.reply_error(id, etherslot_vfio_user::Errno::TIMEDOUT);
                }
            }
            // Whatever it was, memory and interrupts are there to be used.
            let mut data = [0; 64];
            for address in [0, 0x800, 0x1000, u64::MAX - 63] {
                let _ = server.memory().read(address, &mut data);
                let _ = server.memory().write(address, &data);
            }
            for index in 0..5 {
                server.trigger(index, 0);
            }
            server.set_intx_level(step.cut % 3 == 0);
            if !sent || !server.is_connected() {
                drop(client);
                settle(&mut server, &mut scratch);
                client = connect(&mut server, &mut scratch);
            }
        }
        drop(client);
        settle(&mut server, &mut scratch);
        prop_assert!(!server.is_connected());
        prop_assert_eq!((server.memory().windows(), server.memory().files()), (0, 0));
        connect(&mut server, &mut scratch);
        prop_assert!(scratch.room());
    }
}
