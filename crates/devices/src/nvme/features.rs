//! Features (NVMe Base 1.4, 5.21.1). None can be saved; a reset of the controller brings back the defaults.

use super::bits::{NSID_ALL, feature};
use super::command::Feature;
use super::events::CONFIGURABLE;
use super::status::Status;

/// Composite Temperature at which Identify says it is getting warm, K (WCTEMP).
pub(crate) const WARNING_KELVIN: u16 = 343;

/// Feature 01h: bursts of 32 commands.
const DEFAULT_ARBITRATION: u32 = 5;

/// What Get Features tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// In dword 0 of the completion.
    Dword(u32),
    /// In memory: so many of these bytes.
    Data([u8; 16], usize),
}

/// What a change of a feature asks for beyond keeping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing; dword 0 of the completion.
    Kept(u32),
    /// The volatile write cache was switched off: what is in it has to be flushed.
    CacheOff,
    /// A temperature threshold may have been crossed.
    Thresholds,
}

#[derive(Debug)]
struct Values {
    arbitration: u32,
    over_kelvin: u16,
    under_kelvin: u16,
    /// Time Limited Error Recovery, by namespace.
    error_recovery: Box<[u16]>,
    write_cache: bool,
    /// Allocated I/O queues, each kind: 1..=64.
    queues: (u16, u16),
    coalescing: u16,
    /// Vectors that are not coalesced.
    uncoalesced: u128,
    write_atomicity: u32,
    async_events: u32,
    host_identifier: [u8; 16],
}

impl Values {
    fn new(queues: u16, namespaces: usize) -> Self {
        Self {
            arbitration: DEFAULT_ARBITRATION,
            over_kelvin: WARNING_KELVIN,
            under_kelvin: 0,
            error_recovery: vec![0; namespaces].into_boxed_slice(),
            write_cache: true,
            queues: (queues, queues),
            coalescing: 0,
            uncoalesced: 0,
            write_atomicity: 0,
            async_events: 0,
            host_identifier: [0; 16],
        }
    }
}

/// The features and their values.
#[derive(Debug)]
pub(crate) struct Features {
    current: Values,
    default: Values,
    max_queues: u16,
    vectors: u16,
    /// Timestamp, ms, and when (ns) it was set.
    timestamp: Option<(u64, u64)>,
}

impl Features {
    pub(crate) fn new(max_queues: u16, vectors: u16, namespaces: usize) -> Self {
        Self {
            current: Values::new(max_queues, namespaces),
            default: Values::new(max_queues, namespaces),
            max_queues,
            vectors,
            timestamp: None,
        }
    }

    /// Back to the defaults; the clock goes on if only the controller was reset by CC.EN.
    pub(crate) fn reset(&mut self, keep_timestamp: bool) {
        self.current = Values::new(self.max_queues, self.default.error_recovery.len());
        if !keep_timestamp {
            self.timestamp = None;
        }
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.current.write_cache
    }

    /// I/O Submission and Completion Queues that can be made.
    pub(crate) fn queues(&self) -> (u16, u16) {
        self.current.queues
    }

    /// Commands fetched from a queue in its turn.
    pub(crate) fn burst(&self) -> u32 {
        match self.current.arbitration & 7 {
            7 => u32::MAX,
            exponent => 1 << exponent,
        }
    }

    /// When interrupts of `vector` are held back: until more than so many entries wait, or for so long (ns).
    pub(crate) fn coalescing(&self, vector: u16) -> Option<(u32, u64)> {
        let entries = u32::from(self.current.coalescing & 0xff);
        let time_ns = u64::from(self.current.coalescing >> 8) * 100_000;
        let exempt = self.current.uncoalesced >> vector.min(127) & 1 != 0;
        (time_ns > 0 && entries > 0 && !exempt).then_some((entries, time_ns))
    }

    pub(crate) fn async_events(&self) -> u32 {
        self.current.async_events
    }

    /// Whether `kelvin` is beyond a threshold.
    pub(crate) fn is_beyond_threshold(&self, kelvin: u16) -> bool {
        kelvin >= self.current.over_kelvin || kelvin <= self.current.under_kelvin
    }

    /// Bytes of data that go with `feature`.
    pub(crate) fn data_bytes(feature: &Feature) -> usize {
        match (feature.fid, feature.dword11 & 1) {
            (feature::TIMESTAMP, _) | (feature::HOST_IDENTIFIER, 0) => 8,
            (feature::HOST_IDENTIFIER, _) => 16,
            _ => 0,
        }
    }

    /// The index of the namespace a feature is about.
    fn namespace(&self, nsid: u32) -> Result<usize, Status> {
        let index = nsid.wrapping_sub(1) as usize;
        if index < self.current.error_recovery.len() { Ok(index) } else { Err(Status::INVALID_NAMESPACE) }
    }

