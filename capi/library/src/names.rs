//! From the name of an IA to its provider: what dat_ia_openv does before it opens.

use std::ffi::{CStr, c_char};

use dat_abi::types::{DatBoolean, DatHandle};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::catalog::Request;
use dat_registry::registrations::Table;

use crate::Library;

/// The last three arguments of dat_ia_openv.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// `DAT_VERSION_MAJOR` of the headers that the program was compiled with.
    pub major: u32,
    /// `DAT_VERSION_MINOR`.
    pub minor: u32,
    /// Whether the provider must be thread safe.
    pub thread_safe: DatBoolean,
}

impl Library {
    /// Checks the arguments of dat_ia_openv and finds the provider: the IA's name, and the table, which counts as
    /// opened until `Registry::close`.
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
        asked: Asked,
    ) -> Result<(String, Table)> {
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
        let Asked { major, minor, .. } = asked;
        if major != self.version.major {
            tracing::error!(
                "dat_ia_open({name:?}): version {major}.{minor} is asked for; this is {:?}, which has {}.x only",
                self.version.soname,
                self.version.major,
            );
            return Err(Error::new(Kind::ProviderNotFound, Subtype::MajorNotFound));
        }
        let request = Request {
            name: &name,
            major,
            minor,
            thread_safe: asked.thread_safe != 0,
        };
        match self.registry().lookup(&request, self.version.add_ours) {
            Ok(table) => Ok((name, table)),
            Err(error) => {
                tracing::error!("dat_ia_open({name:?}): {error}");
                Err(error.code())
            }
        }
    }

    /// One IA less is open.
    pub fn close(&'static self, name: &str, table: Table) {
        self.registry().close(name, self.version.major, table);
    }
}
