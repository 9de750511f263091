//! Counters of adapters, endpoints and event dispatchers (`dat_ib_counters.h` of the IB extension).

use std::fmt;

use dat_abi::v2_0::types::ib_op;
pub use dat_core::counters::{CounterType, EpCounter, EvdCounter, IaCounter};

use crate::error::Result;
use crate::extension::operate;
use crate::sys::Handle;
use crate::{Ep, Evd, Ia};

/// Named attribute that lists a provider's own counters.
const NAMES: &str = "DAT_PROVIDER_COUNTERS";

/// A kind of counters: [`IaCounter`], [`EpCounter`] or [`EvdCounter`].
///
/// ```
/// use udapl::{Counter, EpCounter};
///
/// let names: Vec<_> = EpCounter::ALL.iter().map(|counter| counter.name()).collect();
/// assert!(names.contains(&"DCNT_EP_POST_SEND"), "{names:?}");
/// ```
pub trait Counter: Copy + 'static {
    /// All counters of the kind, in the order of their numbers.
    const ALL: &'static [Self];

    /// Returns the name in `dat_ib_counters.h`, such as `DCNT_EP_POST_SEND`.
    fn name(self) -> &'static str;

    /// Returns the index in [`Counter::ALL`].
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
///
/// ```
/// use udapl::{Access, EpCounter};
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let (pz, (client, sent), (server, received)) = pair()?;
/// // `client` is a connected endpoint.
/// let message = pz.allocate(64, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
/// # server.post_recv(&[message.slice(32..64)], 2)?;
/// client.post_send(&[message.slice(0..10)], 1)?;
/// let counters = client.counters()?;
/// assert_eq!(counters.get(EpCounter::PostSend), 1);
/// println!("{counters:?}"); // those that are not 0
/// for (counter, value) in client.take_counters()?.iter() {
///     println!("{counter:?} {value}"); // all of them; they are 0 from now on
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Counters<C: Counter> {
    values: Vec<u64>,
    kind: std::marker::PhantomData<C>,
}

impl<C: Counter> Counters<C> {
    /// Returns the value of one counter.
    #[must_use]
    pub fn get(&self, counter: C) -> u64 {
        self.values[counter.number()]
    }

    /// Returns each counter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (C, u64)> + '_ {
        C::ALL.iter().copied().zip(self.values.iter().copied())
    }

    /// Queries the counters of `handle`, and resets them if `reset` is set.
    fn of(handle: Handle, reset: bool) -> Result<Self> {
        // More than the counters of any provider.
        let mut values = vec![0; 256];
        debug_assert!(C::ALL.len() <= values.len());
        // The number after the last counter selects all of them.
        let arguments = [
            C::ALL.len() as u64,
            values.as_mut_ptr() as u64,
            u64::from(reset),
        ];
        // SAFETY: the operation takes a number, an array for that many values, and a flag.
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

/// Shows the counters that are not 0.
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

            /// Returns the counters and resets them (dat_ib_query_counters with a reset).
            ///
            /// # Errors
            /// The same as `counters`.
            pub fn take_counters(&self) -> Result<Counters<$kind>> {
                Counters::of(self.handle(), true)
            }
        }
    )*};
}

counted! {
    /// Returns the counters of the adapter (dat_ib_query_counters): objects, connections, link errors.
    Ia => IaCounter,
    /// Returns the counters of the endpoint (dat_ib_query_counters): posts and receives by kind, with their bytes.
    Ep => EpCounter,
    /// Returns the counters of the dispatcher (dat_ib_query_counters): waits, and dequeues with and without an event.
    Evd => EvdCounter
}

impl Ia {
    /// Returns names and values of the counters that only this provider has, such as `near_fallback_peer` of the user engine. The named
    /// attribute `DAT_PROVIDER_COUNTERS` lists the names; the numbers in dat_ib_query_counters begin after
    /// `DCNT_IA_ALL_COUNTERS`. Empty from a provider without any.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) if the IA is closed.
    pub fn provider_counters(&self) -> Result<Vec<(String, u64)>> {
        let named = self.attributes()?.named;
        let names = named.iter().find(|(name, _)| name == NAMES);
        let names = names.iter().flat_map(|(_, names)| names.split(' '));
        names
            .enumerate()
            .map(|(index, name)| {
                let mut value = 0_u64;
                let number = (IaCounter::ALL.len() + 1 + index) as u64;
                let arguments = [number, (&raw mut value) as u64, 0];
                // SAFETY: the operation takes a number, memory for one value, and a flag.
                unsafe {
                    operate(
                        self.handle(),
                        ib_op::QUERY_COUNTERS,
                        "dat_ib_query_counters",
                        &arguments,
                    )?;
                };
                Ok((name.to_owned(), value))
            })
            .collect()
    }

    /// Starts (dat_ib_start_counter) or stops (dat_ib_stop_counter) the counters of one type. Those of the connection manager
    /// run from the beginning.
    ///
    /// ```
    /// use udapl::{CounterType, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let ia = Ia::open("softrxe-lo")?;
    /// ia.run_counters(CounterType::Cm, true)?;
    /// println!("{:?}", ia.counters()?);
    /// # Ok(())
    /// # }
    /// ```
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
