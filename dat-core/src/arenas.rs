//! The memory of one transport's objects: an arena for each kind.

use dat_arena::Arena;

use crate::ah::Ah;
use crate::attributes::AdapterAttr;
use crate::cno::Cno;
use crate::cr::Cr;
use crate::ep::Ep;
use crate::evd::Evd;
use crate::ia::Ia;
use crate::lmr::Lmr;
use crate::pz::Pz;
use crate::rmr::Rmr;
use crate::sp::Sp;
use crate::srq::Srq;
use crate::transport::Transport;

/// Maximum number of EVDs; see [`Arena`]'s `WHOLE`.
const EVDS: u32 = 1 << 17;
const EPS: u32 = 1 << 18;
const LMRS: u32 = 1 << 20;
const RMRS: u32 = 1 << 20;
const PZS: u32 = 1 << 16;
const SRQS: u32 = 1 << 16;

/// Lowers the numbers of objects that a transport states to what the arenas hold.
pub(crate) fn limit(attributes: &mut AdapterAttr) {
    let limits = [
        (&mut attributes.max_eps, EPS),
        (&mut attributes.max_evds, EVDS),
        (&mut attributes.max_lmrs, LMRS),
        (&mut attributes.max_rmrs, RMRS),
        (&mut attributes.max_pzs, PZS),
        (&mut attributes.max_srqs, SRQS),
    ];
    for (stated, most) in limits {
        *stated = most.min(*stated);
    }
}

/// One arena for each kind of object. A transport has one such value in a `static`.
pub struct Arenas<T: Transport> {
    /// Interface adapters.
    pub ia: Arena<Ia<T>>,
    /// Protection zones.
    pub pz: Arena<Pz<T>>,
    /// Local memory regions.
    pub lmr: Arena<Lmr<T>>,
    /// Remote memory regions.
    pub rmr: Arena<Rmr<T>>,
    /// Event dispatchers.
    pub evd: Arena<Evd<T>, EVDS>,
    /// Consumer notification objects.
    pub cno: Arena<Cno<T>>,
    /// Endpoints.
    pub ep: Arena<Ep<T>>,
    /// Service points: public (PSP), reserved (RSP) and common (CSP).
    pub sp: Arena<Sp<T>>,
    /// Connection requests.
    pub cr: Arena<Cr<T>>,
    /// Shared receive queues.
    pub srq: Arena<Srq<T>>,
    /// Address handles (IB extension).
    pub ah: Arena<Ah<T>>,
}

impl<T: Transport> Arenas<T> {
    /// Creates empty arenas. Address space is reserved with the first object of a kind, or by [`Arenas::reserve`].
    #[must_use]
    #[allow(
        clippy::new_without_default,
        reason = "meant for statics, where only const fn works"
    )]
    pub const fn new() -> Self {
        Self {
            ia: Arena::new(1 << 12),
            pz: Arena::new(PZS),
            lmr: Arena::new(LMRS),
            rmr: Arena::new(RMRS),
            evd: Arena::new(EVDS),
            cno: Arena::new(1 << 16),
            ep: Arena::new(EPS),
            sp: Arena::new(1 << 16),
            cr: Arena::new(1 << 18),
            srq: Arena::new(SRQS),
            ah: Arena::new(1 << 20),
        }
    }

    /// Reserves the address space that [`Arena::place`] needs before it looks up a handle. Returns false if the process has not
    /// enough address space.
    pub fn reserve(&self) -> bool {
        self.evd.reserve()
    }

    /// Reserves the address space of all kinds before an IA opens: a transport's thread creates CRs and has no caller to which it
    /// could report a failure. Returns false if the process has not enough address space; the ranges reserved so far remain,
    /// and a later call reserves the others.
    pub fn reserve_all(&self) -> bool {
        macro_rules! reserve {
            ($($arena:ident)*) => { self.reserve() $(&& self.$arena.reserve())* };
        }
        reserve!(ia ep cr ah sp cno pz srq lmr rmr)
    }

    /// Marks every object as dead without dropping its parts, in a forked child: all objects belong to the parent, and no handle
    /// may reach the connections and memory that the parent continues to use. Takes no locks, because a lock that another
    /// thread of the parent held is never released in the child.
    pub fn disown(&self) {
        macro_rules! disown {
            ($($arena:ident)*) => {
                $(self.$arena.for_each(|_, object| object.head.disown());)*
            };
        }
        self.ep.for_each(|_, ep| ep.disown());
        disown!(ia pz lmr rmr evd cno sp cr srq ah);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_has_no_more_objects_than_the_arenas_hold() {
        let mut attributes = AdapterAttr {
            max_lmrs: 1 << 23,
            max_rmrs: 0,
            max_eps: 100,
            ..AdapterAttr::default()
        };
        limit(&mut attributes);
        let lowered = (attributes.max_lmrs, attributes.max_rmrs, attributes.max_eps);
        assert_eq!(lowered, (LMRS, 0, 100));
    }
}
