//! `dat check`: prints every fault of a dat.conf, with line and column.

use std::path::Path;

use dat_registry::catalog::Catalog;
use dat_registry::conf::{self, Effect};
use dat_registry::search;

use crate::Outcome;

/// Checks `file`, or the file that the library would read.
pub(crate) fn check(file: Option<&str>) -> Outcome {
    let files = match file {
        Some(file) => {
            let path = Path::new(file).to_owned();
            let bytes = search::read(&path).map_err(|error| format!("{file}: {error}"))?;
            vec![search::Found { path, bytes }]
        }
        None => search::find(std::env::current_exe().ok().as_deref())?,
    };
    let (mut good, mut bad) = (0, 0);
    for found in files {
        let parsed = conf::parse(&found.bytes, &found.path);
        for entry in &parsed.entries {
            println!(
                "{}: {} {} {} {:?}",
                entry.origin, entry.name, entry.api, entry.library, entry.ia_params
            );
        }
        good += parsed.entries.len();
        let errors = parsed.errors.clone();
        let faults = Catalog::new(parsed, String::new()).faults();
        for error in errors.iter().chain(&faults) {
            println!("{error}");
            bad += usize::from(error.kind.effect() != Effect::Warning);
        }
    }
    match bad {
        0 => Ok(()),
        bad => Err(format!("{bad} of {} entries cannot be used", bad + good).into()),
    }
}
