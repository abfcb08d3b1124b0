//! Every message, with what may be wrong with it.

mod rig;

use std::os::fd::AsFd;

use etherslot_mem::Access;
use etherslot_vfio_user::client::ClientError;
use etherslot_vfio_user::message::{
    Capabilities, Errno, HEADER_BYTES, Header, Request, Version, WriteMulti, WriteOne, command,
};
use rig::{BAR0, CONFIG, Event, FAILS, Rig, memfd};

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>, errno: Errno) {
    match result {
        Err(ClientError::Refused(error)) => assert_eq!(error, errno),
        other => panic!("not refused: {other:?}"),
    }
}

/// Sends a command with a body of any bytes; the reply's error.
fn raw(client: &mut etherslot_vfio_user::Client, command: u16, body: &[u8]) -> Option<Errno> {
    let bytes = (HEADER_BYTES + body.len()) as u32;
    let header = Header { id: 0x7777, command, bytes, reply: false, no_reply: false, error: None };
    client.send_bytes(&[&header.encode(), body].concat(), &[]).unwrap();
    let reply = client.receive().unwrap();
    assert_eq!((reply.header.id, reply.header.command), (0x7777, command));
    if reply.header.error.is_some() {
        assert!(reply.body.is_empty(), "an error comes without a body");
    }
    reply.header.error
}

#[test]
fn version_and_capabilities_are_agreed_on() {
    let rig = Rig::new();
    let mut client = rig.stranger();
    let version = client.negotiate().unwrap();
    assert_eq!((version.major, version.minor), (0, 1));
    let capabilities = version.capabilities;
    assert_eq!(capabilities.max_msg_fds, Some(16));
    assert_eq!(capabilities.max_data_xfer_size, Some(4096));
    assert_eq!(capabilities.max_dma_maps, Some(65535));
    assert_eq!(capabilities.pgsizes, Some(4096));
    assert_eq!(capabilities.write_multiple, Some(true));
    assert_eq!(rig.events(), [Event::Connected]);
}

#[test]
fn the_reply_to_qemu_is_0_0_and_not_longer_than_its_request() {
    let rig = Rig::new();
    let mut client = rig.stranger();
    let json = br#"{"capabilities": {"migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "max_dma_maps": 65535, "max_msg_fds": 16, "pgsizes": 4096, "max_data_xfer_size": 1048576, "write_multiple": true}}"#;
    let body = [&[0; 4], &json[..], &[0]].concat();
    let bytes = (HEADER_BYTES + body.len()) as u32;
    let header =
        Header { id: 1, command: command::VERSION, bytes, reply: false, no_reply: false, error: None };
    client.send_bytes(&[&header.encode()[..], &body].concat(), &[]).unwrap();
    let reply = client.receive().unwrap();
    assert_eq!(reply.header.error, None);
    assert!(reply.header.bytes <= bytes);
    assert_eq!(reply.body.last(), Some(&0));
    assert_eq!(Version::parse(&reply.body).map(|version| (version.major, version.minor)), Some((0, 0)));
}

#[test]
fn only_capabilities_that_were_proposed_are_agreed_on() {
    let rig = Rig::new();
    let mut client = rig.stranger();
    let capabilities = Capabilities { write_multiple: Some(false), ..Capabilities::default() };
    let proposal = Version { major: 0, minor: 7, capabilities: capabilities.clone() };
    let body = client.call(&Request::Version(proposal), &[]).unwrap();
    assert_eq!(Version::parse(&body), Some(Version { major: 0, minor: 1, capabilities }));
}

#[test]
fn malformed_versions_are_refused_and_a_good_one_may_follow() {
    let rig = Rig::new();
    let mut client = rig.stranger();
    let deep = ["[".repeat(4000).as_bytes(), &[0]].concat();
    for json in [
        &b"{}"[..],
        b"{\0",
        b"[]\0",
        b"{\"capabilities\": 1}\0",
        b"{\"capabilities\": {\"max_msg_fds\": -1}}\0",
        b"{\"capabilities\": {\"max_msg_fds\": \"many\"}}\0",
        b"\xff\xfe\0",
        b"{} {}\0",
        &deep,
    ] {
        let body = [&[0; 4], json].concat();
        assert_eq!(raw(&mut client, command::VERSION, &body), Some(Errno::INVAL), "{json:?}");
    }
    assert_eq!(raw(&mut client, command::VERSION, &[0, 0, 0]), Some(Errno::INVAL));
    assert_eq!(raw(&mut client, command::VERSION, &[1, 0, 0, 0]), Some(Errno::NOTSUP));
    assert!(rig.events().is_empty());
    client.negotiate().unwrap();
}

