//! Counters of the IB extension (dat_ib_query_counters, dat_ib_print_counters, dat_ib_start_counter, dat_ib_stop_counter), with the
//! numbers and names of `dat_ib_extensions.h`.
//!
//! They count from the creation of the object or the last reset. The counters of posts and completions are part of the data that a
//! post or a completion writes anyway. Each has one writer at a time. So counting costs one addition to memory, without a lock or
//! a locked instruction. Counters of events that core cannot observe stay 0: repeated and duplicate messages of a connection
//! manager, MRA and DREP, and the allocations of DAPL.

mod ep;
mod evd;
mod ia;

use crate::error::{Error, Result};

pub use self::ep::EpCounter;
pub(crate) use self::ep::{EpValues, Posted, Received};
pub use self::evd::EvdCounter;
pub(crate) use self::evd::EvdCounters;
pub(crate) use self::ia::IaCounters;
pub use self::ia::{CounterType, IaCounter};

/// Defines an enumeration of counters and their names.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident: $prefix:literal; $($(#[$what:meta])* $counter:ident = $c:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        #[allow(missing_docs, reason = "the header documents no more than the names")]
        pub enum $name {
            $($(#[$what])* $counter,)*
        }

        impl $name {
            /// All counters, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$counter),*];

            /// Returns the name in the header.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$counter => concat!($prefix, $c),)*
                }
            }
        }
    };
}
pub(crate) use counters;

/// Selection of counters in a call: `DCNT_*_ALL_COUNTERS` or one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All counters of the object.
    All,
    /// The counter with this number.
    One(usize),
}

impl Which {
    /// Converts the number in a call for an object with `count` counters.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 3 of dat_extension_op) for a number without a counter.
    pub fn of(number: i32, count: usize) -> Result<Self> {
        match usize::try_from(number) {
            Ok(number) if number == count => Ok(Self::All),
            Ok(number) if number < count => Ok(Self::One(number)),
            _ => Err(Error::arg(3)),
        }
    }

    /// Returns true if counter `number` is selected.
    #[must_use]
    pub fn has(self, number: usize) -> bool {
        self == Self::All || self == Self::One(number)
    }
}

/// The counters of an object, in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Names of the counters, such as [`IaCounter::name`].
    pub names: Vec<&'static str>,
    /// Value of each counter.
    pub values: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_the_header() {
        assert_eq!(IaCounter::ALL.len(), 85);
        assert_eq!(EpCounter::ALL.len(), 24);
        assert_eq!(EvdCounter::ALL.len(), 10);
        assert_eq!(IaCounter::CmReqTx as usize, 27);
        assert_eq!(IaCounter::CmReqTx.name(), "DCNT_IA_CM_REQ_TX");
        assert_eq!(EpCounter::RecvRdmaImmData as usize, 23);
        assert_eq!(EvdCounter::DtoCallback.name(), "DCNT_EVD_DTO_CALLBACK");
    }

    #[test]
    fn the_number_after_the_last_counter_selects_all() {
        assert_eq!(Which::of(10, 10), Ok(Which::All));
        assert_eq!(Which::of(9, 10), Ok(Which::One(9)));
        assert_eq!(Which::of(11, 10), Err(Error::arg(3)));
        assert_eq!(Which::of(-1, 10), Err(Error::arg(3)));
        assert!(Which::All.has(3) && Which::One(3).has(3) && !Which::One(2).has(3));
    }
}
