//! The loader of provider libraries. No other code of the project calls dlopen for a provider.
//!
//! A classic provider is unloaded when its last IA is closed, as in DAPL. Libraries of ours stay mapped and initialised: a
//! consumer may keep a stale handle, whose first word points into the library, and unmapping it would turn
//! `DAT_INVALID_HANDLE` into a crash.

use std::collections::HashMap;
use std::error::Error as _;
use std::ffi::{CString, OsStr, c_char};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_abi::export::INTERFACE;
use dat_abi::ret::TYPE_MASK;
use dat_abi::types::DatProviderInfo;
use dat_core::error::{Error, Subtype};
use dat_core::reserve::{has_room, has_space};
use dat_os::fork::Handler;
use dat_os::mutex::lock;
use dat_os::schedule::thread;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

pub use crate::classic::AddProvider;
use crate::classic::{self, RegistryFunctions};
use crate::conf::Entry;
use crate::forked::CHILDREN;
use crate::library::{self, LibraryError};
use crate::registrations::{Registered, Table};

type Init = unsafe extern "C" fn(*const DatProviderInfo, *const c_char);
type InitWith =
    unsafe extern "C" fn(*const DatProviderInfo, *const c_char, AddProvider, u32) -> u32;
type Owns = unsafe extern "C" fn(usize) -> bool;
type Fini = unsafe extern "C" fn(*const DatProviderInfo);

/// The reason why an entry's library cannot be used. The rule numbers are those of docs/provider-rules.md.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// dlopen failed.
    #[error("{origin}: cannot load {library:?} (DP-1): {reason}")]
    Open {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
        /// Message of the dynamic loader.
        reason: String,
    },
    /// Memory or address space is too short to load or initialise the library. A later attempt may succeed.
    #[error("{origin}: no memory to load {library:?}: {reason}; raise the limit (ulimit -v)")]
    Memory {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
        /// What failed.
        reason: String,
    },
    /// The library is not there, or is for another machine: what the dynamic loader calls "No such file or directory".
    #[error("{origin}: cannot load {library:?} (DP-1): {source}")]
    Library {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
        /// What is wrong.
        source: LibraryError,
    },
    /// The library has no `dat_provider_init`.
    #[error("{origin}: {library:?} exports no dat_provider_init (DP-2): it is not a DAT provider")]
    NoInit {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
    },
    /// The library is built for another version of the provider interface.
    #[error(
        "{origin}: {library:?} is built for {theirs} of the provider interface, this library has version {ours} (DP-8): {advice}"
    )]
    Interface {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
        /// Version that the provider is built for, in words.
        theirs: String,
        /// Version of this registry.
        ours: u32,
        /// What to do.
        advice: &'static str,
    },
    /// `dat_provider_init` returned without registering a provider for the entry.
    #[error(
        "{origin}: {library:?} was initialised but registered no {api} provider for {name:?} (DP-3); \
         its own messages may say why, else check the version and ia_params of the entry"
    )]
    NothingRegistered {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
        /// Version of the entry.
        api: String,
        /// IA name of the entry.
        name: String,
    },
    /// `dat_provider_init` opened the IA that it was called for.
    #[error("{origin}: dat_provider_init of {library:?} opens its own IA (DP-4)")]
    Recursive {
        /// File and line of the entry.
        origin: String,
        /// The library as the entry names it.
        library: String,
    },
}

/// Address space that a provider needs together with its libraries. If less is free, that is why dlopen failed.
const PROVIDER_SPACE: usize = 64 << 20;

/// Return code of `dat_rs_provider_init` where memory is short.
const NO_MEMORY: Error = Error::resource(Subtype::ResourceMemory);

/// Origin and name of an entry.
type Key = (String, String);

fn key(entry: &Entry) -> Key {
    (entry.origin.to_string(), entry.name.clone())
}

/// State of an entry's library.
#[derive(Debug)]
enum State {
    /// This thread loads, initialises or unloads it.
    Busy(usize),
    Ready,
}

/// The libraries of entries. No lock is held while foreign code runs: the entry is marked as busy, and other threads that need it
/// wait until the mark is removed.
#[derive(Debug, Default)]
pub struct Loader {
    states: Mutex<HashMap<Key, State>>,
    changed: Condvar,
    open: Mutex<Vec<Initialised>>,
    /// Functions of our libraries that say whether a number is one of their handles (`dat_rs_owns`).
    owners: Mutex<Vec<Owns>>,
    /// Functions to export before a classic provider is loaded; unset in a C library, which exports its own.
    classic: OnceLock<RegistryFunctions>,
}

/// A library, with the info that `dat_provider_init` got and `dat_provider_fini` gets.
#[derive(Debug)]
struct Initialised {
    key: Key,
    library: OpenLibrary,
    info: DatProviderInfo,
    /// The table that it registered for its entry, once an IA was opened through it.
    table: Option<Table>,
}

/// An open library.
#[derive(Debug)]
struct OpenLibrary {
    library: Library,
    /// Second dlopen handle of a classic provider, by which its symbols became global. `None` for a library of ours.
    global: Option<Library>,
}

