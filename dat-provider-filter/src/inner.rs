//! Opens and closes inner IAs, which are no filters, by their names in dat.conf.
//!
//! A provider of ours is loaded by a registry of this library, which reads the same dat.conf as the program's. A classic provider
//! registers itself with the registry that the process exports, so there the IA is opened by that registry's own functions.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::Once;

use dat_abi::ret::{DAT_SUCCESS, DatReturn};
use dat_abi::types::{DatBoolean, DatCount, DatHandle, DatProviderInfo};
use dat_abi::v2_0::table::DatProvider;
use dat_core::error::{Error, Kind, Subtype};
use dat_registry::catalog::Request;
use dat_registry::classic::RegistryFunctions;
use dat_registry::registrations::{Registered, Table};
use dat_registry::registry::{Opened as Found, Registry};
use dat_registry::{conf, library, search};

use crate::entry::Entry;

static REGISTRY: Registry = Registry::new();

/// Major version of the function tables.
const MAJOR: u32 = 2;

type OpenV = unsafe extern "C" fn(
    *const c_char,
    DatCount,
    *mut DatHandle,
    *mut DatHandle,
    u32,
    u32,
    DatBoolean,
) -> DatReturn;
type Close = unsafe extern "C" fn(DatHandle, u32) -> DatReturn;
type GetHandle = unsafe extern "C" fn(DatHandle, *mut DatHandle) -> DatReturn;

/// The functions of a libdat2 that the process has, ours or another.
#[derive(Clone, Copy, Debug)]
struct Exported {
    open: OpenV,
    close: Close,
    get_handle: GetHandle,
}

/// How an inner IA was opened.
#[derive(Clone, Debug)]
enum Origin {
    /// By this library's registry, through this table.
    Own { name: String, table: Table },
    /// By the process's libdat2, as this number.
    Exported { number: DatHandle },
    /// By the filter that the entry wraps.
    Filter,
}

/// An open inner IA.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// The inner provider's handle.
    pub(crate) handle: DatHandle,
    origin: Origin,
}

/// Returns the registry. The first call lets it look for dat.conf where the program's own registry does.
fn registry() -> &'static Registry {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        match path_of_libdat2() {
            Some(path) => REGISTRY.set_own_path(path),
            None => REGISTRY.set_own_path_to_program(),
        }
        REGISTRY.serve_classic(RegistryFunctions { add, remove });
    });
    &REGISTRY
}

/// Returns true if `handle` is an address, alive or dead, in the arenas of a provider of ours that this library loaded.
pub(crate) fn owns(handle: DatHandle) -> bool {
    registry().owns(handle)
}

/// Returns the address of an exported function.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym only looks up a symbol.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// Returns the functions of the process's libdat2.
fn exported() -> Option<Exported> {
    let [open, close, get] = [c"dat_ia_openv", c"dat_ia_close", c"dats_get_ia_handle"].map(symbol);
    // SAFETY: functions of libdat2 with these names have these signatures (udat.h).
    unsafe {
        Some(Exported {
            open: std::mem::transmute::<*mut c_void, OpenV>(open?),
            close: std::mem::transmute::<*mut c_void, Close>(close?),
            get_handle: std::mem::transmute::<*mut c_void, GetHandle>(get?),
        })
    }
}

/// Returns the name of the mapped object with this address.
fn library_of(at: *const c_void) -> Option<CString> {
    // SAFETY: the structure is plain data; dladdr fills it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    if unsafe { libc::dladdr(at, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: not NULL, so the name of an object, which is mapped while its caller uses it.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
}

fn path_of_libdat2() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = library_of(symbol(c"dat_ia_openv")?)?;
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}

/// Returns what is looked for to open the IA `name`.
fn request(name: &str, thread_safe: bool) -> Request<'_> {
    Request {
        name,
        major: MAJOR,
        minor: 0,
        thread_safe,
    }
}

/// The kind of provider that dat.conf names for an inner IA.
#[derive(Debug)]
pub(crate) enum Provider {
    /// One of ours.
    Ours,
    /// A C library with tables of its own.
    Classic,
    /// This library, with the entry of dat.conf.
    Filter(Box<conf::Entry>),
}

