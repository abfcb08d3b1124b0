//! The socket: partial messages, descriptors, replies in any order, back-pressure, clients that come and go.

mod rig;

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use etherslot_mem::Access;
use etherslot_vfio_user::client::ClientError;
use etherslot_vfio_user::message::{
    Errno, HEADER_BYTES, Header, IrqAction, IrqData, Request, SetIrqs, WriteOne, command,
};
use etherslot_vfio_user::{BindError, Client, Server};
use rig::{BAR0, Event, LATER, MSIX, Rig, assign, event, info, memfd};

fn message(id: u16, request: &Request<'_>, no_reply: bool) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    request.encode(&mut message);
    let header = Header {
        id,
        command: request.command(),
        bytes: message.len() as u32,
        reply: false,
        no_reply,
        error: None,
    };
    message[..HEADER_BYTES].copy_from_slice(&header.encode());
    message
}

fn read_at(offset: u64) -> Request<'static> {
    Request::RegionRead { offset, region: BAR0, count: 4 }
}

/// Descriptors open in this process, other than those other tests open and close meanwhile.
fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn messages_may_come_byte_by_byte() {
    let rig = Rig::new();
    let mut client = rig.client();
    let write = message(1, &Request::RegionWrite { offset: 0, region: BAR0, data: &[1, 2, 3, 4] }, false);
    let read = message(2, &read_at(0), false);
    for byte in [write, read].concat() {
        client.send_bytes(&[byte], &[]).unwrap();
        rig.with(|_, _| ());
    }
    assert_eq!(client.receive().unwrap().header.id, 1);
    assert_eq!(client.receive().unwrap().body[16..], [1, 2, 3, 4]);
}

#[test]
fn descriptors_belong_to_the_message_they_came_with() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fds = [event(), event()];
    let set = |vector: u32| {
        let data = IrqData::Eventfd;
        Request::SetIrqs(SetIrqs { action: IrqAction::Trigger, data, index: MSIX, start: vector, count: 1 })
    };
    // Held back so that all of it is in the socket before any of it is read.
    rig.with(|_, scratch| scratch.room = 0);
    client.send(&read_at(0), false, &[]).unwrap();
    rig.wait(|server, _| server.is_connected());
    client.send(&set(0), false, &[fds[0].as_fd()]).unwrap();
    client.send(&set(5), false, &[]).unwrap();
    // In parts, with the descriptor at the first, and at the last byte.
    let parts = message(9, &set(1), false);
    client.send_bytes(&parts[..1], &[fds[1].as_fd()]).unwrap();
    client.send_bytes(&parts[1..], &[]).unwrap();
    let parts = message(10, &set(2), false);
    client.send_bytes(&parts[..35], &[]).unwrap();
    client.send_bytes(&parts[35..], &[fds[0].as_fd()]).unwrap();
    rig.with(|_, scratch| scratch.room = usize::MAX);
    for _ in 0..5 {
        assert_eq!(client.receive().unwrap().header.error, None);
    }
    rig.with(|server, _| {
        let assigned: Vec<_> = (0..8).filter(|&vector| server.is_irq_assigned(MSIX, vector)).collect();
        assert_eq!(assigned, [0, 1, 2]);
        server.trigger(MSIX, 1);
    });
    assert_eq!(fds.each_ref().map(rig::count), [0, 1]);
}

