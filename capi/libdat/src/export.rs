//! How a function is exported, and what a return code is in 1.2.

use dat_abi::ret::to_v1_2;
use dat_core::error::Error;

/// Defines exported functions.
macro_rules! export {
    ($($(#[$meta:meta])* $(extern $abi:literal)? fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> u32 $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// As the manual page says: pointers are NULL or valid. Handles may be anything.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported by the linker, not by a path")]
        #[allow(missing_abi, reason = "where a line says none it is \"C\"")]
        pub unsafe extern $($abi)? fn $name($($arg: $ty),*) -> u32 $body
    )*};
}

/// The 1.2 number of an error.
pub(crate) fn code(error: Error) -> u32 {
    to_v1_2(error.code())
}