#[test]
fn version_comes_first_and_once() {
    let rig = Rig::new();
    let mut client = rig.stranger();
    refused(client.device_info(), Errno::INVAL);
    refused(client.write(BAR0, 0, &[1]), Errno::INVAL);
    client.write_posted(BAR0, 0, &[1]).unwrap();
    client.negotiate().unwrap();
    refused(client.negotiate().map(drop), Errno::INVAL);
    assert_eq!(rig.events(), [Event::Connected]);
}

#[test]
fn the_device_is_described() {
    let rig = Rig::new();
    let mut client = rig.client();
    assert_eq!(client.device_info().unwrap(), (9, 5, true));
    let bar = client.region_info(0).unwrap();
    assert_eq!((bar.bytes, bar.readable, bar.writable, bar.mappable), (0x1_0000, true, true, false));
    let bar = client.region_info(1).unwrap();
    assert_eq!((bar.bytes, bar.readable, bar.writable), (4096, true, false));
    assert_eq!(client.region_info(CONFIG).unwrap().bytes, 4096);
    assert_eq!(client.region_info(8).unwrap().bytes, 0);
    refused(client.region_info(9), Errno::INVAL);

    let intx = client.irq_info(0).unwrap();
    assert_eq!((intx.count, intx.eventfd, intx.maskable, intx.automasked), (1, true, true, true));
    let msi = client.irq_info(1).unwrap();
    assert_eq!((msi.count, msi.eventfd, msi.automasked, msi.noresize), (32, true, false, true));
    let msix = client.irq_info(2).unwrap();
    assert_eq!((msix.count, msix.automasked, msix.noresize), (2048, false, false));
    for index in [3, 4, 5, u32::MAX] {
        refused(client.irq_info(index), Errno::INVAL);
    }
}

#[test]
fn there_are_no_io_fds() {
    let rig = Rig::new();
    let mut client = rig.client();
    let body = client.call(&Request::GetRegionIoFds { index: 0 }, &[]).unwrap();
    assert_eq!(body, [16u32, 0, 0, 0].map(u32::to_ne_bytes).concat());
    refused(client.call(&Request::GetRegionIoFds { index: 9 }, &[]), Errno::INVAL);
}

#[test]
fn an_argsz_without_room_for_the_reply_is_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    for (command, least) in [
        (command::DEVICE_GET_INFO, 16u32),
        (command::DEVICE_GET_REGION_INFO, 32),
        (command::DEVICE_GET_IRQ_INFO, 16),
    ] {
        let mut body = [0; 32];
        body[..4].copy_from_slice(&(least - 1).to_ne_bytes());
        assert_eq!(raw(&mut client, command, &body), Some(Errno::INVAL));
        body[..4].copy_from_slice(&least.to_ne_bytes());
        assert_eq!(raw(&mut client, command, &body), None);
        assert_eq!(raw(&mut client, command, &body[..8]), Some(Errno::INVAL));
    }
}

#[test]
fn regions_are_read_and_written() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.write(BAR0, 0x10, &[1, 2, 3, 4]).unwrap();
    client.write_posted(BAR0, 0x14, &[5]).unwrap();
    let mut data = [0; 6];
    client.read(BAR0, 0x10, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4, 5, 0]);
    let mut config = [1; 4096];
    client.read(CONFIG, 0, &mut config).unwrap();
    assert_eq!(config, [0; 4096]);
    assert_eq!(
        rig.events(),
        [
            Event::Connected,
            Event::Write { region: BAR0, offset: 0x10, data: vec![1, 2, 3, 4], posted: false },
            Event::Write { region: BAR0, offset: 0x14, data: vec![5], posted: true },
            Event::Read { region: BAR0, offset: 0x10, bytes: 6 },
            Event::Read { region: CONFIG, offset: 0, bytes: 4096 },
        ]
    );
}

#[test]
fn accesses_beyond_a_region_or_its_permissions_never_reach_the_device() {
    let rig = Rig::new();
    let mut client = rig.client();
    let mut data = [0; 8];
    for (region, offset) in
        [(BAR0, 0xfff9), (BAR0, 0x1_0000), (BAR0, u64::MAX), (2, 0), (3, 0), (9, 0), (u32::MAX, 0)]
    {
        refused(client.read(region, offset, &mut data), Errno::INVAL);
    }
    for (region, offset) in [(BAR0, 0xfff9), (BAR0, u64::MAX - 7), (1, 0), (3, 0), (9, 0)] {
        refused(client.write(region, offset, &data), Errno::INVAL);
        client.write_posted(region, offset, &data).unwrap();
    }
    refused(client.read(BAR0, 0, &mut []), Errno::INVAL);
    refused(client.write(BAR0, 0, &[]), Errno::INVAL);
    refused(client.read(BAR0, 0, &mut [0; 4097]), Errno::INVAL);
    client.read(BAR0, 0, &mut [0; 4096]).unwrap();
    client.write(BAR0, 0, &[0; 4096]).unwrap();
    assert_eq!(rig.events().len(), 3);
    assert_eq!(rig.with(|server, _| server.counters().errors), 7 + 10 + 3);
}

