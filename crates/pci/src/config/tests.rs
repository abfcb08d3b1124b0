use super::builder::{Builder, Register};
use super::capability::PortType;
use super::*;
use crate::function::{BarKind, BarSpec, FunctionSpec, MsixSpec};
use proptest::prelude::*;

fn spec() -> FunctionSpec {
    FunctionSpec {
        vendor: 0x1B96,
        device: 0x2500,
        subsystem_vendor: 0x1B96,
        subsystem: 0x2500,
        revision: 1,
        class: [1, 8, 2],
        bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: 0x4000 }],
        msix: Some(MsixSpec { vectors: 65, bar: 0, table_offset: 0x2000, pba_offset: 0x3000 }),
        msi_vectors: 32,
        intx: true,
        serial: Some(0x0011_2233_4455_6677),
    }
}

fn endpoint() -> ConfigSpace {
    let spec = spec();
    let mut builder = Builder::new();
    builder.type0(&spec);
    builder.power_management();
    builder.msi(spec.msi_vectors);
    builder.msix(&spec.msix.unwrap());
    builder.express(PortType::Endpoint);
    builder.aer();
    builder.serial_number(spec.serial.unwrap());
    builder.build()
}

fn ports() -> [ConfigSpace; 3] {
    [PortType::Endpoint, PortType::Upstream, PortType::Downstream(3)].map(|kind| {
        let mut builder = Builder::new();
        if kind == PortType::Endpoint {
            builder.type0(&spec());
        } else {
            builder.type1((1, 2), 3);
        }
        builder.power_management();
        builder.express(kind);
        builder.aer();
        builder.build()
    })
}

#[test]
fn the_space_of_an_endpoint_is_what_it_was() {
    let space = endpoint();
    // A driver, and a host that saved it, know these places.
    let expected = [
        (0x00, 0x2500_1B96),
        (0x04, 0x0010_0000),
        (0x08, 0x0108_0201),
        (0x10, 0x0000_0004),
        (0x2C, 0x2500_1B96),
        (0x34, 0x0000_0040),
        (0x3C, 0x0000_0100),
        (0x40, 0x0003_5001),
        (0x44, 0x0000_0008),
        (0x50, 0x018A_7005),
        (0x70, 0x0040_8011),
        (0x74, 0x0000_2000),
        (0x78, 0x0000_3000),
        (0x80, 0x0002_0010),
        (0x84, 0x1000_8FE2),
        (0x88, 0x0000_2910),
        (0x8C, 0x0040_0043),
        (0x90, 0x1043_0000),
        (0xA4, 0x0001_0016),
        (0xAC, 0x0000_000E),
        (0xB0, 0x0000_0003),
        (0x100, 0x1502_0001),
        (0x10C, 0x0006_0010),
        (0x114, 0x0000_2000),
        (0x150, 0x0001_0003),
        (0x154, 0x4455_6677),
        (0x158, 0x0011_2233),
    ];
    for (at, value) in expected {
        assert_eq!(space.u32(at), value, "{at:#x}: {:#010x}", space.u32(at));
    }
}

#[test]
fn capabilities_do_not_overlap() {
    let mut taken = [false; BYTES];
    let places = [(0x40, 8), (0x50, 0x18), (0x70, 0xC), (0x80, 0x3C), (0x100, 0x2C), (0x150, 0xC)];
    for (start, bytes) in places {
        assert!(taken[start..start + bytes].iter().all(|taken| !taken));
        taken[start..start + bytes].fill(true);
    }
    let (space, rest) = (endpoint(), 0x40..BYTES);
    assert!(rest.filter(|&at| !taken[at]).all(|at| space.bytes[at] == 0 && space.masks.writable[at] == 0));
}

#[test]
fn a_register_out_of_the_space_is_cut_to_it() {
    let mut space = endpoint();
    space.write(0xFFFF, 0xF, [0xFF; 4]);
    assert_eq!(space.read(0xF003), space.read(0));
    assert_eq!((space.u8(0x1000), space.u16(0x1001)), (0x96, 0x1B96));
}

#[test]
fn a_variant_keeps_the_rules_and_changes_values() {
    let space = endpoint();
    let mut other = space.variant([Register::fixed(0x154, 4, 7)]);
    assert_eq!(other.u32(0x154), 7);
    other.write(0x154, 0xF, [0xFF; 4]);
    other.reset(ConfigReset::Power);
    assert_eq!((other.u32(0x154), space.u32(0x154)), (7, 0x4455_6677));
    assert!(Arc::ptr_eq(&space.masks, &other.masks));
}

#[test]
fn no_bit_is_both_writable_and_cleared_by_one() {
    for space in ports().into_iter().chain([endpoint()]) {
        for at in 0..BYTES {
            assert_eq!(space.masks.writable[at] & space.masks.clearable[at], 0, "{at:#x}");
        }
    }
}

proptest! {
    /// Whatever is written: read-only bits keep their value, RW1C bits are never set, and power-on is power-on.
    #[test]
    fn writes_change_what_may_change_only(
        which in 0..4_usize,
        raised in prop::collection::vec((0..BYTES as u16 / 2, any::<u16>()), 0..20),
        writes in prop::collection::vec((any::<u16>(), 0..16_u8, any::<[u8; 4]>()), 0..200),
        aimed in prop::collection::vec((0..0x160_u16, 0..16_u8, any::<[u8; 4]>()), 0..200),
    ) {
        let fresh = if which == 3 { endpoint() } else { ports()[which].clone() };
        let mut space = fresh.clone();
        for (at, bits) in raised {
            let clearable = u16::from_le_bytes([0, 1].map(|lane| space.masks.clearable[2 * at as usize + lane]));
            space.raise_u16(2 * at, bits & clearable);
        }
        for (register, enables, data) in writes.into_iter().chain(aimed) {
            let before = space.clone();
            space.write(register, enables, data);
            for at in 0..BYTES {
                let changed = before.bytes[at] ^ space.bytes[at];
                let rises = changed & space.bytes[at];
                let masks = &space.masks;
                prop_assert_eq!(changed & !(masks.writable[at] | masks.clearable[at]), 0);
                prop_assert_eq!(rises & masks.clearable[at], 0);
                let written = at & !3 == dw(register) && enables >> (at & 3) & 1 != 0;
                prop_assert!(changed == 0 || written);
                if written {
                    prop_assert_eq!((space.bytes[at] ^ data[at & 3]) & masks.writable[at], 0);
                }
            }
        }
        let before = space.clone();
        space.reset(ConfigReset::FunctionLevel);
        for at in 0..BYTES {
            let kept = space.masks.sticky[at] | space.masks.kept_by_flr[at];
            prop_assert_eq!((space.bytes[at] ^ before.bytes[at]) & kept, 0);
            prop_assert_eq!((space.bytes[at] ^ fresh.bytes[at]) & !kept, 0);
        }
        space.reset(ConfigReset::Power);
        prop_assert_eq!(&space.bytes, &fresh.bytes);
    }
}
