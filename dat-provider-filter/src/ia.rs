//! The slots of IAs: opening, closing, attributes; and the operations of the extension.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_abi::ret::{DAT_SUCCESS, DatReturn};
use dat_abi::types::{DAT_HANDLE_NULL, DatCount, DatHandle};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::{DatIaAttr, DatProviderAttr, ib_op};
use dat_abi::va_list::VaList;
use dat_core::error::{Error, Kind, Subtype};
use dat_os::cancel::Deferred;

use crate::entry::{self, Entry};
use crate::inner::{self, Arguments, Opened};
use crate::instance::{self, Instance};
use crate::nesting;
use crate::slots::{Call, LEVELS, Slot, generic, not_implemented};

/// Slot `ia_open` of the table that each entry registers.
pub(crate) unsafe extern "C" fn ia_open(
    name: *const c_char,
    qlen: DatCount,
    async_evd: *mut DatHandle,
    ia: *mut DatHandle,
) -> DatReturn {
    let _deferred = Deferred::new();
    if name.is_null() {
        return Error::arg(1).code();
    }
    let arguments = Arguments {
        qlen,
        async_evd,
        ia,
    };
    // SAFETY: not NULL, so a C string; the other pointers are NULL or valid, by the slot's contract.
    catch_unwind(AssertUnwindSafe(|| unsafe {
        open(CStr::from_ptr(name), arguments)
    }))
    .unwrap_or(Error::of(Kind::InternalError).code())
}

/// # Safety
/// The pointers are NULL or valid.
unsafe fn open(name: &CStr, arguments: Arguments) -> DatReturn {
    let Some(entry) = entry::find(&name.to_string_lossy()) else {
        return Error::of(Kind::ProviderNotFound).code();
    };
    let below = match nesting::below(entry) {
        Ok(below) => below,
        Err(error) => {
            tracing::error!(ia = entry.name(), inner = entry.inner, "{error}");
            return Error::of(Kind::InvalidParameter).code();
        }
    };
    // SAFETY: the caller's promise.
    match unsafe { open_over(entry, &below, arguments) } {
        Ok(_) => DAT_SUCCESS,
        Err(code) => code,
    }
}

/// Opens an IA of an entry over the filters below it, the next one first. Returns its instance.
///
/// # Safety
/// The pointers are NULL or valid.
unsafe fn open_over(
    entry: &'static Entry,
    below: &[&'static Entry],
    arguments: Arguments,
) -> Result<&'static Instance, DatReturn> {
    let evd = arguments.async_evd;
    // SAFETY: NULL or valid by the caller's promise.
    let makes_evd = !evd.is_null() && unsafe { evd.read_unaligned() } == DAT_HANDLE_NULL;
    let (ia, is_classic) = match below.split_first() {
        // SAFETY: the caller's promise; an open that succeeds has written the handle.
        Some((next, rest)) => unsafe {
            let instance = open_over(next, rest, arguments)?;
            let handle = arguments.ia.read_unaligned();
            (Opened::by_filter(handle), instance.is_classic())
        },
        // SAFETY: the caller's promise.
        None => unsafe { inner::open(entry, arguments)? },
    };
    // SAFETY: the handle of an open IA begins with the address of its table.
    let table = unsafe { &**(ia.handle as *const *const DatProvider) };
    if is_classic && below.is_empty() {
        inner::keep_mapped(table);
    }
    // `nesting::below` has refused a chain that is too long.
    let instance = Instance::of(entry, table, is_classic)
        .ok_or_else(|| Error::of(Kind::InternalError).code())?;
    // SAFETY: the provider returned both.
    unsafe {
        instance.adopt(ia.handle);
        if makes_evd {
            instance.adopt(evd.read_unaligned());
        }
    }
    instance.add(ia);
    Ok(instance)
}

/// Slot `ia_close`.
pub(crate) unsafe extern "C" fn ia_close<const LEVEL: usize>(
    ia: DatHandle,
    flags: u32,
) -> DatReturn {
    let _deferred = Deferred::new();
    let closed = catch_unwind(AssertUnwindSafe(|| {
        let call = Call::begin(LEVEL, Slot::ia_close, ia)?;
        let Some((instance, open)) = call.instance().and_then(|i| Some((i, i.get(ia)?))) else {
            // SAFETY: the slot's contract.
            return Some(unsafe { generic::ia_close::<LEVEL>(ia, flags) });
        };
        if let Some(code) = call.refused() {
            return Some(call.end(code));
        }
        // SAFETY: an open IA of the instance; libdat2 lets one thread close it.
        let code = unsafe {
            if open.by_process() {
                instance.release(ia);
            }
            let code = inner::close(&open, call.inner(), flags);
            if code != DAT_SUCCESS {
                instance.adopt(ia);
            }
            code
        };
        call.end(code);
        if code == DAT_SUCCESS {
            instance.remove(&open);
        }
        Some(code)
    }));
    match closed {
        Ok(code) => code.unwrap_or(Error::handle(Subtype::InvalidHandleIa).code()),
        Err(_) => Error::of(Kind::InternalError).code(),
    }
}

