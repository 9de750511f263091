//! Names of adapters: those of dat.conf, and those that are built in.

use dat_registry::catalog::Request;
use dat_registry::registry::{LookupError, Opened};

use crate::builtin;
use crate::error::Result;
use crate::registry::{add_provider, registry};

/// Finds the provider of a name: of dat.conf a thread-safe one if there is one, else one whose calls are made one after the other;
/// else a built-in one. Returns it, and whether it is thread safe.
pub(crate) fn find(name: &str) -> Result<(Opened, bool)> {
    let request = |thread_safe| Request {
        name,
        major: 2,
        minor: 0,
        thread_safe,
    };
    let lookup = |thread_safe| registry().lookup(&request(thread_safe), add_provider);
    let missing = match lookup(true) {
        Err(LookupError::NoEntry(_)) => match lookup(false) {
            Err(missing @ LookupError::NoEntry(_)) => missing,
            found => return Ok((found?, false)),
        },
        Err(missing @ LookupError::Search(_)) => missing,
        found => return Ok((found?, true)),
    };
    if !builtin::register(name) {
        return Err(missing.into());
    }
    // It is registered now, so that no configuration is looked at.
    Ok((lookup(true)?, true))
}

/// Returns names and libraries of the IAs in dat.conf that this API can open, in file order.
///
/// # Errors
/// [`Error::Lookup`](crate::Error::Lookup) if there is no configuration.
pub fn configured() -> Result<Vec<(String, String)>> {
    let catalog = registry().catalog().map_err(LookupError::Search)?;
    let ours = catalog
        .entries()
        .iter()
        .filter(|e| !e.api.kernel && e.api.major == 2 && !e.is_pattern());
    Ok(ours
        .map(|e| {
            (
                e.name.clone(),
                format!("{} {:?} ({})", e.library, e.ia_params, e.origin),
            )
        })
        .collect())
}

/// Returns the names that [`Ia::open`](crate::Ia::open) knows on every machine without a dat.conf, which has precedence. It also knows
/// `softrxe-` with a netdev or with an IP address of the machine, such as `softrxe-eth0`.
///
/// ```
/// assert!(udapl::built_in().contains(&"softrxe-lo"));
/// ```
#[must_use]
pub fn built_in() -> Vec<&'static str> {
    builtin::NAMES.to_vec()
}
