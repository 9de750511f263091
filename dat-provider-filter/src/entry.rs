//! The entries of dat.conf that this library was initialised for.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard};

use dat_os::mutex::lock;

use crate::fault::{self, Fault};
use crate::filter::Filter;
use crate::settings::{Kind, Settings, SettingsError};
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
    lock(&ENTRIES)
}

/// Adds an entry, unless it is there with the same parameters: a registry may initialise it again. Returns it.
///
/// # Errors
/// [`SettingsError`].
pub(crate) fn add(
    name: &str,
    thread_safe: bool,
    params: &str,
) -> Result<&'static Entry, SettingsError> {
    let same = |old: &&Entry| old.params == params && old.thread_safe == thread_safe;
    if let Some(old) = find(name).filter(same) {
        return Ok(old);
    }
    let settings = Settings::parse(params)?;
    let filter = make(name, &settings)?;
    let new: &Entry = Box::leak(Box::new(Entry {
        name: CString::new(name).unwrap_or_default(),
        params: params.to_owned(),
        thread_safe,
        inner: settings.inner,
        filter,
    }));
    entries().push(new);
    Ok(new)
}

fn make(name: &str, settings: &Settings) -> Result<Box<dyn Filter>, SettingsError> {
    let Settings { inner, file, kind } = settings;
    let (script, seed) = match kind {
        Kind::Trace => return Ok(Box::new(Trace::new(name, inner, file))),
        Kind::Fault { script, seed } => (script, *seed),
    };
    let path = script.clone().unwrap_or_default();
    let text = match script {
        None => fault::BY_SEED.to_owned(),
        Some(script) => std::fs::read_to_string(script).map_err(|source| SettingsError::Read {
            path: path.clone(),
            source,
        })?,
    };
    let rules = fault::parse(&text).map_err(|source| SettingsError::Script { path, source })?;
    Ok(Box::new(Fault::new(rules, seed, file)))
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
