//! The registry of a process: configuration, registrations, libraries and open IAs together.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use dat_core::error::{Error, Kind, Subtype};

use crate::catalog::{Catalog, Request};
use crate::conf::Entry;
use crate::handles::Handles;
use crate::loader::{AddProvider, LoadError, Loader};
use crate::registrations::{Registrations, Table};
use crate::search::{SearchError, gained_rights};

/// Why an IA cannot be opened by name.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No configuration.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// No entry satisfies the request.
    #[error("{0}")]
    NotThere(String),
    /// The entry's library cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl LookupError {
    /// The code for C: `DAT_INSUFFICIENT_RESOURCES` for want of memory, else `DAT_PROVIDER_NOT_FOUND`.
    #[must_use]
    pub fn code(&self) -> Error {
        match self {
            Self::Load(LoadError::Memory { .. }) => Error::resource(Subtype::ResourceMemory),
            _ => Error::new(Kind::ProviderNotFound, Subtype::NameNotRegistered),
        }
    }
}

/// See the module's text. All methods may be called from any thread.
#[derive(Debug)]
pub struct Registry {
    /// The library we are part of, for the search beside it.
    beside: Mutex<Option<PathBuf>>,
    catalog: RwLock<Option<Arc<Catalog>>>,
    /// Registrations.
    pub registrations: Registrations,
    /// Open IAs of 2.0.
    pub handles: Handles,
    loader: std::sync::LazyLock<Loader>,
}

impl Registry {
    /// Empty; the configuration is read at the first need.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            beside: Mutex::new(None),
            catalog: RwLock::new(None),
            registrations: Registrations::new(),
            handles: Handles::new(),
            loader: std::sync::LazyLock::new(Loader::new),
        }
    }

    /// Says which library this registry is part of: `../etc/dat.conf` from there is looked at, and `../lib` for libraries.
    pub fn set_beside(&self, library: PathBuf) {
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = Some(library);
    }

    /// The same for a registry that is part of the program itself. It does nothing in a process that gained rights at exec:
    /// a program may have been started by a hard link in a folder of its caller (`fs.protected_hardlinks` = 0), where
    /// the caller chooses what lies beside it.
    pub fn set_beside_program(&self) {
        if gained_rights() {
            return;
        }
        if let Ok(program) = std::env::current_exe() {
            self.set_beside(program);
        }
    }

    fn beside(&self) -> Option<PathBuf> {
        self.beside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The configuration, read once. What cannot be read is tried again at the next call.
    ///
    /// # Errors
    /// As [`Catalog::read`].
    pub fn catalog(&self) -> Result<Arc<Catalog>, SearchError> {
        if let Some(catalog) = &*self.catalog.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(catalog.clone());
        }
        let beside = self.beside();
        let read = Arc::new(Catalog::read(beside.as_deref())?);
        let mut catalog = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        Ok(catalog.get_or_insert(read).clone())
    }

    /// The table behind a name: registered already, or of the library that the configuration names, which is loaded
    /// and initialised. Counts it as opened; give it back with [`Registry::close`].
    ///
    /// # Errors
    /// See [`LookupError`]; the text says what to do.
    pub fn lookup(&self, request: &Request<'_>, add: AddProvider) -> Result<Table, LookupError> {
        if let Some(table) = self.registrations.open(request) {
            return Ok(table);
        }
        let catalog = self.catalog()?;
        let entry = catalog
            .find(request)
            .ok_or_else(|| LookupError::NotThere(catalog.why_not(request)))?;
        let beside = self.beside();
        let prefix = beside
            .as_deref()
            .and_then(Path::parent)
            .and_then(Path::parent);
        self.loader.load(entry, add, prefix)?;
        self.registrations
            .open(request)
            .ok_or_else(|| LookupError::Load(nothing_registered(entry)))
    }

    /// What dat_registry_list_providers lists of version `major`: the `default` entries of the configuration, and
    /// what programs registered themselves.
    pub fn list(&self, major: u32) -> Vec<(String, u32, u32, bool)> {
        let mut list: Vec<(String, u32, u32, bool)> = match self.catalog() {
            Ok(catalog) => {
                let ours = |e: &&Entry| e.default && !e.api.kernel && e.api.major == major;
                let entries = catalog.entries().iter().filter(ours);
                entries
                    .map(|e| (e.name.clone(), e.api.major, e.api.minor, e.thread_safe))
                    .collect()
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

    /// Whether `handle` is one, alive or dead, of a provider of ours.
    pub fn owns(&self, handle: usize) -> bool {
        self.loader.owns(handle)
    }

    /// One IA less is open through `table` under `name`. A classic provider is unloaded with its last one.
    pub fn close(&self, name: &str, major: u32, table: Table) {
        if self.registrations.close(name, table) {
            let begin = || self.registrations.begin_unload(name, table);
            self.loader.unload(name, major, begin, || {
                self.registrations.end_unload(name, table)
            });
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

fn nothing_registered(entry: &Entry) -> LoadError {
    LoadError::NothingRegistered {
        origin: entry.origin.to_string(),
        library: entry.library.clone(),
        api: entry.api.to_string(),
        name: entry.name.clone(),
    }
}
