//! The registry of a process: configuration, registrations, provider libraries and open IAs.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use dat_core::error::{Error, Kind, Subtype};
use dat_os::mutex::lock;

use crate::catalog::{Catalog, Request};
use crate::classic::RegistryFunctions;
use crate::conf::{ConfError, Entry, Origin};
use crate::handles::Handles;
use crate::library;
use crate::loader::{AddProvider, LoadError, Loader};
use crate::registrations::{Registrations, Table};
use crate::search::{self, SearchError, gained_rights};
use crate::settings::Declared;

/// The reason why an IA cannot be opened by name.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No configuration was found.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A setting of the entry is none of the provider's, or has a wrong value.
    #[error("{0}")]
    Setting(#[from] ConfError),
    /// No entry satisfies the request.
    #[error("{0}")]
    NoEntry(String),
    /// The entry's library cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl LookupError {
    /// Returns the code for C: `DAT_INSUFFICIENT_RESOURCES` where memory is short, `DAT_INVALID_PARAMETER` for a
    /// wrong setting, else `DAT_PROVIDER_NOT_FOUND`.
    #[must_use]
    pub fn code(&self) -> Error {
        match self {
            Self::Load(LoadError::Memory { .. }) => Error::resource(Subtype::ResourceMemory),
            Self::Setting(_) => Error::of(Kind::InvalidParameter),
            _ => Error::new(Kind::ProviderNotFound, Subtype::NameNotRegistered),
        }
    }
}

/// A provider that [`Registry::lookup`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Name by which the provider knows the IA: that of the entry, where the request's was an alias.
    pub name: String,
    /// Function table.
    pub table: Table,
    /// File and line of the entry; `None` if the program registered the table itself.
    pub origin: Option<Origin>,
}

/// The registry of a process. All methods may be called from any thread.
#[derive(Debug)]
pub struct Registry {
    /// Path of the library or program that this registry is part of. dat.conf and libraries are also looked for beside it.
    own_path: Mutex<Option<PathBuf>>,
    catalog: RwLock<Option<Arc<Catalog>>>,
    /// Function tables that are registered.
    pub registrations: Registrations,
    /// Open IAs of 2.0.
    pub handles: Handles,
    loader: std::sync::LazyLock<Loader>,
}

