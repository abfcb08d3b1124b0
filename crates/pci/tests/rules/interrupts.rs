//! INTx, MSI and MSI-X (2.2.8.1, 6.1, 7.7).

use etherslot_pci::function::InterruptMode;
use etherslot_wire::tlp::{Op, Routing, code};

use crate::Rule;
use crate::support::{Act, Bench, COMMAND, Host, MSI, MSIX, bar2, function, spec};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "2.2.8.1",
        "INTA is asserted and deasserted by Messages to the other end of the Link, once for each change",
        intx_is_a_pair_of_messages,
    ),
    Rule(
        "7.5.1.1.4",
        "Interrupt Status is set while INTA is pending, even if it is disabled",
        interrupt_status_follows_inta,
    ),
    Rule(
        "7.5.1.1.3",
        "Interrupt Disable deasserts an asserted INTA, and its end asserts it again",
        interrupt_disable_deasserts_inta,
    ),
    Rule("7.5.1.1.3", "Bus Master Enable does not keep INTx Messages back", intx_needs_no_bus_master_enable),
    Rule("6.1.4", "A Function with MSI or MSI-X enabled does not use INTx", msi_takes_the_place_of_intx),
    Rule(
        "7.5.1.1.13",
        "A Function whose Interrupt Pin is 0 sends no INTx Message",
        a_function_without_a_pin_has_no_intx,
    ),
    Rule(
        "6.1.4.1",
        "An MSI is a Memory Write of one DW; vectors differ in the low bits of the data",
        msi_writes_its_data_to_its_address,
    ),
    Rule(
        "7.7.1.2",
        "Multiple Message Enable above Multiple Message Capable does not give more vectors",
        msi_uses_no_more_vectors_than_it_has,
    ),
    Rule(
        "6.1.4.3",
        "A masked vector sets its Pending Bit and fires when it is unmasked",
        a_masked_msi_is_pending_until_it_is_unmasked,
    ),
    Rule("7.7.1.8", "Software can't change Pending Bits", pending_bits_are_read_only),
    Rule(
        "7.5.1.1.3",
        "Without Bus Master Enable no MSI is sent; it is pending until then",
        a_message_is_a_memory_write_of_a_bus_master,
    ),
    Rule(
        "6.1.4.2",
        "An MSI-X message is what the vector's table entry says",
        msix_vectors_have_their_own_address_and_data,
    ),
    Rule(
        "7.7.2.4",
        "After a reset all vectors are masked, and their other fields are 0",
        msix_vectors_are_masked_at_first,
    ),
    Rule(
        "7.7.2",
        "Table and PBA are the Endpoint's; what is beside them is the Function's",
        the_function_does_not_see_its_vector_table,
    ),
    Rule(
        "6.1.4.3",
        "A masked vector is in the PBA and fires when it is unmasked",
        a_masked_msix_vector_is_pending_until_it_is_unmasked,
    ),
    Rule(
        "7.7.2.2",
        "Function Mask keeps all vectors pending; its end lets them fire",
        the_function_mask_masks_all_vectors,
    ),
    Rule("7.7.2", "Writes to the PBA have no effect", the_pending_array_is_read_only),
    Rule(
        "6.1.4",
        "An interrupt is not lost for want of room",
        a_message_that_finds_no_room_is_asked_for_again,
    ),
    Rule(
        "6.1.4",
        "A Function with Interrupt Disable set and neither MSI nor MSI-X enabled does not interrupt",
        without_any_mode_interrupts_go_nowhere,
    ),
];

const ADDRESS: u64 = 0x1234_5678_FEE0_0000;
const INTX_DISABLE: u32 = 1 << 10;

fn enable_msi(bench: &mut Bench, enabled_log2: u32) {
    bench.set_reg(MSI + 4, ADDRESS as u32);
    bench.set_reg(MSI + 8, (ADDRESS >> 32) as u32);
    bench.set_reg(MSI + 12, 0x40);
    bench.set_reg(MSI, 1 << 16 | enabled_log2 << 20);
    bench.host.take();
}

/// Vector `n` writes `0x100 + n` to its own address.
fn enable_msix(bench: &mut Bench) {
    for vector in 0..70 {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&(ADDRESS + 16 * vector).to_le_bytes());
        entry[8..12].copy_from_slice(&(0x100 + vector as u32).to_le_bytes());
        bench.mem_write(0, bar2(0) + 0x1100 + 16 * vector, &entry);
    }
    bench.set_reg(MSIX, 1 << 31);
    bench.host.take();
}

/// The DWs that were written, with their addresses.
fn messages(host: &mut Host) -> Vec<(u64, u32)> {
    let writes = host.take_writes().into_iter();
    writes.map(|(address, data)| (address, u32::from_le_bytes(data.try_into().unwrap()))).collect()
}

