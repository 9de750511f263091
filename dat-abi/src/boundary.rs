//! The boundary to C: stops panics, and converts raw arguments to Rust values.

use std::any::{Any, type_name_of_val};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::reserve::has_room;

use crate::ret::{DAT_SUCCESS, DatReturn, to_v1_2};
use crate::types::{DAT_TIMEOUT_INFINITE, DatCount, DatTimeout};

/// A version of uDAPL, with its numbers.
pub(crate) trait Version: 'static {
    /// `DAT_VERSION_MAJOR`.
    const MAJOR: u32;
    /// `DAT_SRQ_STATE_OPERATIONAL`.
    const SRQ_OPERATIONAL: u32;
    /// Returns an error as a return code.
    fn pack(error: Error) -> DatReturn;
}

/// uDAPL 1.2.
pub(crate) struct V1_2;

/// uDAPL 2.0.
pub(crate) struct V2_0;

impl Version for V1_2 {
    const MAJOR: u32 = 1;
    const SRQ_OPERATIONAL: u32 = 0;
    #[inline(always)]
    fn pack(error: Error) -> DatReturn {
        to_v1_2(error.code())
    }
}

impl Version for V2_0 {
    const MAJOR: u32 = 2;
    const SRQ_OPERATIONAL: u32 = 1;
    #[inline(always)]
    fn pack(error: Error) -> DatReturn {
        error.code()
    }
}

/// Runs the body of a slot. A panic becomes `DAT_INTERNAL_ERROR`; no call in the body is a cancellation point.
#[inline]
pub(crate) fn guard<V: Version>(body: impl FnOnce() -> Result<()>) -> DatReturn {
    let _deferred = dat_os::cancel::Deferred::new();
    guard_fast::<V>(body)
}

/// Runs the body of a slot with a fast path: like [`guard`], for a body without calls that are cancellation points
/// ([`Transport`](dat_core::transport::Transport) makes none on the fast path).
#[inline]
pub(crate) fn guard_fast<V: Version>(body: impl FnOnce() -> Result<()>) -> DatReturn {
    guard_as::<V, _>(type_name_of_val(&body), body)
}

/// Runs the body of a slot. `name` is the type of the slot's closure, which contains the slot's name.
#[inline]
fn guard_as<V: Version, F: FnOnce() -> Result<()>>(name: &'static str, body: F) -> DatReturn {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => DAT_SUCCESS,
        Ok(Err(error)) => V::pack(error),
        Err(panic) => V::pack(panicked(name, panic)),
    }
}

/// Runs the body of a slot that allocates: like [`guard`], but refuses the call when memory is too short for the allocations in it
/// that cannot fail ([`has_room`]). All slots that create, connect, accept or resize use this.
pub(crate) fn guard_allocating<V: Version>(body: impl FnOnce() -> Result<()>) -> DatReturn {
    let _deferred = dat_os::cancel::Deferred::new();
    guard_as::<V, _>(type_name_of_val(&body), || {
        if has_room() {
            body()
        } else {
            tracing::error!("the process has no memory left; free objects, or raise `ulimit -v`");
            Err(Error::resource(Subtype::ResourceMemory))
        }
    })
}

/// Runs a body that returns no error. A panic becomes `DAT_INTERNAL_ERROR`.
#[inline(always)]
pub(crate) fn caught<R>(body: impl FnOnce() -> R) -> Result<R> {
    let name = type_name_of_val(&body);
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| panicked(name, panic))
}

/// Returns the name of the function that a closure's type names: `ep_free` of `dat_abi::thunk::ep_free<T>::{{closure}}`.
fn function_of(closure: &str) -> &str {
    let path = closure.split("::{{closure}}").next().unwrap_or(closure);
    let path = path.split('<').next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

/// Logs a panic in the slot whose closure has this type. A function of its own, so that the fast path saves no registers for it.
#[cold]
#[inline(never)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "dropped here, not on the fast path"
)]
pub(crate) fn panicked(closure: &str, panic: Box<dyn Any + Send>) -> Error {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(
        text,
        "dat_{} panicked and returns DAT_INTERNAL_ERROR; this is a bug of the provider, please report it",
        function_of(closure)
    );
    Error::of(Kind::InternalError)
}