#[test]
fn a_write_whose_length_is_not_what_it_says_is_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    let mut body = Vec::new();
    Request::RegionWrite { offset: 0, region: BAR0, data: &[1, 2, 3, 4] }.encode(&mut body);
    assert_eq!(raw(&mut client, command::REGION_WRITE, &body[..19]), Some(Errno::INVAL));
    assert_eq!(raw(&mut client, command::REGION_WRITE, &[&body[..], &[0]].concat()), Some(Errno::INVAL));
    assert_eq!(raw(&mut client, command::REGION_WRITE, &body[..15]), Some(Errno::INVAL));
    assert_eq!(raw(&mut client, command::REGION_WRITE, &body), None);
}

#[test]
fn errors_of_the_device_are_told() {
    let rig = Rig::new();
    let mut client = rig.client();
    refused(client.read(BAR0, FAILS, &mut [0; 4]), Errno::IO);
    refused(client.write(BAR0, FAILS, &[0; 4]), Errno::IO);
    client.write_posted(BAR0, FAILS, &[0; 4]).unwrap();
    client.read(BAR0, 0, &mut [0; 4]).unwrap();
    assert_eq!(rig.with(|server, _| server.counters().posted_errors), 1);
}

#[test]
fn many_writes_in_one_message_are_made_in_their_order() {
    let rig = Rig::new();
    let mut client = rig.client();
    let writes: Vec<_> = (0..200u64)
        .map(|n| WriteOne::new(BAR0, n * 8, &n.to_ne_bytes()[..=n as usize % 8]).unwrap())
        .collect();
    client.write_multi(&writes).unwrap();
    let mut data = [0; 1600];
    client.read(BAR0, 0, &mut data).unwrap();
    assert!((0..200).all(|n| data[n * 8] == n as u8));
    let offsets: Vec<_> = rig
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Write { offset, posted: true, .. } => Some(*offset),
            _ => None,
        })
        .collect();
    assert_eq!(offsets, (0..200).map(|n| n * 8).collect::<Vec<_>>());
}

#[test]
fn many_writes_in_one_message_may_ask_for_a_reply() {
    let rig = Rig::new();
    let mut client = rig.client();
    let bad = WriteOne::new(1, 0, &[1]).unwrap();
    let good = WriteOne::new(BAR0, 0, &[7]).unwrap();
    let bytes = [bad.encode(), good.encode()].concat();
    let body = client.call(&Request::RegionWriteMulti(WriteMulti::new(&bytes).unwrap()), &[]).unwrap();
    assert_eq!(body, 2u64.to_ne_bytes());
    let mut data = [0];
    client.read(BAR0, 0, &mut data).unwrap();
    assert_eq!(data, [7]);
    assert_eq!(rig.with(|server, _| server.counters().posted_errors), 1);
}

#[test]
fn a_count_of_writes_that_are_not_there_is_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    for count in [1u64, 201, u64::MAX, u64::MAX / 24 + 1] {
        let body = [&count.to_ne_bytes()[..], &[0; 23]].concat();
        assert_eq!(raw(&mut client, command::REGION_WRITE_MULTI, &body), Some(Errno::INVAL));
    }
    assert_eq!(raw(&mut client, command::REGION_WRITE_MULTI, &0u64.to_ne_bytes()), None);
}

#[test]
fn resets_are_passed_on() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.reset().unwrap();
    client.send(&Request::DeviceReset, true, &[]).unwrap();
    client.device_info().unwrap();
    assert_eq!(rig.events(), [Event::Connected, Event::Reset, Event::Reset]);
}

#[test]
fn commands_that_are_not_served_are_not_supported() {
    let rig = Rig::new();
    let mut client = rig.client();
    for command in [0, command::DMA_READ, command::DMA_WRITE, 14, 16, 17, 18, 19, u16::MAX] {
        assert_eq!(raw(&mut client, command, &[0; 64]), Some(Errno::NOTSUP));
    }
}

#[test]
fn commands_that_want_no_reply_get_none() {
    let rig = Rig::new();
    let mut client = rig.client();
    for request in [
        Request::GetInfo,
        Request::GetRegionInfo { index: 99 },
        Request::Unknown,
        Request::RegionRead { offset: 0, region: BAR0, count: 4 },
        Request::RegionWrite { offset: u64::MAX, region: 4, data: &[1] },
        Request::DmaMap { readable: true, writable: true, offset: 1, address: 2, bytes: 3 },
    ] {
        client.send(&request, true, &[]).unwrap();
    }
    client.device_info().unwrap();
}