fn mask(bench: &mut Bench, vector: u64, masked: u32) {
    bench.mem_write(0, bar2(0) + 0x110C + 16 * vector, &masked.to_le_bytes());
    bench.settle();
}

fn pending(bench: &mut Bench, at: u64) -> u64 {
    let data = bench.mem_read(0, bar2(0) + 0x2000 + at, 8).unwrap();
    u64::from_le_bytes(data.try_into().unwrap())
}

#[test]
fn intx_is_a_pair_of_messages() {
    let mut bench = Bench::new();
    for asserted in [true, true, false, false, true] {
        bench.act(0, Act::IntX(asserted));
    }
    let sent = bench.host.take();
    let codes: Vec<_> = sent
        .iter()
        .map(|sent| match sent.header.op {
            Op::Message { routing: Routing::Local, requester, code, length_dw: 0, .. }
                if requester == function(0) =>
            {
                code
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(codes, [code::ASSERT_INTA, code::DEASSERT_INTA, code::ASSERT_INTA]);
}

#[test]
fn interrupt_status_follows_inta() {
    let mut bench = Bench::new();
    bench.act(0, Act::IntX(true));
    assert_eq!(bench.reg(COMMAND) >> 19 & 1, 1);
    bench.set_reg(COMMAND, 6 | INTX_DISABLE);
    assert_eq!(bench.reg(COMMAND) >> 19 & 1, 1);
    bench.act(0, Act::IntX(false));
    assert_eq!(bench.reg(COMMAND) >> 19 & 1, 0);
}

#[test]
fn interrupt_disable_deasserts_inta() {
    let mut bench = Bench::new();
    bench.act(0, Act::IntX(true));
    bench.set_reg(COMMAND, 6 | INTX_DISABLE);
    assert_eq!(bench.scratch[0].mode(), InterruptMode::Disabled);
    bench.set_reg(COMMAND, 6);
    let codes = bench.host.take_messages();
    assert_eq!(codes, [code::ASSERT_INTA, code::DEASSERT_INTA, code::ASSERT_INTA]);
}

#[test]
fn intx_needs_no_bus_master_enable() {
    let mut bench = Bench::new();
    bench.set_reg(COMMAND, 2);
    bench.act(0, Act::IntX(true));
    assert_eq!(bench.host.take_messages(), [code::ASSERT_INTA]);
}

#[test]
fn msi_takes_the_place_of_intx() {
    let mut bench = Bench::new();
    bench.act(0, Act::IntX(true));
    enable_msi(&mut bench, 0);
    bench.act(0, Act::IntX(true));
    bench.settle();
    assert_eq!(bench.scratch[0].mode(), InterruptMode::Msi(1));
    assert!(bench.host.take_messages().is_empty(), "it was deasserted while MSI was enabled");
    bench.set_reg(MSI, 0);
    bench.act(0, Act::IntX(true));
    assert_eq!(bench.host.take_messages(), [code::ASSERT_INTA]);
}

#[test]
fn a_function_without_a_pin_has_no_intx() {
    let mut pinless = spec();
    pinless.intx = false;
    let mut bench = Bench::with(&[pinless]);
    bench.act(0, Act::IntX(true));
    assert!(bench.host.take().is_empty());
    assert_eq!(bench.reg(0x3C) >> 8, 0);
}

#[test]
fn msi_writes_its_data_to_its_address() {
    let mut bench = Bench::new();
    enable_msi(&mut bench, 2);
    assert_eq!(bench.scratch[0].mode(), InterruptMode::Msi(4));
    for vector in [0, 3, 5] {
        bench.act(0, Act::Interrupt(vector));
    }
    assert_eq!(messages(&mut bench.host), [(ADDRESS, 0x40), (ADDRESS, 0x43), (ADDRESS, 0x41)]);
}

#[test]
fn msi_uses_no_more_vectors_than_it_has() {
    let mut bench = Bench::new();
    enable_msi(&mut bench, 5);
    assert_eq!(bench.scratch[0].mode(), InterruptMode::Msi(8));
}

#[test]
fn a_masked_msi_is_pending_until_it_is_unmasked() {
    let mut bench = Bench::new();
    enable_msi(&mut bench, 3);
    bench.set_reg(MSI + 16, 0b110);
    bench.act(0, Act::Interrupt(1));
    bench.act(0, Act::Interrupt(1));
    bench.act(0, Act::Interrupt(2));
    assert_eq!(bench.reg(MSI + 20), 0b110);
    assert_eq!(messages(&mut bench.host), []);
    bench.set_reg(MSI + 16, 0b100);
    assert_eq!(messages(&mut bench.host), [(ADDRESS, 0x41)]);
    assert_eq!(bench.reg(MSI + 20), 0b100);
}

#[test]
fn pending_bits_are_read_only() {
    let mut bench = Bench::new();
    enable_msi(&mut bench, 3);
    bench.set_reg(MSI + 20, u32::MAX);
    assert_eq!(bench.reg(MSI + 20), 0);
}

#[test]
fn a_message_is_a_memory_write_of_a_bus_master() {
    let mut bench = Bench::new();
    enable_msi(&mut bench, 0);
    bench.set_reg(COMMAND, 2);
    bench.act(0, Act::Interrupt(0));
    assert_eq!(messages(&mut bench.host), []);
    bench.set_reg(COMMAND, 6);
    assert_eq!(messages(&mut bench.host), [(ADDRESS, 0x40)]);
}

#[test]
fn msix_vectors_have_their_own_address_and_data() {
    let mut bench = Bench::new();
    enable_msix(&mut bench);
    bench.settle();
    assert_eq!(bench.scratch[0].mode(), InterruptMode::MsiX(70));
    for vector in [0, 69, 70] {
        bench.act(0, Act::Interrupt(vector));
    }
    assert_eq!(messages(&mut bench.host), [(ADDRESS, 0x100), (ADDRESS + 16 * 69, 0x145)]);
}

#[test]
fn msix_vectors_are_masked_at_first() {
    let mut bench = Bench::new();
    for vector in [0, 69] {
        let entry = bench.mem_read(0, bar2(0) + 0x1100 + 16 * vector, 16).unwrap();
        assert_eq!(entry, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }
    assert_eq!(bench.reg(MSIX), 0x0045_8011, "capability");
}

#[test]
fn the_function_does_not_see_its_vector_table() {
    let mut bench = Bench::new();
    bench.mem_write(0, bar2(0) + 0x10F8, &[0xFF; 24]);
    bench.mem_write(0, bar2(0) + 0x1100 + 70 * 16 - 4, &[0xFF; 8]);
    let events = bench.scratch[0].take_events();
    assert_eq!(events.len(), 2, "{events:?}");
    let entry = bench.mem_read(0, bar2(0) + 0x10F8, 24).unwrap();
    let expected =
        [[0xFF; 8], [0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], [0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0]];
    assert_eq!(entry, expected.concat());
}

#[test]
fn a_masked_msix_vector_is_pending_until_it_is_unmasked() {
    let mut bench = Bench::new();
    enable_msix(&mut bench);
    mask(&mut bench, 65, 1);
    bench.act(0, Act::Interrupt(65));
    assert_eq!((messages(&mut bench.host), pending(&mut bench, 8)), (vec![], 2));
    mask(&mut bench, 65, 0);
    assert_eq!(messages(&mut bench.host), [(ADDRESS + 16 * 65, 0x100 + 65)]);
    assert_eq!(pending(&mut bench, 8), 0);
}

#[test]
fn the_function_mask_masks_all_vectors() {
    let mut bench = Bench::new();
    enable_msix(&mut bench);
    bench.set_reg(MSIX, 3 << 30);
    for vector in [66, 1, 2] {
        bench.act(0, Act::Interrupt(vector));
    }
    assert_eq!((pending(&mut bench, 0), pending(&mut bench, 8)), (0b110, 0b100));
    bench.host.take();
    bench.set_reg(MSIX, 1 << 31);
    let fired: Vec<_> = messages(&mut bench.host).into_iter().map(|(_, data)| data).collect();
    assert_eq!(fired, [0x101, 0x102, 0x142]);
}

#[test]
fn the_pending_array_is_read_only() {
    let mut bench = Bench::new();
    enable_msix(&mut bench);
    bench.mem_write(0, bar2(0) + 0x2000, &[0xFF; 8]);
    assert_eq!(pending(&mut bench, 0), 0);
}

#[test]
fn a_message_that_finds_no_room_is_asked_for_again() {
    let mut bench = Bench::new();
    enable_msix(&mut bench);
    bench.host.budget = 0;
    bench.act(0, Act::Interrupt(4));
    mask(&mut bench, 5, 1);
    bench.host.budget = 1;
    bench.act(0, Act::Interrupt(5));
    bench.host.budget = 0;
    mask(&mut bench, 5, 0);
    bench.host.budget = 9;
    bench.settle();
    let fired: Vec<_> = messages(&mut bench.host).into_iter().map(|(_, data)| data).collect();
    assert_eq!(fired, [0x104, 0x105]);
}

#[test]
fn without_any_mode_interrupts_go_nowhere() {
    let mut bench = Bench::new();
    bench.set_reg(COMMAND, 6 | INTX_DISABLE);
    bench.act(0, Act::Interrupt(0));
    bench.act(0, Act::IntX(true));
    assert!(bench.host.take().is_empty());
    assert_eq!(bench.scratch[0].waiting(), 0);
}
