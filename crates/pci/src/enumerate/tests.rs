use super::*;
use crate::endpoint::{Endpoint, EndpointConfig};
use crate::function::{BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ResetKind};
use proptest::prelude::*;

struct Inert;

impl Function for Inert {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0,
            subsystem: 0,
            revision: 0,
            class: [2, 0, 0],
            bars: vec![
                BarSpec { index: 0, kind: BarKind::Memory32, bytes: 0x2000 },
                BarSpec { index: 1, kind: BarKind::Memory64, bytes: 1 << 33 },
                BarSpec { index: 4, kind: BarKind::Prefetchable64, bytes: 0x4000 },
            ],
            msix: Some(MsixSpec { vectors: 2048, bar: 1, table_offset: 0x8000, pba_offset: 0x1_0000 }),
            msi_vectors: 16,
            intx: true,
            serial: Some(1),
        }
    }
    fn bar_read(&mut self, _bar: u8, _offset: u64, _data: &mut [u8]) {}
    fn bar_write(&mut self, _bar: u8, _offset: u64, _data: &[u8]) {}
    fn read_completed(&mut self, _: u64, _: u64, _: usize, _: Result<&[u8], Fault>) {}
    fn poll(&mut self, _bus: &mut dyn Bus) -> bool {
        false
    }
    fn reset(&mut self, _kind: ResetKind) {}
}

/// The image of a real Endpoint, and its BARs after all ones were written.
fn sized() -> ([u8; BYTES], [u32; 6]) {
    let endpoint = Endpoint::new(Box::new(Inert), EndpointConfig::default());
    let mut config = endpoint.config().clone();
    let image = *config.image();
    let sizes = [0, 1, 2, 3, 4, 5].map(|bar| {
        config.write(reg::BAR0 + 4 * bar, 0xF, [0xFF; 4]);
        config.u32(reg::BAR0 + 4 * bar)
    });
    (image, sizes)
}

#[test]
fn an_endpoint_is_read_as_it_was_specified() {
    let (image, sizes) = sized();
    let layout = Layout::parse(&image, &sizes);
    let bar = |bytes, is_64bit, is_prefetchable| Some(BarLayout { bytes, is_64bit, is_prefetchable });
    let bars =
        [bar(0x2000, false, false), bar(1 << 33, true, false), None, None, bar(0x4000, true, true), None];
    assert_eq!(layout.bars, bars);
    assert_eq!(
        (layout.vendor, layout.device, layout.class, layout.interrupt_pin),
        (0x1234, 0x5678, [2, 0, 0], 1)
    );
    assert_eq!(
        layout.msi,
        Some(MsiLayout { capability: 0x50, vectors: 16, is_64bit: true, is_maskable: true })
    );
    let msix = MsixLayout {
        capability: 0x70,
        vectors: 2048,
        bar: 1,
        table_offset: 0x8000,
        pba_bar: 1,
        pba_offset: 0x1_0000,
    };
    assert_eq!(layout.msix, Some(msix));
    let places = (layout.power_management, layout.pcie, layout.aer, layout.serial_number);
    assert_eq!(places, (Some(0x40), Some(0x80), Some(0x100), Some(0x150)));
}

#[test]
fn the_pointer_to_a_capability_is_found() {
    let (image, sizes) = sized();
    let layout = Layout::parse(&image, &sizes);
    assert_eq!(layout.pointer_to(&image, 0x40), Some(0x34));
    assert_eq!(layout.pointer_to(&image, 0x70), Some(0x51));
    assert_eq!(layout.pointer_to(&image, 0x72), None);
}

#[test]
fn a_looping_list_ends() {
    let (mut image, sizes) = sized();
    image[0x41] = 0x40;
    image[0x103] = 0x10;
    image[0x102] = 0x02;
    assert_eq!(capabilities(&image).count(), MAX_CAPABILITIES);
    assert_eq!(extended_capabilities(&image).count(), MAX_EXTENDED_CAPABILITIES);
    assert_eq!(Layout::parse(&image, &sizes).msi, None);
}

