//! The places where dat.conf and the libraries that it names are searched.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::{env, io};

/// Files that are tried after those of the prefix: the path that all DAT libraries use, and Fedora's.
const SYSTEM: [&str; 3] = ["/etc/dat.conf", "/etc/dat.toml", "/etc/rdma/dat.conf"];

/// Largest file that is read. A dat.conf of a thousand entries has 100 kB.
const LARGEST: u64 = 16 << 20;

/// A file of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Path of the file, or of a folder that cannot be listed.
    pub path: PathBuf,
    /// Contents of the file, or why it cannot be read.
    pub contents: Result<Vec<u8>, String>,
}

impl Found {
    fn read(path: PathBuf) -> Self {
        let contents = read(&path).map_err(|error| error.to_string());
        Self { path, contents }
    }
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
    #[error(
        "no dat.conf: looked for {places}; write one (dat init), or name one with DAT_OVERRIDE"
    )]
    None {
        /// The places, each with its error.
        places: String,
    },
}

/// Finds and reads the files of the configuration, those that win over others first. If `DAT_OVERRIDE` is set, not empty, and the
/// process did not gain rights at exec, they are the files and folders that it names, separated by colons, and no other. Else the first
/// that exists of `../etc/dat.conf` and `../etc/dat.toml` from the folder of `own_path` (the prefix in which that library was
/// installed), `/etc/dat.conf`, `/etc/dat.toml`, `/etc/rdma/dat.conf`. The files `*.conf` and `*.toml` of the folder `dat.conf.d`
/// beside a file win over it. A file of a folder that cannot be read is returned with the reason, so that it is reported and the
/// others count; hidden files are left out.
///
/// # Errors
/// [`SearchError`].
pub fn find(own_path: Option<&Path>) -> Result<Vec<Found>, SearchError> {
    let chosen = if gained_rights() {
        None
    } else {
        env::var_os("DAT_OVERRIDE")
    };
    find_in(chosen.as_deref().filter(|c| !c.is_empty()), own_path)
}

fn find_in(chosen: Option<&OsStr>, own_path: Option<&Path>) -> Result<Vec<Found>, SearchError> {
    if let Some(chosen) = chosen {
        let mut all = Vec::new();
        for path in split(chosen) {
            match with_folder(&path) {
                Ok(found) => all.extend(found),
                Err(source) => return Err(SearchError::Override { path, source }),
            }
        }
        if all.is_empty() {
            let (path, source) = (chosen.into(), no_file());
            return Err(SearchError::Override { path, source });
        }
        return Ok(all);
    }
    let of_prefix = prefix(own_path).into_iter().flat_map(|prefix| {
        let etc = prefix.join("etc");
        [etc.join("dat.conf"), etc.join("dat.toml")]
    });
    let mut wrong = Vec::new();
    for path in of_prefix.chain(SYSTEM.map(PathBuf::from)) {
        let found = with_folder(&path);
        // A container makes a folder where the file is missing that it is to mount.
        match found.and_then(|found| {
            if found.is_empty() {
                Err(no_file())
            } else {
                Ok(found)
            }
        }) {
            Ok(found) => return Ok(found),
            Err(error) => wrong.push(format!("{} ({error})", path.display())),
        }
    }
    Err(SearchError::None {
        places: wrong.join(", "),
    })
}

/// Returns the error of a folder that has no configuration.
fn no_file() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "there is no file *.conf or *.toml",
    )
}

