//! Calls through a provider's function table: where the crate's unsafe calls are.

use dat_abi::types::DatHandle;
use dat_abi::v2_0::table::DatProvider;
use dat_core::error::{Error as Code, Kind};

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::post_error::{PostCall, PostError};
use crate::serial;

/// A handle that a provider returned. It is valid until its owner, one value of this crate, frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) DatHandle);

impl Handle {
    /// Returns the function table of the handle.
    #[inline]
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
#[inline]
pub(crate) fn done(call: &'static str, code: u32) -> Result<()> {
    match Code::from_code(code) {
        None => Ok(()),
        Some(code) => Err(Error::of(call, code)),
    }
}

/// Converts the return code of a post.
#[inline]
pub(crate) fn posted(call: PostCall, code: u32) -> Result<(), PostError> {
    match Code::from_code(code) {
        None => Ok(()),
        Some(code) => Err(PostError::of(call, code)),
    }
}

/// Returns true for a return code of this type.
#[inline]
const fn is(kind: Kind, code: u32) -> bool {
    const SUBTYPE: u32 = 0xffff;
    const CLASS: u32 = 0xc000_0000;
    code & !(SUBTYPE | CLASS) == kind as u32
}

/// Returns true for the return code of a call that found an empty queue.
#[inline]
pub(crate) const fn says_empty(code: u32) -> bool {
    is(Kind::QueueEmpty, code)
}

/// Returns true for the return code of a wait whose time is over: of dat_evd_wait, and of dat_cno_wait.
const fn says_over(code: u32) -> bool {
    is(Kind::TimeoutExpired, code) || says_empty(code)
}

/// Returns true for the return code of a call that the state of its object forbids.
#[inline]
pub(crate) const fn says_state(code: u32) -> bool {
    is(Kind::InvalidState, code)
}

/// The return code of a slot that a provider left empty.
pub(crate) const ABSENT: Code = Code::of(Kind::NotImplemented);

/// Returns the error for a slot that a provider left empty.
#[cold]
pub(crate) fn absent(call: &'static str) -> Error {
    Error::of(call, ABSENT)
}

/// `call!(handle, slot(arguments...))`: calls the slot of the handle's table with the handle first. `call!(post name, handle, ...)`
/// does the same for a post. `call!(code handle, ...)` returns the provider's return code.
macro_rules! call {
    (post $call:expr, $handle:expr, $slot:ident($($arg:expr),* $(,)?)) => {
        match $crate::sys::call!(code $handle, $slot($($arg),*)) {
            Ok(code) => $crate::sys::posted($call, code),
            Err(absent) => Err($crate::PostError::of($call, absent)),
        }
    };
    (code $handle:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let handle: $crate::sys::Handle = $handle;
        match handle.table().$slot {
            None => Err($crate::sys::ABSENT),
            Some(slot) => Ok(if $crate::serial::is_serialised(handle.table_address()) {
                let _turn = $crate::serial::lock();
                // SAFETY: as below.
                unsafe { slot(handle.0 $(, $arg)*) }
            } else {
                // SAFETY: as below.
                unsafe { slot(handle.0 $(, $arg)*) }
            }),
        }
    }};
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

/// `query!(handle, slot(arguments...))`: calls a query slot, whose last argument is a structure that the provider fills, and returns
/// the structure. Its fields must all be valid if zero.
macro_rules! query {
    ($handle:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let mut param = std::mem::MaybeUninit::zeroed();
        $crate::sys::call!($handle, $slot($($arg,)* param.as_mut_ptr()))?;
        // SAFETY: zeroed, then filled by the provider; the structures are plain data.
        unsafe { param.assume_init() }
    }};
}
pub(crate) use query;

/// Frees an object when its owner is dropped; a failure is a bug of the provider or of this crate and is logged.
macro_rules! free {
    ($handle:expr, $slot:ident($($arg:expr),*)) => {
        let handle: $crate::sys::Handle = $handle;
        if let Err(error) = $crate::sys::call!(handle, $slot($($arg),*)) {
            $crate::sys::not_freed(handle, &error);
        }
    };
}
pub(crate) use free;

/// Logs the failure of a free.
#[cold]
pub(crate) fn not_freed(handle: Handle, error: &Error) {
    tracing::warn!(%error, handle = handle.0, "an object could not be freed; this is a bug, please report it");
}

/// The longest time limit of a call that has one, in microseconds; the next number means none.
const LONGEST: u32 = u32::MAX - 1;

