//! Where the objects of one transport live.

use dat_arena::Arena;

use crate::ah::Ah;
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

/// So many EVDs can be; see [`Arena`]'s `WHOLE`.
const EVDS: u32 = 1 << 17;

/// One arena a kind of object. A transport keeps one in a `static`.
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
    /// Service points: public (PSP) and reserved (RSP).
    pub sp: Arena<Sp<T>>,
    /// Connection requests.
    pub cr: Arena<Cr<T>>,
    /// Shared receive queues.
    pub srq: Arena<Srq<T>>,
    /// Address handles (IB extension).
    pub ah: Arena<Ah<T>>,
}

impl<T: Transport> Arenas<T> {
    /// Empty arenas; address space is reserved at the first object of a kind, or by [`Arenas::reserve`].
    #[must_use]
    #[allow(
        clippy::new_without_default,
        reason = "meant for statics, where only const fn works"
    )]
    pub const fn new() -> Self {
        Self {
            ia: Arena::new(1 << 12),
            pz: Arena::new(1 << 16),
            lmr: Arena::new(1 << 20),
            rmr: Arena::new(1 << 20),
            evd: Arena::new(EVDS),
            cno: Arena::new(1 << 16),
            ep: Arena::new(1 << 18),
            sp: Arena::new(1 << 16),
            cr: Arena::new(1 << 18),
            srq: Arena::new(1 << 16),
            ah: Arena::new(1 << 20),
        }
    }

    /// Reserves the address space that must be there before a handle is looked up by [`Arena::place`]. False: there is
    /// not as much.
    pub fn reserve(&self) -> bool {
        self.evd.reserve()
    }

    /// Reserves the address space of all kinds, before an IA opens: a CR is made at a transport's thread, which has no caller to refuse.
    /// False: there is not as much. What was reserved stays, and a later call goes on from there.
    pub fn reserve_all(&self) -> bool {
        macro_rules! reserve {
            ($($arena:ident)*) => { self.reserve() $(&& self.$arena.reserve())* };
        }
        reserve!(ia ep cr ah sp cno pz srq lmr rmr)
    }

    /// Makes every object dead without taking it apart: in a forked child, where all of them are the parent's, so that
    /// no handle reaches the connections and memory which the parent goes on using. Takes no locks: those that other
    /// threads of the parent held are never given back here.
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