#[test]
fn surplus_descriptors_are_closed_and_too_many_end_the_connection() {
    let rig = Rig::new();
    let before = rig.with(|_, _| open_fds());
    let mut client = rig.client();
    let fd = event();
    let with_client = rig.with(|_, _| open_fds());
    for _ in 0..50 {
        client.call(&Request::GetInfo, &[fd.as_fd(); 16]).unwrap();
        client.send(&Request::GetInfo, true, &[fd.as_fd(); 3]).unwrap();
        let refused = client.map(Some(fd.as_fd()), 0, 0, 0x1000, Access::READ);
        assert!(matches!(refused, Err(ClientError::Refused(_))));
    }
    // Other tests of this process come and go; a leak would be of thousands.
    assert!(rig.with(|_, _| open_fds()) < with_client + 200);

    let mut result = client.call(&Request::GetInfo, &[fd.as_fd(); 17]).map(drop);
    assert!(matches!(result, Err(ClientError::Closed | ClientError::Socket(_))), "{result:?}");
    // Some for each byte of one message.
    let mut client = rig.client();
    for byte in message(1, &Request::GetInfo, false) {
        result = client.send_bytes(&[byte], &[fd.as_fd(); 8]);
    }
    assert!(result.is_err() || client.receive().is_err());
    rig.wait(|server, _| !server.is_connected());
    assert_eq!(rig.with(|server, _| server.counters().violations), 2);
    drop(client);
    assert!(rig.with(|_, _| open_fds()) < before + 200);
}

#[test]
fn a_client_can_not_outlive_itself_by_a_descriptor_of_its_own_socket() {
    let rig = Rig::new();
    let (socket, _other) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    for round in 0..3 {
        let mut client = rig.client();
        let own = client.as_fd().try_clone_to_owned().unwrap();
        let fd = [&own, &socket, &epoll][round];
        // The rest of the message never comes.
        client.send_bytes(&message(1, &Request::GetInfo, false)[..8], &[fd.as_fd()]).unwrap();
        drop((client, own));
        rig.wait(|server, _| !server.is_connected());
    }
    assert_eq!(rig.with(|server, _| server.counters().violations), 3);
    rig.client().device_info().unwrap();
}

#[test]
fn nothing_of_a_client_is_left_when_it_is_gone() {
    let rig = Rig::new();
    for round in 0..20 {
        let mut client = rig.client();
        let (ram, fds) = (memfd(1 << 20), [event(), event()]);
        client.map(Some(ram.as_fd()), 0, 0, 1 << 20, Access::READ_WRITE).unwrap();
        assign(&mut client, MSIX, &fds);
        client.send(&read_at(LATER), false, &[]).unwrap();
        // In the middle of a message, now and then.
        client.send_bytes(&message(1, &Request::GetInfo, false)[..round], &[fds[0].as_fd()]).ok();
        drop(client);
        rig.wait(|server, _| !server.is_connected());
        rig.with(|server, scratch| {
            assert_eq!((server.memory().windows(), server.memory().files()), (0, 0));
            assert_eq!(server.irqs_assigned(MSIX), 0);
            let late: Vec<_> = scratch.later.drain(..).collect();
            assert_eq!(late.len(), 1);
            assert!(!server.reply_read(late[0], &[0; 4]), "nobody waits for it");
            assert_eq!(scratch.events.last(), Some(&Event::Disconnected));
        });
    }
    let links = rig.with(|_, _| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("memfd:guest")).count()
    });
    assert!(links < 20, "{links} mappings left");
}

#[test]
fn a_second_client_waits_for_the_first_to_go() {
    let rig = Rig::new();
    let first = rig.client();
    let mut second = rig.stranger();
    let id = second.send(&Request::GetInfo, false, &[]).unwrap();
    rig.with(|_, _| ());
    assert_eq!(rig.with(|server, _| server.counters().connections), 1);
    drop(first);
    // Out of turn, but answered.
    let reply = second.receive().unwrap();
    assert_eq!((reply.header.id, reply.header.error), (id, Some(Errno::INVAL)));
    second.negotiate().unwrap();
    assert_eq!(rig.events(), [Event::Connected, Event::Disconnected, Event::Connected]);
}

