//! What programs do with ids.

use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::{ptr, slice};

use etherslot_wire::cm::{Service, Terms};

use super::types::{AddrInfo, AlignedGid, CmId, ConnParam, IbAddr, PathRec};
use super::{OurId, address, code, create, done, events, pairs, service};
use crate::abi::context::PORT;
use crate::abi::types::{Pd, QpInitAttr};
use crate::cm::Setup;
use crate::place;

/// Reads and Atomics at a time at most, and what stands for "as many as there may be".
const MAX_READS: u8 = 128;
const MOST: u8 = 0xFF;
const MAX_RETRIES: u8 = 7;
const DEFAULT_PKEY: u16 = 0xFFFF;
/// Of `rdma_addrinfo`.
const PASSIVE: c_int = 1;
/// How long `rdma_create_ep` waits for an address, ms.
const EP_TIMEOUT_MS: c_int = 2000;

/// Shows in an id where it is bound, and to whom.
///
/// # Safety
/// The program's id.
pub(super) unsafe fn show_places(id: *mut CmId) {
    // SAFETY: as the caller says.
    unsafe {
        let ours = OurId::of(id);
        let Ok((binding, remote)) = ours.manager().look(|connections| connections.places(ours.handle)) else {
            return;
        };
        let route = &mut (*id).route;
        let at = SocketAddrV4::new(binding.ip.unwrap_or(Ipv4Addr::UNSPECIFIED), binding.port);
        if route.addr.src_storage.ss_family == 0 {
            route.addr.src_storage = address::v4(at);
        }
        address::set_port(&mut route.addr.src_storage, binding.port.to_be());
        let mut ib = IbAddr { pkey: DEFAULT_PKEY, ..IbAddr::default() };
        if let Some(ip) = binding.ip {
            (*id).verbs = ours.shared.context();
            (*id).port_num = PORT;
            // An id with a device has a domain of it: UCX gets to the device by that.
            if (*id).pd.is_null() {
                (*id).pd = ours.shared.pd();
            }
            ib.sgid = AlignedGid(place::gid(ip));
        }
        if let Some(remote) = remote {
            if route.addr.dst_storage.ss_family == 0 {
                route.addr.dst_storage = address::v4(remote);
            }
            ib.dgid = AlignedGid(place::gid(*remote.ip()));
        }
        route.addr.addr = ib;
    }
}