/// Writes a result through argument `number`, at any alignment.
///
/// # Safety
/// `to` is NULL or valid for a write of `O`.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` for NULL.
pub(crate) unsafe fn put<O>(to: *mut O, number: u16, value: O) -> Result<()> {
    if to.is_null() {
        return Err(Error::arg(number));
    }
    // SAFETY: not NULL, and valid by the caller's promise.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Refuses a NULL pointer, before the call has any effect.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` naming argument `number`.
pub(crate) fn require<O>(pointer: *const O, number: u16) -> Result<()> {
    if pointer.is_null() {
        Err(Error::arg(number))
    } else {
        Ok(())
    }
}

/// Returns the bytes of an argument: `count` is argument `count_number`, the pointer follows it.
///
/// # Safety
/// If `count` is positive, `pointer` is NULL or valid for reads of `count` bytes while the result lives.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` for a negative count, or NULL with a positive one.
pub(crate) unsafe fn bytes<'a>(
    count: DatCount,
    pointer: *const c_void,
    count_number: u16,
) -> Result<&'a [u8]> {
    if count == 0 {
        return Ok(&[]);
    }
    let Ok(length) = usize::try_from(count) else {
        return Err(Error::arg(count_number));
    };
    if pointer.is_null() {
        return Err(Error::arg(count_number + 1));
    }
    // SAFETY: not NULL, and valid by the caller's promise; bytes have no alignment.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
}

/// Copies a structure argument, at any alignment.
///
/// # Safety
/// `pointer` is NULL or valid for reads.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` for NULL.
#[inline(always)]
pub(crate) unsafe fn structure<O: Copy>(pointer: *const O, number: u16) -> Result<O> {
    if pointer.is_null() {
        return Err(Error::arg(number));
    }
    // SAFETY: not NULL, and valid by the caller's promise.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Converts a `DAT_TIMEOUT`, which is in microseconds; returns `None` for `DAT_TIMEOUT_INFINITE`.
pub(crate) fn to_timeout(value: DatTimeout) -> Option<Duration> {
    (value != DAT_TIMEOUT_INFINITE).then(|| Duration::from_micros(value.into()))
}

/// Converts a count, which must not be negative.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` naming argument `number`.
pub(crate) fn count(value: DatCount, number: u16) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::arg(number))
}

/// Converts to a `DAT_COUNT`; a value that does not fit becomes the largest one.
pub(crate) fn to_count(value: u32) -> DatCount {
    DatCount::try_from(value).unwrap_or(DatCount::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_internal_error() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = guard::<V2_0>(|| panic!("on purpose"));
        std::panic::set_hook(hook);
        assert_eq!(code, Error::of(Kind::InternalError).code());
        assert_eq!(guard::<V1_2>(|| Ok(())), DAT_SUCCESS);
    }

    #[test]
    fn the_type_of_a_closure_names_its_function() {
        fn ep_free<T>() -> &'static str {
            type_name_of_val(&|| size_of::<T>())
        }
        assert_eq!(function_of(ep_free::<Vec<u8>>()), "ep_free");
        assert_eq!(
            function_of("dat_abi::thunk::ep_free<a::B<c::D>>::{{closure}}::{{closure}}"),
            "ep_free"
        );
    }

    #[test]
    fn arguments_are_checked_before_they_are_read() {
        let three = [1_u8, 2, 3];
        let at = three.as_ptr().cast();
        let words = [0x0102_0304_0506_0708_u64, 9];
        // SAFETY: the pointers are NULL or of `three` and `words`.
        unsafe {
            assert_eq!(bytes(3, at, 2), Ok(&three[..]));
            assert_eq!(bytes(0, std::ptr::null(), 2), Ok(&[][..]));
            assert_eq!(bytes(-1, at, 2), Err(Error::arg(2)));
            assert_eq!(bytes(1, std::ptr::null(), 2), Err(Error::arg(3)));
            assert_eq!(structure::<u64>(std::ptr::null(), 3), Err(Error::arg(3)));
            let odd = words.as_ptr().byte_add(1);
            let bytes = words.map(u64::to_ne_bytes).concat();
            let expected = u64::from_ne_bytes(bytes[1..9].try_into().unwrap());
            assert_eq!(structure(odd, 3), Ok(expected));
        }
    }
}
