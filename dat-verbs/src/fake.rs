//! A device that exists in tests only: both libraries with the functions that an adapter calls. It moves no data; it records
//! what it is told, and it can be removed.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, Ordering};

use dat_core::ia_params::IaParams;
use dat_core::transport::Token;
use dat_core::upcall::Upcalls;
use libc::{c_char, c_int, c_uint, c_void, sockaddr};

use crate::adapter::Adapter;
use crate::sys::{AsyncEvent, Ibverbs, LINK_LAYER_INFINIBAND, Rdmacm, Wc};
use crate::sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid, ibv_mr, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_recv_wr, ibv_send_wr,
    qp_mask, rdma_cm_event, rdma_cm_id, rdma_event_channel,
};

/// The GID table of the device: entry 1 is empty, as after an address was removed.
pub(crate) const GIDS: [[u8; 16]; 3] = [
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0; 16],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
];

/// Index of the partition that librdmacm names for its connections.
pub(crate) const PARTITION: u16 = 3;

/// An open device.
#[repr(C)]
pub(crate) struct FakeContext {
    context: ibv_context,
    /// The end of the pipe of asynchronous events that the kernel has.
    events: AtomicI32,
    /// The same for the completion channel that was made last.
    completions: AtomicI32,
    /// Calls of `ibv_get_async_event` and `ibv_get_cq_event`.
    pub(crate) reads: AtomicU32,
    /// Flags of the last request that was posted.
    pub(crate) send_flags: AtomicU32,
    /// Partition of the queue pair that was modified last.
    pub(crate) partition: AtomicU16,
}

impl FakeContext {
    /// Returns the device of `adapter`.
    pub(crate) fn of(adapter: &Adapter) -> &Self {
        // SAFETY: fake devices are the only ones in tests, and are never freed.
        unsafe { &*adapter.shared.device.raw().cast() }
    }

    /// Removes the device: its descriptors have an error from now on, as in Linux' `ib_uverbs_event_poll`.
    pub(crate) fn remove(&self) {
        for end in [&self.events, &self.completions] {
            let end = end.swap(-1, Ordering::Relaxed);
            if end >= 0 {
                // SAFETY: the descriptor belongs to the device only.
                drop(unsafe { OwnedFd::from_raw_fd(end) });
            }
        }
    }
}

/// Opens an adapter of the device; `settings` follow the address in dat.conf.
pub(crate) fn adapter(settings: &str) -> Arc<Adapter> {
    install();
    let params = IaParams::parse(&format!("127.0.0.1 0 {settings}")).expect("parameters");
    let upcalls = Upcalls::new(Token::default());
    Arc::new(Adapter::open("fake", &params, upcalls).expect("an adapter"))
}

fn install() {
    Ibverbs::install(|| Ibverbs {
        ibv_get_device_list: get_device_list,
        ibv_free_device_list: free_device_list,
        ibv_get_device_name: get_device_name,
        ibv_get_device_guid: get_device_guid,
        ibv_open_device: open_device,
        ibv_close_device: close_device,
        ibv_get_async_event: get_async_event,
        ibv_query_device: query_device,
        ibv_query_port: query_port,
        ibv_query_gid: query_gid,
        ibv_alloc_pd: alloc_pd,
        ibv_dealloc_pd: dealloc_pd,
        ibv_reg_mr: reg_mr,
        ibv_reg_mr_iova: reg_mr_iova,
        ibv_dereg_mr: dereg_mr,
        ibv_create_comp_channel: create_comp_channel,
        ibv_destroy_comp_channel: destroy_comp_channel,
        ibv_create_cq: create_cq,
        ibv_resize_cq: resize_cq,
        ibv_destroy_cq: destroy_cq,
        ibv_get_cq_event: get_cq_event,
        ibv_ack_cq_events: ack_cq_events,
        ibv_create_qp: create_qp,
        ibv_modify_qp: modify_qp,
        ibv_destroy_qp: destroy_qp,
        ..Ibverbs::unused()
    });
    Rdmacm::install(|| Rdmacm {
        rdma_create_event_channel: create_event_channel,
        rdma_destroy_event_channel: destroy_event_channel,
        rdma_get_cm_event: get_cm_event,
        rdma_create_id: create_id,
        rdma_destroy_id: destroy_id,
        rdma_set_option: set_option,
        rdma_bind_addr: bind_addr,
        rdma_init_qp_attr: init_qp_attr,
        ..Rdmacm::unused()
    });
}

