//! Where dat.conf is looked for.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The classic place.
const SYSTEM: &str = "/etc/dat.conf";

/// The configuration that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// `DAT_OVERRIDE` names a file that cannot be read. There is no fall-back then.
    #[error("DAT_OVERRIDE names {path}, which cannot be read: {source}; correct or unset it")]
    Override {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// None of the usual places has one.
    #[error("no dat.conf: looked for {places}; write one, or name one with DAT_OVERRIDE")]
    None {
        /// The places, with what is wrong with each.
        places: String,
    },
}

/// Finds and reads the configuration: the file of `DAT_OVERRIDE` and no other, if it is set and the process did not
/// gain rights at exec; else `<beside>/../etc/dat.conf` (the prefix that the library `beside` was installed in), else
/// `/etc/dat.conf`.
///
/// # Errors
/// See [`SearchError`].
pub fn find(beside: Option<&Path>) -> Result<Found, SearchError> {
    let chosen = if gained_rights() {
        None
    } else {
        env::var_os("DAT_OVERRIDE").map(PathBuf::from)
    };
    find_in(chosen, beside)
}

fn find_in(chosen: Option<PathBuf>, beside: Option<&Path>) -> Result<Found, SearchError> {
    if let Some(path) = chosen {
        return match fs::read_to_string(&path) {
            Ok(text) => Ok(Found { path, text }),
            Err(source) => Err(SearchError::Override { path, source }),
        };
    }
    let prefix = beside
        .and_then(Path::parent)
        .and_then(Path::parent)
        .map(|p| p.join("etc/dat.conf"));
    let mut wrong = Vec::new();
    for path in prefix.into_iter().chain([PathBuf::from(SYSTEM)]) {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(Found { path, text }),
            Err(error) => wrong.push(format!("{} ({error})", path.display())),
        }
    }
    Err(SearchError::None {
        places: wrong.join(", "),
    })
}

/// Whether the process got rights by exec that its caller has not (setuid, setgid, capabilities): then the
/// environment is the caller's and is not believed.
#[must_use]
pub fn gained_rights() -> bool {
    // SAFETY: getauxval only reads what the kernel gave the process.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_that_cannot_be_read_is_an_error_and_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let lib = dir.path().join("lib/libdat2.so.2");
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/dat.conf"), "# prefix").unwrap();
        let missing = dir.path().join("none.conf");
        let error = find_in(Some(missing.clone()), Some(&lib)).unwrap_err();
        assert!(error.to_string().contains("none.conf"), "{error}");
        fs::write(&missing, "# chosen").unwrap();
        assert_eq!(find_in(Some(missing), Some(&lib)).unwrap().text, "# chosen");
        assert_eq!(find_in(None, Some(&lib)).unwrap().text, "# prefix");
    }
}
