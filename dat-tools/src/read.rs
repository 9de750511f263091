//! Reads dat.conf as programs do, or the files that the user names.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use dat_registry::search::{self, Found};

use crate::Outcome;

/// Longest text that is taken from standard input, in bytes.
const LARGEST: u64 = 16 << 20;

/// Returns the path of this command, beside which dat.conf and libraries are looked for.
pub(crate) fn own_path() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

/// Returns the files that programs read.
pub(crate) fn configuration() -> Outcome<Vec<Found>> {
    Ok(search::find(own_path().as_deref())?)
}

/// Reads a file that the user names for `command`; `-` is standard input, which is taken for TOML if `toml`.
pub(crate) fn file(command: &str, path: &Path, toml: bool) -> Outcome<Found> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin()
            .take(LARGEST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("standard input: {error}"))?;
        // A part of it might be well-formed.
        if bytes.len() as u64 > LARGEST {
            return Err(format!("standard input has more than {} MiB", LARGEST >> 20).into());
        }
        let path = if toml { "stdin.toml" } else { "stdin" };
        return Ok(Found {
            path: path.into(),
            contents: Ok(bytes),
        });
    }
    let bytes = search::read(path).map_err(|error| {
        // A folder and a file that is too long are refused as well.
        let is_pipe =
            std::fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir());
        let hint = if is_pipe {
            format!("; pipe it into `dat {command} -`")
        } else {
            String::new()
        };
        format!("{}: {error}{hint}", path.display())
    })?;
    Ok(Found {
        path: path.to_owned(),
        contents: Ok(bytes),
    })
}

/// Returns the file that a user names for output; none, which is standard output, for `-`.
pub(crate) fn output(named: Option<&Path>) -> Option<&Path> {
    named.filter(|path| *path != Path::new("-"))
}

/// Writes text to a new file, or to standard output. A file that exists is replaced only with `force`, of a symbolic link its target; it
/// appears complete or not at all. What is no regular file stays: the superuser would replace /dev/null.
pub(crate) fn write(text: &str, output: Option<&Path>, force: bool) -> Outcome {
    let Some(path) = output else {
        crate::out::text(text);
        return Ok(());
    };
    if !force && path.symlink_metadata().is_ok() {
        return Err(format!("{} exists; --force replaces it", path.display()).into());
    }
    if path.symlink_metadata().is_ok() && !path.is_file() {
        return Err(format!("{} is no regular file", path.display()).into());
    }
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut new = target.clone().into_os_string();
    new.push(format!(".new.{}", std::process::id()));
    let new = PathBuf::from(new);
    let failed = |error: io::Error| {
        let _ = std::fs::remove_file(&new);
        format!("cannot write {}: {error}", path.display())
    };
    std::fs::write(&new, text).map_err(failed)?;
    Ok(std::fs::rename(&new, target).map_err(failed)?)
}

/// Writes text to a new file as [`write()`] does, and prints `rest` as JSON with the `file`; without a file, with the `text` itself.
pub(crate) fn write_json(
    text: &str,
    output: Option<&Path>,
    force: bool,
    mut rest: serde_json::Value,
) -> Outcome {
    match output {
        Some(path) => {
            write(text, output, force)?;
            rest["file"] = path.display().to_string().into();
        }
        None => rest["text"] = text.into(),
    }
    crate::out::json(&rest, false);
    Ok(())
}

/// Returns true if both paths lead to one file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|path| real(other) == Some(path))
}
