//! Counters of the IB extension (dat_ib_query_counters, dat_ib_print_counters, dat_ib_start_counter,
//! dat_ib_stop_counter), numbered and called as in `dat_ib_extensions.h`.
//!
//! They count from the beginning of the object's life, or the last reset. What they count of posts and completions
//! stands where the post or the completion is handled already, each number with one writer at a time: one addition to
//! memory, no lock or locked instruction of its own. What core cannot see stays 0: repeated and duplicate messages of a
//! connection manager, MRA and DREP, and the allocations of DAPL.

mod ep;
mod evd;
mod ia;

use crate::error::{Error, Result};

pub use self::ep::EpCounter;
pub(crate) use self::ep::{EpValues, Posted, Received};
pub use self::evd::EvdCounter;
pub(crate) use self::evd::EvdTally;
pub(crate) use self::ia::IaCounters;
pub use self::ia::{CounterType, IaCounter};

/// An enumeration of counters with their names.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident: $prefix:literal; $($(#[$what:meta])* $counter:ident = $c:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        #[allow(missing_docs, reason = "the names say it, as far as the header does")]
        pub enum $name {
            $($(#[$what])* $counter,)*
        }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$counter),*];

            /// As the header calls it.
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

/// Which counters a call asks for: `DCNT_*_ALL_COUNTERS` or one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// All of the object's kind.
    All,
    /// The one of this number.
    One(usize),
}

impl Which {
    /// Of the number in a call about an object that has `count` counters.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 3 of dat_extension_op) for a number that no counter has.
    pub fn of(number: i32, count: usize) -> Result<Self> {
        match usize::try_from(number) {
            Ok(number) if number == count => Ok(Self::All),
            Ok(number) if number < count => Ok(Self::One(number)),
            _ => Err(Error::arg(3)),
        }
    }

    /// Whether it asks for the counter `number`.
    #[must_use]
    pub fn has(self, number: usize) -> bool {
        self == Self::All || self == Self::One(number)
    }
}

/// What an object has counted, in the order of the numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counted {
    /// As [`IaCounter::name`] and the like.
    pub names: Vec<&'static str>,
    /// Of each name.
    pub values: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_the_headers() {
        assert_eq!(IaCounter::ALL.len(), 85);
        assert_eq!(EpCounter::ALL.len(), 24);
        assert_eq!(EvdCounter::ALL.len(), 10);
        assert_eq!(IaCounter::CmReqTx as usize, 27);
        assert_eq!(IaCounter::CmReqTx.name(), "DCNT_IA_CM_REQ_TX");
        assert_eq!(EpCounter::RecvRdmaImmData as usize, 23);
        assert_eq!(EvdCounter::DtoCallback.name(), "DCNT_EVD_DTO_CALLBACK");
    }

    #[test]
    fn the_number_after_the_last_stands_for_all() {
        assert_eq!(Which::of(10, 10), Ok(Which::All));
        assert_eq!(Which::of(9, 10), Ok(Which::One(9)));
        assert_eq!(Which::of(11, 10), Err(Error::arg(3)));
        assert_eq!(Which::of(-1, 10), Err(Error::arg(3)));
        assert!(Which::All.has(3) && Which::One(3).has(3) && !Which::One(2).has(3));
    }
}
