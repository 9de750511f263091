//! Runs a program, unmodified, with a dat.conf in which the name of an IA means a filter.

use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use dat_conformance::{Api, host};
use dat_os::signals;
use dat_registry::catalog::{Catalog, Request};
use dat_registry::conf::{Entry, classic_alias, classic_line};
use dat_registry::{library, search};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{Outcome, Status, read};

/// The library of the filters, as it is installed, and as cargo builds it.
const LIBRARIES: [&str; 2] = ["libdat-provider-filter.so.2", "libdat_provider_filter.so"];

/// Returns whether a library of dat.conf is that of the filters.
pub(crate) fn is_filter(library: &str) -> bool {
    LIBRARIES.iter().any(|name| library.ends_with(name))
}

/// A new folder of this user, which is removed at the end.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder.
    ///
    /// # Errors
    /// The path cannot be made, or cannot be written into `ia_params`.
    pub(crate) fn new() -> Outcome<Self> {
        Self::beneath(&std::env::temp_dir())
    }

    fn beneath(parent: &Path) -> Outcome<Self> {
        // The program may change its folder. An empty path is the working folder.
        let parent = std::path::absolute(Path::new(".").join(parent))?;
        let text = parent.display().to_string();
        if parent.to_str().is_none() || text.contains(char::is_whitespace) {
            return Err(format!(
                "{text}: a setting of dat.conf is text without blanks; set TMPDIR to another folder"
            )
            .into());
        }
        for _ in 0..100 {
            // Any user could take names that can be foreseen. The hash of nothing is random: its keys are.
            let random = RandomState::new().build_hasher().finish();
            let path = parent.join(format!("dat-{random:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(format!(
                        "cannot make {}: {error}; set TMPDIR to a folder where this user may make one, instead of {text}",
                        path.display()
                    )
                    .into());
                }
            }
        }
        Err(format!("{} has no free name for a folder", parent.display()).into())
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the files with this ending, ordered by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn files(&self, ending: &str) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == ending) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a dat.conf like the program's, but for `ia`: that name means the filter with these settings, and another name the IA.
/// Returns the file.
///
/// # Errors
/// dat.conf cannot be read, or has no such IA for uDAPL 2.0; the filter's library is not there, or refuses the settings; the file
/// cannot be written.
pub(crate) fn configure(ia: &str, settings: &str, folder: &Folder) -> Outcome<PathBuf> {
    let own_path = read::own_path();
    let catalog = Catalog::read(own_path.as_deref())?;
    // Another name than that of a filter which the program, as one of these commands, runs over.
    let mut name = format!("{ia}.inner");
    while catalog.entries().iter().any(|entry| entry.name == name) {
        name += ".inner";
    }
    let mut new = Vec::new();
    for found in entries(&catalog, ia)? {
        let filter = Entry {
            name: ia.to_owned(),
            library: filters(own_path.as_deref(), &found.origin.path)?,
            ia_params: format!("{settings} inner={name}"),
            ..found.clone()
        };
        let inner = Entry {
            name: name.clone(),
            ..found
        };
        new.extend([filter, inner]);
    }
    // The program may hide the reason, or open no IA at all. Nothing is opened here.
    let filter = &new[0];
    host::load(Path::new(&filter.library), ia, &filter.ia_params, Api::V2_0).map_err(|_| {
        format!("the filter over {ia:?} cannot be used, for the reason that it printed; the program was not run")
    })?;
    let write = |entry: &Entry| classic_line(&in_place(entry, own_path.as_deref()));
    let file = folder.file("dat.conf");
    std::fs::write(&file, text(&catalog, ia, &new, write))
        .map_err(|error| unwritten(&file, &error))?;
    Ok(file)
}

/// Returns the entry that programs get for `ia`, and where that is another one, the entry of programs that ask for thread safety.
///
/// # Errors
/// There is none.
fn entries(catalog: &Catalog, ia: &str) -> Outcome<Vec<Entry>> {
    let request = Request::new(ia, (2, 0));
    let safe = Request {
        thread_safe: true,
        ..request
    };
    let mut found: Vec<Entry> = [request, safe]
        .iter()
        .filter_map(|request| catalog.find(request))
        .collect();
    found.dedup_by(|a, b| a.thread_safe == b.thread_safe);
    if found.is_empty() {
        return Err(catalog.explain_missing(&request).into());
    }
    Ok(found)
}