impl Loader {
    /// Returns a loader without libraries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the functions that classic providers are to call, for a registry that is linked into the program.
    pub fn serve_classic(&self, functions: RegistryFunctions) {
        self.classic.get_or_init(|| functions);
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Key, State>> {
        lock(&self.states)
    }

    /// Loads the library of `entry` and runs its init, unless that succeeded before. A library name without a slash that the
    /// dynamic loader does not find is also looked for in `folders`.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(
        &self,
        entry: &Entry,
        add: AddProvider,
        folders: &[PathBuf],
    ) -> Result<(), LoadError> {
        let key = key(entry);
        let mut states = self.states();
        loop {
            match states.get(&key) {
                None => break,
                Some(State::Ready) => return Ok(()),
                Some(State::Busy(by)) if *by == thread() => {
                    return Err(LoadError::Recursive {
                        origin: entry.origin.to_string(),
                        library: entry.library.clone(),
                    });
                }
                Some(State::Busy(_)) => {
                    states = self
                        .changed
                        .wait(states)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        states.insert(key.clone(), State::Busy(thread()));
        drop(states);
        let done = self.initialise(entry, add, folders);
        let mut states = self.states();
        match done {
            Ok(()) => states.insert(key, State::Ready),
            Err(_) => states.remove(&key),
        };
        drop(states);
        self.changed.notify_all();
        done
    }

    fn initialise(
        &self,
        entry: &Entry,
        add: AddProvider,
        folders: &[PathBuf],
    ) -> Result<(), LoadError> {
        let library = open(entry, folders, self.classic.get().copied())?;
        let info = DatProviderInfo::new(
            &entry.name,
            entry.api.major,
            entry.api.minor,
            entry.thread_safe,
        );
        let params = CString::new(entry.ia_params.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the symbols have these types in every provider (dat_registry.h; dat-abi's export.rs).
        // `info` and `params` outlive the call; the library stays mapped during it.
        unsafe {
            let symbols = &library.library;
            if let Ok(init) = symbols.get::<InitWith>(b"dat_rs_provider_init\0") {
                let version = symbols.get::<*const u32>(b"dat_rs_interface\0");
                check_interface(entry, version.ok().map(|at| **at))?;
                let code = init(&raw const info, params.as_ptr(), add, INTERFACE);
                if code & TYPE_MASK == NO_MEMORY.code() & TYPE_MASK {
                    return Err(LoadError::Memory {
                        origin: entry.origin.to_string(),
                        library: entry.library.clone(),
                        reason: "no address space for its handles".into(),
                    });
                }
                if let Ok(owns) = symbols.get::<Owns>(b"dat_rs_owns\0") {
                    lock(&self.owners).push(*owns);
                }
                if let Ok(child) = symbols.get::<Handler>(b"dat_rs_forked\0") {
                    // A library of ours stays mapped.
                    CHILDREN.add(*child);
                }
            } else if let Ok(init) = symbols.get::<Init>(b"dat_provider_init\0") {
                init(&raw const info, params.as_ptr());
            } else {
                return Err(LoadError::NoInit {
                    origin: entry.origin.to_string(),
                    library: entry.library.clone(),
                });
            }
        }
        let mut open = lock(&self.open);
        let key = key(entry);
        open.push(Initialised {
            key,
            library,
            info,
            table: None,
        });
        Ok(())
    }

    /// Records that the library of `entry` registered `table`.
    pub(crate) fn registered(&self, entry: &Entry, table: Table) {
        let key = key(entry);
        let mut open = lock(&self.open);
        if let Some(one) = open.iter_mut().find(|one| one.key == key) {
            one.table.get_or_insert(table);
        }
    }

    /// Returns the tables that the libraries of other entries of this name and version registered.
    pub(crate) fn tables_of_others(&self, entry: &Entry) -> Vec<Table> {
        let key = key(entry);
        let open = lock(&self.open);
        let (own, others): (Vec<_>, Vec<_>) = open
            .iter()
            .filter(|one| {
                one.info.name() == entry.name && one.info.dapl_version_major == entry.api.major
            })
            .partition(|one| one.key == key);
        let is_own = |table: &Table| own.iter().any(|one| one.table == Some(*table));
        let tables = others.iter().filter_map(|one| one.table);
        tables.filter(|table| !is_own(table)).collect()
    }

    /// Returns true if `handle` belongs, alive or dead, to a library of ours that was loaded.
    pub fn owns(&self, handle: usize) -> bool {
        let owners = lock(&self.owners);
        // SAFETY: the function only compares numbers, and its library stays mapped.
        owners.iter().any(|owns| unsafe { owns(handle) })
    }

    /// Unloads the classic provider that registered `closed`, if `begin` returns that no IA of it is open; then calls `end`. Threads that
    /// open the name wait until this returns.
    pub(crate) fn unload(
        &self,
        closed: &Registered,
        begin: impl FnOnce() -> bool,
        end: impl FnOnce(),
    ) {
        let matches = |one: &&Initialised| {
            one.library.global.is_some()
                && one.info.dapl_version_major == closed.major
                && one.info.name() == closed.name
                && one.table == Some(closed.table)
        };
        let initialised = || lock(&self.open);
        let key = {
            let open = initialised();
            let mut all = open.iter().filter(matches);
            let is_safe = |one: &&Initialised| (one.info.is_thread_safe != 0) == closed.thread_safe;
            // One library may register one table for several entries of a name.
            let first = all.clone().next();
            all.find(is_safe).or(first).map(|one| one.key.clone())
        };
        let Some(key) = key else {
            return;
        };
        match self.states().get_mut(&key) {
            Some(state @ State::Ready) => *state = State::Busy(thread()),
            _ => return,
        }
        if begin() {
            let mut open = initialised();
            let at = open.iter().position(|one| one.key == key);
            let one = at.map(|at| open.remove(at));
            drop(open);
            if let Some(one) = one {
                finish(&one);
            }
            end();
            self.states().remove(&key);
        } else {
            self.states().insert(key, State::Ready);
        }
        self.changed.notify_all();
    }
}

/// Refuses a library of ours that is built for another interface. `version` is its `dat_rs_interface`.
fn check_interface(entry: &Entry, version: Option<u32>) -> Result<(), LoadError> {
    if version == Some(INTERFACE) {
        return Ok(());
    }
    let newer = version.is_some_and(|version| version > INTERFACE);
    Err(LoadError::Interface {
        origin: entry.origin.to_string(),
        library: entry.library.clone(),
        theirs: version.map_or_else(
            || "a time before the versions".to_owned(),
            |version| format!("version {}", version & 0xff),
        ),
        ours: INTERFACE & 0xff,
        advice: if newer {
            "install newer DAT libraries, or build the program with a newer udapl"
        } else {
            "build the provider with the present provider kit"
        },
    })
}

/// Runs `dat_provider_fini`.
fn finish(one: &Initialised) {
    // SAFETY: the symbol's signature is this in every provider (dat_registry.h); the library is mapped.
    unsafe {
        if let Ok(fini) = one.library.library.get::<Fini>(b"dat_provider_fini\0") {
            fini(&raw const one.info);
        }
    }
}

/// Opens the library where the dynamic loader finds it, else in `folders`.
fn open(
    entry: &Entry,
    folders: &[PathBuf],
    classic: Option<RegistryFunctions>,
) -> Result<OpenLibrary, LoadError> {
    // The dynamic loader would end the program with SIGBUS.
    library::check_length(&entry.library, folders).map_err(|source| LoadError::Library {
        origin: entry.origin.to_string(),
        library: entry.library.clone(),
        source,
    })?;
    let first = match open_path(OsStr::new(&entry.library), classic) {
        Ok(library) => return Ok(library),
        Err(error) => error,
    };
    match library::locate(&entry.library, folders) {
        Ok(found) if !entry.library.contains('/') => {
            open_path(found.path.as_os_str(), classic).map_err(|error| failed(entry, &error))
        }
        // Its messages are clearer than the dynamic loader's, but memory may be what is short.
        Err(source) if has_room() => Err(LoadError::Library {
            origin: entry.origin.to_string(),
            library: entry.library.clone(),
            source,
        }),
        _ => Err(failed(entry, &first)),
    }
}

fn failed(entry: &Entry, error: &libloading::Error) -> LoadError {
    let origin = entry.origin.to_string();
    let library = entry.library.clone();
    // The error itself only says "dlopen failed"; its source has the reason.
    let reason = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    // dlopen gives no error number, and its message is translated.
    if has_room() && has_space(PROVIDER_SPACE) {
        LoadError::Open {
            origin,
            library,
            reason,
        }
    } else {
        LoadError::Memory {
            origin,
            library,
            reason,
        }
    }
}

/// Opens a library. The symbols of ours stay local; those of a classic provider become global, as in DAPL, because its parts find
/// each other by them. A classic provider does not load where nothing exports a registry, so `classic` is exported then.
fn open_path(
    path: &OsStr,
    classic: Option<RegistryFunctions>,
) -> Result<OpenLibrary, libloading::Error> {
    // SAFETY: loading runs the library's constructors. A dat.conf entry requests exactly that; any user with write access
    // to the file can run code.
    let load = || unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = match (load(), classic) {
        (Err(first), Some(functions)) => match classic::export(functions) {
            Ok(()) => load()?,
            Err(error) => {
                tracing::error!("{error}");
                return Err(first);
            }
        },
        (loaded, _) => loaded?,
    };
    // SAFETY: the symbol is only looked up.
    let ours = unsafe { library.get::<InitWith>(b"dat_rs_provider_init\0").is_ok() };
    if ours {
        // Mapped already; this only keeps it mapped (see the module's documentation).
        std::mem::forget(load());
        return Ok(OpenLibrary {
            library,
            global: None,
        });
    }
    // SAFETY: mapped already; this only makes its symbols global.
    let global = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
    Ok(OpenLibrary {
        library,
        global: Some(global),
    })
}