/// Returns the paths that `DAT_OVERRIDE` names. A path with a colon that exists is one path.
fn split(chosen: &OsStr) -> Vec<PathBuf> {
    if Path::new(chosen).exists() {
        return vec![chosen.into()];
    }
    env::split_paths(chosen)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Reads a file, and before it the files of the folder `NAME.d` beside it; or the files of a folder.
fn with_folder(path: &Path) -> io::Result<Vec<Found>> {
    if path.is_dir() {
        return folder(path);
    }
    let beside = path.with_file_name("dat.conf.d");
    let mut own = path.as_os_str().to_owned();
    own.push(".d");
    let mut all = Vec::new();
    for folder_path in [Path::new(&own), &beside] {
        if all.is_empty() && folder_path.is_dir() {
            all = folder(folder_path).unwrap_or_else(|error| {
                vec![Found {
                    path: folder_path.to_owned(),
                    contents: Err(error.to_string()),
                }]
            });
        }
    }
    match read(path) {
        Ok(bytes) => all.push(Found {
            path: path.to_owned(),
            contents: Ok(bytes),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !all.is_empty() => {}
        Err(error) => return Err(error),
    }
    Ok(all)
}

/// Returns true if a file of a folder is read, by its name: `*.conf` and `*.toml`, unless they are hidden. Editors keep their locks and
/// copies in hidden files.
#[must_use]
pub fn counts_in_folder(file: &Path) -> bool {
    let name = file.file_name().map(OsStr::as_encoded_bytes);
    let is_hidden = name.is_some_and(|name| name.starts_with(b"."));
    !is_hidden && file.extension().is_some_and(|e| e == "conf" || e == "toml")
}

/// Reads the files of a folder such as `dat.conf.d`, in the order of their names: those for which [`counts_in_folder`] is true.
///
/// # Errors
/// Those of listing the folder.
pub fn folder(path: &Path) -> io::Result<Vec<Found>> {
    let mut files: Vec<PathBuf> = fs::read_dir(path)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| counts_in_folder(file))
        .collect();
    files.sort();
    Ok(files.into_iter().map(Found::read).collect())
}

/// Reads a configuration file. A FIFO or device is refused: it may block the program for ever, or have no end.
///
/// # Errors
/// Those of opening and reading; [`io::ErrorKind::InvalidInput`] for what is no regular file, or is larger than 16 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, LARGEST)
}

/// Like [`read`], for files of at most `most` bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open(path)?;
    if length > most {
        return Err(refusal(&format!("it has more than {} MiB", most >> 20)));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the first bytes of a file, `most` at most. Returns them and the length of the file.
pub(crate) fn read_head(path: &Path, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let (file, length) = open(path)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok((bytes, length))
}

fn refusal(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Opens a regular file; returns its length, too.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(refusal("it is a folder"));
    }
    if !about.is_file() {
        return Err(refusal(
            "it is no regular file but a FIFO, socket or device",
        ));
    }
    let length = about.len();
    Ok((file, length))
}

/// Returns the prefix in which a library or program at `own_path` was installed: `P` for `P/bin/X`, `P/lib/X`, `P/lib64/X`, and for a
/// library in a folder below, as Debian's `P/lib/TRIPLE/X` and our packages' `P/lib/TRIPLE/dat-rdma/X`, `P/lib64/dat-rdma/X`.
fn prefix(own_path: Option<&Path>) -> Option<&Path> {
    let folder = own_path?.parent()?;
    let above = folder.parent()?;
    let of_libraries = |path: &Path| path.ends_with("lib") || path.ends_with("lib64");
    if of_libraries(folder) {
        return Some(above);
    }
    let libraries = if above.ends_with(TRIPLE) {
        above.parent()?
    } else {
        above
    };
    if of_libraries(libraries) {
        libraries.parent()
    } else {
        Some(above)
    }
}

/// Returns the folders where a provider's library is looked for when the dynamic loader does not find it: beside `own_path`, in the
/// library folders of its prefix, and beside the file that names the library. A file of the folder `dat.conf.d` counts as lying beside
/// that folder too.
#[must_use]
pub fn library_folders(own_path: Option<&Path>, conf: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = own_path
        .and_then(Path::parent)
        .map(Path::to_owned)
        .into_iter()
        .collect();
    if let Some(prefix) = prefix(own_path) {
        let lib = prefix.join("lib");
        folders.extend([lib.join(TRIPLE), prefix.join("lib64"), lib]);
    }
    folders.retain(|folder| !folder.as_os_str().is_empty());
    // The folder of a bare name is the working folder.
    let folder_of = |path: &Path| match path.parent()? {
        folder if folder.as_os_str().is_empty() => Some(PathBuf::from(".")),
        folder => Some(folder.to_owned()),
    };
    let beside = folder_of(conf);
    let above = beside
        .as_deref()
        .filter(|folder| folder.ends_with("dat.conf.d"))
        .and_then(folder_of);
    folders.extend(beside.into_iter().chain(above));
    folders
}

/// Debian's name of the folder of this processor's libraries.
pub(crate) const TRIPLE: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-linux-gnu"
} else if cfg!(target_arch = "powerpc64") {
    "powerpc64le-linux-gnu"
} else if cfg!(target_arch = "s390x") {
    "s390x-linux-gnu"
} else {
    "x86_64-linux-gnu"
};

