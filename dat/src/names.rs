//! Names of adapters: those of dat.conf, and those that are built in.

use dat_registry::catalog::{Catalog, Request};
use dat_registry::registry::{LookupError, Opened};

use crate::builtin;
use crate::error::Result;
use crate::registry::{add_provider, registry};
use crate::serial;

/// Finds the provider of a name. The file of dat.conf that wins comes first: its thread-safe provider, else one whose calls are made
/// one after the other. Without either it is a built-in one. Returns it, and whether it is thread safe.
pub(crate) fn find(name: &str) -> Result<(Opened, bool)> {
    let lookup = |thread_safe: bool| {
        // It may load the provider, whose functions another name may have opened already.
        let _turn = (!thread_safe).then(serial::lock);
        registry().lookup(&request(name, thread_safe), add_provider)
    };
    let catalog = registry().catalog();
    if catalog.is_ok_and(|catalog| is_unsafe_one_first(&catalog, name)) {
        return Ok((lookup(false)?, false));
    }
    let missing = match lookup(true) {
        Err(LookupError::NoEntry(_)) => match lookup(false) {
            Err(missing @ LookupError::NoEntry(_)) => missing,
            found => return Ok((found?, false)),
        },
        Err(missing @ LookupError::Search(_)) => missing,
        found => return Ok((found?, true)),
    };
    if !builtin::register(name) {
        return Err(with_built_in(missing, name).into());
    }
    // It is registered now, so that no configuration is looked at.
    Ok((lookup(true)?, true))
}

/// Adds to an error what else could have been opened: dat.conf does not tell of the built-in names.
fn with_built_in(missing: LookupError, name: &str) -> LookupError {
    match (missing, builtin::explain(name)) {
        (LookupError::NoEntry(text), Some(more)) => LookupError::NoEntry(format!("{text}; {more}")),
        (missing, _) => missing,
    }
}

const fn request(name: &str, thread_safe: bool) -> Request<'_> {
    Request {
        thread_safe,
        ..Request::new(name, (2, 0))
    }
}

/// Returns whether the only thread-safe entry of a name is in another file than the one that wins.
fn is_unsafe_one_first(catalog: &Catalog, name: &str) -> bool {
    let find = |thread_safe| catalog.find(&request(name, thread_safe));
    match (find(false), find(true)) {
        (Some(first), Some(safe)) => first.origin.path != safe.origin.path,
        _ => false,
    }
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

#[cfg(test)]
mod tests {
    use dat_registry::search::Found;

    use super::*;

    #[test]
    fn a_thread_safe_entry_is_preferred_within_one_file() {
        let file = |path: &str, text: &str| Found {
            path: path.into(),
            contents: Ok(text.into()),
        };
        let line = |safety: &str| format!("a u2.0 {safety} default l.so v.1.0 \"\" \"\"\n");
        let (safe, other) = (line("threadsafe"), line("nonthreadsafe"));
        let (both, none) = (other.clone() + &safe, String::new());
        for (site, main, expected) in [
            (&other, &safe, true),
            (&other, &other, false),
            (&safe, &other, false),
            (&both, &safe, false),
            (&none, &both, false),
            (&none, &none, false),
        ] {
            let catalog = Catalog::of(&[file("d/site.conf", site), file("dat.conf", main)]);
            assert_eq!(is_unsafe_one_first(&catalog, "a"), expected, "{site}{main}");
        }
    }
}