#[test]
fn replies_may_come_later_and_in_any_order() {
    let rig = Rig::new();
    let mut client = rig.client();
    let ids: Vec<_> = (0..8).map(|n| client.send(&read_at(LATER + n * 4), false, &[]).unwrap()).collect();
    let write = Request::RegionWrite { offset: LATER, region: BAR0, data: &[0; 4] };
    let write_id = client.send(&write, false, &[]).unwrap();
    client.call(&Request::GetInfo, &[]).unwrap();
    rig.with(|server, scratch| {
        let later = std::mem::take(&mut scratch.later);
        assert_eq!(later.len(), 9);
        assert!(server.reply_done(later[8]));
        for (n, &id) in later[..8].iter().enumerate().rev() {
            assert!(match n {
                3 => server.reply_error(id, Errno::TIMEDOUT),
                _ => server.reply_read(id, &[n as u8; 4]),
            });
            assert!(!server.reply_read(id, &[0; 4]), "an answer is given once");
        }
    });
    assert_eq!(client.receive().unwrap().header.id, write_id);
    for n in (0..8).rev() {
        let reply = client.receive().unwrap();
        assert_eq!(reply.header.id, ids[n]);
        match n {
            3 => assert_eq!(reply.header.error, Some(Errno::TIMEDOUT)),
            _ => assert_eq!(reply.body[16..], [n as u8; 4]),
        }
    }
}

#[test]
fn an_answer_of_the_wrong_length_is_an_error_to_the_client() {
    let rig = Rig::new();
    let mut client = rig.client();
    for bytes in [0, 3, 5, 4096] {
        client.send(&read_at(LATER), false, &[]).unwrap();
        client.send(&Request::GetInfo, true, &[]).unwrap();
        rig.wait(|_, scratch| !scratch.later.is_empty());
        rig.with(move |server, scratch| {
            server.reply_read(scratch.later.pop().unwrap(), &vec![0; bytes]);
        });
        assert_eq!(client.receive().unwrap().header.error, Some(Errno::IO));
    }
}

#[test]
fn message_ids_of_the_client_may_be_all_the_same() {
    let rig = Rig::new();
    let mut client = rig.client();
    for offset in [LATER, LATER + 4] {
        client.send_bytes(&message(7, &read_at(offset), false), &[]).unwrap();
    }
    rig.wait(|_, scratch| scratch.later.len() == 2);
    rig.with(|server, scratch| {
        assert!(server.reply_read(scratch.later[1], &[2; 4]));
        assert!(server.reply_read(scratch.later[0], &[1; 4]));
    });
    for (offset, byte) in [(LATER + 4, 2), (LATER, 1)] {
        let body = client.receive().unwrap().body;
        assert_eq!(body[..8], offset.to_ne_bytes());
        assert_eq!(body[16..], [byte; 4]);
    }
}

#[test]
fn commands_without_a_place_to_wait_stay_in_the_socket() {
    let rig = Rig::new();
    let mut client = rig.client();
    for _ in 0..400 {
        client.send(&read_at(LATER), false, &[]).unwrap();
    }
    rig.wait(|_, scratch| scratch.later.len() == 256);
    for _ in 0..3 {
        rig.with(|server, scratch| {
            assert!(scratch.later.len() <= 256);
            for id in std::mem::take(&mut scratch.later) {
                assert!(server.reply_read(id, &[9; 4]));
            }
        });
    }
    for _ in 0..400 {
        assert_eq!(client.receive().unwrap().body[16..], [9; 4]);
    }
}

#[test]
fn a_client_that_reads_no_replies_is_no_longer_read_from() {
    let rig = Rig::new();
    let mut client = rig.client();
    let (mut sent, request) = (0u64, Request::RegionRead { offset: 0, region: BAR0, count: 4096 });
    rig.with(|_, scratch| scratch.log = false);
    rustix::io::ioctl_fionbio(&client, true).unwrap();
    while client.send(&request, false, &[]).is_ok() {
        sent += 1;
        assert!(sent < 100_000, "there is no bound");
    }
    let served = rig.with(|server, _| server.counters().messages);
    assert!(served < sent);
    rustix::io::ioctl_fionbio(&client, false).unwrap();
    for _ in 0..sent {
        assert_eq!(client.receive().unwrap().body.len(), 16 + 4096);
    }
}

