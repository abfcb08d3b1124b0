//! What a session counts.

/// Defines [`Counters`] and [`Counters::named`] by one list, so that whoever shows counters shows all of them, and by
/// the same names: simulator, daemon, log.
macro_rules! counters {
    (
        counts { $($(#[$count_doc:meta])* pub $count:ident: u64,)* }
        gauges { $($(#[$gauge_doc:meta])* pub $gauge:ident: u64,)* }
    ) => {
        /// Counters of one session, all from its beginning, and a few gauges at the end.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$count_doc])* pub $count: u64,)*
            $($(#[$gauge_doc])* pub $gauge: u64,)*
        }

        impl Counters {
            /// Every counter and gauge with its name, in the order of their definition.
            pub fn named(&self) -> impl ExactSizeIterator<Item = Named> {
                [
                    $(Named { name: stringify!($count), value: self.$count, is_gauge: false },)*
                    $(Named { name: stringify!($gauge), value: self.$gauge, is_gauge: true },)*
                ]
                .into_iter()
            }
        }
    };
}

/// One of [`Counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name of its field.
    pub name: &'static str,
    /// Its value, in the unit that the name ends with.
    pub value: u64,
    /// Whether it goes up and down; the others only grow, so their differences are rates.
    pub is_gauge: bool,
}

counters! {
    counts {
        /// Frames given to the Port, of all kinds.
        pub frames_sent: u64,
        /// Bytes of these, with their headers.
        pub bytes_sent: u64,
        /// Data frames among them, first transmissions only.
        pub data_frames_sent: u64,
        /// Frames handed to the session, of all kinds.
        pub frames_received: u64,
        /// Bytes of these, with their headers.
        pub bytes_received: u64,
        /// Whole records put in.
        pub records_sent: u64,
        /// Payload bytes of these.
        pub record_bytes_sent: u64,
        /// Whole records delivered.
        pub records_received: u64,
        /// Payload bytes of these.
        pub record_bytes_received: u64,
        /// Records that can never be sent (stream too high, too long): the caller's error.
        pub records_refused: u64,
        /// Frames taken as lost.
        pub lost: u64,
        /// Data frames transmitted again, tail-loss probes among them.
        pub retransmissions: u64,
        /// Frames taken as lost that were not.
        pub spurious: u64,
        /// Tail-loss probes.
        pub tail_probes: u64,
        /// Retransmission timeouts.
        pub rtos: u64,
        /// Paths that answered no more while others did.
        pub paths_lost: u64,
        /// Paths that were found to work, those that were again among them; the first, of the handshake, is not.
        pub paths_found: u64,
        /// Frames that carried nothing but an acknowledgement.
        pub acks_sent: u64,
        /// Such frames received.
        pub acks_received: u64,
        /// Acknowledgements that asked for a sign of life or for credit.
        pub heartbeats_sent: u64,
        /// Data frames received that had been received before.
        pub duplicates: u64,
        /// Data frames received with others missing before them.
        pub out_of_order: u64,
        /// Of these, dropped because the session is in classic mode.
        pub dropped_not_in_order: u64,
        /// Dropped: epochs not of this session.
        pub dropped_epoch: u64,
        /// Dropped: packet number seen before, or too old or too new to tell.
        pub dropped_replay: u64,
        /// Dropped: not expected in this state.
        pub dropped_state: u64,
        /// Dropped: body is not a row of records of this session.
        pub dropped_malformed: u64,
        /// Dropped: sequence outside of the credit given.
        pub dropped_sequence: u64,
        /// Acknowledgements ignored: of something never sent, or a credit never to be given.
        pub dropped_ack: u64,
    }
    gauges {
        /// Paths that work.
        pub paths: u64,
        /// Smoothed round-trip time.
        pub srtt_ns: u64,
        /// The least round-trip time of the last seconds.
        pub rtt_min_ns: u64,
        /// The window, bytes.
        pub window_bytes: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_own_value_under_its_own_name() {
        let counters = Counters { frames_sent: 7, window_bytes: 9, ..Counters::default() };
        let set: Vec<Named> = counters.named().filter(|named| named.value != 0).collect();
        let named = |name, value, is_gauge| Named { name, value, is_gauge };
        assert_eq!(set, [named("frames_sent", 7, false), named("window_bytes", 9, true)]);
        let fields = size_of::<Counters>() / size_of::<u64>();
        assert_eq!(counters.named().len(), fields);
    }
}
