//! dat.conf in both forms: any text gives entries and errors, each with its line, and an entry survives encoding.

use std::path::Path;

use dat_registry::catalog::Catalog;
use dat_registry::conf::{Entry, classic_line, parse, toml_table};

use crate::input::Input;

/// Parses the bytes as a dat.conf; the first byte selects the form.
///
/// # Panics
/// If an entry or an error has no line, or an entry changes when it is written and read.
pub fn conf(data: &[u8]) {
    let mut input = Input::new(data);
    let name = if input.flag() { "dat.toml" } else { "dat.conf" };
    let bytes = input.bytes(usize::MAX);
    let parsed = parse(bytes, Path::new(name));
    // A replacement character stands for each byte that is not UTF-8, as in the columns of the messages.
    let lines = String::from_utf8_lossy(bytes).matches('\n').count() + 1;
    for error in &parsed.errors {
        assert!(!error.to_string().is_empty());
        assert!(
            (1..=lines).contains(&error.origin.line) && error.column > 0,
            "{error}"
        );
    }
    for entry in &parsed.entries {
        assert!(!entry.name.is_empty() && !entry.library.is_empty());
        for (text, name) in [
            (classic_line(entry), "again.conf"),
            (toml_table(entry, |_| true), "again.toml"),
        ] {
            check(entry, &text, name);
        }
    }
    let catalog = Catalog::new(parsed, vec![name.into()]);
    for fault in catalog.faults() {
        assert!((1..=lines).contains(&fault.origin.line), "{fault}");
    }
}

/// Panics if `text` is not `entry`.
fn check(entry: &Entry, text: &str, name: &str) {
    let again = parse(text.as_bytes(), Path::new(name));
    assert_eq!(
        (again.entries.len(), again.errors.len()),
        (1, 0),
        "{text:?}: {:?}",
        again.errors
    );
    let mut again = again.entries[0].clone();
    again.origin.clone_from(&entry.origin);
    again.places.clone_from(&entry.places);
    if name.ends_with("toml") {
        // A table does not keep the blanks between the words.
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&again.ia_params), words(&entry.ia_params), "{text:?}");
        again.ia_params.clone_from(&entry.ia_params);
    }
    assert_eq!(&again, entry, "{text:?}");
}

/// Returns seeds: the project's own file, the file that DAPL installs, and tables.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    const CLASSIC: &str = include_str!("../../../dat.conf");
    const LINES: [&str; 3] = [
        // Its settings are not in alphabetical order.
        "t u2.0 threadsafe default libdat-provider-filter.so.2 dapl.2.0 \"filter=trace inner=lo file=/tmp/t\" \"\"\n",
        "ofa-v2-mlx4_0-1 u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 \"mlx4_0 1\" \"\"\n",
        "\"a \\\"b\\\\\" k1.2 threadsafe nondefault /usr/lib/x.so v.e.n.1.2 \"\" \"# no comment\" # one\n",
    ];
    const TABLES: [&str; 2] = [
        "[[ia]]\nname = \"softrxe\"\nlibrary = \"libdat-provider-softrxe.so.2\"\nparams = 'lo 0 engine=user'\n",
        "[[ia]]\nname = \"x\"\nlibrary = \"\"\"a\nb\"\"\"\napi = \"u1.2\"\nthread_safe = true\ndefault = false\n\
         provider_version = \"v.1.0\"\nplatform = \"p\"\n[[ia]]\nname = 7\n",
    ];
    let classic = [CLASSIC].into_iter().chain(LINES).map(|text| (0, text));
    let tables = TABLES.into_iter().map(|text| (1, text));
    classic
        .chain(tables)
        .map(|(form, text)| [&[form], text.as_bytes()].concat())
        .collect()
}
