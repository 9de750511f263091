//! Where the library of an entry lies, as the dynamic loader would find it.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::conf::mistakes::is_for_a_shell;
use crate::conf::suggest;
use crate::elf::{ElfError, Machine, OWN, Object};
use crate::search::{TRIPLE, gained_rights};

/// A library that was found.
#[derive(Debug)]
pub struct Library {
    /// Path of the file.
    pub path: PathBuf,
    /// The file.
    pub object: Object,
}

/// The reason why there is no library that can be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// No file of that name.
    #[error("no file {library:?} in {places}; install it, or write its path")]
    Missing {
        /// The library as the entry names it.
        library: String,
        /// The folders that were searched.
        places: String,
    },
    /// No file of that path, which a shell would expand.
    #[error("no file {library:?}: ~ and $NAME are not expanded in dat.conf; write the whole path")]
    NotExpanded {
        /// The library as the entry names it.
        library: String,
    },
    /// Only files for other machines.
    #[error(
        "{path} is for {machine}, and this program runs on {OWN}; install the library for {OWN}"
    )]
    Machine {
        /// Path of the file.
        path: PathBuf,
        /// Machine of the file.
        machine: Machine,
    },
    /// The file cannot be used at all.
    #[error("{path} {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        source: ElfError,
    },
}

/// Finds the library that an entry names. A name with a slash is a path. `more` are folders after the dynamic loader's own.
///
/// # Errors
/// [`LibraryError`]. A library for another machine is passed over, as the dynamic loader does, and named if there is no other.
pub fn locate(library: &str, more: &[PathBuf]) -> Result<Library, LibraryError> {
    if library.contains('/') {
        return open(Path::new(library)).map_err(|error| match error {
            LibraryError::Missing { library, .. } if is_for_a_shell(&library) => {
                LibraryError::NotExpanded { library }
            }
            error => error,
        });
    }
    let mut first_error = None;
    for folder in &all_folders(more) {
        let path = folder.join(library);
        if !path.exists() {
            continue;
        }
        match open(&path) {
            Ok(found) => return Ok(found),
            Err(error) => _ = first_error.get_or_insert(error),
        }
    }
    Err(first_error.unwrap_or_else(|| LibraryError::Missing {
        library: library.to_owned(),
        places: places(more),
    }))
}

/// Checks that the file that the dynamic loader would map is a regular one and whole, as far as it can be found and read. Reads its
/// headers only.
///
/// # Errors
/// [`LibraryError::File`] with [`ElfError::CutOff`], or with [`ElfError::Read`] for a FIFO or device.
pub(crate) fn check_length(library: &str, more: &[PathBuf]) -> Result<(), LibraryError> {
    let paths = if library.contains('/') {
        vec![PathBuf::from(library)]
    } else {
        all_folders(more).iter().map(|f| f.join(library)).collect()
    };
    for path in paths {
        match Object::check_length(&path) {
            Ok(machine) if machine == OWN => break,
            Err(source @ ElfError::CutOff { .. }) => {
                return Err(LibraryError::File { path, source });
            }
            // The dynamic loader would wait for a writer of a FIFO for ever.
            Err(ElfError::Read(error))
                if error.kind() == ErrorKind::InvalidInput && !path.is_dir() =>
            {
                let source = ElfError::Read(error);
                return Err(LibraryError::File { path, source });
            }
            // The dynamic loader passes it over, or says what is wrong.
            _ => {}
        }
    }
    Ok(())
}

/// Names the folders that were searched. Those of the dynamic loader, of which machines have many, are named together.
fn places(more: &[PathBuf]) -> String {
    let mut places: Vec<String> = Vec::new();
    for folder in chosen_folders().iter().chain(more) {
        let text = folder.display().to_string();
        if folder.is_dir() && !places.contains(&text) {
            places.push(text);
        }
    }
    const LOADERS: &str = "the dynamic loader's folders (/etc/ld.so.conf, /lib, /usr/lib)";
    if places.is_empty() {
        return LOADERS.to_owned();
    }
    format!("{}, nor in {LOADERS}", places.join(", "))
}

/// Returns the provider's library whose name differs from a missing one so little that it was probably meant: a name, or for a path
/// a path. `more` are folders as for [`locate`].
#[must_use]
pub fn nearest(library: &str, more: &[PathBuf]) -> Option<String> {
    let wanted = Path::new(library);
    let is_path = library.contains('/');
    let folders = match wanted.parent() {
        Some(parent) if is_path => vec![parent.to_owned()],
        _ => all_folders(more),
    };
    let word = stem(wanted.file_name()?.to_str()?);
    let mut near: Vec<(String, PathBuf)> = Vec::new();
    for entry in folders
        .iter()
        .filter_map(|f| fs::read_dir(f).ok())
        .flatten()
    {
        let Some(path) = entry.ok().map(|entry| entry.path()) else {
            continue;
        };
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let of_file = stem(name).to_owned();
        if name.contains(".so") && suggest::nearest(word, [of_file.as_str()]).is_some() {
            near.push((of_file, path));
        }
    }
    near.retain(|(_, path)| {
        let object = Object::read(path).ok();
        object.is_some_and(|o| o.machine() == OWN && o.exports("dat_provider_init") == Some(true))
    });
    let best = suggest::nearest(word, near.iter().map(|(stem, _)| stem.as_str()))?;
    let (_, path) = near.iter().find(|(stem, _)| stem == best)?;
    let text = if is_path {
        path.as_os_str()
    } else {
        path.file_name()?
    };
    text.to_str().map(str::to_owned)
}

