//! Events, as programs get them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use std::{mem, ptr};

use etherslot_wire::cm::{Service, Terms};

use super::types::{CmEvent, CmId, ConnParam, EventChannel, Param, UdParam};
use super::{OurChannel, OurId, Shared, calls, code, done, pairs, started};
use crate::abi::set_errno;
use crate::abi::types::AhAttr;
use crate::cm::{Event, Kind};
use crate::place;

/// An event, with the private data that it points to.
#[repr(C)]
struct OurEvent {
    event: CmEvent,
    private: Vec<u8>,
    /// Who counts it.
    owner: *mut OurId,
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut EventChannel,
    out: *mut *mut CmEvent,
) -> c_int {
    // SAFETY: the program's channel.
    let queue = unsafe { OurChannel::queue(channel) };
    loop {
        let mut found = queue.pop();
        if found.is_none() {
            if queue.is_nonblocking() {
                set_errno(libc::EAGAIN);
                return -1;
            }
            match started() {
                Some(shared) => shared.manager.device().wait(&queue, || {
                    found = queue.pop();
                    found.is_some()
                }),
                None => queue.wait(),
            }
        }
        let (Some(event), Some(shared)) = (found, started()) else { continue };
        // SAFETY: an event of this channel; the caller's place.
        unsafe {
            if let Some(event) = deliver(&shared, event) {
                *out = event;
                return 0;
            }
        }
    }
}

/// What a program gets; none if nobody is there any more whom it is for.
///
/// # Safety
/// The event comes from a queue of this process's connections.
unsafe fn deliver(shared: &Shared, event: Event) -> Option<*mut CmEvent> {
    let manager = &shared.manager;
    let counts = event.listener.unwrap_or(event.id);
    let owner = manager.look(|connections| {
        let owner = connections.name(counts).filter(|&name| name != 0)? as *mut OurId;
        // SAFETY: names are ids of ours, which end under the same lock.
        unsafe { (*owner).given.fetch_add(1, Ordering::AcqRel) };
        Some(owner)
    });
    let Some(owner) = owner else {
        if event.listener.is_some() {
            let _ = manager.destroy(event.id);
        }
        return None;
    };
    let (mut kind, mut status) = (event.kind, event.status);
    // SAFETY: it waits for this event's acknowledgement before it ends.
    let (id, listener) = unsafe {
        match event.listener {
            Some(_) => {
                let Some(child) = child(shared, owner.cast(), &event) else {
                    (*owner).acked.fetch_add(1, Ordering::AcqRel);
                    return None;
                };
                (child, owner.cast::<CmId>())
            }
            None => (owner.cast::<CmId>(), ptr::null_mut()),
        }
    };
    // SAFETY: an id of ours, as above.
    let (ours, qp) = unsafe { (OurId::of(id), (*id).qp) };
    let service = manager.look(|connections| connections.service(event.id)).map_or(Service::Rc, |it| it.1);
    match kind {
        Kind::ConnectResponse if !qp.is_null() => {
            // SAFETY: the program's id, with its QP.
            let ready = unsafe { pairs::make_ready(id) };
            let ready = ready.and_then(|()| manager.establish(ours.handle).map_err(code));
            kind = Kind::Established;
            if let Err(code) = ready {
                let _ = manager.reject(ours.handle, &[]);
                (kind, status) = (Kind::ConnectError, -code);
            }
        }
        Kind::Rejected | Kind::Unreachable | Kind::ConnectError
            if !qp.is_null() && service != Service::Ud =>
        {
            // SAFETY: as above.
            unsafe { pairs::end(id) };
        }
        _ => {}
    }
    let mut given = Box::new(OurEvent {
        event: CmEvent {
            id,
            listen_id: listener,
            event: kind as c_int,
            status,
            // SAFETY: zeros are a valid value.
            param: unsafe { mem::zeroed() },
        },
        private: event.private,
        owner,
    });
    let private: (*const c_void, u8) = match given.private.len() {
        0 => (ptr::null(), 0),
        length => (given.private.as_ptr().cast(), length as u8),
    };
    given.event.param = if service == Service::Ud {
        let remote = manager.look(|connections| connections.places(event.id)).ok().and_then(|it| it.1);
        let mut ah_attr = AhAttr::default();
        if let Some(remote) = remote {
            ah_attr = pairs::ah_attr(place::gid(*remote.ip()));
        }
        let Terms { qp, number, .. } = event.terms;
        Param {
            ud: UdParam {
                private_data: private.0,
                private_data_len: private.1,
                ah_attr,
                qp_num: qp,
                qkey: number,
            },
        }
    } else {
        let terms = event.terms;
        Param {
            conn: ConnParam {
                private_data: private.0,
                private_data_len: private.1,
                // From where the program stands.
                responder_resources: terms.initiator_depth,
                initiator_depth: terms.responder_resources,
                flow_control: terms.flow_control.into(),
                retry_count: terms.retries,
                rnr_retry_count: terms.rnr_retries,
                srq: terms.srq.into(),
                qp_num: terms.qp,
            },
        }
    };
    Some(Box::into_raw(given).cast())
}

/// The id of somebody who asks.
///
/// # Safety
/// The listener is an id of ours that is not destroyed.
unsafe fn child(shared: &Shared, listener: *mut CmId, event: &Event) -> Option<*mut CmId> {
    // SAFETY: as the caller says.
    unsafe {
        let is_sync = OurId::of(listener).own().is_sync;
        let (context, kinds) = ((*listener).context, ((*listener).ps, (*listener).qp_type));
        let channel = (*listener).channel;
        // It was taken back.
        shared.manager.look(|connections| connections.name(event.id))?;
        let id = OurId::make(shared.clone(), event.id, channel, false, context, kinds);
        calls::show_places(id);
        calls::show_route(id);
        if is_sync && super::rdma_migrate_id(id, ptr::null_mut()) != 0 {
            let _ = shared.manager.destroy(event.id);
            OurId::free(id);
            return None;
        }
        Some(id)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_ack_cm_event(event: *mut CmEvent) -> c_int {
    if event.is_null() {
        return done(Err(libc::EINVAL));
    }
    // SAFETY: given by rdma_get_cm_event, and not used after this; its owner waits for it.
    unsafe {
        let event = Box::from_raw(event.cast::<OurEvent>());
        (*event.owner).acked.fetch_add(1, Ordering::Release);
    }
    0
}

/// Waits for what a call has begun, if the id's calls wait.
///
/// # Safety
/// The program's id.
pub(super) unsafe fn complete(id: *mut CmId) -> c_int {
    // SAFETY: the program's id; its event is the last that was waited for.
    unsafe {
        if !OurId::of(id).own().is_sync {
            return 0;
        }
        let before = mem::replace(&mut (*id).event, ptr::null_mut());
        if !before.is_null() {
            rdma_ack_cm_event(before);
        }
        let mut event = ptr::null_mut();
        if rdma_get_cm_event((*id).channel, &raw mut event) != 0 {
            return -1;
        }
        (*id).event = event;
        match ((*event).status, (*event).event) {
            (0, _) => 0,
            (_, kind) if kind == Kind::Rejected as c_int => done(Err(libc::ECONNREFUSED)),
            (status, _) => done(Err(status.abs())),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = usize::try_from(event).ok().and_then(|event| NAMES.get(event));
    name.map_or(c"UNKNOWN EVENT".as_ptr(), |name| name.as_ptr())
}
