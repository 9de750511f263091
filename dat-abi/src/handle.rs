//! From a number that a C program calls a handle to the object, or to `DAT_INVALID_HANDLE`.
//!
//! The number may be NULL, freed, of another kind, another provider's, or noise: objects of a kind lie in one
//! arena, so an exact address in there that is alive is the only thing that passes, and nothing is
//! dereferenced before.

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
        /// `DAT_INVALID_HANDLE` with `wrong` for anything else.
        #[inline(always)]
        pub(crate) fn $name<T: Transport>(handle: DatHandle, wrong: Subtype) -> Result<&'static $object<T>> {
            let arena = &T::arenas().$arena;
            if arena.holds(handle) {
                // SAFETY: the arena holds it.
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
    /// A live IA.
    ia: Ia in ia;
    /// A live PZ.
    pz: Pz in pz;
    /// A live LMR.
    lmr: Lmr in lmr;
    /// A live RMR.
    rmr: Rmr in rmr;
    /// A live EVD.
    evd: Evd in evd;
    /// A live CNO.
    cno: Cno in cno;
    /// A live EP.
    ep: Ep in ep;
    /// A live PSP, RSP or CSP.
    sp: Sp in sp;
    /// A live CR.
    cr: Cr in cr;
    /// A live SRQ.
    srq: Srq in srq;
}

/// Whether `handle` is the address of an object of `T`, alive or dead.
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

/// `None` for `DAT_HANDLE_NULL`, else what `find` finds.
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

/// A live service point of this flavour.
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

/// A live PSP.
pub(crate) fn psp<T: Transport>(handle: DatHandle) -> Result<&'static Sp<T>> {
    service_point(handle, Flavour::Public, Subtype::InvalidHandlePsp)
}

/// A live RSP.
pub(crate) fn rsp<T: Transport>(handle: DatHandle) -> Result<&'static Sp<T>> {
    service_point(handle, Flavour::Reserved, Subtype::InvalidHandleRsp)
}

/// A live CSP.
pub(crate) fn csp<T: Transport>(handle: DatHandle) -> Result<&'static Sp<T>> {
    service_point(handle, Flavour::Common, Subtype::InvalidHandleCsp)
}

/// What every kind of handle has: its kind's number and the consumer's context.
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
