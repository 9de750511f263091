//! Keys and copies for transports that leave memory to this library.

use std::ffi::c_void;
use std::sync::LazyLock;

use dat_core::event::DtoStatus;
use dat_core::flags::MemPriv;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_provider_parts::keys::Keys;
use dat_provider_parts::memory;
use dat_provider_parts::pipe::Mutex;

use crate::report::caught;
use crate::table::{PzView, op};

pub(crate) static KEYS: LazyLock<Mutex<Keys>> = LazyLock::new(Mutex::default);

/// Runs an access; returns its status.
fn status(body: impl FnOnce() -> Result<(), DtoStatus>) -> u32 {
    let done = caught(body).unwrap_or(Err(DtoStatus::LocalEp));
    done.err().unwrap_or_default() as u32
}

/// Returns the zone's number.
///
/// # Safety
/// `pz` is NULL or a zone that lives.
unsafe fn number(pz: *const PzView) -> Result<u32, DtoStatus> {
    // SAFETY: the caller's promise.
    unsafe { pz.as_ref() }
        .map(|pz| pz.number)
        .ok_or(DtoStatus::LocalEp)
}

/// Returns the segments.
///
/// # Safety
/// `iov` is NULL or has `count` segments.
unsafe fn segments<'a>(iov: *const LmrTriplet, count: u32) -> Result<&'a [LmrTriplet], DtoStatus> {
    match count {
        0 => Ok(&[]),
        _ if iov.is_null() || !iov.is_aligned() => Err(DtoStatus::LocalEp),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(iov, count as usize) }),
    }
}

/// Returns `size` bytes of C to read from.
///
/// # Safety
/// `at` is NULL or has `size` bytes.
unsafe fn source<'a>(at: *const c_void, size: u64) -> Result<&'a [u8], DtoStatus> {
    match usize::try_from(size) {
        Ok(0) => Ok(&[]),
        Ok(size) if !at.is_null() && size <= isize::MAX as usize => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(at.cast(), size) })
        }
        _ => Err(DtoStatus::LocalLength),
    }
}

fn fits(iov: &[LmrTriplet], size: u64) -> Result<(), DtoStatus> {
    let room: u64 = iov
        .iter()
        .map(|segment| u64::from(segment.segment_length))
        .sum();
    if size <= room {
        Ok(())
    } else {
        Err(DtoStatus::LocalLength)
    }
}

fn remote(address: u64, key: u32) -> RmrTriplet {
    RmrTriplet {
        virtual_address: address,
        segment_length: 0,
        rmr_context: key,
    }
}

/// `dat_transport_gather`.
///
/// # Safety
/// The pointers are NULL, or as long as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_gather(
    pz: *const PzView,
    iov: *const LmrTriplet,
    count: u32,
    to: *mut c_void,
    size: u64,
) -> u32 {
    // SAFETY: the caller's promise, for the whole body.
    status(|| unsafe {
        let (pz, iov) = (number(pz)?, segments(iov, count)?);
        let keys = KEYS.lock();
        let from = keys.segments(pz, iov, MemPriv::LOCAL_READ)?;
        fits(iov, size)?;
        out(&from, to, size)
    })
}

/// Copies ranges to C.
///
/// # Safety
/// `to` is NULL or has room for `size` bytes.
unsafe fn out(from: &[memory::Range<'_>], to: *mut c_void, size: u64) -> Result<(), DtoStatus> {
    if size == 0 {
        return Ok(());
    }
    let mut bytes = Vec::new();
    memory::read(from, &mut bytes).map_err(|_| DtoStatus::LocalEp)?;
    if to.is_null() || (bytes.len() as u64) < size {
        return Err(DtoStatus::LocalLength);
    }
    // SAFETY: the caller's promise; `bytes` has `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), size as usize) };
    Ok(())
}

/// `dat_transport_scatter`.
///
/// # Safety
/// The pointers are NULL, or as long as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_scatter(
    pz: *const PzView,
    iov: *const LmrTriplet,
    count: u32,
    from: *const c_void,
    size: u64,
) -> u32 {
    // SAFETY: the caller's promise, for the whole body.
    status(|| unsafe {
        let (pz, iov) = (number(pz)?, segments(iov, count)?);
        let from = source(from, size)?;
        fits(iov, size)?;
        let keys = KEYS.lock();
        memory::write(from, &keys.segments(pz, iov, MemPriv::LOCAL_WRITE)?);
        Ok(())
    })
}

/// `dat_transport_read`.
///
/// # Safety
/// The pointers are NULL, or as long as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_read(
    pz: *const PzView,
    address: u64,
    key: u32,
    to: *mut c_void,
    size: u64,
) -> u32 {
    // SAFETY: the caller's promise, for the whole body.
    status(|| unsafe {
        if size == 0 {
            return Ok(());
        }
        let pz = number(pz)?;
        let keys = KEYS.lock();
        let from = keys.target(pz, remote(address, key), size, MemPriv::REMOTE_READ)?;
        out(&[from], to, size)
    })
}

/// `dat_transport_write`.
///
/// # Safety
/// The pointers are NULL, or as long as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_write(
    pz: *const PzView,
    address: u64,
    key: u32,
    from: *const c_void,
    size: u64,
) -> u32 {
    // SAFETY: the caller's promise, for the whole body.
    status(|| unsafe {
        if size == 0 {
            return Ok(());
        }
        let (pz, from) = (number(pz)?, source(from, size)?);
        let keys = KEYS.lock();
        let to = keys.target(pz, remote(address, key), size, MemPriv::REMOTE_WRITE)?;
        memory::write(from, &[to]);
        Ok(())
    })
}

/// `dat_transport_atomic`.
///
/// # Safety
/// The pointers are NULL, or as long as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_atomic(
    pz: *const PzView,
    address: u64,
    key: u32,
    operation: u32,
    operands: *const [u64; 2],
    old: *mut u64,
) -> u32 {
    // SAFETY: the caller's promise, for the whole body.
    status(|| unsafe {
        let pz = number(pz)?;
        let ([first, second], false) =
            (*operands.as_ref().ok_or(DtoStatus::LocalEp)?, old.is_null())
        else {
            return Err(DtoStatus::LocalEp);
        };
        if !matches!(operation, op::COMPARE_SWAP | op::FETCH_ADD) {
            return Err(DtoStatus::LocalEp);
        }
        let keys = KEYS.lock();
        let word = keys.target(pz, remote(address, key), 8, MemPriv::REMOTE_ATOMIC)?;
        let before = memory::update(word, |now| match operation {
            op::FETCH_ADD => now.wrapping_add(first),
            _ if now == first => second,
            _ => now,
        });
        *old = before.ok_or(DtoStatus::RemoteResponder)?;
        Ok(())
    })
}