/// Returns true if the process gained rights at exec that its caller lacks (setuid, setgid, capabilities). The caller chose the
/// environment then, so it is ignored.
#[must_use]
pub fn gained_rights() -> bool {
    // SAFETY: getauxval only reads the auxiliary vector of the process.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use super::*;

    /// Makes a FIFO at `path`.
    pub(crate) fn make_fifo(path: &Path) {
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo runs").success());
    }

    fn texts(chosen: Option<&Path>, own: Option<&Path>) -> Vec<String> {
        let found = find_in(chosen.map(Path::as_os_str), own).unwrap();
        let text = |f: Found| match f.contents {
            Ok(bytes) => String::from_utf8(bytes).unwrap(),
            Err(reason) => format!("unreadable: {reason}"),
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn an_override_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let lib = dir.path().join("lib/libdat2.so.2");
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/dat.conf"), "# prefix").unwrap();
        let missing = dir.path().join("none.conf");
        let error = find_in(Some(missing.as_os_str()), Some(&lib)).unwrap_err();
        assert!(error.to_string().contains("none.conf"), "{error}");
        fs::write(&missing, "# chosen").unwrap();
        assert_eq!(texts(Some(&missing), Some(&lib)), ["# chosen"]);
        assert_eq!(texts(None, Some(&lib)), ["# prefix"]);
    }

    #[test]
    fn each_folder_of_libraries_leads_to_its_prefix() {
        let triple = format!("lib/{TRIPLE}");
        let own_folder = format!("lib/{TRIPLE}/dat-rdma");
        for folder in [
            "bin",
            "lib",
            "lib64",
            &triple,
            "lib/dat-rdma",
            "lib64/dat-rdma",
            &own_folder,
        ] {
            let library = Path::new("/opt/p").join(folder).join("libdat2.so.2");
            assert_eq!(
                prefix(Some(&library)),
                Some(Path::new("/opt/p")),
                "{folder}"
            );
            let folders = library_folders(Some(&library), Path::new("/etc/dat.conf"));
            for other in ["lib", "lib64", &triple] {
                let other = Path::new("/opt/p").join(other);
                assert!(folders.contains(&other), "{folder}: {folders:?}");
            }
        }
        let named_alike = Path::new("/opt/lib64/lib64/libdat2.so.2");
        assert_eq!(prefix(Some(named_alike)), Some(Path::new("/opt/lib64")));
        let built = Path::new("/work/target/debug/deps/test");
        assert_eq!(prefix(Some(built)), Some(Path::new("/work/target/debug")));
    }

    #[test]
    fn several_files_and_folders() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("a.conf.d")).unwrap();
        for (name, text) in [
            ("a.conf", "a"),
            ("b.conf", "b"),
            ("a.conf.d/2.toml", "two"),
            ("a.conf.d/1.conf", "one"),
            ("a.conf.d/note", "no"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        assert_eq!(texts(Some(&path("a.conf")), None), ["one", "two", "a"]);
        assert_eq!(texts(Some(&path("a.conf.d")), None), ["one", "two"]);
        let both = env::join_paths([path("b.conf"), path("a.conf.d")]).unwrap();
        assert_eq!(texts(Some(Path::new(&both)), None), ["b", "one", "two"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_leaves_the_others_and_hidden_ones_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join("etc").join(name);
        fs::create_dir_all(path("dat.conf.d/folder.conf")).unwrap();
        fs::write(path("dat.conf"), "main").unwrap();
        fs::write(path("dat.conf.d/10-site.conf"), "site").unwrap();
        // The lock that Emacs makes beside a file that is edited, and a dangling link.
        let link = |name| std::os::unix::fs::symlink("root@host.1:2", path(name)).unwrap();
        link("dat.conf.d/.#10-site.conf");
        link("dat.conf.d/20-gone.conf");
        let lib = dir.path().join("lib/libdat2.so.2");
        let all = texts(None, Some(&lib));
        assert_eq!(all.len(), 4, "{all:?}");
        assert_eq!((&*all[0], &*all[3]), ("site", "main"));
        assert!(all[1].starts_with("unreadable: No such file"), "{all:?}");
        assert!(all[2].starts_with("unreadable: it is a folder"), "{all:?}");
    }

    #[test]
    fn a_fifo_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        make_fifo(&fifo);
        assert!(read(&fifo).unwrap_err().to_string().contains("FIFO"));
        assert!(read(dir.path()).unwrap_err().to_string().contains("folder"));
    }

    #[test]
    fn a_folder_without_files_is_no_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join("etc").join(name);
        // What a container makes where a file is missing that is to be mounted.
        fs::create_dir_all(path("dat.conf")).unwrap();
        let error = find_in(Some(path("dat.conf").as_os_str()), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("etc/dat.conf") && text.contains("no file *.conf"),
            "{text}"
        );
        assert!(find_in(Some(OsStr::new(":")), None).is_err());
        fs::write(path("dat.toml"), "# next").unwrap();
        let lib = dir.path().join("lib/libdat2.so.2");
        assert_eq!(texts(None, Some(&lib)), ["# next"]);
    }

    #[test]
    fn libraries_lie_beside_a_file_of_the_working_folder() {
        for file in ["my.conf", "dat.conf.d/site.conf"] {
            let folders = library_folders(None, Path::new(file));
            assert!(folders.contains(&PathBuf::from(".")), "{file}: {folders:?}");
        }
    }
}
