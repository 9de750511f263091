//! Atomics that a `const` can build, in every order of whose accesses loom looks.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

pub use loom::sync::atomic::Ordering;

/// Changed before each access of the atomic beside it. Loom 0.7 tries another order only where the last access that it knows of
/// is another thread's; a thread that loads a word and then stores to it hides the load of another thread before. A relaxed
/// change orders nothing for the program, and depends on all others of the word.
type Turn = loom::sync::atomic::AtomicUsize;

macro_rules! atomics {
    ($($name:ident: $value:ty),*) => {$(
        /// As in std. The value is loom's from the first use on.
        pub struct $name {
            first: $value,
            modelled: OnceLock<(loom::sync::atomic::$name, Turn)>,
        }

        impl $name {
            /// As in std.
            pub const fn new(first: $value) -> Self {
                Self { first, modelled: OnceLock::new() }
            }
        }

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;
            fn deref(&self) -> &Self::Target {
                let (atomic, turn) =
                    self.modelled.get_or_init(|| (Self::Target::new(self.first), Turn::new(0)));
                turn.fetch_add(1, Ordering::Relaxed);
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