/// Returns an object of zeros, which is never freed.
fn zeroed<T>() -> &'static mut T {
    // SAFETY: all-zero is a valid value of the plain C structs that this file makes.
    Box::leak(Box::new(unsafe { std::mem::zeroed() }))
}

/// Returns the reading and the writing end of a pipe.
fn pipe() -> (c_int, c_int) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    (reader.into_raw_fd(), writer.into_raw_fd())
}

unsafe fn device_of<'a>(context: *mut ibv_context) -> &'a FakeContext {
    // SAFETY: each context is made by `context`, below.
    unsafe { &*context.cast() }
}

fn context() -> *mut ibv_context {
    let made: &mut FakeContext = zeroed();
    let (reader, writer) = pipe();
    made.context.device = zeroed::<ibv_device>();
    made.context.async_fd = reader;
    made.context.ops.post_send = Some(post_send);
    made.context.ops.post_recv = Some(post_recv);
    made.context.ops.poll_cq = Some(poll_cq);
    made.context.ops.req_notify_cq = Some(req_notify_cq);
    made.events = AtomicI32::new(writer);
    made.completions = AtomicI32::new(-1);
    std::ptr::from_mut(made).cast()
}

unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let list: &mut [*mut ibv_device; 2] = Box::leak(Box::new([zeroed(), std::ptr::null_mut()]));
    // SAFETY: the caller has room for the number.
    unsafe { *count = 1 };
    list.as_mut_ptr()
}

unsafe extern "C" fn free_device_list(_: *mut *mut ibv_device) {}

unsafe extern "C" fn get_device_name(_: *mut ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

unsafe extern "C" fn get_device_guid(_: *mut ibv_device) -> u64 {
    1
}

unsafe extern "C" fn open_device(_: *mut ibv_device) -> *mut ibv_context {
    context()
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: made by `context`.
    unsafe { device_of(context) }.remove();
    // SAFETY: the descriptor belongs to the device only.
    unsafe { libc::close((*context).async_fd) }
}

unsafe extern "C" fn get_async_event(context: *mut ibv_context, _: *mut AsyncEvent) -> c_int {
    // SAFETY: made by `context`.
    let device = unsafe { device_of(context) };
    device.reads.fetch_add(1, Ordering::Relaxed);
    -1
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller has room for the attributes.
    let attr = unsafe { &mut *attr };
    (attr.max_qp, attr.max_qp_wr, attr.max_sge) = (64, 1024, 8);
    (attr.max_cq, attr.max_cqe, attr.max_mr, attr.max_pd) = (64, 65_536, 64, 64);
    (attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (8, 8);
    attr.max_mr_size = 1 << 40;
    0
}

unsafe extern "C" fn query_port(_: *mut ibv_context, _: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: as above.
    let attr = unsafe { &mut *attr };
    (attr.state, attr.active_mtu, attr.link_layer) = (4, 5, LINK_LAYER_INFINIBAND);
    attr.max_msg_sz = 1 << 30;
    0
}

unsafe extern "C" fn query_gid(
    _: *mut ibv_context,
    _: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let found = usize::try_from(index)
        .ok()
        .and_then(|index| GIDS.get(index));
    match found {
        Some(&raw) => {
            // SAFETY: as above.
            unsafe { (*gid).raw = raw };
            0
        }
        None => libc::EINVAL,
    }
}

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let pd: &mut ibv_pd = zeroed();
    pd.context = context;
    pd
}

unsafe extern "C" fn dealloc_pd(_: *mut ibv_pd) -> c_int {
    0
}

unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _: c_int,
) -> *mut ibv_mr {
    let mr: &mut ibv_mr = zeroed();
    (mr.pd, mr.addr, mr.length) = (pd, addr, length);
    mr
}

unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's arguments.
    unsafe { reg_mr(pd, addr, length, access) }
}

unsafe extern "C" fn dereg_mr(_: *mut ibv_mr) -> c_int {
    0
}

unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel: &mut ibv_comp_channel = zeroed();
    let (reader, writer) = pipe();
    channel.context = context;
    channel.fd = reader;
    // SAFETY: made by `context`.
    let device = unsafe { device_of(context) };
    device.completions.store(writer, Ordering::Relaxed);
    channel
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the descriptor belongs to the channel only.
    unsafe { libc::close((*channel).fd) }
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let cq: &mut ibv_cq = zeroed();
    (cq.context, cq.cqe, cq.cq_context, cq.channel) = (context, cqe, cq_context, channel);
    cq
}

unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the caller's queue.
    unsafe { (*cq).cqe = cqe };
    0
}

unsafe extern "C" fn destroy_cq(_: *mut ibv_cq) -> c_int {
    0
}

unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel, whose device is never freed.
    let device = unsafe { device_of((*channel).context) };
    device.reads.fetch_add(1, Ordering::Relaxed);
    -1
}

unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: u32) {}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let qp: &mut ibv_qp = zeroed();
    // SAFETY: the caller's arguments.
    (qp.context, qp.qp_context) = unsafe { ((*pd).context, (*init).qp_context) };
    qp.qp_num = 17;
    qp
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's arguments; the device is never freed.
    let (attr, device) = unsafe { (&*attr, device_of((*qp).context)) };
    if mask & qp_mask::PKEY_INDEX != 0 {
        device.partition.store(attr.pkey_index, Ordering::Relaxed);
    }
    0
}

unsafe extern "C" fn destroy_qp(_: *mut ibv_qp) -> c_int {
    0
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's arguments; the device is never freed.
    let (flags, device) = unsafe { ((*wr).send_flags, device_of((*qp).context)) };
    device.send_flags.store(flags, Ordering::Relaxed);
    0
}

unsafe extern "C" fn post_recv(
    _: *mut ibv_qp,
    _: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    0
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, _: *mut Wc) -> c_int {
    0
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    let channel: &mut rdma_event_channel = zeroed();
    // Never readable: no connection is made.
    (channel.fd, _) = pipe();
    channel
}

unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the descriptor belongs to the channel only.
    unsafe { libc::close((*channel).fd) };
}

unsafe extern "C" fn get_cm_event(_: *mut rdma_event_channel, _: *mut *mut rdma_cm_event) -> c_int {
    -1
}

unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: c_uint,
) -> c_int {
    let made: &mut rdma_cm_id = zeroed();
    (made.channel, made.context, made.ps) = (channel, context, space);
    // SAFETY: the caller has room for the pointer.
    unsafe { *id = made };
    0
}

unsafe extern "C" fn destroy_id(_: *mut rdma_cm_id) -> c_int {
    0
}

unsafe extern "C" fn set_option(
    _: *mut rdma_cm_id,
    _: c_int,
    _: c_int,
    _: *mut c_void,
    _: usize,
) -> c_int {
    0
}

unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, _: *mut sockaddr) -> c_int {
    // SAFETY: the caller's id.
    let id = unsafe { &mut *id };
    (id.verbs, id.port_num) = (context(), 1);
    0
}

unsafe extern "C" fn init_qp_attr(
    _: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let (attr, mask) = unsafe { (&mut *attr, &mut *mask) };
    *mask = qp_mask::STATE;
    if attr.qp_state == ibv_qp_state::IBV_QPS_INIT {
        attr.pkey_index = PARTITION;
        *mask |= qp_mask::PKEY_INDEX | qp_mask::PORT | qp_mask::ACCESS_FLAGS;
    }
    if attr.qp_state == ibv_qp_state::IBV_QPS_RTS {
        attr.max_rd_atomic = 8;
        *mask |= qp_mask::MAX_RD_ATOMIC;
    }
    0
}
