//! Log pages (NVMe Base 1.4, 5.14.1), and the counters behind them.
//!
//! Counters live as long as the controller model: what a box counted is gone when it ends.

use super::bits::{NSID_ALL, admin, log, nvm};
use super::queue::Cqe;
use super::status::Status;
use std::collections::{BTreeSet, VecDeque};

/// Entries of the Error Information log (ELPE + 1).
pub(crate) const ERROR_ENTRIES: usize = 64;

/// Size of the largest page.
const PAGE_BYTES: usize = 4096;

/// Composite Temperature: there is no sensor, so it is always room temperature, K.
pub(crate) const KELVIN: u16 = 298;

/// Critical Warning bits (Figure 196).
pub(crate) mod warning {
    pub(crate) const TEMPERATURE: u8 = 1 << 1;
    pub(crate) const RELIABILITY: u8 = 1 << 2;
    pub(crate) const READ_ONLY: u8 = 1 << 3;
}

/// What an entry of the Error Information log is about; all ones where nothing is known.
#[derive(Clone, Copy, Debug)]
struct ErrorEntry {
    count: u64,
    sqid: u16,
    cid: u16,
    status: u16,
    lba: u64,
    nsid: u32,
}

/// Counters of the SMART / Health log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_read: u128,
    pub(crate) bytes_written: u128,
    pub(crate) reads: u128,
    pub(crate) writes: u128,
    pub(crate) busy_ns: u64,
    pub(crate) unsafe_shutdowns: u64,
    pub(crate) media_errors: u64,
}

/// All that log pages tell.
#[derive(Debug)]
pub(crate) struct Logs {
    firmware: [u8; 8],
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
    pub(crate) counters: Counters,
    /// Critical warnings that stay: a medium does not recover by itself.
    pub(crate) warnings: u8,
    changed: BTreeSet<u32>,
    /// When the first poll was, ns.
    since_ns: Option<u64>,
}

impl Logs {
    pub(crate) fn new(firmware: [u8; 8]) -> Self {
        Self {
            firmware,
            errors: VecDeque::with_capacity(ERROR_ENTRIES),
            error_count: 0,
            counters: Counters::default(),
            warnings: 0,
            changed: BTreeSet::new(),
            since_ns: None,
        }
    }

