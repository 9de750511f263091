//! C types that uDAPL 1.2 and 2.0 share (`dat.h`, `udat.h`).
//!
//! A C program may pass any number, so no type here is a Rust enum: `DAT_*` enums are `u32`, `DAT_COUNT` is `i32`, handles and
//! `DAT_CONTEXT` are integers. Layouts are asserted at compile time; `tests/headers.rs` compares them with a C compiler's.

use std::ffi::{c_char, c_void};

/// `DAT_HANDLE` and its kinds: the address of an object whose first word points to its function table, or 0. In 2.0 the
/// consumer's IA handle is a small integer, which libdat2 replaces before it calls a provider.
pub type DatHandle = usize;

/// `DAT_HANDLE_NULL`.
pub const DAT_HANDLE_NULL: DatHandle = 0;

/// `DAT_COUNT`.
pub type DatCount = i32;

/// `DAT_BOOLEAN`: 0 is false, every other number is true. We write 0 or 1.
pub type DatBoolean = u32;

/// `DAT_TIMEOUT`, in microseconds.
pub type DatTimeout = u32;

/// `DAT_TIMEOUT_INFINITE`.
pub const DAT_TIMEOUT_INFINITE: DatTimeout = u32::MAX;

/// `DAT_CONTEXT`, `DAT_DTO_COOKIE`, `DAT_RMR_COOKIE`: a union of a pointer and integers, 8 bytes, which is only passed on.
pub type DatContext = u64;

/// `DAT_IA_ADDRESS_PTR`: points to a `struct sockaddr` whose length depends on its family.
pub type DatIaAddressPtr = *mut c_void;

/// `DAT_NAME_MAX_LENGTH`, with the terminating 0.
pub const DAT_NAME_MAX_LENGTH: usize = 256;

/// `DAT_LMR_COOKIE_SIZE`.
pub const DAT_LMR_COOKIE_SIZE: usize = 40;

/// `DAT_EVD_ASYNC_EXISTS`: passed to dat_ia_open for an IA without an asynchronous EVD.
pub const DAT_EVD_ASYNC_EXISTS: DatHandle = 1;

/// `DAT_EVD_OUT_OF_SCOPE`: returned by dat_ia_query for an IA without an asynchronous EVD of its own.
pub const DAT_EVD_OUT_OF_SCOPE: DatHandle = 2;

/// `DAT_HANDLE_TYPE`.
pub mod handle_type {
    /// Connection request.
    pub const CR: u32 = 0;
    /// Endpoint.
    pub const EP: u32 = 1;
    /// Event dispatcher.
    pub const EVD: u32 = 2;
    /// Interface adapter.
    pub const IA: u32 = 3;
    /// Local memory region.
    pub const LMR: u32 = 4;
    /// Public service point.
    pub const PSP: u32 = 5;
    /// Protection zone.
    pub const PZ: u32 = 6;
    /// Remote memory region.
    pub const RMR: u32 = 7;
    /// Reserved service point.
    pub const RSP: u32 = 8;
    /// Consumer notification object.
    pub const CNO: u32 = 9;
    /// Shared receive queue.
    pub const SRQ: u32 = 10;
    /// 2.0: common service point.
    pub const CSP: u32 = 11;
}

/// `DAT_EVENT_NUMBER`s that are not a [`dat_core::event::ConnectionEvent`] nor an [`dat_core::event::AsyncEvent`].
pub mod event_number {
    /// `DAT_DTO_COMPLETION_EVENT`.
    pub const DTO_COMPLETION: u32 = 0x0_0001;
    /// `DAT_RMR_BIND_COMPLETION_EVENT`.
    pub const RMR_BIND_COMPLETION: u32 = 0x0_1001;
    /// `DAT_CONNECTION_REQUEST_EVENT`.
    pub const CONNECTION_REQUEST: u32 = 0x0_2001;
    /// `DAT_SOFTWARE_EVENT`.
    pub const SOFTWARE: u32 = 0x1_0001;
}

macro_rules! c_struct {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$fdoc:meta])* $field:ident: $ty:ty = $offset:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_docs, reason = "fields are the specification's")]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
        impl $crate::types::CLayout for $name {
            const SIZE: usize = $size;
            const FIELDS: &'static [(&'static str, usize)] = &[$((stringify!($field), $offset),)*];
        }
    };
}
pub(crate) use c_struct;

/// Size and offsets of a C struct, which tests compare with a C compiler's.
pub trait CLayout {
    /// `sizeof`.
    const SIZE: usize;
    /// Field names of the specification, each with its `offsetof`.
    const FIELDS: &'static [(&'static str, usize)];
}

c_struct! {
    /// `DAT_NAMED_ATTR`: two C strings.
    DatNamedAttr, 16 {
        name: *const c_char = 0,
        value: *const c_char = 8,
    }
}

c_struct! {
    /// `DAT_OS_WAIT_PROXY_AGENT`, passed by value. The function gets the instance data and the handle of an EVD.
    DatOsWaitProxyAgent, 16 {
        instance_data: *mut c_void = 0,
        proxy_agent_func: Option<unsafe extern "C" fn(*mut c_void, DatHandle)> = 8,
    }
}

