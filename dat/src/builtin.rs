//! Adapters that need no dat.conf and no shared object: the user engine is linked into the program (feature `softrxe`).

#[cfg(feature = "softrxe")]
mod engine {
    use std::ffi::CString;
    use std::net::IpAddr;
    use std::sync::{Mutex, PoisonError};

    use dat_abi::export;
    use dat_abi::types::DatProviderInfo;
    use softrxe_engine::UserEngine;

    use crate::registry::add_provider;

    /// Names that exist on every machine. A name that begins with `PREFIX` goes on with a netdev or one of the machine's addresses.
    pub(crate) const NAMES: &[&str] = &["softrxe-lo", "softrxe"];
    const PREFIX: &str = "softrxe-";

    /// Returns the parameters that dat.conf would have for a name, if it is a built-in one.
    fn parameters(name: &str) -> Option<String> {
        if name == "softrxe" {
            return Some(String::new());
        }
        let device = name.strip_prefix(PREFIX)?;
        // sysfs would be another way, but chroots and some containers have none.
        let is_netdev =
            || dat_os::netdev::all().is_ok_and(|all| all.iter().any(|n| n.name == device));
        (device.parse::<IpAddr>().is_ok() || is_netdev()).then(|| format!("{device} 0"))
    }

    /// Says which names are built in, and why `name` is none of them.
    pub(crate) fn explain(name: &str) -> Option<String> {
        let device = name.strip_prefix(PREFIX).map(|device| {
            format!("{device:?} is no network interface and no address of this machine; ")
        });
        let names = NAMES.join(", ");
        Some(format!(
            "{}built in are {names}, and {PREFIX} with a network interface or an address of this machine",
            device.unwrap_or_default()
        ))
    }

    /// Registers the engine under a built-in name. Returns false for another name.
    pub(crate) fn register(name: &str) -> bool {
        static REGISTERED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let Some(params) = parameters(name) else {
            return false;
        };
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.iter().any(|known| known == name) {
            return true;
        }
        let info = DatProviderInfo::new(name, 2, 0, true);
        let params = CString::new(params).unwrap_or_default();
        // SAFETY: the info and the parameters are valid; `add_provider` registers a table.
        unsafe {
            export::init::<UserEngine>(&raw const info, params.as_ptr(), Some(add_provider));
        }
        registered.push(name.to_owned());
        true
    }

    #[cfg(test)]
    mod tests {
        use super::parameters;

        #[test]
        fn a_built_in_name_has_a_netdev_or_an_address() {
            assert_eq!(parameters("softrxe").as_deref(), Some(""));
            assert_eq!(parameters("softrxe-lo").as_deref(), Some("lo 0"));
            let address = parameters("softrxe-127.0.81.9");
            assert_eq!(address.as_deref(), Some("127.0.81.9 0"));
            for wrong in [
                "softrxe-",
                "softrxe-..",
                "softrxe-lo 0",
                "softrxe-no0",
                "lo",
            ] {
                assert_eq!(parameters(wrong), None, "{wrong}");
            }
        }
    }
}

#[cfg(not(feature = "softrxe"))]
mod engine {
    pub(crate) const NAMES: &[&str] = &[];

    pub(crate) fn explain(_name: &str) -> Option<String> {
        None
    }

    pub(crate) fn register(_name: &str) -> bool {
        false
    }
}

pub(crate) use engine::{NAMES, explain, register};