/// Returns the text of one file, as DAPL's library reads no other form, that says what the files of `catalog` do, but for `ia` of uDAPL 2.0, in
/// whose place it has `new`.
fn text(catalog: &Catalog, ia: &str, new: &[Entry], write: impl Fn(&Entry) -> String) -> String {
    let others = catalog.entries().iter().filter(|e| {
        (e.name != ia || e.api.major != 2) && (e.is_pattern() || is_reached(catalog, e))
    });
    let aliases = catalog.aliases().iter().filter(|alias| alias.name != ia);
    let lines = new.iter().chain(others).map(write);
    let lines = lines.chain(aliases.map(classic_alias));
    lines.map(|line| line + "\n").collect()
}

/// Returns whether requests get this entry. In one file it would win over an alias, or for its thread safety, where one of another file wins.
fn is_reached(catalog: &Catalog, entry: &Entry) -> bool {
    [false, true].into_iter().any(|thread_safe| {
        let request = Request {
            thread_safe,
            ..Request::new(&entry.name, (entry.api.major, entry.api.minor))
        };
        let found = catalog.find(&request);
        found.is_some_and(|found| found.origin == entry.origin && found.name == entry.name)
    })
}

/// Returns the path of the filters' library.
fn filters(own_path: Option<&Path>, conf: &Path) -> Outcome<String> {
    let folders = search::library_folders(own_path, conf);
    LIBRARIES
        .iter()
        .find_map(|name| library::locate(name, &folders).ok())
        .map(|found| found.path.display().to_string())
        .ok_or_else(|| {
            format!(
                "{} is not installed; it belongs beside the other providers",
                LIBRARIES[0]
            )
            .into()
        })
}

/// Returns the entry with the whole path of its library: from the new file's folder its name alone may lead elsewhere, and the program
/// may change its folder.
fn in_place(entry: &Entry, own_path: Option<&Path>) -> Entry {
    let folders = search::library_folders(own_path, &entry.origin.path);
    let library = library::locate(&entry.library, &folders).map_or_else(
        |_| entry.library.clone(),
        |found| {
            let whole = std::path::absolute(&found.path);
            whole.unwrap_or(found.path).display().to_string()
        },
    );
    Entry {
        library,
        ..entry.clone()
    }
}

/// Runs the program with this dat.conf, and returns the status of a shell for its end. Ctrl-C, which the terminal sends to both, is the
/// program's to handle; SIGTERM and SIGHUP are passed on to it.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn run(program: &[String], conf: &Path) -> Outcome<u8> {
    let (name, arguments) = program.split_first().ok_or("no program is named")?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])?;
    let mut child = Command::new(name)
        .args(arguments)
        .env("DAT_OVERRIDE", conf)
        .spawn()
        .map_err(|error| format!("cannot run {name:?}: {error}"))?;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        for signal in signals.wait() {
            if matches!(signal, SIGTERM | SIGHUP) {
                // It was not waited for yet, so the number is still its own.
                signals::send(child.id(), signal);
            }
        }
    };
    let status = ended
        .code()
        .unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    Ok(u8::try_from(status).unwrap_or(u8::MAX))
}

/// Turns the status of a program into that of this command.
pub(crate) fn ended(status: u8) -> Outcome {
    match status {
        0 => Ok(()),
        status => Err(Status(status).into()),
    }
}

/// Opens the file for a report, if one is named. That is before the program runs, as a report that cannot be written afterwards is lost.
///
/// # Errors
/// It cannot be created.
pub(crate) fn create(path: Option<&Path>) -> Outcome<Option<File>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let file = File::create(path);
    let file = file.map_err(|error| unwritten(path, &error))?;
    Ok(Some(file))
}

