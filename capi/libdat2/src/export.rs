//! The macro that exports functions: unmangled, with the C calling convention, as `NAME@@DAT_2.0`.

/// Defines exported functions. `.symver` attaches the version where the symbol is defined, because rustc's own version script
/// would override one that names the symbols. With `@@@` the symbol has no other name, which GNU ld would refuse as a second one.
macro_rules! export {
    ($($(#[$meta:meta])* $(extern $abi:literal)? fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> u32 $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// Pointers are NULL or valid, as the manual page says. Handles may be any numbers.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported by the linker, not by a path")]
        #[allow(missing_abi, reason = "a line without a calling convention has \"C\"")]
        pub unsafe extern $($abi)? fn $name($($arg: $ty),*) -> u32 $body
        std::arch::global_asm!(concat!(".symver ", stringify!($name), ", ", stringify!($name), "@@@DAT_2.0"));
    )*};
}