    /// The time, from which the power-on hours follow.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    fn push(&mut self, entry: ErrorEntry) {
        self.error_count += 1;
        if self.errors.len() == ERROR_ENTRIES {
            self.errors.pop_back();
        }
        self.errors.push_front(ErrorEntry { count: self.error_count, ..entry });
    }

    /// A command ended with an error.
    pub(crate) fn command_failed(&mut self, cqe: &Cqe, nsid: u32, lba: u64) {
        let (sqid, cid, status) = (cqe.sqid, cqe.cid, cqe.status.field() << 1);
        self.push(ErrorEntry { count: 0, sqid, cid, status, lba, nsid });
        if cqe.status.is_media_error() {
            self.counters.media_errors += 1;
        }
    }

    /// A doorbell was written as it may not be.
    pub(crate) fn doorbell_failed(&mut self, qid: u16) {
        let status = Status::INVALID_FIELD.field() << 1;
        self.push(ErrorEntry { count: 0, sqid: qid, cid: u16::MAX, status, lba: 0, nsid: NSID_ALL });
    }

    /// The Identify data of a namespace have changed.
    pub(crate) fn namespace_changed(&mut self, nsid: u32) {
        self.changed.insert(nsid);
    }

    /// Forgets what a new host need not know.
    pub(crate) fn reset(&mut self) {
        self.changed.clear();
    }

    /// The bytes of page `lid` from `offset` on; zeros beyond its end. With `clear`, what it told is told.
    pub(crate) fn read(
        &mut self,
        lid: u8,
        offset: u64,
        clear: bool,
        beyond_threshold: bool,
        now_ns: u64,
        data: &mut [u8],
    ) -> Result<(), Status> {
        let mut page = [0; PAGE_BYTES];
        let bytes = match lid {
            log::ERROR_INFORMATION => self.error_information(&mut page),
            log::SMART => self.smart(beyond_threshold, now_ns, &mut page),
            log::FIRMWARE_SLOT => self.firmware_slot(&mut page),
            log::CHANGED_NAMESPACES => self.changed_namespaces(clear, &mut page),
            log::COMMANDS_SUPPORTED => commands_supported(&mut page),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if start > bytes {
            return Err(Status::INVALID_FIELD);
        }
        let count = data.len().min(bytes - start);
        data[..count].copy_from_slice(&page[start..start + count]);
        data[count..].fill(0);
        Ok(())
    }

    /// Figure 193, newest first.
    fn error_information(&self, page: &mut [u8]) -> usize {
        for (entry, place) in self.errors.iter().zip(page.chunks_exact_mut(64)) {
            place[0..8].copy_from_slice(&entry.count.to_le_bytes());
            place[8..10].copy_from_slice(&entry.sqid.to_le_bytes());
            place[10..12].copy_from_slice(&entry.cid.to_le_bytes());
            place[12..14].copy_from_slice(&entry.status.to_le_bytes());
            // Parameter Error Location: of no byte in particular.
            place[14..16].fill(0xff);
            place[16..24].copy_from_slice(&entry.lba.to_le_bytes());
            place[24..28].copy_from_slice(&entry.nsid.to_le_bytes());
        }
        ERROR_ENTRIES * 64
    }

    /// Figure 196.
    fn smart(&self, beyond_threshold: bool, now_ns: u64, page: &mut [u8]) -> usize {
        let counters = &self.counters;
        // Thousands of 512-byte units, rounded up.
        let units = |bytes: u128| bytes.div_ceil(512_000);
        let up_ns = now_ns.saturating_sub(self.since_ns.unwrap_or(now_ns));
        page[0] = self.warnings | if beyond_threshold { warning::TEMPERATURE } else { 0 };
        page[1..3].copy_from_slice(&KELVIN.to_le_bytes());
        // Available Spare and its threshold, per cent; nothing wears out, so Percentage Used stays 0.
        (page[3], page[4]) = (100, 10);
        let values = [
            units(counters.bytes_read),
            units(counters.bytes_written),
            counters.reads,
            counters.writes,
            u128::from(counters.busy_ns / 60_000_000_000),
            1,
            u128::from(up_ns / 3_600_000_000_000),
            u128::from(counters.unsafe_shutdowns),
            u128::from(counters.media_errors),
            u128::from(self.error_count),
        ];
        for (value, place) in values.iter().zip(page[32..].chunks_exact_mut(16)) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        512
    }

    /// Figure 198: one slot, which is active.
    fn firmware_slot(&self, page: &mut [u8]) -> usize {
        page[0] = 1;
        page[8..16].copy_from_slice(&self.firmware);
        512
    }

    /// 5.14.1.4: ascending, filled up with zeros.
    fn changed_namespaces(&mut self, clear: bool, page: &mut [u8]) -> usize {
        for (nsid, place) in self.changed.iter().zip(page.chunks_exact_mut(4)) {
            place.copy_from_slice(&nsid.to_le_bytes());
        }
        if clear {
            self.changed.clear();
        }
        PAGE_BYTES
    }
}