/// Slot `ia_query`. The provider's attributes have the name and the thread safety of the filter's entry, because a classic
/// dat_ia_close finds the entry by them.
pub(crate) unsafe extern "C" fn ia_query<const LEVEL: usize>(
    ia: DatHandle,
    async_evd: *mut DatHandle,
    ia_mask: u64,
    ia_attr: *mut DatIaAttr,
    provider_mask: u64,
    provider_attr: *mut DatProviderAttr,
) -> DatReturn {
    // SAFETY: the slot's contract.
    let code = unsafe {
        generic::ia_query::<LEVEL>(
            ia,
            async_evd,
            ia_mask,
            ia_attr,
            provider_mask,
            provider_attr,
        )
    };
    if code == DAT_SUCCESS && provider_mask != 0 && !provider_attr.is_null() {
        let Some(instance) = instance::find(LEVEL, ia).and_then(|target| target.instance) else {
            return code;
        };
        // SAFETY: not NULL, so valid by the slot's contract; the provider has filled it.
        unsafe { rename(instance.entry, provider_attr) };
    }
    code
}

/// Writes the name and the thread safety of an entry into the attributes of the inner provider.
///
/// # Safety
/// The inner provider has filled the attributes.
unsafe fn rename(entry: &'static Entry, attr: *mut DatProviderAttr) {
    // SAFETY: filled, so the name is a C string; an entry's name is no longer than the array.
    unsafe {
        let name = (&raw mut (*attr).provider_name).cast::<c_char>();
        if CStr::from_ptr(name).to_bytes() == entry.inner.as_bytes() {
            let own = CStr::from_ptr(entry.c_name()).to_bytes_with_nul();
            name.cast::<u8>()
                .copy_from_nonoverlapping(own.as_ptr(), own.len());
        }
        (&raw mut (*attr).is_thread_safe).write_unaligned(u32::from(entry.thread_safe));
    }
}

/// Returns the attributes of the provider that an `OPEN_QUERY` fills, and NULL if it fills none.
///
/// # Safety
/// `arguments` is NULL or the list of the operation.
unsafe fn queried(arguments: *mut c_void) -> *mut DatProviderAttr {
    // SAFETY: the list has five more arguments: IA, mask, attributes, mask, attributes (dat_ib_extensions.h). This is a copy, which
    // leaves the list as it is.
    unsafe {
        let Some(mut list) = VaList::from_parameter(arguments) else {
            return std::ptr::null_mut();
        };
        let words: [u64; 5] = std::array::from_fn(|_| list.word());
        match words[3] as u32 {
            0 => std::ptr::null_mut(),
            _ => words[4] as *mut DatProviderAttr,
        }
    }
}

/// Slot `handle_extendedop` of the table that each entry registers: a query of an IA that is not open, with the name as handle.
pub(crate) unsafe extern "C" fn registered_extendedop(
    handle: DatHandle,
    op: i32,
    arguments: *mut c_void,
) -> DatReturn {
    if op != ib_op::OPEN_QUERY || handle == DAT_HANDLE_NULL {
        // SAFETY: the slot's contract.
        return unsafe { generic::handle_extendedop::<{ LEVELS - 1 }>(handle, op, arguments) };
    }
    let _deferred = Deferred::new();
    catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: for this operation the handle is a C string, by the provider's contract.
        let name = unsafe { CStr::from_ptr(handle as *const c_char) };
        let Some(entry) = entry::find(&name.to_string_lossy()) else {
            return Error::of(Kind::ProviderNotFound).code();
        };
        // SAFETY: the slot's contract.
        unsafe { query_closed(entry, arguments) }
    }))
    .unwrap_or(Error::of(Kind::InternalError).code())
}

/// Runs `OPEN_QUERY` for an entry: the innermost provider fills the attributes, and each filter writes its own over them.
///
/// # Safety
/// `arguments` is NULL or the list of the operation.
unsafe fn query_closed(entry: &'static Entry, arguments: *mut c_void) -> DatReturn {
    let below = match nesting::below(entry) {
        Ok(below) => below,
        Err(error) => {
            tracing::error!(ia = entry.name(), inner = entry.inner, "{error}");
            return Error::of(Kind::InvalidParameter).code();
        }
    };
    let innermost = below.last().copied().unwrap_or(entry);
    let Some(slot) = inner::table(innermost).and_then(|table| table.handle_extendedop) else {
        return not_implemented();
    };
    let name = CString::new(innermost.inner.as_str()).unwrap_or_default();
    // SAFETY: the caller's promise, with the inner name.
    unsafe {
        let attr = queried(arguments);
        let code = slot(name.as_ptr() as usize, ib_op::OPEN_QUERY, arguments);
        if code == DAT_SUCCESS && !attr.is_null() {
            for filter in below.iter().rev().chain([&entry]) {
                rename(filter, attr);
            }
        }
        code
    }
}
