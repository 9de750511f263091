//! How both versions' function tables are written down.

/// Defines a `struct dat_provider`: `device_name`, `extension`, then the slots in order. A slot of a
/// classic provider may be NULL, hence `Option`. A slot's calling convention is `"C"` unless it says another one.
macro_rules! provider_table {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($slot:ident $($abi:literal)? ($($arg:ident: $ty:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_abi, reason = "where a slot says none it is \"C\"")]
        #[allow(missing_docs, reason = "slot `x` is the specification's `x_func`, see the page dat_x")]
        pub struct $name {
            /// A C string.
            pub device_name: *const std::ffi::c_char,
            /// The provider's own.
            pub extension: *mut std::ffi::c_void,
            $(pub $slot: Option<unsafe extern $($abi)? fn($($arg: $ty),*) -> $crate::ret::DatReturn>,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);

        // SAFETY: a table is never written to after it was registered, and what `extension` points to is
        // the provider's business.
        unsafe impl Sync for $name {}
        // SAFETY: as above; the pointers in it are valid in every thread.
        unsafe impl Send for $name {}

        impl $crate::types::CLayout for $name {
            const SIZE: usize = $size;
            const FIELDS: &'static [(&'static str, usize)] = &[
                ("device_name", std::mem::offset_of!($name, device_name)),
                ("extension", std::mem::offset_of!($name, extension)),
                $((concat!(stringify!($slot), "_func"), std::mem::offset_of!($name, $slot)),)*
            ];
        }

        impl $name {
            /// A table without a function, to fill.
            pub const EMPTY: Self = Self {
                device_name: std::ptr::null(),
                extension: std::ptr::null_mut(),
                $($slot: None,)*
            };
        }
    };
}
pub(crate) use provider_table;

/// What the thunks of `T` rely on; to be called before its table is handed out.
///
/// # Panics
/// If there is not as much address space: whoever can be told of it asks [`Arenas::reserve`] first.
///
/// [`Arenas::reserve`]: dat_core::arenas::Arenas::reserve
pub(crate) fn reserve_for<T: dat_core::transport::Transport>() {
    assert!(T::arenas().reserve(), "no address space for the handles");
}