/// Returns the part of a library's file name that tells it from others: `x` of `libx.so.2`.
fn stem(name: &str) -> &str {
    let name = name.strip_prefix("lib").unwrap_or(name);
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

fn open(path: &Path) -> Result<Library, LibraryError> {
    let path = path.to_owned();
    match Object::read(&path) {
        Ok(object) if object.machine() == OWN => Ok(Library { path, object }),
        Ok(object) => Err(LibraryError::Machine {
            path,
            machine: object.machine(),
        }),
        Err(ElfError::Read(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(LibraryError::Missing {
                library: path.display().to_string(),
                places: path
                    .parent()
                    .map(|p| p.display().to_string())
                    .unwrap_or_default(),
            })
        }
        Err(source) => Err(LibraryError::File { path, source }),
    }
}

/// Returns the folders where a library without a slash is looked for, in their order; `more` are the last.
fn all_folders(more: &[PathBuf]) -> Vec<PathBuf> {
    [chosen_folders(), loader_folders(), more.to_vec()].concat()
}

/// Returns the folders of `LD_LIBRARY_PATH`, which the dynamic loader searches first.
fn chosen_folders() -> Vec<PathBuf> {
    let given = env::var_os("LD_LIBRARY_PATH").filter(|_| !gained_rights());
    let folders = given.iter().flat_map(env::split_paths);
    folders.filter(|p| !p.as_os_str().is_empty()).collect()
}

/// Returns the further folders that the dynamic loader searches: those of /etc/ld.so.conf, and its own.
fn loader_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    configured_folders(Path::new("/etc/ld.so.conf"), 0, &mut folders);
    for base in ["/lib", "/usr/lib"] {
        folders.push(Path::new(base).join(TRIPLE));
        folders.push(format!("{base}64").into());
        folders.push(base.into());
    }
    folders
}

/// Adds the folders that a file of ld.so.conf's format names. `depth` limits includes that include themselves.
fn configured_folders(file: &Path, depth: u32, folders: &mut Vec<PathBuf>) {
    let Ok(text) = fs::read_to_string(file) else {
        return;
    };
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
    {
        match line.strip_prefix("include ") {
            Some(pattern) if depth < 4 => {
                for file in matching(Path::new(pattern.trim())) {
                    configured_folders(&file, depth + 1, folders);
                }
            }
            None if line.starts_with('/') => folders.push(line.into()),
            _ => {}
        }
    }
}

/// Returns the files of a pattern such as `/etc/ld.so.conf.d/*.conf`.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (
        pattern.parent(),
        pattern.file_name().and_then(OsStr::to_str),
    ) else {
        return Vec::new();
    };
    let (start, end) = name.split_once('*').unwrap_or((name, ""));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::search::tests::make_fifo;

    #[test]
    fn a_library_of_another_machine_is_named_with_both() {
        let own = locate("libc.so.6", &[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = fs::read(&own.path).unwrap();
        // The machine RISC-V, in the byte order of the file.
        bytes[18..20].copy_from_slice(&243_u16.to_ne_bytes());
        fs::write(dir.path().join("libother.so"), &bytes).unwrap();
        let more = [dir.path().to_owned()];
        let error = locate("libother.so", &more).unwrap_err().to_string();
        assert!(
            error.contains("libother.so is for riscv, and this program runs on"),
            "{error}"
        );
        let error = locate("libnone.so", &more).unwrap_err().to_string();
        assert!(
            error.contains("no file \"libnone.so\" in ") && error.contains("/usr/lib"),
            "{error}"
        );
        let error = locate("$HOME/libx.so", &more).unwrap_err().to_string();
        assert!(error.contains("$NAME are not expanded"), "{error}");
    }

    #[test]
    fn a_fifo_is_refused_before_the_dynamic_loader_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libfifo.so");
        make_fifo(&path);
        let error = check_length(path.to_str().unwrap(), &[]).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("it is no regular file but a FIFO"),
            "{error}"
        );
        // The dynamic loader refuses a folder without waiting, and open(2) a socket.
        assert!(check_length(dir.path().to_str().unwrap(), &[]).is_ok());
        let socket = dir.path().join("libsocket.so");
        let _listening = UnixListener::bind(&socket).unwrap();
        assert!(check_length(socket.to_str().unwrap(), &[]).is_ok());
    }
}