#[test]
fn a_flood_of_posted_writes_waits_for_room_and_keeps_its_order() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.with(|_, scratch| scratch.room = 10);
    for n in 0..200u64 {
        client.write_posted(BAR0, n % 128 * 8, &n.to_ne_bytes()).unwrap();
    }
    client.send(&read_at(0), false, &[]).unwrap();
    rig.wait(|_, scratch| scratch.room == 0);
    for done in (10..200).step_by(10) {
        rig.with(move |_, scratch| {
            assert_eq!(scratch.posted, done, "no write without room");
            scratch.room = 10;
        });
        rig.wait(|_, scratch| scratch.room == 0);
    }
    rig.with(|_, scratch| {
        let writes: Vec<_> = scratch
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Write { data, .. } => Some(u64::from_ne_bytes(data[..].try_into().unwrap())),
                _ => None,
            })
            .collect();
        assert_eq!(writes, (0..200).collect::<Vec<_>>());
        assert!(!scratch.events.iter().any(|event| matches!(event, Event::Read { .. })));
        scratch.room = 1;
    });
    assert_eq!(client.receive().unwrap().body[16..], 128u32.to_ne_bytes());
}

#[test]
fn many_writes_in_one_message_stop_in_the_middle_when_there_is_no_room() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.with(|_, scratch| scratch.room = 3);
    let writes: Vec<_> = (0..10u64).map(|n| WriteOne::new(BAR0, n, &[n as u8]).unwrap()).collect();
    client.write_multi(&writes).unwrap();
    client.write_multi(&writes).unwrap();
    for done in [3, 6, 9, 12, 15, 18] {
        rig.wait(move |_, scratch| scratch.posted == done);
        rig.with(|_, scratch| scratch.room = 3);
    }
    rig.wait(|_, scratch| scratch.posted == 20);
    let data: Vec<_> = rig
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Write { data, .. } => Some(data[0]),
            _ => None,
        })
        .collect();
    assert_eq!(data, (0..10).chain(0..10).collect::<Vec<_>>());
}

#[test]
fn commands_other_than_accesses_need_no_room() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.with(|_, scratch| scratch.room = 0);
    client.device_info().unwrap();
    client.map(None, 0, 0, 0x1000, Access::READ).unwrap();
    client.set_irqs(IrqAction::Trigger, IrqData::None, (MSIX, 0, 0), &[]).unwrap();
}

#[test]
fn a_client_that_goes_while_it_waits_for_room_is_noticed() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.with(|_, scratch| scratch.room = 0);
    client.write_posted(BAR0, 0, &[1]).unwrap();
    rig.with(|_, _| ());
    drop(client);
    rig.wait(|server, _| !server.is_connected());
    assert_eq!(rig.events(), [Event::Connected, Event::Disconnected]);
}

#[test]
fn the_longest_messages_are_taken_and_longer_ones_end_the_connection() {
    let rig = Rig::new();
    let mut client = rig.client();
    let writes: Vec<_> = (0..200).map(|n| WriteOne::new(BAR0, n, &[1; 8]).unwrap()).collect();
    client.write_multi(&writes).unwrap();
    client.device_info().unwrap();
    let bytes = (HEADER_BYTES + 8 + 200 * 24) as u32;
    drop(client);
    for (command, bytes) in
        [(command::REGION_WRITE, bytes + 1), (command::REGION_WRITE, u32::MAX), (command::VERSION, bytes + 1)]
    {
        let mut client = rig.client();
        let header = Header { id: 0, command, bytes, reply: false, no_reply: false, error: None };
        client.send_bytes(&header.encode(), &[]).unwrap();
        assert!(matches!(client.receive(), Err(ClientError::Closed)));
    }
    rig.client().device_info().unwrap();
}

