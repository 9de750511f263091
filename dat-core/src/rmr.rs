//! Remote memory regions (dat_rmr_create, dat_rmr_bind, dat_rmr_query, dat_rmr_free): memory windows on an LMR.

mod bindings;

use std::cell::Cell;
use std::sync::Arc;

use dat_arena::Mutex;

use self::bindings::Bindings;
use crate::ep::Ep;
use crate::ep::bind::{BindRoom, PostedBind};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::RawHandle;
use crate::flags::{CompletionFlags, MemPriv, VaType};
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::iov::LmrTriplet;
use crate::lmr::{Lmr, LmrInfo, within};
use crate::pz::Pz;
use crate::transport::{Bind, Transport, WrId};
use crate::use_count::Claim;

/// The range of an LMR to bind to. It can represent the `DAT_LMR_TRIPLET` of both versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LmrRange {
    /// Local key of the LMR.
    pub lmr_context: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes; 0 unbinds.
    pub length: u64,
}

impl From<LmrTriplet> for LmrRange {
    fn from(triplet: LmrTriplet) -> Self {
        Self {
            lmr_context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: u64::from(triplet.segment_length),
        }
    }
}

/// The attributes that dat_rmr_query returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmrInfo {
    /// The IA's handle.
    pub ia: RawHandle,
    /// The PZ's handle.
    pub pz: RawHandle,
    /// Handle of the LMR that the window is bound to, or 0.
    pub lmr: RawHandle,
    /// Range that the window is bound to.
    pub range: LmrRange,
    /// Rights of the peer.
    pub rights: MemPriv,
    /// Origin of remote addresses.
    pub va_type: VaType,
    /// Key for the peer; 0 while unbound.
    pub rmr_context: u32,
    /// Owner of the window.
    pub scope: Scope,
}

/// Owner of a window (`DAT_RMR_SCOPE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Scope {
    /// The endpoint that the window is bound on. Its peer may invalidate the window, which is of type 2 (IBTA 10.6.7.2).
    Endpoint = 0,
    /// The PZ. The peer of each endpoint may use the window, and none may invalidate it. It is of type 1.
    Zone = 1,
}

/// A remote memory region. All methods may be called from any thread.
#[repr(C)]
pub struct Rmr<T: Transport> {
    /// Function table, liveness, generation and use count.
    pub head: Head,
    inner: Mutex<Option<Inner<T>>>,
    /// The bindings, under their own lock, which is a leaf: completions of binds, and of messages that invalidate the window, are taken
    /// under an EVD's lock.
    bindings: Mutex<Bindings<Bound<T>>>,
}

struct Inner<T: Transport> {
    window: T::Rmr,
    scope: Scope,
    pz: &'static Pz<T>,
    _pz_claim: Claim,
}

/// What a bind binds its window to. The claim keeps the LMR from being freed.
struct Bound<T: Transport> {
    /// The bind.
    id: WrId,
    lmr: &'static Lmr<T>,
    _lmr_claim: Claim,
    range: LmrRange,
    rights: MemPriv,
    va_type: VaType,
    rmr_context: u32,
}

debug_by_head!(Rmr);

impl<T: Transport> Default for Rmr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(None),
            bindings: Mutex::default(),
        }
    }
}

const DEAD: Error = Error::handle(Subtype::InvalidHandleRmr);

/// What a bind asks for.
struct BindRequest<T: Transport> {
    lmr: Option<&'static Lmr<T>>,
    range: LmrRange,
    rights: MemPriv,
    va_type: VaType,
}

/// Argument numbers of a bind in 2.0.
mod argument {
    pub(super) const RANGE: u16 = 3;
    pub(super) const RIGHTS: u16 = 4;
    pub(super) const FLAGS: u16 = 8;
}