/// Converts the time limit of `call`; `Duration::MAX` means none.
///
/// # Errors
/// [`Error::TimeLimit`] beyond 71 minutes.
pub(crate) fn timeout(call: &'static str, limit: Duration) -> Result<u32> {
    match u32::try_from(limit.as_micros()) {
        Ok(limit) if limit <= LONGEST => Ok(limit),
        _ if limit == Duration::MAX => Ok(u32::MAX),
        _ => Err(Error::TimeLimit {
            call,
            given: limit,
            most: Duration::from_micros(LONGEST.into()),
        }),
    }
}

/// Returns a limit in microseconds if it fits one wait: 32 bits of them are 71 minutes.
#[inline(always)]
pub(crate) const fn one_piece(limit: Duration) -> Option<u32> {
    const SECONDS: u64 = (LONGEST / 1_000_000) as u64;
    if limit.as_secs() < SECONDS {
        return Some(limit.as_secs() as u32 * 1_000_000 + limit.subsec_micros());
    }
    None
}

/// Returns a limit in microseconds as a duration; [`u32::MAX`] means none.
pub(crate) const fn limit(micros: u32) -> Duration {
    if micros == u32::MAX {
        return Duration::MAX;
    }
    Duration::from_micros(micros as u64)
}

/// Calls `wait`, which returns a code, for an object of the table at `table` with pieces of `limit` until it has a result or the limit
/// expires. `Duration::MAX` is no limit. A wait of a provider whose calls are made one after the other polls.
pub(crate) fn wait(table: usize, limit: Duration, wait: &mut dyn FnMut(u32) -> u32) -> u32 {
    if serial::is_serialised(table) {
        return wait_polling(limit, wait);
    }
    match one_piece(limit) {
        Some(piece) => wait(piece),
        None => wait_in_pieces(limit, wait),
    }
}

pub(crate) fn wait_in_pieces(limit: Duration, wait: &mut dyn FnMut(u32) -> u32) -> u32 {
    // A limit that no clock reaches is none.
    let deadline = Instant::now().checked_add(limit);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let piece = left.map_or(LONGEST, |left| {
            u32::try_from(left.as_micros()).map_or(LONGEST, |left| left.min(LONGEST))
        });
        let code = wait(piece);
        if !says_over(code) || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return code;
        }
    }
}

pub(crate) fn wait_polling(limit: Duration, wait: &mut dyn FnMut(u32) -> u32) -> u32 {
    let deadline = Instant::now().checked_add(limit);
    loop {
        let code = wait(0);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if !says_over(code) || left == Some(Duration::ZERO) {
            return code;
        }
        std::thread::sleep(left.map_or(serial::PAUSE, |left| serial::PAUSE.min(left)));
    }
}

/// Returns a length as a `DAT_COUNT`; providers refuse the largest one.
pub(crate) fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_finite_or_none_or_refused() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(timeout("call", minutes(71)).unwrap(), 4_260_000_000);
        assert_eq!(timeout("call", Duration::MAX).unwrap(), u32::MAX);
        let refused = timeout("call", minutes(72)).unwrap_err();
        assert!(matches!(refused, Error::TimeLimit { .. }), "{refused}");
        let exactly_none = Duration::from_micros(u32::MAX.into());
        assert!(timeout("call", exactly_none).is_err());
    }

    #[test]
    fn an_endless_wait_goes_on_after_each_piece() {
        const EXPIRED: u32 = Code::of(Kind::TimeoutExpired).code();
        // What dat_cno_wait returns at the end of the time.
        const EMPTY: u32 = Code::of(Kind::QueueEmpty).without_class().code();
        for limit in [Duration::MAX, Duration::from_secs(72 * 60)] {
            for over in [EXPIRED, EMPTY] {
                let mut pieces = Vec::new();
                let code = wait(0, limit, &mut |piece| {
                    pieces.push(piece);
                    if pieces.len() < 3 { over } else { 7 }
                });
                assert_eq!((code, pieces), (7, vec![LONGEST; 3]));
            }
        }
        for (limit, expected) in [(0, 0), (1999, 1), (4_293_999_999_000, 4_293_999_999)] {
            let code = wait(0, Duration::from_nanos(limit), &mut |piece| {
                assert_eq!(piece, expected);
                EXPIRED
            });
            assert_eq!(code, EXPIRED);
        }
    }
}
