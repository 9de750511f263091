//! Counters of adapters, endpoints and event dispatchers (`dat_ib_counters.h` of the IB extension).

use std::fmt;

use dat_abi::v2_0::types::ib_op;
pub use dat_core::counters::{CounterType, EpCounter, EvdCounter, IaCounter};

use crate::error::Result;
use crate::extension::operate;
use crate::sys::Handle;
use crate::{Ep, Evd, Ia};

/// A kind of counters: [`IaCounter`], [`EpCounter`] or [`EvdCounter`].
pub trait Counter: Copy + 'static {
    /// All of the kind, in the order of their numbers.
    const ALL: &'static [Self];

    /// The name in `dat_ib_counters.h`, without what all of the kind begin with.
    fn name(self) -> &'static str;

    /// Its place in [`Counter::ALL`].
    fn number(self) -> usize;
}

macro_rules! kinds {
    ($($kind:ident),*) => {$(
        impl Counter for $kind {
            const ALL: &'static [Self] = $kind::ALL;

            fn name(self) -> &'static str {
                $kind::name(self)
            }

            fn number(self) -> usize {
                self as usize
            }
        }
    )*};
}

kinds!(IaCounter, EpCounter, EvdCounter);

/// All counters of one object at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Counters<C: Counter> {
    values: Vec<u64>,
    kind: std::marker::PhantomData<C>,
}

impl<C: Counter> Counters<C> {
    /// The value of one.
    #[must_use]
    pub fn get(&self, counter: C) -> u64 {
        self.values[counter.number()]
    }

    /// Each with its value.
    pub fn iter(&self) -> impl Iterator<Item = (C, u64)> + '_ {
        C::ALL.iter().copied().zip(self.values.iter().copied())
    }

    /// Asks `handle`, and begins anew if `reset`.
    fn of(handle: Handle, reset: bool) -> Result<Self> {
        // More than any provider has.
        let mut values = vec![0; 256];
        debug_assert!(C::ALL.len() <= values.len());
        // The number behind the last counter stands for all of them.
        let arguments = [
            C::ALL.len() as u64,
            values.as_mut_ptr() as u64,
            u64::from(reset),
        ];
        // SAFETY: the operation takes a number, room for that many values, and a flag.
        unsafe {
            operate(
                handle,
                ib_op::QUERY_COUNTERS,
                "dat_ib_query_counters",
                &arguments,
            )?;
        };
        values.truncate(C::ALL.len());
        Ok(Self {
            values,
            kind: std::marker::PhantomData,
        })
    }
}

/// Those that have counted something.
impl<C: Counter> fmt::Debug for Counters<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.iter().filter(|(_, value)| *value != 0);
        f.debug_map()
            .entries(counted.map(|(counter, value)| (counter.name(), value)))
            .finish()
    }
}

macro_rules! counted {
    ($($(#[$doc:meta])* $object:ident => $kind:ident),*) => {$(
        impl $object {
            $(#[$doc])*
            ///
            /// # Errors
            /// [`Error::Call`](crate::Error::Call); `DAT_NOT_IMPLEMENTED` from a provider without counters.
            pub fn counters(&self) -> Result<Counters<$kind>> {
                Counters::of(self.handle(), false)
            }

            /// The same, and they begin anew (dat_ib_query_counters with a reset).
            ///
            /// # Errors
            /// As `counters`.
            pub fn take_counters(&self) -> Result<Counters<$kind>> {
                Counters::of(self.handle(), true)
            }
        }
    )*};
}

counted! {
    /// What the adapter has counted (dat_ib_query_counters): objects, connections, errors of the link.
    Ia => IaCounter,
    /// What the endpoint has counted (dat_ib_query_counters): posts and receives by kind, with their bytes.
    Ep => EpCounter,
    /// What the dispatcher has counted (dat_ib_query_counters): waits, and dequeues with and without an event.
    Evd => EvdCounter
}

impl Ia {
    /// Starts (dat_ib_start_counter) or stops (dat_ib_stop_counter) the counters of one type. Those of the connection manager
    /// run from the beginning.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn run_counters(&self, of: CounterType, run: bool) -> Result<()> {
        let (op, name) = if run {
            (ib_op::START_COUNTERS, "dat_ib_start_counter")
        } else {
            (ib_op::STOP_COUNTERS, "dat_ib_stop_counter")
        };
        // SAFETY: the operation takes the number of the type.
        unsafe { operate(self.handle(), op, name, &[of as u64]) }
    }
}
