//! The admin command set as tools and drivers use it.

use crate::harness::*;
use etherslot_devices::nvme::{Config, ConfigError, Namespace, Nvme};
use etherslot_pci::function::{BarKind, Function};

#[test]
fn identify_answers_what_1_4_demands_and_refuses_the_rest() {
    let (mut host, _disk) = Host::ready();
    for (cns, nsid, expected) in [
        (0x00, 1, Ok(())),
        (0x00, 0, Err(status::INVALID_NAMESPACE)),
        (0x00, 2, Err(status::INVALID_NAMESPACE)),
        (0x00, NSID_ALL, Err(status::INVALID_NAMESPACE)),
        (0x01, 0, Ok(())),
        (0x02, 0, Ok(())),
        (0x02, NSID_ALL, Err(status::INVALID_NAMESPACE)),
        (0x02, NSID_ALL - 1, Err(status::INVALID_NAMESPACE)),
        (0x02, NSID_ALL - 2, Ok(())),
        (0x03, 1, Ok(())),
        (0x03, 9, Err(status::INVALID_NAMESPACE)),
        (0x04, 0, Err(status::INVALID_FIELD)),
        (0x06, 0, Ok(())),
        (0x08, 1, Err(status::INVALID_FIELD)),
        (0x10, 0, Ok(())),
        (0x11, 1, Ok(())),
        (0x12, 1, Ok(())),
        (0x13, 0, Ok(())),
        (0x14, 0, Err(status::INVALID_FIELD)),
        (0x1c, 0, Err(status::INVALID_FIELD)),
    ] {
        assert_eq!(host.identify(cns, nsid).map(|_| ()), expected, "CNS {cns:#x}, NSID {nsid:#x}");
    }
    assert_eq!(host.identify(2, 0).unwrap()[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(host.identify(0x13, 0).unwrap()[..4], [1, 0, 1, 0]);
}

#[test]
fn identifiers_agree_wherever_they_are_shown() {
    let (mut host, _disk) = Host::ready();
    let namespace = host.identify(0, 1).unwrap();
    let descriptors = host.identify(3, 1).unwrap();
    assert_eq!(namespace[120..128], descriptors[4..12], "EUI64");
    assert_eq!(namespace[104..120], descriptors[16..32], "NGUID");
    let nqn = host.nvme.nqn().to_owned();
    let controller = host.identify(1, 0).unwrap();
    assert_eq!(&controller[768..768 + nqn.len()], nqn.as_bytes());
    assert_eq!(controller[73..76], [0x10, 0xe5, 0x02], "IEEE OUI, little-endian");
}

/// What Linux (nvme-pci) does at probe, in its order: none of it may fail.
#[test]
fn a_linux_probe_meets_no_error() {
    let disk = disk(1 << 20);
    let mut host = Host::new(config(&disk, 512));
    host.enable();
    let controller = host.identify(1, 0).unwrap();
    host.log_page(5, 4096).unwrap();
    let ms = host.alloc(4096);
    host.store64(ms, &[1_700_000_000_000]);
    let done = host.admin(Entry::new(9).prps(ms, 0).dword(10, 0x0e));
    assert_eq!(done.status, status::SUCCESS, "Timestamp");
    host.log_page(2, 512).unwrap();
    let done = host.admin(Entry::new(9).dword(10, 7).dword(11, 3 << 16 | 3));
    assert_eq!((done.status, done.result), (status::SUCCESS, 3 << 16 | 3));
    (1..=4).for_each(|qid| host.create_pair(qid, 16));
    let oaes = u32::from_le_bytes(controller[92..96].try_into().unwrap());
    assert_eq!(host.admin(Entry::new(9).dword(10, 0x0b).dword(11, oaes)).status, status::SUCCESS);
    host.submit(0, Entry::new(0x0c));
    host.identify(6, 0).unwrap();
    host.identify(2, 0).unwrap();
    host.identify(3, 1).unwrap();
    host.identify(0, 1).unwrap();
    host.identify(1, 0).unwrap();
    assert_eq!(host.smart(176), 0, "nothing stands in the error log");
    (1..=4).for_each(|qid| host.delete_pair(qid));
    host.write32(0x14, 0x0046_4001);
    host.run();
    assert_eq!(host.csts() >> 2 & 3, 2, "shutdown complete");
}

#[test]
fn features_by_command() {
    let (mut host, _disk) = Host::ready();
    let get = |fid: u32| Entry::new(0x0a).dword(10, fid);
    let set = |fid: u32, value| Entry::new(9).dword(10, fid).dword(11, value);
    for (row, entry, status, result) in [
        ("arbitration", get(1), status::SUCCESS, 5),
        ("power state", get(2), status::SUCCESS, 0),
        ("temperature", get(4), status::SUCCESS, 343),
        ("cache", get(6), status::SUCCESS, 1),
        ("cache, capabilities", get(6 | 3 << 8), status::SUCCESS, 4),
        ("queues", get(7), status::SUCCESS, 7 << 16 | 7),
        ("events", get(0x0b), status::SUCCESS, 0),
        ("recovery", get(5).nsid(1), status::SUCCESS, 0),
        ("recovery of no namespace", get(5), status::INVALID_NAMESPACE, 0),
        ("no such feature", get(0x0d), status::INVALID_FIELD, 0),
        ("save", set(6 | 1 << 31, 1), status::NOT_SAVEABLE, 0),
        ("power state 1", set(2, 1), status::INVALID_FIELD, 0),
        ("queues after queues", set(7, 0), status::COMMAND_SEQUENCE, 0),
        ("cache of a namespace", set(6, 1).nsid(1), 0x10f, 0),
    ] {
        let done = host.admin(entry);
        assert_eq!((done.status, done.result), (status, result), "{row}");
    }
    let at = host.alloc(4096);
    host.store(at, &[0xab; 16]);
    assert_eq!(host.admin(set(0x81, 1).prps(at, 0)).status, status::SUCCESS);
    host.store(at, &[0; 16]);
    assert_eq!(host.admin(get(0x81).dword(11, 1).prps(at, 0)).status, status::SUCCESS);
    assert_eq!(host.memory(at, 16), [0xab; 16]);
}

#[test]
fn log_pages_by_command() {
    let (mut host, _disk) = Host::ready();
    let firmware = host.log_page(3, 512).unwrap();
    assert_eq!(firmware[0], 1);
    assert_eq!(firmware[8..16], host.identify(1, 0).unwrap()[64..72], "FRS1 is FR");
    assert_eq!(host.log_page(0x70, 512), Err(status::LOG_PAGE));
    assert_eq!(host.log_page(4, 4096).unwrap(), [0; 4096]);
    assert_eq!(host.log_page(1, 64 * 64).unwrap(), {
        let mut log = vec![0; 64 * 64];
        let entry = host.log_page(1, 64).unwrap();
        log[..64].copy_from_slice(&entry);
        log
    });
    let at = host.alloc(4096);
    let smart = Entry::new(2).prps(at, 0).dword(10, 127 << 16 | 2);
    assert_eq!(host.admin(smart.nsid(1)).status, status::INVALID_FIELD, "not kept by namespace");
    assert_eq!(host.admin(smart).status, status::SUCCESS);
    assert_eq!(host.admin(smart.dword(12, 2)).status, status::INVALID_FIELD, "offset not of dwords");
    assert_eq!(host.admin(smart.dword(12, 1024)).status, status::INVALID_FIELD, "beyond the page");
    assert_eq!(host.admin(smart.dword(11, 0xffff)).status, status::INVALID_FIELD, "beyond MDTS");
}

#[test]
fn what_another_command_left_in_a_buf_is_not_shown() {
    let (mut host, _disk) = Host::ready();
    for round in 0..40 {
        host.write_blocks(0, &[0x5a; 4096], 512);
        let page = host.log_page(3, 4096).unwrap();
        assert!(page[16..].iter().all(|byte| *byte == 0), "{round}");
    }
}

#[test]
fn event_requests_wait_are_limited_told_and_aborted() {
    let (mut host, _disk) = Host::ready();
    let cids: Vec<u16> = (0..4).map(|_| host.submit(0, Entry::new(0x0c))).collect();
    host.run();
    assert!(host.reap(0).is_empty());
    assert_eq!(host.admin(Entry::new(0x0c)).status, status::AER_LIMIT);
    // A doorbell of a queue that does not exist.
    host.write32(0x1000 + 5 * 8, 1);
    host.run();
    let told = host.reap(0);
    assert_eq!((told[0].cid, told[0].status, told[0].result), (cids[0], 0, 0x0001_0000));
    // One of the type at a time, until the log page is read.
    host.write32(0x1000 + 8, 99);
    host.run();
    assert!(host.reap(0).is_empty());
    let log = host.submit(0, Entry::new(2).nsid(NSID_ALL).prps(0x9000, 0).dword(10, 15 << 16 | 1));
    host.run();
    let told = host.reap(0);
    assert_eq!(told[0].cid, log);
    assert_eq!((told[1].cid, told[1].result), (cids[1], 0x0001_0100), "invalid value");
    let abort = host.submit(0, Entry::new(8).dword(10, u32::from(cids[3]) << 16));
    host.run();
    let mut told = host.reap(0);
    told.sort_by_key(|completion| completion.cid);
    assert_eq!((told[0].cid, told[0].status), (cids[3], status::ABORT_REQUESTED));
    assert_eq!((told[1].cid, told[1].status, told[1].result), (abort, 0, 0));
}

#[test]
fn abort_ends_a_command_that_waits_and_says_when_it_could_not() {
    let disk = disk(1 << 20);
    let mut host = Host::new(Config { small_buffers: 2, ..config(&disk, 512) });
    host.enable();
    host.create_pair(1, 16);
    host.bus.hold_reads = false;
    let at = host.alloc(4096);
    // The first two hold the Bufs: their data can't leave.
    let cids: Vec<u16> = (0..3).map(|_| host.put(1, Entry::blocks(READ, 0, 8).prps(at, 0))).collect();
    host.ring(1);
    host.step();
    host.bus.write_room = 0;
    host.steps(5);
    let abort = |cid: u16| Entry::new(8).dword(10, u32::from(cid) << 16 | 1);
    host.submit(0, abort(cids[2]));
    host.submit(0, abort(cids[0]));
    host.submit(0, abort(0x7abc));
    host.steps(5);
    host.bus.write_room = usize::MAX;
    host.run();
    let results: Vec<u32> = host.reap(0).iter().map(|completion| completion.result).collect();
    assert_eq!(results, [0, 1, 1]);
    let mut ended = host.reap(1);
    ended.sort_by_key(|completion| completion.cid);
    assert!(ended.iter().map(|completion| completion.status).eq([0, 0, status::ABORT_REQUESTED]));
}

#[test]
fn firmware_and_doorbell_buffer_commands_are_refused_as_oacs_says() {
    let (mut host, _disk) = Host::ready();
    for opcode in [0x0d, 0x10, 0x11, 0x14, 0x15, 0x18, 0x19, 0x1a, 0x7c, 0x81, 0x82, 0x84] {
        assert_eq!(host.admin(Entry::new(opcode)).status, status::INVALID_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn configuration_space_is_that_of_an_nvme_controller() {
    let disk = disk(1 << 20);
    let nvme = Nvme::new(Config { cmb_bytes: Some(1 << 20), ..config(&disk, 512) }).unwrap();
    let spec = nvme.spec();
    assert_eq!(spec.class, [1, 8, 2]);
    assert_eq!((spec.bars[0].index, spec.bars[0].kind), (0, BarKind::Memory64));
    assert_eq!((spec.bars[1].index, spec.bars[1].bytes), (2, 1 << 20));
    let msix = spec.msix.unwrap();
    assert_eq!(msix.vectors, 9);
    let table_end = u64::from(msix.table_offset) + 16 * 65;
    assert!(table_end <= u64::from(msix.pba_offset) && u64::from(msix.pba_offset) < spec.bars[0].bytes);
    assert_eq!((spec.msi_vectors, spec.intx), (32, true));
    let nvme = Nvme::new(Config { msix: false, ..config(&disk, 512) }).unwrap();
    assert_eq!(nvme.spec().msix, None);
}

#[test]
fn impossible_configurations_are_refused_with_the_field() {
    let disk = disk(1 << 20);
    let field = |config: Config| match Nvme::new(config).unwrap_err() {
        ConfigError::Text { field, .. } | ConfigError::Number { field, .. } => field,
        ConfigError::Namespace { .. } => "namespace",
    };
    let base = || config(&disk, 512);
    assert_eq!(field(Config { serial: String::new(), ..base() }), "serial");
    assert_eq!(field(Config { serial: "x".repeat(21), ..base() }), "serial");
    assert_eq!(field(Config { model: "ü".into(), ..base() }), "model");
    assert_eq!(field(Config { max_queue_pairs: 65, ..base() }), "max_queue_pairs");
    assert_eq!(field(Config { cmb_bytes: Some(5000), ..base() }), "cmb_bytes");
    assert_eq!(field(Config { max_transfer_bytes: 3 << 20, ..base() }), "max_transfer_bytes");
    assert_eq!(field(base().with_max_transfer(32 << 20)), "max_transfer_bytes");
    assert_eq!(field(Config { middle_buffers: 2, ..base() }), "middle_buffers");
    assert_eq!(field(Config { middle_buffers: 1, ..base().with_max_transfer(2 << 20) }), "middle_buffers");
    assert_eq!(field(Config { namespaces: Vec::new(), ..base() }), "namespaces");
    let namespaces = vec![Namespace::new(Box::new(disk.medium()), 1024)];
    assert_eq!(field(Config { namespaces, ..base() }), "namespace");
}

#[test]
fn a_larger_transfer_takes_no_more_memory() {
    let memory = |config: &Config| {
        config.large_buffers * config.max_transfer_bytes + config.middle_buffers * (1 << 20)
    };
    let disk = disk(1 << 20);
    for shift in 12..=24 {
        let namespaces = vec![Namespace::new(Box::new(disk.medium()), 512)];
        let config = Config { namespaces, ..Config::default() }.with_max_transfer(1 << shift);
        assert!(memory(&config) <= memory(&Config::default()), "{config:?}");
        assert_eq!(Nvme::new(config).unwrap().max_transfer_bytes(), 1 << shift);
    }
}
