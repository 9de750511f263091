//! `dat check`: prints every fault of a dat.conf, with line and column.

use std::path::Path;

use dat_registry::conf;
use dat_registry::search;

use crate::Outcome;

/// Checks `file`, or the file that the library would read.
pub(crate) fn check(file: Option<&str>) -> Outcome {
    let (path, text) = match file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
            (Path::new(file).to_owned(), text)
        }
        None => {
            let found = search::find(std::env::current_exe().ok().as_deref())?;
            (found.path, found.text)
        }
    };
    let (entries, errors) = conf::parse(&text, &path);
    for entry in &entries {
        println!(
            "{}: {} {} {} {:?}",
            entry.origin, entry.name, entry.api, entry.library, entry.ia_params
        );
    }
    for error in &errors {
        println!("{error}");
    }
    match errors.len() {
        0 => Ok(()),
        count => Err(format!(
            "{count} of {} entries cannot be used",
            count + entries.len()
        )
        .into()),
    }
}