/// Returns the kind of the provider of the IA `name`.
pub(crate) fn provider(name: &str, thread_safe: bool) -> Provider {
    let request = &request(name, thread_safe);
    let Some(entry) = registry().catalog().ok().and_then(|c| c.find(request)) else {
        // A provider that the program registered itself is known to the program's registry only.
        return Provider::Classic;
    };
    let own_path = path_of_libdat2().or_else(|| std::env::current_exe().ok());
    let folders = search::library_folders(own_path.as_deref(), &entry.origin.path);
    let exports = |name| {
        let found = library::locate(&entry.library, &folders).ok()?;
        found.object.exports(name)
    };
    match (exports("dat_rs_filter"), exports("dat_rs_provider_init")) {
        (Some(true), _) => Provider::Filter(Box::new(entry)),
        (_, Some(false)) => Provider::Classic,
        _ => Provider::Ours,
    }
}

/// Keeps the library of a function table mapped until the process ends.
///
/// A classic libdat2 unmaps a C provider with its last IA. DAPL ends its thread then, but does not join it, so the thread may be about to
/// return through code that is not there any more.
pub(crate) fn keep_mapped(table: &DatProvider) {
    // The table itself may lie in allocated memory; a function does not.
    let Some(close) = table.ia_close else {
        return;
    };
    if let Some(name) = library_of(close as *const c_void) {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the name of a mapped object, which RTLD_NOLOAD finds and does not load; the handle is never closed.
        unsafe { libc::dlopen(name.as_ptr(), flags) };
    }
}

/// The arguments of the slot `ia_open`, but the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments {
    /// Length of the asynchronous EVD's queue.
    pub(crate) qlen: DatCount,
    /// The asynchronous EVD.
    pub(crate) async_evd: *mut DatHandle,
    /// The IA.
    pub(crate) ia: *mut DatHandle,
}

/// Opens the inner IA of an entry. Returns it, and whether its provider is a classic one.
///
/// # Errors
/// The code of what failed, which is logged unless the inner provider reports it.
///
/// # Safety
/// The pointers are NULL or valid.
pub(crate) unsafe fn open(
    entry: &Entry,
    arguments: Arguments,
) -> Result<(Opened, bool), DatReturn> {
    match (provider(&entry.inner, entry.thread_safe), exported()) {
        // SAFETY: the caller's promise.
        (Provider::Classic, Some(functions)) => unsafe {
            open_exported(functions, entry, arguments).map(|ia| (ia, true))
        },
        (provider, _) => {
            let request = request(&entry.inner, entry.thread_safe);
            let found = registry().lookup(&request, add).map_err(|error| {
                tracing::error!(ia = entry.name(), inner = entry.inner, "{error}");
                error.code().code()
            })?;
            // SAFETY: the caller's promise.
            let ia = unsafe { open_found(found, arguments)? };
            Ok((ia, matches!(provider, Provider::Classic)))
        }
    }
}

unsafe fn open_found(found: Found, arguments: Arguments) -> Result<Opened, DatReturn> {
    let name = CString::new(found.name.as_str()).unwrap_or_default();
    // SAFETY: a table that a provider registered as one of 2.0.
    let slot = unsafe { (*(found.table.0 as *const DatProvider)).ia_open };
    let Arguments {
        qlen,
        async_evd,
        ia,
    } = arguments;
    let code = slot.map_or(Error::of(Kind::NotImplemented).code(), |slot| {
        // SAFETY: the slot's contract is that of our own slot.
        unsafe { slot(name.as_ptr(), qlen, async_evd, ia) }
    });
    if code != DAT_SUCCESS {
        registry().close(&found.name, MAJOR, found.table);
        return Err(code);
    }
    Ok(Opened {
        // SAFETY: a provider that succeeds has written it.
        handle: unsafe { ia.read_unaligned() },
        origin: Origin::Own {
            name: found.name,
            table: found.table,
        },
    })
}