/// Shows in an id the way to its other side.
///
/// # Safety
/// The program's id.
pub(super) unsafe fn show_route(id: *mut CmId) {
    // SAFETY: as the caller says; the path is the id's.
    unsafe {
        let mut own = OurId::of(id).own();
        let route = &mut (*id).route;
        *own.path = PathRec {
            dgid: route.addr.addr.dgid,
            sgid: route.addr.addr.sgid,
            hop_limit: 64,
            reversible: 1_i32.to_be(),
            numb_path: 1,
            pkey: DEFAULT_PKEY,
            // Just so much: 2048 bytes, 40 Gbit/s, 4 us * 2^14.
            mtu_selector: 2,
            mtu: 4,
            rate_selector: 2,
            rate: 7,
            packet_life_time_selector: 2,
            packet_life_time: 14,
            ..PathRec::default()
        };
        route.path_rec = &raw mut *own.path;
        route.num_paths = 1;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut CmId, address: *mut libc::sockaddr) -> c_int {
    // SAFETY: the program's id, and the caller's address.
    unsafe {
        let ours = OurId::of(id);
        let bound = address::read(address)
            .and_then(|(ip, port)| ours.manager().bind(ours.handle, ip, port).map_err(code));
        if bound.is_ok() {
            address::copy(address, &mut (*id).route.addr.src_storage);
            show_places(id);
        }
        done(bound)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut CmId,
    source: *mut libc::sockaddr,
    destination: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program's id, and the caller's addresses.
    unsafe {
        let ours = OurId::of(id);
        let resolve = || {
            let source = if source.is_null() { None } else { Some(address::read(source)?) };
            // Any address is this machine.
            let (ip, port) = address::read(destination)?;
            let remote = SocketAddrV4::new(ip.unwrap_or(Ipv4Addr::LOCALHOST), port);
            ours.manager().resolve_address(ours.handle, source, remote).map_err(code)
        };
        if let Err(code) = resolve() {
            return done(Err(code));
        }
        let places = ours.manager().look(|connections| connections.places(ours.handle));
        if places.is_ok_and(|(_, remote)| remote.is_some()) {
            let address = &mut (*id).route.addr;
            address::copy(destination, &mut address.dst_storage);
            // It is no more any address.
            address.src_storage.ss_family = 0;
            show_places(id);
        }
        events::complete(id)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut CmId, _timeout_ms: c_int) -> c_int {
    // SAFETY: the program's id.
    unsafe {
        let ours = OurId::of(id);
        show_route(id);
        match ours.manager().look(|connections| connections.resolve_route(ours.handle)) {
            Ok(()) => events::complete(id),
            Err(error) => done(Err(code(error))),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut CmId, backlog: c_int) -> c_int {
    // SAFETY: the program's id.
    unsafe {
        let ours = OurId::of(id);
        let result = ours.manager().listen(ours.handle, backlog);
        show_places(id);
        done(result.map_err(code))
    }
}

/// What the program gives for the other side. `None` is no such structure; then it is as `most` says.
///
/// # Safety
/// The program's id, and the caller's structure.
unsafe fn setup(id: *mut CmId, param: *const ConnParam, most: (u8, u8)) -> Result<Setup, c_int> {
    let depth = |asked: u8, most: u8| match asked {
        MOST => Ok(most.min(MAX_READS)),
        asked if asked > MAX_READS => Err(libc::EINVAL),
        asked => Ok(asked),
    };
    // SAFETY: as the caller says.
    unsafe {
        let qp = (*id).qp.as_ref();
        let param = param.as_ref();
        let terms = Terms {
            qp: qp.map_or(param.map_or(0, |param| param.qp_num), |qp| qp.qp_num),
            number: pairs::Q_KEY,
            responder_resources: depth(param.map_or(MOST, |param| param.responder_resources), most.0)?,
            initiator_depth: depth(param.map_or(MOST, |param| param.initiator_depth), most.1)?,
            retries: param.map_or(MAX_RETRIES, |param| param.retry_count.min(MAX_RETRIES)),
            rnr_retries: param.map_or(MAX_RETRIES, |param| param.rnr_retry_count.min(MAX_RETRIES)),
            srq: qp.map_or(param.is_some_and(|param| param.srq != 0), |qp| !qp.srq.is_null()),
            flow_control: param.is_some_and(|param| param.flow_control != 0),
        };
        let data = param.map(|param| private(param.private_data, param.private_data_len)).transpose()?;
        Ok(Setup { terms, private: data.unwrap_or_default().to_vec() })
    }
}

/// # Safety
/// So many bytes of the caller's, or null.
unsafe fn private<'a>(data: *const c_void, bytes: u8) -> Result<&'a [u8], c_int> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    Ok(unsafe { slice::from_raw_parts(data.cast(), usize::from(bytes)) })
}

/// As [`setup`], of a datagram service: QP and private data are all that counts.
///
/// # Safety
/// As there.
unsafe fn datagram_setup(id: *mut CmId, param: *const ConnParam) -> Result<Setup, c_int> {
    // SAFETY: as the caller says.
    unsafe {
        let param = param.as_ref();
        let qp = (*id).qp.as_ref().map_or(param.map_or(0, |param| param.qp_num), |qp| qp.qp_num);
        let data = param.map(|param| private(param.private_data, param.private_data_len)).transpose()?;
        let terms = Terms { qp, number: pairs::Q_KEY, ..Terms::default() };
        Ok(Setup { terms, private: data.unwrap_or_default().to_vec() })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut CmId, param: *const ConnParam) -> c_int {
    // SAFETY: the program's id, and the caller's structure.
    unsafe {
        let ours = OurId::of(id);
        let connect = || {
            let service = service((*id).qp_type)?;
            let setup = match service {
                Service::Ud => datagram_setup(id, param)?,
                _ => setup(id, param, (MAX_READS, MAX_READS))?,
            };
            ours.manager().connect(ours.handle, service, setup).map_err(code)
        };
        match connect() {
            Ok(()) => events::complete(id),
            Err(code) => done(Err(code)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut CmId, param: *const ConnParam) -> c_int {
    // SAFETY: the program's id, and the caller's structure.
    unsafe {
        let ours = OurId::of(id);
        let known = ours.manager().look(|it| Ok((it.service(ours.handle)?, it.terms(ours.handle)?)));
        let ((_, service), (_, theirs)) = match known {
            Ok(known) => known,
            Err(error) => return done(Err(code(error))),
        };
        let accept = || {
            if service == Service::Ud {
                let setup = datagram_setup(id, param)?;
                return ours.manager().accept(ours.handle, setup).map_err(code);
            }
            let setup = setup(id, param, (theirs.initiator_depth, theirs.responder_resources))?;
            ours.manager().look(|it| it.agree(ours.handle, &setup.terms)).map_err(code)?;
            if !(*id).qp.is_null() {
                pairs::make_ready(id)?;
            }
            ours.manager().accept(ours.handle, setup).map_err(code)
        };
        match accept() {
            // Nobody says that a datagram's sender has heard it.
            Ok(()) if service == Service::Ud => 0,
            Ok(()) => events::complete(id),
            Err(code) => done(Err(code)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(id: *mut CmId, data: *const c_void, bytes: u8) -> c_int {
    // SAFETY: the program's id, and so many bytes of the caller's.
    unsafe {
        let ours = OurId::of(id);
        let reject = || ours.manager().reject(ours.handle, private(data, bytes)?).map_err(code);
        done(reject())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject_ece(id: *mut CmId, data: *const c_void, bytes: u8) -> c_int {
    // SAFETY: as the header asks.
    unsafe { rdma_reject(id, data, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut CmId) -> c_int {
    // SAFETY: the program's id.
    unsafe {
        if !(*id).qp.is_null() {
            return done(Err(libc::EINVAL));
        }
        let ours = OurId::of(id);
        done(ours.manager().establish(ours.handle).map_err(code))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut CmId) -> c_int {
    // SAFETY: the program's id.
    unsafe {
        let ours = OurId::of(id);
        if !(*id).qp.is_null() && (*id).qp_type != super::QPT_UD {
            pairs::end(id);
        }
        if let Err(error) = ours.manager().disconnect(ours.handle) {
            return done(Err(code(error)));
        }
        // It was told before, and no other event comes.
        if ours.manager().look(|connections| connections.is_over(ours.handle)) {
            0
        } else {
            events::complete(id)
        }
    }
}

/// A QP that receives before the connection is said to be there: what says so is not lost here.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_notify(_id: *mut CmId, _event: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut CmId) -> u16 {
    // SAFETY: the program's id.
    address::port(unsafe { &(*id).route.addr.src_storage })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut CmId) -> u16 {
    // SAFETY: the program's id.
    address::port(unsafe { &(*id).route.addr.dst_storage })
}

/// Options of an id. They have no effect: ports are free as soon as nobody has them, and acknowledgements need no time-out.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    _id: *mut CmId,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: usize,
) -> c_int {
    const LEVEL_ID: c_int = 0;
    // Type of service, reuse of addresses, one family alone, acknowledgement time-out.
    let wanted = match (level, option) {
        (LEVEL_ID, 0 | 3) => 1,
        (LEVEL_ID, 1 | 2) => size_of::<c_int>(),
        _ => return done(Err(libc::ENOSYS)),
    };
    done(if bytes == wanted && !value.is_null() { Ok(()) } else { Err(libc::EINVAL) })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_join_multicast(_id: *mut CmId, _address: *const c_void, _context: *mut c_void) -> c_int {
    done(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_join_multicast_ex(_id: *mut CmId, _attr: *const c_void, _context: *mut c_void) -> c_int {
    done(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_leave_multicast(_id: *mut CmId, _address: *const c_void) -> c_int {
    done(Err(libc::EOPNOTSUPP))
}

/// Providers agree on things of their own. There are none.
#[unsafe(no_mangle)]
extern "C" fn rdma_set_local_ece(_id: *mut CmId, _ece: *mut c_void) -> c_int {
    done(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_remote_ece(_id: *mut CmId, _ece: *mut c_void) -> c_int {
    done(Err(libc::EOPNOTSUPP))
}

// --- Ends of connections: id and QP in one ---

/// # Safety
/// As the header asks of `rdma_create_ep`.
unsafe fn prepare_ep(
    id: *mut CmId,
    info: &AddrInfo,
    pd: *mut Pd,
    attr: *mut QpInitAttr,
) -> Result<(), c_int> {
    let last = |result: c_int| match result {
        0 => Ok(()),
        // SAFETY: this thread's own.
        _ => Err(unsafe { *libc::__errno_location() }),
    };
    // SAFETY: as the caller says.
    unsafe {
        if info.ai_flags & PASSIVE != 0 {
            last(rdma_bind_addr(id, info.ai_src_addr))?;
            if let Some(attr) = attr.as_ref() {
                (*id).pd = pd;
                OurId::of(id).own().passive = Some(QpInitAttr { qp_type: info.ai_qp_type, ..*attr });
            }
            return Ok(());
        }
        last(rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, EP_TIMEOUT_MS))?;
        last(rdma_resolve_route(id, EP_TIMEOUT_MS))?;
        if let Some(attr) = attr.as_mut() {
            attr.qp_type = info.ai_qp_type;
            last(pairs::rdma_create_qp(id, pd, attr))?;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    out: *mut *mut CmId,
    info: *mut AddrInfo,
    pd: *mut Pd,
    attr: *mut QpInitAttr,
) -> c_int {
    // SAFETY: the caller's structures.
    unsafe {
        let info = &*info;
        let mut id = ptr::null_mut();
        let created =
            create(ptr::null_mut(), &raw mut id, ptr::null_mut(), info.ai_port_space, info.ai_qp_type);
        if let Err(code) = created {
            return done(Err(code));
        }
        if let Err(code) = prepare_ep(id, info, pd, attr) {
            rdma_destroy_ep(id);
            return done(Err(code));
        }
        *out = id;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(id: *mut CmId) {
    // SAFETY: the program's id, not used after this.
    unsafe {
        pairs::rdma_destroy_qp(id);
        pairs::rdma_destroy_srq(id);
        super::rdma_destroy_id(id);
    }
}