impl Registry {
    /// Returns an empty registry. It reads the configuration when it first needs it.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            own_path: Mutex::new(None),
            catalog: RwLock::new(None),
            registrations: Registrations::new(),
            handles: Handles::new(),
            loader: std::sync::LazyLock::new(Loader::new),
        }
    }

    /// Sets the path of the library that this registry is part of. The registry then also looks for `../etc/dat.conf` and for
    /// provider libraries in `../lib`, seen from the library's folder.
    pub fn set_own_path(&self, library: PathBuf) {
        *lock(&self.own_path) = Some(library);
    }

    /// Sets the path for a registry that is part of the program itself. It does nothing in a process that gained rights at
    /// exec: a user may have started the program by a hard link in a folder of their own (`fs.protected_hardlinks` = 0), and
    /// then chooses the files beside it.
    pub fn set_own_path_to_program(&self) {
        if gained_rights() {
            return;
        }
        if let Ok(program) = std::env::current_exe() {
            self.set_own_path(program);
        }
    }

    /// Sets the functions that classic C providers are to call. A registry that is linked into a program needs this; libdat2 and
    /// libdat export the functions themselves.
    pub fn serve_classic(&self, functions: RegistryFunctions) {
        self.loader.serve_classic(functions);
    }

    fn own_path(&self) -> Option<PathBuf> {
        lock(&self.own_path).clone()
    }

    /// Returns the configuration, which is read once. After a failure the next call tries again.
    ///
    /// # Errors
    /// The same as [`Catalog::read`].
    pub fn catalog(&self) -> Result<Arc<Catalog>, SearchError> {
        if let Some(catalog) = &*self.catalog.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(catalog.clone());
        }
        let own_path = self.own_path();
        let read = Arc::new(Catalog::read(own_path.as_deref())?);
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        Ok(catalog.get_or_insert(read).clone())
    }

    /// Returns the provider behind a name. If none is registered, loads and initialises the library that the configuration names.
    /// The table counts as opened until [`Registry::close`].
    ///
    /// # Errors
    /// [`LookupError`]; its text says what to do.
    pub fn lookup(&self, request: &Request<'_>, add: AddProvider) -> Result<Opened, LookupError> {
        let opened = |name: &str, table, origin| Opened {
            name: name.to_owned(),
            table,
            origin,
        };
        let catalog = self.catalog();
        let entry = catalog.as_ref().ok().and_then(|all| all.find(request));
        // Which entry counts does not depend on those that were opened before.
        let others = entry
            .as_ref()
            .map(|entry| self.loader.tables_of_others(entry));
        let others = others.unwrap_or_default();
        if let Some(table) = self.registrations.open(request, &others) {
            return Ok(opened(request.name, table, entry.map(|entry| entry.origin)));
        }
        let catalog = catalog?;
        let entry = entry.ok_or_else(|| LookupError::NoEntry(catalog.explain_missing(request)))?;
        // An alias leads to another name, whose provider may be registered already.
        let found = Request {
            name: &entry.name,
            ..*request
        };
        let table = match self.registrations.open(&found, &others) {
            Some(table) => table,
            None => {
                let own_path = self.own_path();
                let folders = search::library_folders(own_path.as_deref(), &entry.origin.path);
                check_settings(&entry, &folders)?;
                self.loader.load(&entry, add, &folders)?;
                let table = self.registrations.open(&found, &[]);
                let table = table.ok_or_else(|| LookupError::Load(nothing_registered(&entry)))?;
                self.loader.registered(&entry, table);
                table
            }
        };
        Ok(opened(&entry.name, table, Some(entry.origin)))
    }

    /// Returns what dat_registry_list_providers lists for version `major`: name, major and minor version and thread safety of
    /// the `default` entries of the configuration and of the tables that programs registered themselves.
    pub fn list(&self, major: u32) -> Vec<(String, u32, u32, bool)> {
        let mut list: Vec<(String, u32, u32, bool)> = match self.catalog() {
            Ok(catalog) => {
                let ours = |e: &&Entry| {
                    e.default && !e.api.kernel && e.api.major == major && !e.is_pattern()
                };
                let mut list = Vec::new();
                for e in catalog.entries().iter().filter(ours) {
                    let one = (e.name.clone(), e.api.major, e.api.minor, e.thread_safe);
                    // A second entry of the same name, version and safety is dead.
                    if !list.contains(&one) {
                        list.push(one);
                    }
                }
                list
            }
            Err(error) => {
                tracing::warn!("{error}");
                Vec::new()
            }
        };
        for r in self.registrations.all() {
            let one = (r.name, r.major, r.minor, r.thread_safe);
            if r.major == major && !list.contains(&one) {
                list.push(one);
            }
        }
        list
    }

    /// Returns true if `handle` belongs, alive or dead, to a provider of ours.
    pub fn owns(&self, handle: usize) -> bool {
        self.loader.owns(handle)
    }

    /// Records that one IA of `table` and `name` was closed. A classic provider is unloaded with its last IA.
    pub fn close(&self, name: &str, major: u32, table: Table) {
        let closed = self.registrations.close(name, table);
        if let Some(closed) = closed.filter(|closed| closed.major == major) {
            let begin = || self.registrations.begin_unload(name, table);
            self.loader.unload(&closed, begin, || {
                self.registrations.end_unload(name, table);
            });
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks the settings against what the provider declares, before its library is loaded, so that an error has the place of the word.
fn check_settings(entry: &Entry, folders: &[PathBuf]) -> Result<(), ConfError> {
    if entry.ia_params.is_empty() {
        return Ok(());
    }
    let library = library::locate(&entry.library, folders).ok();
    let declared = library.and_then(|library| Declared::of(&library.object));
    let faults = declared.map(|declared| declared.check(entry));
    faults.into_iter().flatten().next().map_or(Ok(()), Err)
}

fn nothing_registered(entry: &Entry) -> LoadError {
    LoadError::NothingRegistered {
        origin: entry.origin.to_string(),
        library: entry.library.clone(),
        api: entry.api.to_string(),
        name: entry.name.clone(),
    }
}
