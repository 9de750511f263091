//! dat.conf in both forms: any text gives entries and errors, each with its line, and an entry survives encoding.

use std::path::Path;

use dat_registry::conf::{ConfError, Entry, parse};

use crate::input::Input;

/// Parses the bytes as a dat.conf; the first byte selects the form.
///
/// # Panics
/// If an entry or an error has no line, or an entry changes when it is written and read.
pub fn conf(data: &[u8]) {
    let mut input = Input::new(data);
    let manifest = input.flag();
    let text = String::from_utf8_lossy(input.bytes(usize::MAX));
    if manifest {
        let (entries, errors) = parse(&text, Path::new("dat.toml"));
        // A table is an entry or an error; text that is not TOML is one error.
        let mut numbers: Vec<usize> = entries.iter().map(|e| e.origin.line).collect();
        numbers.extend(errors.iter().map(|e| e.origin.line));
        numbers.sort_unstable();
        let whole_file = errors.len() == 1 && numbers == [0];
        assert!(
            whole_file || numbers.iter().copied().eq(1..=numbers.len()),
            "of the tables {numbers:?} came {entries:?} and {errors:?}"
        );
        check(&entries, &errors);
    } else {
        let (entries, errors) = parse(&text, Path::new("dat.conf"));
        let lines: Vec<&str> = text.lines().collect();
        assert!(entries.len() + errors.len() <= lines.len());
        for error in &errors {
            let line = lines[error.origin.line - 1];
            let end = line.chars().count() + 1;
            assert!((1..=end).contains(&error.column), "{error}: of {end}");
        }
        check(&entries, &errors);
    }
}

fn check(entries: &[Entry], errors: &[ConfError]) {
    for error in errors {
        assert!(!error.to_string().is_empty());
    }
    for entry in entries {
        assert!(!entry.name.is_empty() && !entry.library.is_empty());
        let line = written(entry);
        if line.contains('\n') {
            continue;
        }
        let (again, errors) = parse(&line, &entry.origin.path.with_extension("conf"));
        assert_eq!((again.len(), errors.len()), (1, 0), "{line:?}: {errors:?}");
        let mut again = again[0].clone();
        again.origin.clone_from(&entry.origin);
        assert_eq!(&again, entry, "{line:?}");
    }
}

/// Returns the entry as a line of the classic form.
fn written(entry: &Entry) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let version = &entry.provider_version;
    let choice = |yes: bool, not: &str, word: &str| {
        if yes {
            word.to_owned()
        } else {
            format!("{not}{word}")
        }
    };
    [
        quote(&entry.name),
        entry.api.to_string(),
        choice(entry.thread_safe, "non", "threadsafe"),
        choice(entry.default, "non", "default"),
        quote(&entry.library),
        quote(&format!(
            "{}.{}.{}",
            version.vendor, version.major, version.minor
        )),
        quote(&entry.ia_params),
        quote(&entry.platform_params),
    ]
    .join(" ")
}

/// Returns seeds: the project's own file, the file that DAPL installs, and tables.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    const CLASSIC: &str = include_str!("../../../dat.conf");
    const LINES: [&str; 2] = [
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
