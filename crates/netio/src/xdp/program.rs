//! The program at the interface that picks our frames out, and its attachment.
//!
//! Fifteen instructions, written by hand: a compiler for them would be the larger thing to trust. Program, map and link are
//! file descriptors, so the interface is as it was before as soon as the process ends, however it ends.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::XdpMode;
use crate::ETHERTYPE;

// linux/bpf.h
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_PSEUDO_MAP_FD: u8 = 1;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;
// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// An instruction: operation, registers (destination in the low half), offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(operation: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { operation, registers: source << 4 | destination, offset, immediate }
}

// Operations: class | size or source | mode or kind (Documentation/bpf/standardization/instruction-set).
const LOAD_32: u8 = 0x61;
const LOAD_16: u8 = 0x69;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE: u8 = 0xBF;
const MOVE_IMMEDIATE: u8 = 0xB7;
const ADD_IMMEDIATE: u8 = 0x07;
const JUMP_IF_GREATER: u8 = 0x2D;
const JUMP_UNLESS_EQUAL_IMMEDIATE: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Frames of our EtherType go to the socket in the map at their queue's place; all others, and ours if no socket is there, go on
/// to the kernel. Register 1 comes as a pointer to `xdp_md`.
fn program(map: BorrowedFd<'_>) -> [Instruction; 15] {
    // As the processor reads it from the frame.
    let ethertype = i32::from(ETHERTYPE.to_be());
    [
        // r2 = the frame's start, r3 = its end
        instruction(LOAD_32, 2, 1, 0, 0),
        instruction(LOAD_32, 3, 1, 4, 0),
        // to «pass» if an Ethernet header is not whole: r2 + 14 > r3
        instruction(MOVE, 4, 2, 0, 0),
        instruction(ADD_IMMEDIATE, 4, 0, 0, 14),
        instruction(JUMP_IF_GREATER, 4, 3, 8, 0),
        // to «pass» if the EtherType, at 12, is another
        instruction(LOAD_16, 4, 2, 12, 0),
        instruction(JUMP_UNLESS_EQUAL_IMMEDIATE, 4, 0, 6, ethertype),
        // return bpf_redirect_map(map, queue, XDP_PASS): the last is what it returns if no socket is there
        instruction(LOAD_32, 2, 1, 16, 0),
        instruction(LOAD_IMMEDIATE_64, 1, BPF_PSEUDO_MAP_FD, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE_IMMEDIATE, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, BPF_FUNC_REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
        // «pass»: return XDP_PASS
        instruction(MOVE_IMMEDIATE, 0, 0, 0, XDP_PASS),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// What could not be done.
#[derive(Debug)]
pub(super) enum Failed {
    /// The program could not be loaded.
    Load(io::Error),
    /// It could not be attached.
    Attach(io::Error),
}

/// Our program at an interface; it goes with this.
pub(super) struct Attached {
    _link: OwnedFd,
    _map: OwnedFd,
    /// Whether the driver runs it, not the kernel's stack.
    pub(super) is_native: bool,
}

/// Attaches the program to an interface, for frames of one queue to go to one socket.
pub(super) fn attach(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    mode: XdpMode,
) -> Result<Attached, Failed> {
    let map = create_map(queue + 1).map_err(Failed::Load)?;
    let program = load(&map).map_err(Failed::Load)?;
    put(&map, queue, socket).map_err(Failed::Load)?;
    let create = |flags| link(&program, interface, flags).map_err(Failed::Attach);
    let (link, is_native) = match mode {
        XdpMode::Native => (create(XDP_FLAGS_DRV_MODE)?, true),
        XdpMode::Generic => (create(XDP_FLAGS_SKB_MODE)?, false),
        XdpMode::Auto => match create(XDP_FLAGS_DRV_MODE) {
            Ok(link) => (link, true),
            Err(Failed::Attach(cause)) => {
                let link = create(XDP_FLAGS_SKB_MODE)?;
                tracing::info!(%cause, "the driver does not run XDP programs here");
                (link, false)
            }
            Err(other) => return Err(other),
        },
    };
    // The link holds the program.
    Ok(Attached { _link: link, _map: map, is_native })
}

/// One call of bpf(2), with the part of `union bpf_attr` that belongs to it.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of attributes, whose pointers the callers keep alive, and writes nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), mem::size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn descriptor(number: libc::c_long) -> OwnedFd {
    // SAFETY: the call that returned it made it for us.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}

fn create_map(entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
    }
    let attributes =
        Attributes { kind: BPF_MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries, flags: 0 };
    bpf(BPF_MAP_CREATE, &attributes).map(descriptor)
}

fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
    }
    let instructions = program(std::os::fd::AsFd::as_fd(map));
    let attributes = Attributes {
        kind: BPF_PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Apache-2.0 OR MIT".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
    };
    bpf(BPF_PROG_LOAD, &attributes).map(descriptor)
}

fn put(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let socket = socket.as_raw_fd();
    let attributes = Attributes {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: (&raw const queue) as u64,
        value: (&raw const socket) as u64,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        kind: u32,
        flags: u32,
    }
    let program = program.as_raw_fd().cast_unsigned();
    bpf(BPF_LINK_CREATE, &Attributes { program, interface, kind: BPF_XDP, flags }).map(descriptor)
}
