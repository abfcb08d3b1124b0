//! What every access goes through allocates nothing.

use std::os::fd::AsFd;
use std::time::Duration;

use etherslot_mem::{Access, GuestMemory};
use etherslot_vfio_user::message::{
    Capabilities, HEADER_BYTES, Header, IrqAction, IrqData, Request, SetIrqs, Version, irq, region,
};
use etherslot_vfio_user::{Answer, Client, DeviceInfo, Handler, MessageId, RegionInfo, Server};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Answers every second read later.
#[derive(Default)]
struct Device {
    later: Option<MessageId>,
    reads: u64,
    writes: u64,
}

impl Handler for Device {
    fn connected(&mut self) {}

    fn disconnected(&mut self) {}

    fn read(&mut self, id: MessageId, _region: u32, _offset: u64, data: &mut [u8]) -> Answer {
        data.fill(1);
        self.reads += 1;
        if self.reads.is_multiple_of(2) {
            self.later = Some(id);
            return Answer::Later;
        }
        Answer::Done
    }

    fn write(
        &mut self,
        _id: Option<MessageId>,
        _region: u32,
        _offset: u64,
        _data: &[u8],
        _memory: &GuestMemory,
    ) -> Answer {
        self.writes += 1;
        Answer::Done
    }

    fn reset(&mut self, _id: Option<MessageId>) -> Answer {
        Answer::Done
    }

    fn irqs_changed(&mut self, _index: u32) {}

    fn memory_changed(&mut self) {}

    fn room(&self) -> bool {
        true
    }
}

fn message(request: &Request<'_>, no_reply: bool) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    request.encode(&mut message);
    let (command, bytes) = (request.command(), message.len() as u32);
    let header = Header { id: 1, command, bytes, reply: false, no_reply, error: None };
    message[..HEADER_BYTES].copy_from_slice(&header.encode());
    message
}

#[test]
fn accesses_replies_copies_and_interrupts_allocate_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mut info = DeviceInfo::default();
    info.regions[0] = RegionInfo::read_write(4096);
    info.irqs[irq::MSIX as usize] = 1;
    let mut server = Server::bind(&path, info).unwrap();
    let mut device = Device::default();
    let mut client = Client::connect(&path, Duration::from_secs(10)).unwrap();

    let ram = memfd_create("steady", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&ram, 1 << 20).unwrap();
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let version = Version { major: 0, minor: 0, capabilities: Capabilities::default() };
    client.send(&Request::Version(version), true, &[]).unwrap();
    let Access { read: readable, write: writable } = Access::READ_WRITE;
    let map = Request::DmaMap { readable, writable, offset: 0, address: 0, bytes: 1 << 20 };
    client.send(&map, true, &[ram.as_fd()]).unwrap();
    let data = IrqData::Eventfd;
    let set = SetIrqs { action: IrqAction::Trigger, data, index: irq::MSIX, start: 0, count: 1 };
    client.send(&Request::SetIrqs(set), true, &[event.as_fd()]).unwrap();
    while server.poll(&mut device) {}
    assert_eq!(server.irqs_assigned(irq::MSIX), 1);

    let read = message(&Request::RegionRead { offset: 0, region: region::BAR0, count: 4096 }, false);
    let write = Request::RegionWrite { offset: 0, region: region::BAR0, data: &[1; 8] };
    let (posted, write) = (message(&write, true), message(&write, false));
    let mut replies = vec![0; 1 << 20];
    let mut data = [0; 4096];

    let counted = allocation_counter::measure(|| {
        for _ in 0..1000 {
            for message in [&posted, &read, &posted, &write, &read] {
                rustix::io::write(&client, message).unwrap();
            }
            while server.poll(&mut device) {}
            let id = device.later.take().unwrap();
            server.memory().write(0x100, &data).unwrap();
            server.memory().read(0x200, &mut data).unwrap();
            assert!(server.reply_read(id, &data));
            assert!(server.trigger(irq::MSIX, 0));
            rustix::io::read(&client, &mut replies).unwrap();
        }
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!((device.reads, device.writes), (2000, 3000));
}