#[test]
fn a_stream_that_makes_no_sense_ends() {
    let rig = Rig::new();
    let command = Header { id: 0, command: 4, bytes: 16, reply: false, no_reply: false, error: None };
    let headers = [
        Header { bytes: 15, ..command }.encode(),
        Header { bytes: 0, ..command }.encode(),
        Header { reply: true, ..command }.encode(),
        [0xff; 16],
    ];
    for header in headers {
        let mut client = rig.client();
        client.send_bytes(&header, &[]).unwrap();
        assert!(matches!(client.receive(), Err(ClientError::Closed)), "{header:?}");
    }
    assert_eq!(rig.with(|server, _| server.counters().violations), 4);
    rig.client().device_info().unwrap();
}

#[test]
fn the_owner_can_send_the_client_away() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.with(|server, scratch| {
        assert!(server.set_info(info()).is_err());
        server.disconnect(scratch);
        let mut smaller = info();
        smaller.regions[0].bytes = 4096;
        server.set_info(smaller).unwrap();
    });
    assert!(client.device_info().is_err());
    assert_eq!(rig.client().region_info(0).unwrap().bytes, 4096);
}

#[test]
fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    // A listener that goes without removing its file, as one that is killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::bind(&path, info()).unwrap();
    assert!(matches!(Server::bind(&path, info()), Err(BindError::InUse(_))));
    drop(server);
    assert!(!path.exists());

    std::fs::write(&path, "data").unwrap();
    assert!(matches!(Server::bind(&path, info()), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
    let long = directory.path().join("x".repeat(200));
    assert!(matches!(Server::bind(&long, info()), Err(BindError::Os(..))));
}

#[test]
fn a_file_that_is_another_servers_by_now_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let first = Server::bind(&path, info()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _second = Server::bind(&path, info()).unwrap();
    drop(first);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_server_with_nothing_to_do_lets_its_owner_sleep() {
    let rig = Rig::new();
    let mut client = rig.client();
    let _waiting = Client::connect(rig.path(), Duration::from_secs(1)).unwrap();
    client.device_info().unwrap();
    let asleep = |rig: &Rig| {
        rig.with(|server, _| {
            let mut fds =
                [rustix::event::PollFd::from_borrowed_fd(server.fd(), rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&now)).unwrap() == 0
        })
    };
    assert!(asleep(&rig));
    // Nor while a message waits for room.
    rig.with(|_, scratch| scratch.room = 0);
    client.write_posted(BAR0, 0, &[1]).unwrap();
    client.write_posted(BAR0, 0, &[1]).unwrap();
    rig.wait(|_, _| true);
    std::thread::sleep(Duration::from_millis(5));
    assert!(asleep(&rig));
}

#[test]
fn accesses_at_speed_are_all_answered() {
    let rig = Rig::new();
    rig.with(|_, scratch| scratch.log = false);
    let mut client = rig.client();
    for n in 0..20_000u64 {
        client.write_posted(BAR0, n % 2048 * 8, &n.to_ne_bytes()).unwrap();
        if n % 64 == 0 {
            let mut back = [0; 8];
            client.read(BAR0, n % 2048 * 8, &mut back).unwrap();
            assert_eq!(u64::from_ne_bytes(back), n);
        }
    }
    client.device_info().unwrap();
    assert_eq!(rig.with(|_, scratch| scratch.posted), 20_000);
}

#[test]
fn a_client_that_is_left_with_unread_messages_finds_the_end_of_the_stream() {
    let rig = Rig::new();
    let mut client = rig.client();
    rig.with(|_, scratch| scratch.room = 0);
    let writer = std::thread::spawn(move || {
        while client.write_posted(BAR0, 0, &[1]).is_ok() {}
        client
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!writer.is_finished(), "the socket is not full");
    drop(rig);
    let mut client = writer.join().unwrap();
    assert!(matches!(client.receive(), Err(ClientError::Closed)));
}
