//! Opens the IA of `dat serve`, `dat ping` and `dat perf`.

use std::net::ToSocketAddrs as _;

use dat_registry::catalog::Catalog;

use crate::{Outcome, assess, machine, read};

/// Opens the IA of this name, or the first of dat.conf that opens.
pub(crate) fn ia(name: Option<&str>) -> Outcome<dat::Ia> {
    if let Some(name) = name {
        return Ok(dat::Ia::open(name)?);
    }
    let catalog = Catalog::of(&read::configuration()?);
    let devices = machine::devices()?;
    // What cannot open is not tried: the provider would print why.
    let unusable = |name: &str| {
        let mut entries = catalog.entries().iter();
        entries.any(|e| e.name == name && assess::is_hopeless(e, &devices))
    };
    for (name, _) in dat::configured()? {
        if !unusable(&name)
            && let Ok(ia) = dat::Ia::open(&name)
        {
            return Ok(ia);
        }
    }
    Err("no IA of dat.conf opens on this machine: `dat list --open` says why; `dat init` writes a dat.conf".into())
}

/// Refuses the name of an IA in the place of the host: `dat perf IA` lacks the host.
pub(crate) fn require_host(ia: Option<&str>, host: &str, command: &str) -> Outcome {
    let is_ia = ia.is_none() && dat::configured()?.iter().any(|(name, _)| name == host);
    if is_ia && (host, 0).to_socket_addrs().is_err() {
        return Err(format!(
            "{host} is the name of an IA; the host is missing: dat {command} {host} HOST"
        )
        .into());
    }
    Ok(())
}