    /// Get Features.
    pub(crate) fn get(&self, feature: &Feature, now_ns: u64) -> Result<Value, Status> {
        let values = match feature.select {
            0 => &self.current,
            // Nothing is saved: the default stands in for it (5.13).
            1 | 2 => &self.default,
            3 => return self.capabilities(feature).map(Value::Dword),
            _ => return Err(Status::INVALID_FIELD),
        };
        let dword = match feature.fid {
            feature::ARBITRATION => values.arbitration,
            feature::POWER_MANAGEMENT => 0,
            feature::TEMPERATURE_THRESHOLD => match threshold(feature.dword11)? {
                (Some(_), false) => u32::from(values.over_kelvin),
                (Some(_), true) => u32::from(values.under_kelvin),
                (None, _) => return Err(Status::INVALID_FIELD),
            },
            feature::ERROR_RECOVERY => u32::from(values.error_recovery[self.namespace(feature.nsid)?]),
            feature::VOLATILE_WRITE_CACHE => u32::from(values.write_cache),
            feature::NUMBER_OF_QUEUES => queues_dword(values.queues),
            feature::INTERRUPT_COALESCING => u32::from(values.coalescing),
            feature::INTERRUPT_VECTOR => {
                let vector = self.vector(feature.dword11)?;
                u32::from(vector) | ((values.uncoalesced >> vector & 1) as u32) << 16
            }
            feature::WRITE_ATOMICITY => values.write_atomicity,
            feature::ASYNC_EVENT => values.async_events,
            feature::TIMESTAMP => return Ok(Value::Data(self.timestamp(feature.select == 0, now_ns), 8)),
            feature::HOST_IDENTIFIER => {
                return Ok(Value::Data(values.host_identifier, Self::data_bytes(feature)));
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Value::Dword(dword))
    }

    /// Select 011b: changeable (bit 2), of a namespace (bit 1), saveable (bit 0).
    fn capabilities(&self, feature: &Feature) -> Result<u32, Status> {
        match feature.fid {
            feature::ERROR_RECOVERY => Ok(0b110),
            feature::INTERRUPT_VECTOR => self.vector(feature.dword11).map(|_| 0b100),
            feature::ARBITRATION
            | feature::POWER_MANAGEMENT
            | feature::TEMPERATURE_THRESHOLD
            | feature::VOLATILE_WRITE_CACHE
            | feature::NUMBER_OF_QUEUES
            | feature::INTERRUPT_COALESCING
            | feature::WRITE_ATOMICITY
            | feature::ASYNC_EVENT
            | feature::TIMESTAMP
            | feature::HOST_IDENTIFIER => Ok(0b100),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn vector(&self, dword11: u32) -> Result<u16, Status> {
        let vector = dword11 as u16;
        if vector < self.vectors.max(1) { Ok(vector) } else { Err(Status::INVALID_FIELD) }
    }

    /// Timestamp data (Figure 290): since when, in ms; set by the host, or 0 at a reset.
    fn timestamp(&self, current: bool, now_ns: u64) -> [u8; 16] {
        let (value, origin) = match self.timestamp {
            Some((ms, since_ns)) if current => (ms + now_ns.saturating_sub(since_ns) / 1_000_000, 1 << 1),
            None if current => (now_ns / 1_000_000, 0),
            _ => (0, 0),
        };
        let mut data = [0; 16];
        data[..6].copy_from_slice(&value.to_le_bytes()[..6]);
        data[6] = origin;
        data
    }

    /// What can be said against a Set Features before its data have come.
    pub(crate) fn check_set(&self, feature: &Feature, io_queues_exist: bool) -> Result<(), Status> {
        if feature.save {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        self.capabilities(&Feature { select: 3, ..*feature })?;
        if feature.fid == feature::ERROR_RECOVERY {
            if feature.nsid != NSID_ALL {
                self.namespace(feature.nsid)?;
            }
        } else if self.namespace(feature.nsid).is_ok() {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        } else if feature.nsid != 0 && feature.nsid != NSID_ALL {
            return Err(Status::INVALID_NAMESPACE);
        }
        if feature.fid == feature::NUMBER_OF_QUEUES && io_queues_exist {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        Ok(())
    }

    /// Set Features, checked, with its data.
    pub(crate) fn set(&mut self, feature: &Feature, data: &[u8], now_ns: u64) -> Result<Change, Status> {
        let value = feature.dword11;
        let current = &mut self.current;
        match feature.fid {
            feature::ARBITRATION => current.arbitration = value & 0xffff_ff07,
            // PS: there is only power state 0.
            feature::POWER_MANAGEMENT if value.trailing_zeros() >= 5 => {}
            feature::TEMPERATURE_THRESHOLD => {
                let kelvin = value as u16;
                if threshold(value)?.1 {
                    current.under_kelvin = kelvin;
                } else {
                    current.over_kelvin = kelvin;
                }
                return Ok(Change::Thresholds);
            }
            // DULBE: NSFEAT says no.
            feature::ERROR_RECOVERY if value >> 16 & 1 == 0 => {
                let which = match feature.nsid {
                    NSID_ALL => 0..current.error_recovery.len(),
                    nsid => nsid as usize - 1..nsid as usize,
                };
                current.error_recovery[which].fill(value as u16);
            }
            feature::VOLATILE_WRITE_CACHE => {
                let was_on = std::mem::replace(&mut current.write_cache, value & 1 != 0);
                if was_on && !current.write_cache {
                    return Ok(Change::CacheOff);
                }
            }
            feature::NUMBER_OF_QUEUES => {
                let (submission, completion) = (value as u16, (value >> 16) as u16);
                if submission == u16::MAX || completion == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                let allocated = |requested: u16| (requested + 1).min(self.max_queues);
                current.queues = (allocated(submission), allocated(completion));
                return Ok(Change::Kept(queues_dword(current.queues)));
            }
            feature::INTERRUPT_COALESCING => current.coalescing = value as u16,
            feature::INTERRUPT_VECTOR => {
                let vector = self.vector(value)?;
                let bit = 1u128 << vector;
                let others = self.current.uncoalesced & !bit;
                self.current.uncoalesced = others | if value >> 16 & 1 != 0 { bit } else { 0 };
            }
            feature::WRITE_ATOMICITY => current.write_atomicity = value & 1,
            feature::ASYNC_EVENT => current.async_events = value & CONFIGURABLE,
            feature::TIMESTAMP => {
                let mut ms = [0; 8];
                ms[..6].copy_from_slice(&data[..6]);
                self.timestamp = Some((u64::from_le_bytes(ms), now_ns));
            }
            feature::HOST_IDENTIFIER => {
                current.host_identifier = [0; 16];
                current.host_identifier[..data.len()].copy_from_slice(data);
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(Change::Kept(0))
    }
}

fn queues_dword((submission, completion): (u16, u16)) -> u32 {
    u32::from(submission - 1) | u32::from(completion - 1) << 16
}

/// TMPSEL and THSEL: the sensor if it is one (0 is the Composite Temperature, the only one), and whether the
/// under-temperature threshold is meant.
fn threshold(dword11: u32) -> Result<(Option<u8>, bool), Status> {
    let sensor = match dword11 >> 16 & 15 {
        0 => Some(0),
        15 => None,
        _ => return Err(Status::INVALID_FIELD),
    };
    match dword11 >> 20 & 3 {
        0 => Ok((sensor, false)),
        1 => Ok((sensor, true)),
        _ => Err(Status::INVALID_FIELD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features() -> Features {
        Features::new(64, 65, 2)
    }

    fn of(fid: u8, dword11: u32) -> Feature {
        Feature { fid, nsid: 0, save: false, select: 0, dword11 }
    }

    fn get(features: &Features, fid: u8, dword11: u32) -> Result<Value, Status> {
        features.get(&of(fid, dword11), 0)
    }

    #[test]
    fn queues_are_counted_from_0_and_never_more_than_there_are() {
        let mut features = features();
        let mut set = |value| features.set(&of(feature::NUMBER_OF_QUEUES, value), &[], 0);
        assert_eq!(set(0x0003_0001), Ok(Change::Kept(0x0003_0001)));
        assert_eq!(set(0x00ff_00ff), Ok(Change::Kept(0x003f_003f)));
        assert_eq!(set(0xffff_0000), Err(Status::INVALID_FIELD));
        assert_eq!(
            features.check_set(&of(feature::NUMBER_OF_QUEUES, 0), true),
            Err(Status::COMMAND_SEQUENCE_ERROR)
        );
    }

    #[test]
    fn select_tells_current_default_saved_and_capabilities() {
        let mut features = features();
        features.set(&of(feature::VOLATILE_WRITE_CACHE, 0), &[], 0).unwrap();
        let select = |select| features.get(&Feature { select, ..of(feature::VOLATILE_WRITE_CACHE, 0) }, 0);
        assert_eq!(select(0), Ok(Value::Dword(0)));
        assert_eq!(select(1), Ok(Value::Dword(1)));
        assert_eq!(select(2), Ok(Value::Dword(1)));
        assert_eq!(select(3), Ok(Value::Dword(0b100)));
        assert_eq!(select(4), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn what_can_not_be_saved_or_is_not_of_a_namespace_says_so() {
        let features = features();
        let feature = of(feature::VOLATILE_WRITE_CACHE, 1);
        let check = |feature| features.check_set(&feature, false);
        assert_eq!(check(feature), Ok(()));
        assert_eq!(check(Feature { save: true, ..feature }), Err(Status::FEATURE_NOT_SAVEABLE));
        assert_eq!(check(Feature { nsid: 1, ..feature }), Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC));
        assert_eq!(check(Feature { nsid: 3, ..feature }), Err(Status::INVALID_NAMESPACE));
        assert_eq!(check(Feature { nsid: NSID_ALL, ..feature }), Ok(()));
        assert_eq!(check(of(feature::ERROR_RECOVERY, 0)), Err(Status::INVALID_NAMESPACE));
        assert_eq!(check(of(0x0d, 0)), Err(Status::INVALID_FIELD), "Host Memory Buffer");
        assert_eq!(check(of(0x0c, 0)), Err(Status::INVALID_FIELD), "APST");
    }

    #[test]
    fn switching_the_cache_off_asks_for_a_flush_once() {
        let mut features = features();
        let mut set = |value| features.set(&of(feature::VOLATILE_WRITE_CACHE, value), &[], 0);
        assert_eq!(set(1), Ok(Change::Kept(0)));
        assert_eq!(set(0), Ok(Change::CacheOff));
        assert_eq!(set(0), Ok(Change::Kept(0)));
    }

    #[test]
    fn the_timestamp_goes_on_and_outlives_only_a_controller_reset() {
        let mut features = features();
        let ms = 0x0000_1234_5678_9abcu64;
        features.set(&of(feature::TIMESTAMP, 0), &ms.to_le_bytes(), 5_000_000).unwrap();
        let read = |features: &Features| match features.get(&of(feature::TIMESTAMP, 0), 15_000_000) {
            Ok(Value::Data(data, 8)) => (u64::from_le_bytes(data[..8].try_into().unwrap()), data[6]),
            other => panic!("{other:?}"),
        };
        assert_eq!(read(&features), ((ms + 10) | (2 << 48), 2));
        features.reset(true);
        assert_eq!(read(&features).1, 2);
        features.reset(false);
        assert_eq!(read(&features), (15, 0));
    }

    #[test]
    fn host_identifiers_have_8_or_16_bytes() {
        let mut features = features();
        assert_eq!(Features::data_bytes(&of(feature::HOST_IDENTIFIER, 0)), 8);
        assert_eq!(Features::data_bytes(&of(feature::HOST_IDENTIFIER, 1)), 16);
        features.set(&of(feature::HOST_IDENTIFIER, 1), &[7; 16], 0).unwrap();
        assert_eq!(get(&features, feature::HOST_IDENTIFIER, 1), Ok(Value::Data([7; 16], 16)));
    }

    #[test]
    fn thresholds_coalescing_vectors_and_recovery_are_kept_where_they_belong() {
        let mut features = features();
        features.set(&of(feature::TEMPERATURE_THRESHOLD, 0x0010_0100), &[], 0).unwrap();
        assert_eq!(get(&features, feature::TEMPERATURE_THRESHOLD, 0x0010_0000), Ok(Value::Dword(0x100)));
        assert_eq!(get(&features, feature::TEMPERATURE_THRESHOLD, 0), Ok(Value::Dword(343)));
        assert_eq!(get(&features, feature::TEMPERATURE_THRESHOLD, 0x0001_0000), Err(Status::INVALID_FIELD));
        assert!(features.is_beyond_threshold(0x100) && !features.is_beyond_threshold(300));

        features.set(&of(feature::INTERRUPT_COALESCING, 0x0203), &[], 0).unwrap();
        features.set(&of(feature::INTERRUPT_VECTOR, 0x1_0002), &[], 0).unwrap();
        assert_eq!(features.coalescing(1), Some((3, 200_000)));
        assert_eq!(features.coalescing(2), None);
        assert_eq!(get(&features, feature::INTERRUPT_VECTOR, 2), Ok(Value::Dword(0x1_0002)));
        assert_eq!(get(&features, feature::INTERRUPT_VECTOR, 65), Err(Status::INVALID_FIELD));

        let recovery = |nsid| Feature { nsid, ..of(feature::ERROR_RECOVERY, 9) };
        features.set(&recovery(2), &[], 0).unwrap();
        assert_eq!(features.get(&recovery(1), 0), Ok(Value::Dword(0)));
        assert_eq!(features.get(&recovery(2), 0), Ok(Value::Dword(9)));
        assert_eq!(features.get(&recovery(3), 0), Err(Status::INVALID_NAMESPACE));
        features.reset(true);
        assert_eq!(features.get(&recovery(2), 0), Ok(Value::Dword(0)));
        assert_eq!(features.burst(), 32);
    }
}
