//! Calls through a provider's function table: where the crate's unsafe calls are.

use dat_abi::types::DatHandle;
use dat_abi::v2_0::table::DatProvider;
use dat_core::error::{Error as Code, Kind};

use crate::error::{Error, Result};

/// A handle that a provider returned. It is valid until its owner, one value of this crate, frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) DatHandle);

impl Handle {
    /// Returns the function table of the handle.
    pub(crate) fn table(self) -> &'static DatProvider {
        // SAFETY: the first word of a provider's handle points to its table; the library stays mapped while the IA is open.
        unsafe { &**(self.0 as *const *const DatProvider) }
    }

    /// Returns the address of the function table.
    pub(crate) fn table_address(self) -> usize {
        std::ptr::from_ref(self.table()) as usize
    }
}

/// Converts the return code of a call to a result.
pub(crate) fn done(call: &'static str, code: u32) -> Result<()> {
    match Code::from_code(code) {
        None => Ok(()),
        Some(code) => Err(Error::Call { call, code }),
    }
}

/// Returns the error for a slot that a provider left empty.
pub(crate) fn absent(call: &'static str) -> Error {
    Error::Call {
        call,
        code: Code::of(Kind::NotImplemented),
    }
}

/// `call!(handle, slot(arguments...))`: calls the slot of the handle's table with the handle first.
macro_rules! call {
    ($handle:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let handle: $crate::sys::Handle = $handle;
        match handle.table().$slot {
            None => Err($crate::sys::absent(concat!("dat_", stringify!($slot)))),
            Some(slot) => {
                let _turn = $crate::serial::enter(handle.table_address());
                // SAFETY: by the slot's manual page: the handle is a provider's, and pointers are to live values of this
                // crate, or NULL where the page allows it.
                $crate::sys::done(concat!("dat_", stringify!($slot)), unsafe { slot(handle.0 $(, $arg)*) })
            }
        }
    }};
}
pub(crate) use call;

/// Frees an object when its owner is dropped; a failure is a bug of the provider or of this crate and is logged.
macro_rules! free {
    ($handle:expr, $slot:ident($($arg:expr),*)) => {
        let handle: $crate::sys::Handle = $handle;
        if let Err(error) = $crate::sys::call!(handle, $slot($($arg),*)) {
            tracing::warn!(%error, handle = handle.0, "an object could not be freed; this is a bug, please report it");
        }
    };
}
pub(crate) use free;
