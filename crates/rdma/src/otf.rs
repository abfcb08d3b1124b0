//! The on-the-fly windows: sends by stores of the program, without a queue in memory (docs/rnic.md, section 13).

use alloc::boxed::Box;

use crate::config::Qpn;
use crate::engine::{ControlError, Engine, PostError};
use crate::wqe::{BLOCK_BYTES, Block, SendOpcode, flag, u32_le};

/// Places of the AOTF window of a QP.
pub const ON_THE_FLY_PLACES: usize = 16;

/// The prepared headers of a QP.
#[derive(Debug)]
pub(crate) struct Headers {
    blocks: [Block; ON_THE_FLY_PLACES],
}

impl Engine {
    /// BOTF: a WQE was written into the window and kicked. What finds no room is dropped and counted.
    pub fn kick(&mut self, qp: Qpn, wqe: &[u8]) -> Result<(), PostError> {
        let posted = self.post_send(qp, wqe);
        if posted.is_err() {
            self.shared.counters.on_the_fly_dropped += 1;
        }
        posted
    }

    /// AOTF: prepares a header: a Write or Send of one block with 8 bytes of inline data.
    pub fn prepare(&mut self, qp: Qpn, place: usize, wqe: &[u8]) -> Result<(), ControlError> {
        let block: &Block = wqe.try_into().map_err(|_| ControlError::Invalid)?;
        let is_message =
            SendOpcode::new(block[0]).is_some_and(|opcode| opcode.is_write() || opcode.is_send());
        let is_formed = is_message
            && block[1] & (flag::INLINE | flag::FLAGS) == flag::INLINE
            && block[2] == 1
            && u32_le(block, 4) == 8;
        if !is_formed {
            return Err(ControlError::Invalid);
        }
        let (qp, _) = self.qp(qp).ok_or(ControlError::Unknown)?;
        let headers = qp
            .on_the_fly
            .get_or_insert_with(|| Box::new(Headers { blocks: [[0; BLOCK_BYTES]; ON_THE_FLY_PLACES] }));
        *headers.blocks.get_mut(place).ok_or(ControlError::Invalid)? = *block;
        Ok(())
    }

    /// AOTF: a store of 8 bytes sends the header of its place with them. A place without a header sends nothing.
    pub fn store(&mut self, number: Qpn, place: usize, value: u64) -> Result<(), PostError> {
        let (qp, _) = self.qp(number).ok_or(PostError::Unknown)?;
        let header = qp.on_the_fly.as_ref().and_then(|headers| headers.blocks.get(place)).copied();
        let Some(mut block) = header.filter(|block| block[2] == 1) else {
            self.shared.counters.on_the_fly_dropped += 1;
            return Err(PostError::Malformed);
        };
        block[32..40].copy_from_slice(&value.to_le_bytes());
        self.kick(number, &block)
    }
}
