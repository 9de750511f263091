//! The functions that both libraries export, as tables that [`load`] fills, and as Rust functions with C's names.
//!
//! All of them require that [`load`] has succeeded, and what the manual page of each requires.

use std::sync::OnceLock;

use libc::{c_char, c_int, c_void, sockaddr};

use super::cma::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use super::library::{LoadError, Loaded};
use super::verbs::{
    AsyncEvent, ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_gid, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

/// Declares the functions of a library: the table of their pointers, and a Rust function for each. With the feature
/// `rdma-sys` tests also get `signatures`, to compare.
macro_rules! functions {
    ($table:ident; $($version:literal $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl $table {
            const fn cell() -> &'static OnceLock<Self> {
                static CELL: OnceLock<$table> = OnceLock::new();
                &CELL
            }

            /// Looks all functions up, if they were not before.
            fn load(open: fn() -> Result<Loaded, LoadError>) -> Result<(), LoadError> {
                if Self::cell().get().is_some() {
                    return Ok(());
                }
                let library = open()?;
                // SAFETY: the types are those of the headers.
                let table = unsafe { Self { $($name: library.function(name!($name), $version)?,)* } };
                // Another thread may have done the same meanwhile, with the same result.
                Self::cell().get_or_init(|| table);
                Ok(())
            }

            #[inline]
            fn loaded() -> &'static Self {
                match Self::cell().get() {
                    Some(table) => table,
                    None => not_loaded(),
                }
            }

            /// Uses this table instead of the library's.
            #[cfg(test)]
            pub(crate) fn install(table: impl FnOnce() -> Self) {
                Self::cell().get_or_init(table);
            }

            /// Makes a table whose functions a test does not expect to be called.
            #[cfg(test)]
            pub(crate) fn unused() -> Self {
                unsafe extern "C" fn unexpected() {
                    std::process::abort();
                }
                // SAFETY: the function ends the process whatever its caller's type is.
                unsafe { Self { $($name: std::mem::transmute::<unsafe extern "C" fn(), unsafe extern "C" fn($($type),*) $(-> $result)?>(unexpected),)* } }
            }

            #[cfg(all(test, feature = "rdma-sys"))]
            pub(super) fn signatures() -> Vec<super::signature::Signatures> {
                use super::signature::{Shape, Signatures};
                vec![$(Signatures {
                    name: stringify!($name),
                    ours: Shape::of::<unsafe extern "C" fn($($type),*) $(-> $result)?>(),
                    theirs: Shape::of_value(
                        rdma_sys::$name as unsafe extern "C" fn($(inferred!($arg)),*) $(-> inferred!($result))?
                    ),
                },)*]
            }
        }

        $(
            #[inline]
            pub(crate) unsafe fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: the caller guarantees what the function's manual page asks for.
                unsafe { ($table::loaded().$name)($($arg),*) }
            }
        )*
    };
}

/// Returns the name as a C string.
macro_rules! name {
    ($name:ident) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            }
        }
    };
}

/// Stands for a type that the compiler infers, once for each token.
#[cfg(all(test, feature = "rdma-sys"))]
macro_rules! inferred {
    ($token:tt) => {
        _
    };
    ($token:ty) => {
        _
    };
}

functions! { Ibverbs;
    c"IBVERBS_1.1" ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
    c"IBVERBS_1.1" ibv_free_device_list(list: *mut *mut ibv_device);
    c"IBVERBS_1.1" ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    c"IBVERBS_1.1" ibv_get_device_guid(device: *mut ibv_device) -> u64;
    c"IBVERBS_1.1" ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    c"IBVERBS_1.1" ibv_close_device(context: *mut ibv_context) -> c_int;
    c"IBVERBS_1.1" ibv_get_async_event(context: *mut ibv_context, event: *mut AsyncEvent) -> c_int;
    c"IBVERBS_1.1" ibv_ack_async_event(event: *mut AsyncEvent);
    c"IBVERBS_1.1" ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    c"IBVERBS_1.1" ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int;
    c"IBVERBS_1.1" ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    c"IBVERBS_1.1" ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    c"IBVERBS_1.1" ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    c"IBVERBS_1.1" ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    c"IBVERBS_1.7" ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
    c"IBVERBS_1.1" ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    c"IBVERBS_1.0" ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    c"IBVERBS_1.0" ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    c"IBVERBS_1.1" ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq;
    c"IBVERBS_1.1" ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    c"IBVERBS_1.1" ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    c"IBVERBS_1.1" ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
    c"IBVERBS_1.1" ibv_ack_cq_events(cq: *mut ibv_cq, count: u32);
    c"IBVERBS_1.1" ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    c"IBVERBS_1.1" ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    c"IBVERBS_1.1" ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    c"IBVERBS_1.1" ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    c"IBVERBS_1.1" ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    c"IBVERBS_1.1" ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    c"IBVERBS_1.1" ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    c"IBVERBS_1.1" ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    c"IBVERBS_1.1" ibv_fork_init() -> c_int;
}

functions! { Rdmacm;
    c"RDMACM_1.0" rdma_create_event_channel() -> *mut rdma_event_channel;
    c"RDMACM_1.0" rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    c"RDMACM_1.0" rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    c"RDMACM_1.0" rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    c"RDMACM_1.0" rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, space: u32) -> c_int;
    c"RDMACM_1.0" rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    c"RDMACM_1.0" rdma_bind_addr(id: *mut rdma_cm_id, address: *mut sockaddr) -> c_int;
    c"RDMACM_1.0" rdma_resolve_addr(id: *mut rdma_cm_id, from: *mut sockaddr, to: *mut sockaddr, timeout_ms: c_int) -> c_int;
    c"RDMACM_1.0" rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    c"RDMACM_1.0" rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    c"RDMACM_1.0" rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    c"RDMACM_1.0" rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    c"RDMACM_1.2" rdma_establish(id: *mut rdma_cm_id) -> c_int;
    c"RDMACM_1.0" rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int;
    c"RDMACM_1.3" rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int;
    c"RDMACM_1.0" rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int;
    c"RDMACM_1.0" rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    c"RDMACM_1.2" rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int;
    c"RDMACM_1.0" rdma_set_option(id: *mut rdma_cm_id, level: c_int, name: c_int, value: *mut c_void, length: usize) -> c_int;
    c"RDMACM_1.0" rdma_get_src_port(id: *mut rdma_cm_id) -> u16;
}

/// Loads libibverbs and librdmacm, once. They are not linked, so that a process without verbs devices runs where
/// neither is installed. A failure is not remembered: the next call tries again.
///
/// # Errors
/// See [`LoadError`]; its text says what to install.
pub fn load() -> Result<(), LoadError> {
    Ibverbs::load(|| {
        Loaded::open(
            "libibverbs.so.1",
            "libibverbs1 and ibverbs-providers",
            "libibverbs",
        )
    })?;
    Rdmacm::load(|| Loaded::open("librdmacm.so.1", "librdmacm1", "librdmacm"))
}

#[cold]
fn not_loaded() -> ! {
    panic!("a verbs function was called before dat_verbs::load succeeded");
}
