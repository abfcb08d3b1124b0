//! The same frames in UDP, where no raw Ethernet is to be had.

use std::process::Command;

use etherslot_lab::{
    Cache, Daemon, Guest, GuestDevice, GuestOptions, INTERFACE, Net, NetOptions, Role, Run, Side,
};

use crate::story::{LOAD, MIB, SOON, Story, complaints, verified};

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guest_uses_a_disk_over_udp() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let run = Run::new("udp").unwrap();
    let net = Net::new(&run, NetOptions { mtu: 1500 }).unwrap();
    for (side, address) in [(Side::Host, "10.7.0.1/24"), (Side::Box, "10.7.0.2/24")] {
        let namespace = net.namespace(side);
        let added = Command::new("ip")
            .args(["-n", &namespace, "address", "add", address, "dev", INTERFACE])
            .status()
            .unwrap();
        assert!(added.success());
    }
    let disk = run.disk_image("disk.img", 128 * MIB).unwrap();
    let socket = run.path("disk0.sock");
    let box_config = format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"udp\"\nlisten = \"10.7.0.2:4700\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"UDP0001\"\n\
         [[device.namespace]]\npath = \"{}\"\n",
        disk.display()
    );
    let host_config = format!(
        "[node]\nname = \"host\"\n[link]\nkind = \"udp\"\nlisten = \"10.7.0.1:0\"\n\
         [[slot]]\ndevice = \"disk0\"\nbox = \"10.7.0.2:4700\"\nsocket = \"{}\"\n",
        socket.display()
    );
    let mut io_box = Daemon::start(&run, &net, Role::Box, "box", &box_config).unwrap();
    let mut host = Daemon::start(&run, &net, Role::Host, "host", &host_config).unwrap();
    let devices = vec![GuestDevice::VfioUser { socket, id: "UDP0001".to_owned() }];
    let mut guest = Guest::start(&run, &cache, &GuestOptions { devices, ..GuestOptions::default() }).unwrap();
    story.tell("the guest is up");
    let name = guest.nvme("UDP0001", SOON).unwrap();
    for (area_mib, block_bytes, depth) in [((0, 4), 4096, 1), ((4, 16), 4096, 32), ((20, 64), 128 << 10, 8)] {
        guest.fio(&verified(&name.disk, area_mib, block_bytes, depth), LOAD).unwrap();
    }
    assert_eq!(complaints(&guest), Vec::<String>::new());
    story.tell("all is read back as it was written");
    assert!(guest.power_off(SOON).unwrap().success());
    for daemon in [&mut host, &mut io_box] {
        assert_eq!(daemon.stop().unwrap().code(), Some(0), "{}", daemon.log());
    }
}
