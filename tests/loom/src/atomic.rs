//! Atomics with a `const` constructor, whose accesses loom explores in every order.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

pub use loom::sync::atomic::{Ordering, fence};

/// A second atomic that each access changes first. Loom 0.7 tries another order only where the last access it recorded
/// is another thread's: a thread that loads a word and then stores to it hides an earlier load of another thread. The
/// relaxed change orders nothing for the program, but it conflicts with all others of the word.
type AccessMark = loom::sync::atomic::AtomicUsize;

macro_rules! atomics {
    ($($name:ident: $value:ty),*) => {$(
        /// Atomic with std's interface. Loom manages the value from the first use on.
        pub struct $name {
            first: $value,
            modelled: OnceLock<(loom::sync::atomic::$name, AccessMark)>,
        }

        impl $name {
            /// Creates the atomic with this value.
            pub const fn new(first: $value) -> Self {
                Self { first, modelled: OnceLock::new() }
            }
        }

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;
            fn deref(&self) -> &Self::Target {
                let (atomic, mark) =
                    self.modelled.get_or_init(|| (Self::Target::new(self.first), AccessMark::new(0)));
                mark.fetch_add(1, Ordering::Relaxed);
                atomic
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

atomics!(AtomicBool: bool, AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);
