//! Finds the object of a handle that a C program passes, or refuses it with `DAT_INVALID_HANDLE`.
//!
//! The number may be NULL, stale, of another kind, another provider's, or arbitrary. All objects of a kind lie in one arena. A handle
//! is dereferenced only if it is the exact address of an object in there, dead or alive, and accepted only if that object is alive.

use std::sync::atomic::AtomicU64;

use dat_core::cno::Cno;
use dat_core::cr::Cr;
use dat_core::ep::Ep;
use dat_core::error::{Error, Result, Subtype};
use dat_core::evd::Evd;
use dat_core::ia::Ia;
use dat_core::lmr::Lmr;
use dat_core::pz::Pz;
use dat_core::rmr::Rmr;
use dat_core::sp::{Flavour, Sp};
use dat_core::srq::Srq;
use dat_core::transport::Transport;

use crate::types::{DAT_HANDLE_NULL, DatHandle, handle_type};

macro_rules! finders {
    ($($(#[$doc:meta])* $name:ident: $object:ident in $arena:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// `DAT_INVALID_HANDLE` with subtype `wrong` for any other number.
        #[inline(always)]
        pub(crate) fn $name<T: Transport>(handle: DatHandle, wrong: Subtype) -> Result<&'static $object<T>> {
            let arena = &T::arenas().$arena;
            if arena.holds(handle) {
                // SAFETY: the arena contains the address.
                let object = unsafe { arena.at(handle) };
                if object.head.alive() {
                    return Ok(object);
                }
            }
            Err(Error::handle(wrong))
        }
    )*};
}

finders! {
    /// Returns the live IA with this handle.
    ia: Ia in ia;
    /// Returns the live PZ with this handle.
    pz: Pz in pz;
    /// Returns the live LMR with this handle.
    lmr: Lmr in lmr;
    /// Returns the live RMR with this handle.
    rmr: Rmr in rmr;
    /// Returns the live EVD with this handle.
    evd: Evd in evd;
    /// Returns the live CNO with this handle.
    cno: Cno in cno;
    /// Returns the live EP with this handle.
    ep: Ep in ep;
    /// Returns the live PSP, RSP or CSP with this handle.
    sp: Sp in sp;
    /// Returns the live CR with this handle.
    cr: Cr in cr;
    /// Returns the live SRQ with this handle.
    srq: Srq in srq;
}

/// Returns true if `handle` is the address of an object of `T`, alive or dead.
#[must_use]
pub fn owns<T: Transport>(handle: DatHandle) -> bool {
    let all = T::arenas();
    all.ep.from_addr(handle).is_some()
        || all.evd.from_addr(handle).is_some()
        || all.lmr.from_addr(handle).is_some()
        || all.rmr.from_addr(handle).is_some()
        || all.sp.from_addr(handle).is_some()
        || all.cr.from_addr(handle).is_some()
        || all.srq.from_addr(handle).is_some()
        || all.cno.from_addr(handle).is_some()
        || all.pz.from_addr(handle).is_some()
        || all.ia.from_addr(handle).is_some()
}

/// Returns `None` for `DAT_HANDLE_NULL`, else the object that `find` returns.
pub(crate) fn optional<O>(
    handle: DatHandle,
    find: impl FnOnce(DatHandle) -> Result<O>,
) -> Result<Option<O>> {
    if handle == DAT_HANDLE_NULL {
        Ok(None)
    } else {
        find(handle).map(Some)
    }
}

/// Returns the live service point of this flavour.
fn service_point<T: Transport>(
    handle: DatHandle,
    flavour: Flavour,
    wrong: Subtype,
) -> Result<&'static Sp<T>> {
    sp(handle, wrong).and_then(|sp| {
        if sp.flavour() == flavour {
            Ok(sp)
        } else {
            Err(Error::handle(wrong))
        }
    })
}

/// Returns the live PSP with this handle.
pub(crate) fn psp<T: Transport>(handle: DatHandle) -> Result<&'static Sp<T>> {
    service_point(handle, Flavour::Public, Subtype::InvalidHandlePsp)
}

/// Returns the live RSP with this handle.
pub(crate) fn rsp<T: Transport>(handle: DatHandle) -> Result<&'static Sp<T>> {
    service_point(handle, Flavour::Reserved, Subtype::InvalidHandleRsp)
}

/// Returns the live CSP with this handle.
pub(crate) fn csp<T: Transport>(handle: DatHandle) -> Result<&'static Sp<T>> {
    service_point(handle, Flavour::Common, Subtype::InvalidHandleCsp)
}

/// Returns the `DAT_HANDLE_TYPE` of a live object of any kind, and its consumer context.
pub(crate) fn any<T: Transport>(handle: DatHandle) -> Result<(u32, &'static AtomicU64)> {
    let wrong = Subtype::InvalidHandle1;
    if let Ok(o) = ep::<T>(handle, wrong) {
        return Ok((handle_type::EP, &o.head.context));
    }
    if let Ok(o) = evd::<T>(handle, wrong) {
        return Ok((handle_type::EVD, &o.head.context));
    }
    if let Ok(o) = ia::<T>(handle, wrong) {
        return Ok((handle_type::IA, &o.head.context));
    }
    if let Ok(o) = lmr::<T>(handle, wrong) {
        return Ok((handle_type::LMR, &o.head.context));
    }
    if let Ok(o) = sp::<T>(handle, wrong) {
        let kind = match o.flavour() {
            Flavour::Public => handle_type::PSP,
            Flavour::Reserved => handle_type::RSP,
            Flavour::Common => handle_type::CSP,
        };
        return Ok((kind, &o.head.context));
    }
    if let Ok(o) = pz::<T>(handle, wrong) {
        return Ok((handle_type::PZ, &o.head.context));
    }
    if let Ok(o) = rmr::<T>(handle, wrong) {
        return Ok((handle_type::RMR, &o.head.context));
    }
    if let Ok(o) = cno::<T>(handle, wrong) {
        return Ok((handle_type::CNO, &o.head.context));
    }
    if let Ok(o) = srq::<T>(handle, wrong) {
        return Ok((handle_type::SRQ, &o.head.context));
    }
    cr::<T>(handle, wrong).map(|o| (handle_type::CR, &o.head.context))
}
