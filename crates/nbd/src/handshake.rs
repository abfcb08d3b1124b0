//! Fixed newstyle negotiation: options and their replies, until an export is chosen.

use crate::export::{MAX_PAYLOAD_BYTES, Offer};
use crate::message::{
    FIXED_NEWSTYLE, Fields, INIT_MAGIC, MAX_STRING_BYTES, NO_ZEROES, OPTION_BYTES, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, info, option, reply,
};
use crate::staging::Staging;

/// Data of an option that is looked at: a string of the greatest length, and questions.
pub(crate) const MAX_OPTION_BYTES: usize = 2 * MAX_STRING_BYTES;
/// Longer ones are an attack, as are more of them than this.
const MAX_SKIPPED_BYTES: u32 = 1 << 16;
const MAX_OPTIONS: u32 = 64;

/// What the server says first.
pub(crate) fn greeting() -> Vec<u8> {
    let mut text = Vec::new();
    text.extend(INIT_MAGIC.to_be_bytes());
    text.extend(OPTION_MAGIC.to_be_bytes());
    text.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    text
}

/// Where the negotiation is.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Flags,
    Option,
    /// The data of an option that is too long.
    Skip {
        option: u32,
        left: usize,
    },
}

/// A negotiation.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    stage: Stage,
    no_zeroes: bool,
    structured: bool,
    options: u32,
}

/// What comes of one step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes have to be there.
    Need(usize),
    /// It goes on, when what was said is sent.
    On,
    /// Requests come next.
    Enter { export: usize, structured: bool },
    /// The client wants to go.
    Leave,
    /// The client breaks the protocol.
    Broken(&'static str),
}

impl Handshake {
    /// Takes what is staged; replies are added to `text`.
    pub(crate) fn step(&mut self, staging: &mut Staging, offers: &[Offer], text: &mut Vec<u8>) -> Step {
        match &mut self.stage {
            Stage::Flags => {
                let Some(flags) = Fields(staging.bytes()).u32() else { return Step::Need(4) };
                staging.consume(4);
                if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                    return Step::Broken("unknown client flags");
                }
                self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
                self.stage = Stage::Option;
                Step::On
            }
            Stage::Skip { option, left } => {
                let bytes = staging.bytes().len().min(*left);
                staging.consume(bytes);
                *left -= bytes;
                if *left != 0 {
                    return Step::Need(1);
                }
                add_reply(text, *option, reply::ERR_TOO_BIG, &[]);
                self.stage = Stage::Option;
                Step::On
            }
            Stage::Option => self.option(staging, offers, text),
        }
    }

    fn option(&mut self, staging: &mut Staging, offers: &[Offer], text: &mut Vec<u8>) -> Step {
        let mut fields = Fields(staging.bytes());
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return Step::Need(OPTION_BYTES);
        };
        if magic != OPTION_MAGIC {
            return Step::Broken("no option where one has to be");
        }
        if length > MAX_SKIPPED_BYTES {
            return Step::Broken("an option of excessive length");
        }
        let length = length as usize;
        if length <= MAX_OPTION_BYTES && fields.0.len() < length {
            return Step::Need(OPTION_BYTES + length);
        }
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return Step::Broken("too many options");
        }
        if length > MAX_OPTION_BYTES {
            staging.consume(OPTION_BYTES);
            self.stage = Stage::Skip { option, left: length };
            return Step::On;
        }
        let step = self.answer(option, &fields.0[..length], offers, text);
        staging.consume(OPTION_BYTES + length);
        step
    }

    fn answer(&mut self, option: u32, data: &[u8], offers: &[Offer], text: &mut Vec<u8>) -> Step {
        match option {
            option::EXPORT_NAME => {
                let Some(export) = find(offers, data) else { return Step::Broken("no such export") };
                text.extend(offers[export].geometry.bytes.to_be_bytes());
                text.extend(offers[export].flags().to_be_bytes());
                if !self.no_zeroes {
                    text.extend([0; 124]);
                }
                return Step::Enter { export, structured: self.structured };
            }
            option::ABORT => {
                add_reply(text, option, reply::ACK, &[]);
                return Step::Leave;
            }
            option::LIST if data.is_empty() => {
                for Offer { export, .. } in offers {
                    let mut entry = (export.name.len() as u32).to_be_bytes().to_vec();
                    entry.extend(export.name.as_bytes());
                    entry.extend(export.description.as_bytes());
                    add_reply(text, option, reply::SERVER, &entry);
                }
                add_reply(text, option, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                add_reply(text, option, reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => add_reply(text, option, reply::ERR_INVALID, &[]),
            option::INFO | option::GO => {
                let Some((name, asked)) = parse_info(data) else {
                    add_reply(text, option, reply::ERR_INVALID, &[]);
                    return Step::On;
                };
                let Some(export) = find(offers, name) else {
                    add_reply(text, option, reply::ERR_UNKNOWN, &[]);
                    return Step::On;
                };
                add_info(text, option, &offers[export], asked);
                add_reply(text, option, reply::ACK, &[]);
                if option == option::GO {
                    return Step::Enter { export, structured: self.structured };
                }
            }
            // NBD_OPT_STARTTLS among them.
            _ => add_reply(text, option, reply::ERR_UNSUP, &[]),
        }
        Step::On
    }
}

fn find(offers: &[Offer], name: &[u8]) -> Option<usize> {
    if name.is_empty() {
        return (!offers.is_empty()).then_some(0);
    }
    offers.iter().position(|offer| offer.export.name.as_bytes() == name)
}

/// The name and the types of information asked for, of `NBD_OPT_INFO` and `NBD_OPT_GO`.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Fields(data);
    let name_bytes = fields.u32()? as usize;
    let name = fields.take(name_bytes).filter(|name| name.len() <= MAX_STRING_BYTES)?;
    let count = fields.u16()?;
    (fields.0.len() == 2 * usize::from(count)).then_some((name, fields.0))
}

fn add_reply(text: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    text.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    text.extend(option.to_be_bytes());
    text.extend(kind.to_be_bytes());
    text.extend((data.len() as u32).to_be_bytes());
    text.extend(data);
}

/// Each type of information once, however often it is asked for.
fn add_info(text: &mut Vec<u8>, option: u32, offer: &Offer, asked: &[u8]) {
    let Offer { export, geometry } = offer;
    let is_asked = |kind: u16| asked.chunks_exact(2).any(|one| one == kind.to_be_bytes());
    let mut add = |kind: u16, data: &[u8]| {
        add_reply(text, option, reply::INFO, &[&kind.to_be_bytes()[..], data].concat());
    };
    let mut data = geometry.bytes.to_be_bytes().to_vec();
    data.extend(offer.flags().to_be_bytes());
    add(info::EXPORT, &data);
    if is_asked(info::NAME) {
        add(info::NAME, export.name.as_bytes());
    }
    if is_asked(info::DESCRIPTION) {
        add(info::DESCRIPTION, export.description.as_bytes());
    }
    if is_asked(info::BLOCK_SIZE) {
        let sizes = [geometry.block_bytes, geometry.preferred_bytes(), MAX_PAYLOAD_BYTES];
        add(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
    }
}
