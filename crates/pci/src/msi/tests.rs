use super::*;

fn table(vectors: u16) -> MsixTable {
    MsixTable::new(MsixSpec { vectors, bar: 4, table_offset: 0x100, pba_offset: 0x2_0000 })
}

#[test]
fn an_access_is_divided_where_table_and_pba_begin_and_end() {
    let table = table(2);
    let divided = [
        (0x00, 16, Region::Function, 16),
        (0xF8, 16, Region::Function, 8),
        (0x100, 64, Region::Table(0), 32),
        (0x11C, 8, Region::Table(28), 4),
        (0x120, 4096, Region::Function, 4096),
        (0x1_FFF8, 16, Region::Function, 8),
        (0x2_0004, 16, Region::Pending(4), 4),
        (0x2_0008, 16, Region::Function, 16),
    ];
    for (offset, bytes, region, part) in divided {
        assert_eq!(table.locate(4, offset, bytes), (region, part), "{offset:#x}");
    }
    assert_eq!(table.locate(0, 0x100, 64), (Region::Function, 64));
}

#[test]
fn vectors_beyond_the_table_do_nothing() {
    let mut table = table(3);
    for vector in [3, 63, 64, u16::MAX] {
        table.raise(vector);
        table.clear(vector);
        assert_eq!(table.message(vector), None);
    }
    assert_eq!(table.first_to_fire(), None);
}

#[test]
fn all_vectors_of_the_largest_table_fire_in_order() {
    let mut table = table(2048);
    for vector in 0..2048 {
        table.write(Region::Table(vector * ENTRY_BYTES), &[0; 16]);
    }
    for vector in [2047, 64, 0, 63] {
        table.raise(vector);
    }
    for vector in [0, 63, 64, 2047] {
        assert_eq!(table.first_to_fire(), Some((vector, Message { address: 0, data: 0 })));
        table.clear(vector);
    }
    assert_eq!(table.first_to_fire(), None);
}

#[test]
fn writing_bytes_of_an_entry_changes_only_those() {
    let mut table = table(1);
    assert!(!table.write(Region::Table(0), &[0x13]));
    assert!(!table.write(Region::Table(7), &[0x88, 0x99]));
    table.raise(0);
    assert!(table.write(Region::Table(12), &[0]));
    assert_eq!(table.message(0), Some(Message { address: 0x8800_0000_0000_0010, data: 0x99 }));
}
