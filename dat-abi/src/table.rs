//! What both versions' function tables have in common: the macro that defines their structs, and the reservation of address
//! space that their thunks need.

use dat_core::error::{Error, Result, Subtype};

/// Defines a `struct dat_provider`: `device_name`, `extension`, then the slots in order. A slot of a classic provider may be NULL,
/// hence `Option`. The calling convention of a slot is `"C"` unless its line names another one.
macro_rules! provider_table {
    ($(#[$doc:meta])* $name:ident { $($(#[$says:meta])* $slot:ident $($abi:literal)? ($($arg:ident: $ty:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(missing_abi, reason = "a slot without a calling convention has \"C\"")]
        pub struct $name {
            /// Name of the device: a C string.
            pub device_name: *const std::ffi::c_char,
            /// Data of the provider.
            pub extension: *mut std::ffi::c_void,
            $($(#[$says])*
            pub $slot: Option<unsafe extern $($abi)? fn($($arg: $ty),*) -> $crate::ret::DatReturn>,)*
        }

        // SAFETY: a table is not written after its registration; only the provider uses `extension`.
        unsafe impl Sync for $name {}
        // SAFETY: as above; the pointers in it are valid in every thread.
        unsafe impl Send for $name {}

        impl $crate::types::CLayout for $name {
            const SIZE: usize = size_of::<Self>();
            const FIELDS: &'static [(&'static str, usize)] = &[
                ("device_name", std::mem::offset_of!($name, device_name)),
                ("extension", std::mem::offset_of!($name, extension)),
                $((concat!(stringify!($slot), "_func"), std::mem::offset_of!($name, $slot)),)*
            ];
        }

        impl $name {
            /// A table whose slots are all empty.
            pub const EMPTY: Self = Self {
                device_name: std::ptr::null(),
                extension: std::ptr::null_mut(),
                $($slot: None,)*
            };

            /// Returns true if both tables have the same functions. Each IA has a table of its own, with the name of its device.
            #[must_use]
            pub fn has_functions_of(&self, other: &Self) -> bool {
                true $(&& self.$slot.map(|slot| slot as usize) == other.$slot.map(|slot| slot as usize))*
            }
        }
    };
}
pub(crate) use provider_table;

/// Reserves the address space for handles that the thunks of `T` rely on. Called before a table of `T` is handed out.
///
/// # Panics
/// If there is not that much address space. A caller that can return an error calls [`Arenas::reserve`] first.
///
/// [`Arenas::reserve`]: dat_core::arenas::Arenas::reserve
pub(crate) fn reserve_for<T: dat_core::transport::Transport>() {
    assert!(T::arenas().reserve(), "no address space for the handles");
}

/// Turns the result of a reservation of address space for handles into an error, with a message.
///
/// # Errors
/// `DAT_INSUFFICIENT_RESOURCES` if there is not that much.
pub(crate) fn reserved(reserved: bool) -> Result<()> {
    if reserved {
        return Ok(());
    }
    tracing::error!(
        "a provider cannot be used: no address space for its handles (up to 512 MiB for each engine); raise the limit (ulimit -v)"
    );
    Err(Error::resource(Subtype::ResourceMemory))
}
