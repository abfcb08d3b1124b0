//! What an engine counts.

/// Defines [`Counters`] and [`Counters::named`] by one list.
macro_rules! counters {
    ($($(#[$doc:meta])* pub $name:ident: u64,)*) => {
        /// Counters of an engine, all from its beginning.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Every counter with its name, in the order of their definition, which is that of the registers.
            pub fn named(&self) -> impl ExactSizeIterator<Item = Named> {
                [$(Named { name: stringify!($name), value: self.$name },)*].into_iter()
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
}

counters! {
    /// Segments sent.
    pub segments_sent: u64,
    /// Bytes of data in these.
    pub data_bytes_sent: u64,
    /// Segments handed to the engine.
    pub segments_received: u64,
    /// Bytes of data that were placed.
    pub data_bytes_placed: u64,
    /// Messages that were taken whole.
    pub messages_taken: u64,
    /// CQEs written.
    pub cqes: u64,
    /// WQEs that failed, flushed ones not counted.
    pub wqes_failed: u64,
    /// WQEs that were flushed.
    pub wqes_flushed: u64,
    /// Acknowledges sent that say *taken*.
    pub acknowledges_sent: u64,
    /// Acknowledges sent that say *not ready*.
    pub not_ready_sent: u64,
    /// Acknowledges that say *not ready* received.
    pub not_ready_received: u64,
    /// Acknowledges sent that say *no QP*.
    pub no_qp_sent: u64,
    /// Acknowledges that say *no QP* received.
    pub no_qp_received: u64,
    /// Questions sent because nothing was acknowledged.
    pub questions_sent: u64,
    /// Synchronises that begin anew sent.
    pub restarts_sent: u64,
    /// Terminates sent.
    pub terminates_sent: u64,
    /// Terminates received.
    pub terminates_received: u64,
    /// Segments dropped: shorter than their header.
    pub dropped_truncated: u64,
    /// Segments dropped: for no QP, or one that does not receive.
    pub dropped_no_qp: u64,
    /// Segments dropped: between *not ready* and the new beginning.
    pub dropped_not_ready: u64,
    /// Segments dropped: the version, queue or opcode is none.
    pub dropped_malformed: u64,
    /// Segments dropped: from another peer than the QP's.
    pub dropped_foreign: u64,
    /// Segments dropped: the look-up refused them.
    pub dropped_denied: u64,
    /// Segments dropped: out of sequence, or not as their message goes on.
    pub dropped_sequence: u64,
    /// Segments dropped: answers that nobody asked for, or that do not fit.
    pub dropped_answers: u64,
    /// Segments dropped: longer than the receive buffer.
    pub dropped_too_long: u64,
    /// Requests dropped: the IRRQ was full.
    pub dropped_irrq: u64,
    /// Datagrams dropped: another `Q_Key`.
    pub dropped_q_key: u64,
    /// Datagrams and messages of UC dropped: no receive WQE.
    pub dropped_no_buffer: u64,
    /// Datagrams not sent: there is no way to their peer, or no frame holds them.
    pub unsent_datagrams: u64,
    /// Acknowledges dropped: of what was not sent, or of no known kind.
    pub dropped_acknowledges: u64,
    /// *No QP* not said: too many at once.
    pub dropped_no_qp_answers: u64,
    /// CQEs lost because the CQ was in overrun.
    pub cqes_lost: u64,
    /// Events lost because nobody fetched them.
    pub events_lost: u64,
    /// On-the-fly sends that found no room.
    pub on_the_fly_dropped: u64,
    /// Translations that found a page absent.
    pub misses: u64,
    /// Doorbells that were ignored or refused.
    pub doorbells_refused: u64,
}
