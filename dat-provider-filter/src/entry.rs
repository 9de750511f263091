//! The entries of dat.conf that this library was initialised for.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_abi::types::DatProviderInfo;

use crate::filter::Filter;
use crate::settings::{Settings, SettingsError};
use crate::trace::Trace;

/// An entry, which lives for the rest of the process, because function tables refer to it.
#[derive(Debug)]
pub(crate) struct Entry {
    name: CString,
    params: String,
    /// Whether several threads may call it at a time.
    pub(crate) thread_safe: bool,
    /// Name of the IA to wrap.
    pub(crate) inner: String,
    /// What observes the calls.
    pub(crate) filter: Box<dyn Filter>,
}

impl Entry {
    /// Returns the IA's name.
    pub(crate) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Returns the IA's name as a C string that is never freed.
    pub(crate) fn c_name(&'static self) -> *const c_char {
        self.name.as_ptr()
    }
}

/// All entries; the last of a name counts.
static ENTRIES: Mutex<Vec<&'static Entry>> = Mutex::new(Vec::new());

fn entries() -> MutexGuard<'static, Vec<&'static Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an entry, unless it is there with the same parameters: a registry may initialise it again.
///
/// # Errors
/// [`SettingsError`].
pub(crate) fn add(info: &DatProviderInfo, params: &str) -> Result<(), SettingsError> {
    let name = info.name();
    let thread_safe = info.is_thread_safe != 0;
    if find(&name).is_some_and(|old| old.params == params && old.thread_safe == thread_safe) {
        return Ok(());
    }
    let settings = Settings::parse(params)?;
    let filter: Box<dyn Filter> = Box::new(Trace::new(&name, &settings.inner, &settings.file));
    entries().push(Box::leak(Box::new(Entry {
        name: CString::new(name).unwrap_or_default(),
        params: params.to_owned(),
        thread_safe,
        inner: settings.inner,
        filter,
    })));
    Ok(())
}

/// Returns the entry of an IA.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    let entries = entries();
    let found = entries
        .iter()
        .rfind(|e| e.name.to_bytes() == name.as_bytes());
    found.copied()
}

/// Returns all entries.
pub(crate) fn all() -> Vec<&'static Entry> {
    entries().clone()
}
