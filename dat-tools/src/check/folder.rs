//! A folder such as dat.conf.d: the files that are read from it, and what else is to be known.

use std::fs;
use std::path::Path;

use dat_registry::search::{self, Found};

use crate::{Outcome, read};

/// Reads the files of the folder that programs would read.
///
/// # Errors
/// The folder cannot be listed, or has no such file.
pub(super) fn files(path: &Path) -> Outcome<Vec<Found>> {
    let name = path.display();
    let files = search::folder(path).map_err(|error| format!("{name}: {error}"))?;
    if files.is_empty() {
        let text =
            format!("{name} has no file that programs read: *.conf or *.toml, and not hidden");
        return Err(text.into());
    }
    Ok(files)
}

/// Returns what programs do not read: other files of the folder, and the folder itself if none of `programs` is in it.
pub(super) fn notes(path: &Path, programs: &[Found]) -> Vec<String> {
    let name = path.display();
    let mut others: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !search::counts_in_folder(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    others.sort();
    let mut notes = Vec::new();
    if !others.is_empty() {
        let others = others.join(", ");
        notes.push(format!(
            "note: of {name} programs do not read {others}: only *.conf and *.toml, and no hidden file"
        ));
    }
    let is_read = programs.iter().any(|found| {
        found
            .path
            .parent()
            .is_some_and(|of| read::is_same(of, path))
    });
    if !is_read {
        let files: Vec<String> = programs
            .iter()
            .map(|found| found.path.display().to_string())
            .collect();
        let read = if files.is_empty() {
            "they find no dat.conf".to_owned()
        } else {
            format!("they read {}", files.join(", "))
        };
        notes.push(format!(
            "note: programs do not read {name}: {read}; with DAT_OVERRIDE={name} they do"
        ));
    }
    notes
}
