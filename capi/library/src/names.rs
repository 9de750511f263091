//! Finds the provider for the name of an IA: the first half of dat_ia_openv.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;

use dat_abi::types::{DatBoolean, DatHandle};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_os::mutex::lock;
use dat_registry::catalog::Request;
use dat_registry::conf::Origin;
use dat_registry::handles::OpenIa;
use dat_registry::registrations::Table;
use dat_registry::registry::{LookupError, Opened};

use crate::Library;

/// The version and thread safety that a program requests: the last three arguments of dat_ia_openv.
#[derive(Clone, Copy, Debug)]
pub struct Requested {
    /// `DAT_VERSION_MAJOR` of the headers that the program was compiled with.
    pub major: u32,
    /// `DAT_VERSION_MINOR`.
    pub minor: u32,
    /// Whether the provider must be thread safe.
    pub thread_safe: DatBoolean,
}

impl Library {
    /// Checks the arguments of dat_ia_openv and finds the provider. Its table counts as opened until [`Library::close`] succeeds or
    /// [`Library::not_opened`] is called.
    ///
    /// # Safety
    /// `name` is NULL or a C string.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for NULL; `DAT_PROVIDER_NOT_FOUND`, after a message that says why.
    pub unsafe fn find(
        &'static self,
        name: *const c_char,
        async_evd: *const DatHandle,
        ia: *const DatHandle,
        requested: Requested,
    ) -> Result<Opened> {
        for (null, number) in [
            (name.is_null(), 1),
            (async_evd.is_null(), 3),
            (ia.is_null(), 4),
        ] {
            if null {
                return Err(Error::arg(number));
            }
        }
        if !dat_core::reserve::has_room() {
            return Err(Error::resource(Subtype::ResourceMemory));
        }
        // SAFETY: not NULL, so a C string by the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        let Requested { major, minor, .. } = requested;
        if major != self.version.major {
            tracing::error!(
                "dat_ia_open({name:?}): the program requests version {major}.{minor}; this is {:?}, which has {}.x only",
                self.version.soname,
                self.version.major,
            );
            return Err(Error::new(Kind::ProviderNotFound, Subtype::MajorNotFound));
        }
        let request = Request {
            name: &name,
            major,
            minor,
            thread_safe: requested.thread_safe != 0,
        };
        match self.registry().lookup(&request, self.version.add_ours) {
            Ok(found) => Ok(found),
            Err(error) => {
                report(&name, &error);
                Err(error.code())
            }
        }
    }

    /// Records that the provider refused to open an IA after [`Library::find`]: says which entry of dat.conf led to it.
    pub fn not_opened(&'static self, found: &Opened, error: Error) {
        if let Some(origin) = &found.origin {
            let name = &found.name;
            say_first("not opened", &refused(name, error, origin));
        }
        self.closed(&found.name, found.table);
    }

    /// Closes the IA that a consumer passes (dat_ia_close): `slot` calls the provider. The number keeps its IA if the provider refuses, and
    /// the second of two concurrent closes finds nothing.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; those of `slot`.
    pub fn close(&'static self, ia: usize, slot: impl FnOnce(&OpenIa) -> Result<()>) -> Result<()> {
        let handles = &self.registry().handles;
        let wrong = Error::handle(Subtype::InvalidHandleIa);
        let (number, open) = handles.begin_close(ia).ok_or(wrong)?;
        let closed = slot(&open);
        handles.end_close(number, closed.is_ok());
        if closed.is_ok() {
            self.closed(&open.name, open.table);
        }
        closed
    }

    /// Records that an IA was closed, or not opened after [`Library::find`].
    fn closed(&'static self, name: &str, table: Table) {
        self.registry().close(name, self.version.major, table);
    }
}

/// Says that a provider refused. What a program passed is not known to `dat doctor`.
fn refused(name: &str, error: Error, origin: &Origin) -> String {
    if error.kind() == Some(Kind::InvalidHandle) {
        return format!(
            "dat_ia_open({name:?}): {error}; the program passed no handle: *async_evd_handle has to be DAT_HANDLE_NULL or an EVD"
        );
    }
    if error == Error::arg(2) {
        return format!(
            "dat_ia_open({name:?}): {error}; async_evd_min_qlen has to be 0 or more, and no more than DAT_IA_ATTR's max_evd_qlen"
        );
    }
    format!("dat_ia_open({name:?}): {error}; its entry is {origin}, `dat doctor {name}` says why")
}

/// Says why a name cannot be opened. Each name that is not there is reported once; of the libraries that cannot be loaded only the
/// first, since programs try the entries of dat.conf in turn.
fn report(name: &str, error: &LookupError) {
    let kind = match error {
        LookupError::Load(_) => "not loaded",
        _ => name,
    };
    say_first(kind, &format!("dat_ia_open({name:?}): {error}"));
}

/// Writes the first message of a kind to standard error, without any variable of the environment: a program shows a number at best.
/// Further ones go to the log.
fn say_first(kind: &str, text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_first = lock(&SAID).insert(kind.to_owned());
    if is_first {
        dat_abi::log::say(text);
    } else {
        tracing::error!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doctor_is_named_unless_an_argument_is_at_fault() {
        let origin = Origin {
            path: "dat.conf".into(),
            line: 3,
        };
        let device = refused("a", Error::resource(Subtype::ResourceDevice), &origin);
        let wants = "; its entry is dat.conf:3, `dat doctor a` says why";
        assert!(device.ends_with(wants), "{device}");
        let handle = refused("a", Error::handle(Subtype::InvalidHandleEvdAsync), &origin);
        assert!(handle.contains("has to be DAT_HANDLE_NULL"), "{handle}");
        assert!(!handle.contains("dat doctor"), "{handle}");
    }
}
