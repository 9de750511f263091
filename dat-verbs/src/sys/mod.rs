//! libibverbs and librdmacm: the types, numbers and functions of both that this crate uses.
//!
//! The declarations are written from `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44, so that neither the
//! headers nor libclang are needed to build. Both libraries keep the layouts of structures that a program allocates or
//! reads; a change of one would be a new symbol version. The test `agreement` compares each size, offset, number and
//! signature with the crate `rdma-sys`, which generates its own from the installed headers:
//! `cargo test -p dat-verbs --features rdma-sys`.
//!
//! * `verbs` and `cma` have the types, `constants` the numbers, `wc` the completion;
//! * `library` is a library that is loaded when an adapter is opened, `functions` lists what both export;
//! * `static_inline` has the functions that are inline in the headers.
//!
//! Types, functions and enumerations have C's names.

// C's names; and members that only C reads.
#![allow(non_camel_case_types, dead_code)]

mod cma;
mod constants;
mod functions;
mod library;
mod static_inline;
mod verbs;
mod wc;

#[cfg(all(test, feature = "rdma-sys"))]
mod agreement;
#[cfg(all(test, feature = "rdma-sys"))]
mod signature;

use dat_core::iov::LmrTriplet;

pub(crate) use cma::*;
pub(crate) use constants::*;
pub use functions::load;
pub(crate) use functions::*;
pub use library::LoadError;
pub(crate) use static_inline::*;
pub(crate) use verbs::*;
pub use wc::Wc;

// A 2.0 DAT_LMR_TRIPLET has the layout of an ibv_sge.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<LmrTriplet>() == size_of::<ibv_sge>());
    assert!(align_of::<LmrTriplet>() == align_of::<ibv_sge>());
    assert!(offset_of!(LmrTriplet, virtual_address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(LmrTriplet, segment_length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(LmrTriplet, lmr_context) == offset_of!(ibv_sge, lkey));
};

/// Casts segments to the type that verbs takes. Verbs never writes through the pointer.
#[inline(always)]
pub(crate) fn sges(iov: &[LmrTriplet]) -> *mut ibv_sge {
    iov.as_ptr().cast::<ibv_sge>().cast_mut()
}

/// Returns the current `errno`, for the calls that report through it.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