/// Figures 200 and 201.
fn commands_supported(page: &mut [u8]) -> usize {
    const SUPPORTED: u32 = 1;
    const CHANGES_BLOCKS: u32 = 1 << 1;
    const CHANGES_NAMESPACE: u32 = 1 << 2;
    /// No other command for the same namespace while it is under way.
    const ALONE_IN_NAMESPACE: u32 = 1 << 16;
    let mut effect = |at: usize, opcode: u8, effects: u32| {
        let place = (at + usize::from(opcode)) * 4;
        page[place..place + 4].copy_from_slice(&(SUPPORTED | effects).to_le_bytes());
    };
    for opcode in [
        admin::DELETE_SQ,
        admin::CREATE_SQ,
        admin::GET_LOG_PAGE,
        admin::DELETE_CQ,
        admin::CREATE_CQ,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
    ] {
        effect(0, opcode, 0);
    }
    effect(0, admin::FORMAT_NVM, CHANGES_BLOCKS | CHANGES_NAMESPACE | ALONE_IN_NAMESPACE);
    for opcode in [nvm::FLUSH, nvm::READ, nvm::COMPARE, nvm::VERIFY] {
        effect(256, opcode, 0);
    }
    for opcode in [nvm::WRITE, nvm::WRITE_ZEROES, nvm::DATASET_MANAGEMENT] {
        effect(256, opcode, CHANGES_BLOCKS);
    }
    4096
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(logs: &mut Logs, lid: u8) -> Vec<u8> {
        let mut data = vec![0xaa; 4096];
        logs.read(lid, 0, false, false, 0, &mut data).unwrap();
        data
    }

    fn number(data: &[u8]) -> u128 {
        u128::from_le_bytes(data[..16].try_into().unwrap())
    }

    #[test]
    fn errors_are_listed_newest_first_and_the_oldest_fall_out() {
        let mut logs = Logs::new(*b"1.0     ");
        for cid in 0..70 {
            let cqe = Cqe { dword0: 0, sq_head: 0, sqid: 3, cid, status: Status::UNRECOVERED_READ_ERROR };
            logs.command_failed(&cqe, 1, 0x1234);
        }
        let data = read(&mut logs, 1);
        assert_eq!(data[0..8], 70u64.to_le_bytes());
        assert_eq!((data[8], data[10]), (3, 69));
        assert_eq!(u16::from_le_bytes([data[12], data[13]]) >> 1 & 0x7ff, 0x281);
        assert_eq!(data[16..24], 0x1234u64.to_le_bytes());
        assert_eq!(data[24..28], 1u32.to_le_bytes());
        assert_eq!(data[63 * 64..][..8], 7u64.to_le_bytes());
        let smart = read(&mut logs, 2);
        assert_eq!(number(&smart[160..]), 70, "media errors");
        assert_eq!(number(&smart[176..]), 70, "error log entries");
    }

    #[test]
    fn smart_counts_units_of_512000_bytes_rounded_up() {
        let mut logs = Logs::new(*b"1.0     ");
        logs.tick(0);
        logs.counters = Counters {
            bytes_read: 512_001,
            bytes_written: 1,
            reads: 5,
            writes: 6,
            busy_ns: 120_000_000_000,
            unsafe_shutdowns: 7,
            media_errors: 8,
        };
        let mut data = vec![0; 512];
        logs.read(2, 0, false, true, 7_200_000_000_000, &mut data).unwrap();
        assert_eq!(data[0], warning::TEMPERATURE);
        assert_eq!(u16::from_le_bytes([data[1], data[2]]), 298);
        assert_eq!((data[3], data[4], data[5]), (100, 10, 0));
        let at = |offset| number(&data[offset..]);
        assert_eq!([at(32), at(48), at(64), at(80), at(96)], [2, 1, 5, 6, 2]);
        assert_eq!([at(112), at(128), at(144), at(160)], [1, 2, 7, 8]);
    }

    #[test]
    fn offsets_within_a_page_work_and_beyond_it_do_not() {
        let mut logs = Logs::new(*b"fw      ");
        let mut data = [0xaa; 16];
        let mut at = |offset| logs.read(3, offset, false, false, 0, &mut data).map(|()| data);
        assert_eq!(&at(8).unwrap()[..8], b"fw      ");
        assert_eq!(at(508).unwrap(), [0; 16], "zeros beyond the end");
        assert_eq!(at(516), Err(Status::INVALID_FIELD));
        assert_eq!(at(u64::MAX - 3), Err(Status::INVALID_FIELD));
        assert_eq!(logs.read(0x7f, 0, false, false, 0, &mut data), Err(Status::INVALID_LOG_PAGE));
    }

    #[test]
    fn changed_namespaces_are_told_once() {
        let mut logs = Logs::new([b' '; 8]);
        logs.namespace_changed(2);
        logs.namespace_changed(1);
        logs.namespace_changed(2);
        assert_eq!(read(&mut logs, 4)[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let mut data = [0; 12];
        logs.read(4, 0, true, false, 0, &mut data).unwrap();
        assert_eq!(data[0], 1);
        assert_eq!(read(&mut logs, 4)[..4], [0; 4]);
    }

    #[test]
    fn effects_of_commands_are_by_opcode() {
        let mut logs = Logs::new([b' '; 8]);
        let page = read(&mut logs, 5);
        let entry = |at: usize| u32::from_le_bytes(page[at * 4..at * 4 + 4].try_into().unwrap());
        assert_eq!(entry(0x06), 1, "Identify");
        assert_eq!(entry(0x80), 0x0001_0007, "Format NVM");
        assert_eq!(entry(256 + 1), 3, "Write");
        assert_eq!(entry(256 + 2), 1, "Read");
        assert_eq!(entry(0x10), 0, "Firmware Commit");
    }
}
