//! What a session counts.

/// Counters of one session, all from its beginning, and a few gauges at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
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
    /// Smoothed round-trip time.
    pub srtt_ns: u64,
    /// The least round-trip time of the last seconds.
    pub rtt_min_ns: u64,
    /// The window, bytes.
    pub window_bytes: u64,
}