impl<T: Transport> Rmr<T> {
    /// Creates an unbound RMR (dat_rmr_create).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INSUFFICIENT_RESOURCES`, `DAT_NOT_IMPLEMENTED`.
    pub fn create(pz: &'static Pz<T>) -> Result<&'static Self> {
        Self::make(pz, Scope::Zone)
    }

    /// Creates an unbound RMR for an endpoint (dat_rmr_create_for_ep of 2.0). If the transport has such windows, the peer of the
    /// endpoint that it is bound on may invalidate it with dat_ep_post_send_with_invalidate.
    ///
    /// # Errors
    /// The errors of [`Rmr::create`].
    pub fn create_for_ep(pz: &'static Pz<T>) -> Result<&'static Self> {
        Self::make(pz, Scope::Endpoint)
    }

    fn make(pz: &'static Pz<T>, scope: Scope) -> Result<&'static Self> {
        let pz_claim = pz.head.claim(Subtype::InvalidHandlePz)?;
        let window = T::create_rmr(&pz.zone()?, scope)?;
        let arena = &T::arenas().rmr;
        let (index, rmr) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        *rmr.inner.lock() = Some(Inner {
            window,
            scope,
            pz,
            _pz_claim: pz_claim,
        });
        pz.ia()
            .add_member(Kind::Rmr, index, &rmr.head, 0)
            .inspect_err(|_| {
                let inner = rmr.inner.lock().take();
                drop(inner);
                arena.recycle(index);
            })?;
        Ok(rmr)
    }

    /// Posts a bind on `ep` and returns the new rmr_context, which the peer may use when the bind has completed (dat_rmr_bind). If
    /// `lmr` is `None` (1.2), `range.lmr_context` selects the LMR. Length 0 unbinds. The completion of the bind releases the LMR
    /// of an earlier one. If it is flushed, as on a disconnected endpoint, the earlier one stays until the next bind. Argument numbers are
    /// those of 2.0.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (unknown LMR, range outside the LMR, unknown rights);
    /// `DAT_PRIVILEGES_VIOLATION` (remote read requires local read on the LMR, remote write requires local write);
    /// `DAT_PROTECTION_VIOLATION` (EP, RMR and LMR are not in one PZ); `DAT_INVALID_STATE` of the EP;
    /// `DAT_INSUFFICIENT_RESOURCES`; `DAT_INVALID_HANDLE`.
    #[allow(clippy::too_many_arguments, reason = "dat_rmr_bind has as many")]
    pub fn bind(
        &'static self,
        lmr: Option<&'static Lmr<T>>,
        range: LmrRange,
        rights: MemPriv,
        va_type: VaType,
        ep: &'static Ep<T>,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32> {
        let index = T::arenas().rmr.index_of(self);
        let request = BindRequest {
            lmr,
            range,
            rights,
            va_type,
        };
        loop {
            let posted = self.try_bind(&request, ep, index, cookie, flags)?;
            if let PostedBind::Posted(context) = posted {
                return Ok(context);
            }
            if let BindRoom::Flushed = ep.room_for_bind(index, cookie)? {
                return Ok(0);
            }
        }
    }

    /// Checks a bind, and posts it if the endpoint has room.
    fn try_bind(
        &'static self,
        request: &BindRequest<T>,
        ep: &'static Ep<T>,
        index: u32,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<PostedBind> {
        let &BindRequest {
            range,
            rights,
            va_type,
            ..
        } = request;
        let mut guard = self.inner.lock();
        let inner = guard.as_mut().ok_or(DEAD)?;
        if ep.info()?.pz.is_some_and(|pz| !std::ptr::eq(pz, inner.pz)) {
            return Err(Error::of(ErrorKind::ProtectionViolation));
        }
        let target = target(inner, request)?;
        let region = target.as_ref().map(|target| Arc::clone(&target.region));
        self.replace_if_in_doubt(inner)?;
        self.reserve_bind()?;
        let posted = Cell::new(None);
        let result = ep.post_bind(index, cookie, (flags, argument::FLAGS), |id, fence| {
            posted.set(Some(id));
            let new = target.map(|target| Bound {
                id,
                lmr: target.lmr,
                _lmr_claim: target.claim,
                range,
                rights,
                va_type,
                rmr_context: 0,
            });
            let (address, rights) = match new {
                Some(_) => (range.address, rights & MemPriv::REMOTE),
                None => (0, MemPriv::empty()),
            };
            self.bindings.lock().post(id, new);
            Bind {
                id,
                rmr: &inner.window,
                lmr: region.as_deref(),
                address,
                length: range.length,
                rights,
                va_type,
                // The completion releases the LMR of the bind before it.
                signaled: true,
                fence,
            }
        });
        let ia = inner.pz.ia();
        match (result, posted.get()) {
            // The context of an unbound window is undefined.
            (Ok(PostedBind::Posted(_)), _) if range.length == 0 => Ok(PostedBind::Posted(0)),
            (Ok(PostedBind::Posted(rmr_context)), Some(id)) => {
                self.set_context(ia, index, inner.scope, id, rmr_context);
                Ok(PostedBind::Posted(rmr_context))
            }
            (Err(refused), Some(id)) => {
                self.complete(ia, id, false);
                Err(refused)
            }
            (other, _) => other,
        }
    }

    /// Replaces the window by an unbound one if a bind is over and may be in force without success, as after a reset of its endpoint that
    /// lost the completion. The peer could use the memory then, and a device may refuse all further binds: rdma_rxe does, because its
    /// driver library counts a bind as executed.
    fn replace_if_in_doubt(&self, inner: &mut Inner<T>) -> Result<()> {
        let in_doubt = {
            let mut bindings = self.bindings.lock();
            let oldest = bindings.pending().next();
            if oldest.is_some_and(|id| !Ep::<T>::may_complete(id)) {
                Self::doubt_lost(&mut bindings);
            }
            bindings.in_doubt()
        };
        if in_doubt {
            let window = T::create_rmr(&inner.pz.zone()?, inner.scope)?;
            // The window is dropped before the claims on its LMRs.
            drop(std::mem::replace(&mut inner.window, window));
            let ended = self.bindings.lock().take();
            for bound in ended {
                inner.pz.ia().set_window_index(bound.rmr_context, None);
            }
        }
        Ok(())
    }

    /// Records that the binds whose completions were lost are over.
    #[cold]
    fn doubt_lost(bindings: &mut Bindings<Bound<T>>) {
        loop {
            let lost = bindings.pending().find(|id| !Ep::<T>::may_complete(*id));
            let Some(id) = lost else {
                return;
            };
            bindings.doubt(id);
        }
    }

    fn reserve_bind(&self) -> Result<()> {
        let reserved = self.bindings.lock().reserve();
        reserved.map_err(|_| Error::resource(Subtype::ResourceMemory))
    }

    /// Adds the context that the transport gave the bind `id`, unless it has failed already.
    fn set_context(&self, ia: &Ia<T>, index: u32, scope: Scope, id: WrId, rmr_context: u32) {
        let mut bindings = self.bindings.lock();
        let Some(Some(bound)) = bindings.find(|bound| bound.id == id) else {
            return;
        };
        bound.rmr_context = rmr_context;
        drop(bindings);
        if scope == Scope::Endpoint {
            ia.set_window_index(rmr_context, Some(index));
        }
    }

    /// Releases what the bind `id` replaced, or, if it failed, its own LMR.
    fn complete(&self, ia: &Ia<T>, id: WrId, success: bool) {
        let ended = self.bindings.lock().complete(id, success);
        for bound in ended {
            ia.set_window_index(bound.rmr_context, None);
        }
    }

    /// Takes the completion of the bind `id` of the RMR at `index` of its arena. The caller may hold the lock of an EVD.
    #[cold]
    pub(crate) fn bind_completed(ia: &Ia<T>, index: u32, id: WrId, success: bool) {
        let Some(rmr) = T::arenas().rmr.get(index) else {
            return;
        };
        if success || !T::FAILED_BINDS_ARE_IN_DOUBT {
            rmr.complete(ia, id, success);
        } else {
            rmr.bindings.lock().doubt(id);
        }
    }

    /// Ends the bindings to `lmr` that are over: takes the completions of binds that are posted and not complete, and replaces the windows
    /// that may be bound to `lmr` although no bind succeeded. The caller holds no lock.
    #[cold]
    pub(crate) fn settle(lmr: &'static Lmr<T>) {
        let mut pending = Vec::new();
        T::arenas()
            .rmr
            .for_each(|_, rmr| pending.extend(rmr.bindings.lock().pending()));
        for id in pending {
            Ep::<T>::drain_requests_of(id);
        }
        let mut doubtful = Vec::new();
        T::arenas().rmr.for_each(|_, rmr| {
            let mut bindings = rmr.bindings.lock();
            Self::doubt_lost(&mut bindings);
            if bindings.is_doubtful(|bound| std::ptr::eq(bound.lmr, lmr)) {
                doubtful.push(rmr);
            }
        });
        for rmr in doubtful {
            if let Some(inner) = rmr.inner.lock().as_mut()
                && let Err(error) = rmr.replace_if_in_doubt(inner)
            {
                tracing::warn!(%error, "no new window for one that may be bound: its LMR cannot be freed");
            }
        }
    }

    /// Removes the binding of `rmr_context`, which a message of the peer invalidated. The caller holds the lock of an EVD.
    #[cold]
    pub(crate) fn invalidated(ia: &'static Ia<T>, rmr_context: u32) {
        let Some(rmr) = ia.window(rmr_context) else {
            return;
        };
        let mut bindings = rmr.bindings.lock();
        // The window may have been bound again since.
        let invalid = bindings.find(|bound| bound.rmr_context == rmr_context);
        if invalid.and_then(Option::take).is_some() {
            drop(bindings);
            ia.set_window_index(rmr_context, None);
        }
    }

    /// Returns the attributes (dat_rmr_query).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<RmrInfo> {
        let inner = self.inner.lock();
        let inner = inner.as_ref().ok_or(DEAD)?;
        let bindings = self.bindings.lock();
        let bound = bindings.latest();
        Ok(RmrInfo {
            ia: raw(inner.pz.ia()),
            pz: raw(inner.pz),
            lmr: bound.map_or(0, |b| raw(b.lmr)),
            range: bound.map_or_else(LmrRange::default, |b| b.range),
            rights: bound.map_or_else(MemPriv::empty, |b| b.rights),
            va_type: bound.map_or_else(VaType::default, |b| b.va_type),
            rmr_context: bound.map_or(0, |b| b.rmr_context),
            scope: inner.scope,
        })
    }

    /// Frees the RMR, bound or not (dat_rmr_free). After the return the transport refuses the peer's key.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn free(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::InvalidHandleRmr, Subtype::InvalidHandleRmr)?;
        let inner = self.inner.lock().take();
        if let Some(inner) = inner {
            // The window is dropped before the claim on its LMR.
            drop(inner.window);
            let ended = self.bindings.lock().take();
            for bound in ended {
                inner.pz.ia().set_window_index(bound.rmr_context, None);
            }
        }
        let arena = &T::arenas().rmr;
        let index = arena.index_of(self);
        Ia::<T>::of(&self.head).remove_member(Kind::Rmr, index);
        arena.recycle(index);
        Ok(())
    }
}

/// The memory of a bind.
struct Target<T: Transport> {
    lmr: &'static Lmr<T>,
    claim: Claim,
    region: Arc<T::Lmr>,
}

/// Returns the memory that `request` binds to; `None` if it unbinds.
fn target<T: Transport>(inner: &Inner<T>, request: &BindRequest<T>) -> Result<Option<Target<T>>> {
    if request.range.length == 0 {
        return Ok(None);
    }
    let ia = inner.pz.ia();
    let lmr = request
        .lmr
        .or_else(|| ia.lmr(request.range.lmr_context))
        .ok_or(Error::arg(argument::RANGE))?;
    let claim = lmr.head.claim(Subtype::InvalidHandleLmr)?;
    let base = lmr.base()?;
    check(&base.info, request.range, request.rights)?;
    if !std::ptr::eq(base.pz, inner.pz) {
        return Err(Error::of(ErrorKind::ProtectionViolation));
    }
    if inner.scope == Scope::Endpoint {
        ia.reserve_window()?;
    }
    Ok(Some(Target {
        lmr,
        claim,
        region: base.region,
    }))
}

/// Checks that an LMR permits a bind of `range` with `rights`.
fn check<T: Transport>(info: &LmrInfo<T>, range: LmrRange, rights: MemPriv) -> Result<()> {
    let (base, size) = info.addresses();
    if range.lmr_context != info.lmr_context || !within(range.address, range.length, base, size) {
        return Err(Error::arg(argument::RANGE));
    }
    if !MemPriv::ALL.union(MemPriv::REMOTE).contains(rights) {
        return Err(Error::arg(argument::RIGHTS));
    }
    let needs = [
        (MemPriv::REMOTE_READ, MemPriv::LOCAL_READ),
        (MemPriv::REMOTE_WRITE, MemPriv::LOCAL_WRITE),
        (MemPriv::REMOTE_ATOMIC, MemPriv::LOCAL_WRITE),
    ];
    if needs
        .iter()
        .any(|(remote, local)| rights.contains(*remote) && !info.rights.contains(*local))
    {
        return Err(Error::of(ErrorKind::PrivilegesViolation));
    }
    Ok(())
}