unsafe fn open_exported(
    functions: Exported,
    entry: &Entry,
    arguments: Arguments,
) -> Result<Opened, DatReturn> {
    let name = CString::new(entry.inner.as_str()).unwrap_or_default();
    let Arguments {
        qlen,
        async_evd,
        ia,
    } = arguments;
    let thread_safe = u32::from(entry.thread_safe);
    // SAFETY: dat_ia_openv with the arguments of the slot, which are those of the function.
    let code =
        unsafe { (functions.open)(name.as_ptr(), qlen, async_evd, ia, MAJOR, 0, thread_safe) };
    if code != DAT_SUCCESS {
        return Err(code);
    }
    // SAFETY: a function that succeeds has written it.
    let number = unsafe { ia.read_unaligned() };
    let mut handle = 0;
    // SAFETY: the number of an open IA, and room for its handle.
    let code = unsafe { (functions.get_handle)(number, &raw mut handle) };
    if code != DAT_SUCCESS {
        // SAFETY: the IA was opened just now.
        unsafe { (functions.close)(number, 0) };
        return Err(code);
    }
    // SAFETY: as above.
    unsafe { ia.write_unaligned(handle) };
    Ok(Opened {
        handle,
        origin: Origin::Exported { number },
    })
}

/// Closes an inner IA. Its handle has the inner table again if [`Opened::by_process`].
///
/// # Safety
/// `ia` is open, through `table`, and another thread does not close it.
pub(crate) unsafe fn close(ia: &Opened, table: &DatProvider, flags: u32) -> DatReturn {
    let direct = || {
        table
            .ia_close
            .map_or(Error::of(Kind::NotImplemented).code(), |slot| {
                // SAFETY: the slot's contract is that of our own slot.
                unsafe { slot(ia.handle, flags) }
            })
    };
    match &ia.origin {
        Origin::Filter => direct(),
        Origin::Own { name, table } => {
            let code = direct();
            if code == DAT_SUCCESS {
                registry().close(name, MAJOR, *table);
            }
            code
        }
        Origin::Exported { number } => {
            let Some(functions) = exported() else {
                return direct();
            };
            // SAFETY: a number that this function's library gave out.
            let code = unsafe { (functions.close)(*number, flags) };
            // A program that closes by the provider's handle has taken the number already.
            if code == Error::handle(Subtype::InvalidHandleIa).code() {
                return direct();
            }
            code
        }
    }
}

impl Opened {
    /// Returns an IA that a filter below opened.
    pub(crate) fn by_filter(handle: DatHandle) -> Self {
        Self {
            handle,
            origin: Origin::Filter,
        }
    }

    /// Returns true if the process's libdat2 opened it and closes it, through the table in the handle.
    pub(crate) fn by_process(&self) -> bool {
        matches!(self.origin, Origin::Exported { .. })
    }
}

/// Returns the registration that a provider describes; `None` if it passes NULL.
///
/// # Safety
/// `info` is NULL or valid.
unsafe fn registered(table: *const c_void, info: *const DatProviderInfo) -> Option<Registered> {
    if table.is_null() || info.is_null() {
        return None;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    let info = unsafe { info.read_unaligned() };
    Some(Registered::new(table, &info))
}

/// Registers an inner provider; called by it during its init.
unsafe extern "C" fn add(table: *const c_void, info: *const DatProviderInfo) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    let added = unsafe { registered(table, info) }.map(|new| REGISTRY.registrations.add(new));
    match added {
        Some(Ok(())) => DAT_SUCCESS,
        Some(Err(_)) => Error::of(Kind::ProviderAlreadyRegistered).code(),
        None => Error::of(Kind::InvalidParameter).code(),
    }
}

/// Removes an inner provider; called by a classic one when it is unloaded.
unsafe extern "C" fn remove(table: *const c_void, info: *const DatProviderInfo) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    let removed = unsafe { registered(table, info) }.map(|old| REGISTRY.registrations.remove(&old));
    match removed {
        Some(Ok(())) => DAT_SUCCESS,
        Some(Err(_)) => Error::of(Kind::ProviderNotFound).code(),
        None => Error::of(Kind::InvalidParameter).code(),
    }
}

/// Returns the registered table of an entry's inner IA, if this library's registry loads it.
pub(crate) fn table(entry: &Entry) -> Option<&'static DatProvider> {
    let Provider::Ours = provider(&entry.inner, entry.thread_safe) else {
        return None;
    };
    let request = request(&entry.inner, entry.thread_safe);
    let found = registry().lookup(&request, add).ok()?;
    registry().registrations.close(&found.name, found.table);
    // SAFETY: a table that a provider of ours registered as one of 2.0; it is never unmapped.
    Some(unsafe { &*(found.table.0 as *const DatProvider) })
}