#[test]
fn the_clients_memory_is_shared() {
    let rig = Rig::new();
    let mut client = rig.client();
    let ram = memfd(4 << 20);
    client.map(Some(ram.as_fd()), 0, 0, 0xa_0000, Access::READ_WRITE).unwrap();
    client.map(Some(ram.as_fd()), 0xc_0000, 0xc_0000, 0x1_0000, Access::READ).unwrap();
    client.map(Some(ram.as_fd()), 0x10_0000, 0x10_0000, 0x30_0000, Access::READ_WRITE).unwrap();
    client.map(None, 0, 0xfffc_0000, 0x4_0000, Access::READ).unwrap();
    rig.with(|server, _| {
        let memory = server.memory();
        assert_eq!(memory.windows(), 4);
        memory.write(0x10_0000, b"completion").unwrap();
        assert!(memory.write(0xc_0000, b"rom").is_err());
        assert!(memory.read(0xfffc_0000, &mut [0]).is_err());
    });
    let mut data = [0; 10];
    rustix::io::pread(&ram, &mut data, 0x10_0000).unwrap();
    assert_eq!(&data, b"completion");
    client.unmap(0, 0xa_0000).unwrap();
    rig.with(|server, _| assert!(server.memory().write(0, &[1]).is_err()));
    client.unmap_all().unwrap();
    rig.with(|server, _| assert_eq!(server.memory().windows(), 0));
    let changes = rig.events().iter().filter(|event| **event == Event::Memory).count();
    assert_eq!(changes, 6);
}

#[test]
fn unmap_repeats_what_was_asked() {
    let rig = Rig::new();
    let mut client = rig.client();
    let request = Request::DmaUnmap { argsz: 99, all: false, address: 0x1000, bytes: 0x2000 };
    let body = client.call(&request, &[]).unwrap();
    let mut asked = Vec::new();
    request.encode(&mut asked);
    assert_eq!(body, asked);
}

#[test]
fn maps_that_make_no_sense_are_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    let ram = memfd(1 << 20);
    let fd = Some(ram.as_fd());
    let all = Access::READ_WRITE;
    client.map(fd, 0, 0x1000, 0x1000, all).unwrap();
    refused(client.map(fd, 0, 0x1000, 0x1000, all), Errno::EXIST);
    refused(client.map(fd, 0, 0, 0x10_0000, all), Errno::EXIST);
    refused(client.map(fd, 0x800, 0x8000, 0x1000, all), Errno::INVAL);
    refused(client.map(fd, 0, 0x8001, 0x1000, all), Errno::INVAL);
    refused(client.map(fd, 0, 0x8000, 0, all), Errno::INVAL);
    refused(client.map(fd, 0xf_f000, 0x8000, 0x2000, all), Errno::INVAL);
    refused(client.map(fd, u64::MAX - 0xfff, 0x8000, 0x1000, all), Errno::INVAL);
    refused(client.map(fd, 0, u64::MAX - 0xfff, 0x2000, all), Errno::INVAL);
    refused(client.unmap(0x1000, 0x800), Errno::INVAL);
    refused(client.unmap(0x1000, 0), Errno::INVAL);
    refused(client.unmap(u64::MAX, 2), Errno::INVAL);
    let event = rig::event();
    refused(client.map(Some(event.as_fd()), 0, 0x8000, 0x1000, all), Errno::INVAL);
    let two = [ram.as_fd(), ram.as_fd()];
    let request =
        Request::DmaMap { readable: true, writable: true, offset: 0, address: 0x9000, bytes: 0x1000 };
    refused(client.call(&request, &two), Errno::INVAL);
    rig.with(|server, _| assert_eq!(server.memory().windows(), 1));
}

#[test]
fn a_client_can_open_no_more_windows_than_was_agreed() {
    let rig = Rig::new();
    let mut client = rig.client();
    let all = Access::READ_WRITE;
    rig.with(|_, scratch| scratch.log = false);
    for window in 0..65535u64 {
        let (address, bytes) = (window * 0x1000, 0x1000);
        let request = Request::DmaMap { readable: true, writable: true, offset: 0, address, bytes };
        client.send(&request, true, &[]).unwrap();
    }
    refused(client.map(None, 0, 65535 * 0x1000, 0x1000, all), Errno::NOSPC);
    client.unmap(0x1000, 0x1000).unwrap();
    client.map(None, 0, 65535 * 0x1000, 0x1000, all).unwrap();
}