/// Writes the report to the file of [`create`], or to standard output.
///
/// # Errors
/// It cannot be written.
pub(crate) fn report(to: Option<(File, &Path)>, text: &str) -> Outcome {
    match to {
        Some((mut file, path)) => file
            .write_all(text.as_bytes())
            .map_err(|error| unwritten(path, &error))?,
        None => crate::out::text(text),
    }
    Ok(())
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use dat_registry::conf::parse;
    use dat_registry::search::Found;

    use super::*;

    /// Another user knows the number that the next process gets.
    #[test]
    fn folders_of_another_user_leave_a_name_for_one_of_this_command() {
        let process = std::process::id();
        let names = (0..100).map(|number| format!("dat-{process}-{number}"));
        let taken: Vec<_> = names.map(|name| std::env::temp_dir().join(name)).collect();
        taken
            .iter()
            .for_each(|path| std::fs::create_dir(path).expect("a folder"));
        let made = Folder::new();
        taken
            .iter()
            .for_each(|path| std::fs::remove_dir(path).expect("a folder"));
        assert!(made.is_ok(), "{:?}", made.err());
    }

    #[test]
    fn a_folder_that_programs_do_not_find_is_refused_and_a_relative_one_made_whole() {
        let made = Folder::beneath(Path::new(".")).expect("a folder");
        assert!(made.0.is_absolute(), "{made:?}");
        for (parent, reason) in [
            (&b"a\xff"[..], "text without blanks"),
            (b"a b", "text without blanks"),
            (b"/dev/null", "cannot make /dev/null/dat-"),
        ] {
            let refused = Folder::beneath(Path::new(OsStr::from_bytes(parent)));
            let said = refused.expect_err("no folder").to_string();
            assert!(said.contains(reason) && said.contains("TMPDIR"), "{said}");
        }
    }

    #[test]
    fn an_empty_path_is_the_working_folder() {
        let made = Folder::beneath(Path::new("")).unwrap();
        assert!(made.0.starts_with(std::env::current_dir().unwrap()));
    }

    #[test]
    fn a_report_that_cannot_be_written_is_named() {
        let path = Path::new("/dev/full");
        let file = create(Some(path)).expect("a device").expect("a file");
        let said = report(Some((file, path)), "text")
            .expect_err("no space")
            .to_string();
        assert!(said.contains("cannot write /dev/full"), "{said}");
    }

    #[test]
    fn programs_that_ask_for_thread_safety_get_the_filter_too() {
        let line =
            |name: &str, safety: &str| format!("{name} u2.0 {safety} default l v.1.0 \"\" \"\"\n");
        let both = line("both", "nonthreadsafe") + &line("both", "threadsafe");
        let one = line("safe", "threadsafe") + &line("unsafe", "nonthreadsafe");
        let catalog = Catalog::of(&[Found {
            path: "dat.conf".into(),
            contents: Ok((both + &one).into_bytes()),
        }]);
        for (name, wants) in [
            ("both", &[false, true][..]),
            ("safe", &[true]),
            ("unsafe", &[false]),
        ] {
            let found = entries(&catalog, name).expect("an entry");
            let found: Vec<bool> = found.iter().map(|entry| entry.thread_safe).collect();
            assert_eq!(found, wants, "{name}");
        }
        assert!(entries(&catalog, "none").is_err());
    }

    #[test]
    fn other_names_mean_the_same_as_without_the_filter() {
        let file = |path: &str, text: &str| Found {
            path: path.into(),
            contents: Ok(text.into()),
        };
        let line = |name: &str, api: &str, safety: &str, library: &str| {
            format!("{name} {api} {safety} default {library} v.1.0 \"\" \"\"\n")
        };
        let site = "alias moved mine\n".to_owned()
            + &line("safe", "u2.0", "threadsafe", "site.so")
            + &line("mine", "u2.0", "threadsafe", "mine.so");
        let main = ["moved", "safe", "mine"]
            .map(|name| line(name, "u2.0", "nonthreadsafe", "main.so"))
            .concat()
            + &line("mine", "u1.2", "nonthreadsafe", "old.so");
        let before = Catalog::of(&[file("d/site.conf", &site), file("dat.conf", &main)]);
        let new = [("mine", "filter.so"), ("mine.inner", "mine.so")]
            .map(|(name, library)| line(name, "u2.0", "threadsafe", library))
            .map(|text| parse(text.as_bytes(), Path::new("new")).entries.remove(0));
        let text = text(&before, "mine", &new, classic_line);
        let after = Catalog::of(&[file("new.conf", &text)]);
        let library = |catalog: &Catalog, name, api| {
            let entry = catalog.find(&Request::new(name, api));
            entry.map(|entry| entry.library)
        };
        for (name, api) in [("safe", (2, 0)), ("mine", (1, 2)), ("none", (2, 0))] {
            assert_eq!(
                library(&after, name, api),
                library(&before, name, api),
                "{name}"
            );
        }
        // The alias leads to the filter, too.
        for name in ["mine", "moved"] {
            assert_eq!(library(&after, name, (2, 0)).as_deref(), Some("filter.so"));
        }
        assert_eq!(
            library(&after, "mine.inner", (2, 0)).as_deref(),
            Some("mine.so")
        );
    }
}
