//! Adapters that need no dat.conf and no shared object: the user engine is linked into the program (feature `softrxe`).

#[cfg(feature = "softrxe")]
mod engine {
    use std::ffi::CString;
    use std::sync::{Mutex, PoisonError};

    use dat_abi::export;
    use dat_abi::types::DatProviderInfo;
    use softrxe_engine::UserEngine;

    use crate::registry::add_provider;

    /// Names, and the parameters that dat.conf would have.
    pub(crate) const NAMES: &[(&str, &str)] = &[("softrxe-lo", "lo 0"), ("softrxe", "")];

    /// Registers the engine under a built-in name. Returns false for another name.
    pub(crate) fn register(name: &str) -> bool {
        static REGISTERED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let Some((name, params)) = NAMES.iter().find(|(built_in, _)| *built_in == name) else {
            return false;
        };
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.contains(name) {
            return true;
        }
        let info = DatProviderInfo::new(name, 2, 0, true);
        let params = CString::new(*params).unwrap_or_default();
        // SAFETY: the info and the parameters are valid; `add_provider` registers a table.
        unsafe {
            export::init::<UserEngine>(&raw const info, params.as_ptr(), Some(add_provider));
        }
        registered.push(name);
        true
    }
}

#[cfg(not(feature = "softrxe"))]
mod engine {
    pub(crate) const NAMES: &[(&str, &str)] = &[];

    pub(crate) fn register(_name: &str) -> bool {
        false
    }
}

pub(crate) use engine::{NAMES, register};