c_struct! {
    /// `DAT_REGION_DESCRIPTION`, passed by value: a union of an address, an LMR's handle and
    /// `DAT_SHARED_MEMORY`. Only the last has the second word; it is undefined otherwise.
    DatRegionDescription, 16 {
        /// `for_va`, `for_lmr_handle`, or `for_shared_memory.virtual_address`.
        address: usize = 0,
        /// `for_shared_memory.shared_memory_id`: points to [`DAT_LMR_COOKIE_SIZE`] bytes.
        shared_memory_id: *const [u8; DAT_LMR_COOKIE_SIZE] = 8,
    }
}

c_struct! {
    /// `DAT_EVD_PARAM` (dat_evd_query).
    DatEvdParam, 32 {
        ia_handle: DatHandle = 0,
        evd_qlen: DatCount = 8,
        evd_state: u32 = 12,
        cno_handle: DatHandle = 16,
        evd_flags: u32 = 24,
    }
}

c_struct! {
    /// `DAT_SRQ_ATTR` (dat_srq_create).
    DatSrqAttr, 12 {
        max_recv_dtos: DatCount = 0,
        max_recv_iov: DatCount = 4,
        low_watermark: DatCount = 8,
    }
}

c_struct! {
    /// `DAT_SRQ_PARAM` (dat_srq_query).
    DatSrqParam, 48 {
        ia_handle: DatHandle = 0,
        srq_state: u32 = 8,
        pz_handle: DatHandle = 16,
        max_recv_dtos: DatCount = 24,
        max_recv_iov: DatCount = 28,
        low_watermark: DatCount = 32,
        available_dto_count: DatCount = 36,
        outstanding_dto_count: DatCount = 40,
    }
}

/// `DAT_VALUE_UNKNOWN`.
pub const DAT_VALUE_UNKNOWN: DatCount = -2;

c_struct! {
    /// `DAT_PZ_PARAM` (dat_pz_query).
    DatPzParam, 8 { ia_handle: DatHandle = 0, }
}

c_struct! {
    /// `DAT_PSP_PARAM` (dat_psp_query).
    DatPspParam, 32 {
        ia_handle: DatHandle = 0,
        conn_qual: u64 = 8,
        evd_handle: DatHandle = 16,
        psp_flags: u32 = 24,
    }
}

c_struct! {
    /// `DAT_RSP_PARAM` (dat_rsp_query).
    DatRspParam, 32 {
        ia_handle: DatHandle = 0,
        conn_qual: u64 = 8,
        evd_handle: DatHandle = 16,
        ep_handle: DatHandle = 24,
    }
}

c_struct! {
    /// `DAT_CR_PARAM` (dat_cr_query).
    DatCrParam, 40 {
        remote_ia_address_ptr: DatIaAddressPtr = 0,
        remote_port_qual: u64 = 8,
        private_data_size: DatCount = 16,
        /// Private data, which the consumer may overwrite.
        private_data: *mut c_void = 24,
        local_ep_handle: DatHandle = 32,
    }
}

c_struct! {
    /// `DAT_RMR_BIND_COMPLETION_EVENT_DATA`.
    DatRmrBindCompletionEventData, 24 {
        rmr_handle: DatHandle = 0,
        user_cookie: DatContext = 8,
        status: u32 = 16,
    }
}

c_struct! {
    /// `DAT_CONNECTION_EVENT_DATA`.
    DatConnectionEventData, 24 {
        ep_handle: DatHandle = 0,
        private_data_size: DatCount = 8,
        private_data: *mut c_void = 16,
    }
}

c_struct! {
    /// `DAT_ASYNCH_ERROR_EVENT_DATA`.
    DatAsynchErrorEventData, 16 {
        dat_handle: DatHandle = 0,
        reason: DatCount = 8,
    }
}

c_struct! {
    /// `DAT_SOFTWARE_EVENT_DATA`.
    DatSoftwareEventData, 8 { pointer: usize = 0, }
}

c_struct! {
    /// `DAT_PROVIDER_INFO`: identifies an entry of the registry.
    DatProviderInfo, 268 {
        /// Name of the IA: a C string.
        ia_name: [c_char; DAT_NAME_MAX_LENGTH] = 0,
        dapl_version_major: u32 = 256,
        dapl_version_minor: u32 = 260,
        is_thread_safe: DatBoolean = 264,
    }
}

impl DatProviderInfo {
    /// Returns the IA name as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn name(&self) -> String {
        let bytes: Vec<u8> = self
            .ia_name
            .iter()
            .map(|c| *c as u8)
            .take_while(|b| *b != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Makes an info; a name that is too long is truncated.
    #[must_use]
    pub fn new(name: &str, major: u32, minor: u32, thread_safe: bool) -> Self {
        Self {
            ia_name: c_name(name),
            dapl_version_major: major,
            dapl_version_minor: minor,
            is_thread_safe: u32::from(thread_safe),
        }
    }
}

/// Returns `name` as a C string in an array of the specification's fixed length, truncated if necessary.
pub(crate) fn c_name(name: &str) -> [c_char; DAT_NAME_MAX_LENGTH] {
    let mut array = [0; DAT_NAME_MAX_LENGTH];
    for (to, from) in array[..DAT_NAME_MAX_LENGTH - 1]
        .iter_mut()
        .zip(name.bytes())
    {
        *to = from as c_char;
    }
    array
}