#[test]
fn error_reporting_that_ends_outside_of_the_space_is_not_there() {
    let (mut image, sizes) = sized();
    for (at, is_there) in [(0x104_u16, true), (0xFD4, true), (0xFD8, false), (0xFFC, false)] {
        image[0x100..].fill(0);
        image[0x100..0x104].copy_from_slice(&(u32::from(at) << 20 | 0x1_0002).to_le_bytes());
        let place = at as usize;
        image[place..place + 4].copy_from_slice(&0x1_0001_u32.to_le_bytes());
        assert_eq!(Layout::parse(&image, &sizes).aer, is_there.then_some(at), "{at:#x}");
    }
}

#[test]
fn windows_are_rounded_out_and_divided_at_4_gib() {
    let (image, sizes) = sized();
    let layout = Layout::parse(&image, &sizes);
    let windows = layout.windows(&[0xFEB0_0000, 0x40_0000_0000, 0, 0, 0xFE01_4000, 0]);
    let expected = [(0x20, 0xFEB0_FE00), (0x24, 0xFFF0_0000), (0x28, 0x40), (0x2C, 0x41)];
    assert_eq!(windows, expected);
}

#[test]
fn without_addresses_the_windows_are_closed() {
    let expected = [(0x20, 0x0000_FFF0), (0x24, 0x0000_FFF0), (0x28, u32::MAX), (0x2C, 0)];
    assert_eq!(Windows::default().registers(), expected);
}

#[test]
fn windows_of_several_functions_are_joined() {
    let mut windows = Windows::default();
    windows.cover(0xE000_0000, 0x1000);
    windows.cover(0xE050_0000, 0x1000);
    windows.cover(u64::MAX, 2);
    windows.cover(0x1000, 0);
    assert_eq!(windows.registers()[0], (0x20, 0xE050_E000));
    assert_eq!(bus_numbers(1, 2, 0xFF), 0x00FF_0201);
}

#[test]
fn sizes_that_are_none_are_no_bar() {
    let image = [0; BYTES];
    let bars = |sizes| Layout::parse(&image, &sizes).bars;
    assert_eq!(bars([0; 6]), [None; 6]);
    // I/O, a gap in the ones, a 64-bit one that is cut off, all bits fixed.
    assert_eq!(bars([0xFFFF_FF01, 0xFF0F_0000, 0, 0, 0, 0xFFFF_0004]), [None; 6]);
    assert_eq!(bars([0x4, 0, 0x4, 1, 0, 0]), [None; 6]);
}

proptest! {
    /// Any bytes are read without a panic, and what is found can be used.
    #[test]
    fn any_image_is_survived(
        seed in any::<u64>(),
        sizes in any::<[u32; 6]>(),
        addresses in any::<[u64; 6]>(),
        pokes in prop::collection::vec((0..BYTES, any::<u8>()), 0..64),
    ) {
        let (mut image, real) = sized();
        if seed & 1 == 0 {
            let mut state = seed | 1;
            for byte in &mut image {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                *byte = (state >> 56) as u8;
            }
        }
        for (at, value) in pokes {
            image[at] = value;
        }
        let layout = Layout::parse(&image, if seed & 2 == 0 { &sizes } else { &real });
        for bar in layout.bars.iter().flatten() {
            prop_assert!(bar.bytes.is_power_of_two());
        }
        if let Some(msix) = layout.msix {
            let bar = layout.bars[msix.bar as usize].unwrap();
            prop_assert!(u64::from(msix.table_offset) + 16 * u64::from(msix.vectors) <= bar.bytes);
        }
        if let Some(msi) = layout.msi {
            prop_assert!(msi.vectors <= 32);
        }
        for capability in [0x40, 0x50, 0] {
            layout.pointer_to(&image, capability);
        }
        layout.windows(&addresses);
    }
}
