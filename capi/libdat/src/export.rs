//! How a function is exported: unmangled, with the C calling convention, and as `NAME@@DAT_1.2`; and what a return code is in 1.2.

use dat_abi::ret::to_v1_2;
use dat_core::error::Error;

/// Defines exported functions. The version is attached where the symbol is defined, because a version script that
/// named the symbols would be overridden by rustc's own.
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
        std::arch::global_asm!(concat!(".symver ", stringify!($name), ", ", stringify!($name), "@@DAT_1.2"));
    )*};
}

/// The 1.2 number of an error.
pub(crate) fn code(error: Error) -> u32 {
    to_v1_2(error.code())
}
