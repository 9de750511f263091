//! The places where dat.conf is searched.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Path that all DAT libraries use.
const SYSTEM: &str = "/etc/dat.conf";

/// The configuration that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Path of the file.
    pub path: PathBuf,
    /// Contents of the file.
    pub text: String,
}

/// The reason why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// `DAT_OVERRIDE` names a file that cannot be read. No other file is tried then.
    #[error("DAT_OVERRIDE names {path}, which cannot be read: {source}; correct or unset it")]
    Override {
        /// Path of the file.
        path: PathBuf,
        /// Error of the read.
        source: io::Error,
    },
    /// None of the places has a readable file.
    #[error("no dat.conf: looked for {places}; write one, or name one with DAT_OVERRIDE")]
    None {
        /// The places, each with its error.
        places: String,
    },
}

/// Finds and reads the configuration. If `DAT_OVERRIDE` is set and the process did not gain rights at exec, it is that file and no
/// other. Else it is `../etc/dat.conf` from the folder of `own_path` (the prefix in which that library was installed), else
/// `/etc/dat.conf`.
///
/// # Errors
/// [`SearchError`].
pub fn find(own_path: Option<&Path>) -> Result<Found, SearchError> {
    let chosen = if gained_rights() {
        None
    } else {
        env::var_os("DAT_OVERRIDE").map(PathBuf::from)
    };
    find_in(chosen, own_path)
}

fn find_in(chosen: Option<PathBuf>, own_path: Option<&Path>) -> Result<Found, SearchError> {
    if let Some(path) = chosen {
        return match fs::read_to_string(&path) {
            Ok(text) => Ok(Found { path, text }),
            Err(source) => Err(SearchError::Override { path, source }),
        };
    }
    let prefix = own_path
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

/// Returns true if the process gained rights at exec that its caller lacks (setuid, setgid, capabilities). The caller chose the
/// environment then, so it is ignored.
#[must_use]
pub fn gained_rights() -> bool {
    // SAFETY: getauxval only reads the auxiliary vector of the process.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_that_cannot_be_read_is_an_error() {
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
