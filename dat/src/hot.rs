//! The calls of the data path. Each of them has an entry here that can be called without any check. If the provider left a slot empty,
//! the entry is a function that says so. If the provider's calls are made one after the other, the entries are functions that take the
//! lock.

use std::sync::{Mutex, PoisonError};

use dat_abi::types::{DatCount, DatHandle};
use dat_abi::v2_0::types::DatEvent;
use dat_core::iov::{LmrTriplet, RmrTriplet};

use crate::serial;
use crate::sys::{self, ABSENT, Handle};

macro_rules! hot {
    ($($abi:literal $slot:ident($($arg:ident: $type:ty),*)),* $(,)?) => {
        /// Functions of one table.
        #[derive(Debug)]
        pub(crate) struct Hot {
            table: usize,
            is_serialised: bool,
            $(pub(crate) $slot: unsafe extern $abi fn(DatHandle, $($type),*) -> u32),*
        }

        impl Hot {
            fn new(handle: Handle, is_serialised: bool) -> Self {
                let table = handle.table();
                let mut hot = Self {
                    table: handle.table_address(),
                    is_serialised,
                    $($slot: match table.$slot {
                        Some(_) if is_serialised => locked::$slot,
                        Some(slot) => slot,
                        None => absent::$slot,
                    }),*
                };
                if is_serialised && table.evd_wait.is_some() {
                    hot.evd_wait = wait_polling;
                }
                hot
            }

            /// Returns whether these are still the functions of the table: a library may be loaded where another one was.
            fn is_of(&self, handle: Handle) -> bool {
                let now = Self::new(handle, self.is_serialised);
                true $(&& now.$slot as usize == self.$slot as usize)*
            }
        }

        /// Calls under the lock.
        mod locked {
            use super::*;
            $(
                /// # Safety
                /// As the slot.
                pub(super) unsafe extern $abi fn $slot(handle: DatHandle, $($arg: $type),*) -> u32 {
                    let _turn = serial::lock();
                    match Handle(handle).table().$slot {
                        // SAFETY: the caller's promise.
                        Some(slot) => unsafe { slot(handle, $($arg),*) },
                        None => ABSENT.code(),
                    }
                }
            )*
        }

        /// Slots that the provider left empty.
        mod absent {
            use super::*;
            $(
                pub(super) extern $abi fn $slot(_: DatHandle, $(_: $type),*) -> u32 {
                    ABSENT.code()
                }
            )*
        }
    };
}

hot! {
    "C" ep_post_send(count: DatCount, iov: *mut LmrTriplet, cookie: u64, flags: u32),
    "C" ep_post_recv(count: DatCount, iov: *mut LmrTriplet, cookie: u64, flags: u32),
    "C" ep_post_rdma_write(count: DatCount, iov: *mut LmrTriplet, cookie: u64, to: *const RmrTriplet, flags: u32),
    "C" evd_dequeue(event: *mut DatEvent),
    "C-unwind" evd_wait(limit: u32, threshold: DatCount, event: *mut DatEvent, more: *mut DatCount),
}

/// Waits by polling, so that the lock is free meanwhile.
///
/// # Safety
/// As the slot.
unsafe extern "C-unwind" fn wait_polling(
    handle: DatHandle,
    limit: u32,
    threshold: DatCount,
    event: *mut DatEvent,
    more: *mut DatCount,
) -> u32 {
    sys::wait_polling(sys::limit(limit), &mut |piece| {
        // SAFETY: the caller's promise.
        unsafe { locked::evd_wait(handle, piece, threshold, event, more) }
    })
}

impl Hot {
    /// Returns the functions of the handle's table.
    pub(crate) fn of(handle: Handle) -> &'static Self {
        static ALL: Mutex<Vec<&'static Hot>> = Mutex::new(Vec::new());
        let table = handle.table_address();
        let is_serialised = serial::is_serialised(table);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all
            .iter()
            .find(|hot| hot.table == table && hot.is_serialised == is_serialised);
        if let Some(known) = known
            && known.is_of(handle)
        {
            return known;
        }
        let new: &'static Self = Box::leak(Box::new(Self::new(handle, is_serialised)));
        all.retain(|hot| hot.table != table || hot.is_serialised != is_serialised);
        all.push(new);
        new
    }
}

/// `quick!(hot, handle, slot(arguments...))`: calls a function of [`Hot`] with the handle first, and returns the provider's code.
macro_rules! quick {
    ($hot:expr, $handle:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let handle: $crate::sys::Handle = $handle;
        // SAFETY: by the slot's manual page: the handle is a provider's, and pointers are to live values of this crate.
        unsafe { ($hot.$slot)(handle.0 $(, $arg)*) }
    }};
}
pub(crate) use quick;
