//! `dat new-provider`: a crate, or a folder in C, that is a provider and works.
//!
//! The templates are the examples of the kit, so the tests of those test them too.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::NewProvider;
use crate::{Outcome, out};

/// Words that cargo or rustc refuse as the name of a library, or that mean another crate: cargo refuses a name that the kit has, too.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "dat-abi",
    "dat-arena",
    "dat-core",
    "dat-os",
    "dat-provider",
    "dat-provider-parts",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "tracing",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// A file of a new provider: its path, its text, and whether it is a program.
type File = (String, String, bool);

/// Why no folder was made.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(
        "'{0}' cannot be the name of a provider: use 1 to 50 letters a to z, digits, - and _, beginning with a letter, and no word of Rust or name of the kit"
    )]
    Name(String),
    #[error("{0}: it exists; choose another name, or remove it")]
    Exists(PathBuf),
    #[error(
        "{0}: it has no dat-provider/Cargo.toml, so it is not the kit (PREFIX/share/dat/kit of an installation)"
    )]
    NoKit(PathBuf),
    #[error("{0}: {1}")]
    Write(PathBuf, io::Error),
}

/// Writes the folder.
pub(crate) fn run(arguments: &NewProvider, json: bool) -> Outcome {
    let name = arguments.name.as_str();
    check(name)?;
    let kit = kit(arguments.kit.as_deref())?;
    let folder = std::env::current_dir()?.join(name);
    if folder.symlink_metadata().is_ok() {
        return Err(Fault::Exists(folder).into());
    }
    let files = if arguments.c {
        c(name, &folder)
    } else {
        rust(name, &folder, kit.as_deref())
    };
    if let Err(error) = write(&folder, &files) {
        // Half a provider would be in the way of the next attempt.
        let _ = fs::remove_dir_all(&folder);
        return Err(error.into());
    }
    let library = library(name, arguments.c);
    let build = if arguments.c { "make" } else { "cargo build" };
    let commands = [
        format!("cd {name}"),
        build.to_owned(),
        format!("dat conform {library}"),
        "./dtest.sh".to_owned(),
    ];
    if json {
        let names: Vec<&str> = files.iter().map(|(path, ..)| path.as_str()).collect();
        let kit = kit.as_deref();
        out::json(
            &json!({ "folder": folder, "files": names, "kit": kit, "commands": commands }),
            false,
        );
        return Ok(());
    }
    println!(
        "{name}: a provider in {} files. Build it, judge it, and run Debian's dtest on it:",
        files.len()
    );
    for command in commands {
        println!("    {command}");
    }
    if !arguments.c && kit.is_none() {
        eprintln!(
            "dat: no kit beside this command; Cargo.toml asks crates.io for dat-provider (--kit names a folder)"
        );
    }
    Ok(())
}

fn check(name: &str) -> Result<(), Fault> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let good = name.len() <= 50
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(word)
        && !TAKEN.contains(&name.replace('_', "-").as_str());
    if good {
        Ok(())
    } else {
        Err(Fault::Name(name.to_owned()))
    }
}

/// Returns the kit's folder: the one that is given, else the one of the installation that has this command.
fn kit(given: Option<&Path>) -> Result<Option<PathBuf>, Fault> {
    let has = |folder: &Path| folder.join("dat-provider/Cargo.toml").is_file();
    if let Some(folder) = given {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        return if has(&folder) {
            Ok(Some(folder))
        } else {
            Err(Fault::NoKit(folder))
        };
    }
    let found = ["share/dat/kit", "share/dat-rdma/kit"]
        .iter()
        .filter_map(|kit| beside(kit));
    Ok(found.into_iter().find(|folder| has(folder)))
}

/// Returns a path of the prefix that this command is in.
fn beside(path: &str) -> Option<PathBuf> {
    let command = std::env::current_exe().ok()?.canonicalize().ok()?;
    Some(command.parent()?.parent()?.join(path))
}

/// Returns the name as Rust and C write it.
fn snake(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the shared object's path within the folder.
fn library(name: &str, c: bool) -> String {
    let folder = if c { "." } else { "target/debug" };
    format!("{folder}/lib{}.so", snake(name))
}

/// Fills in a template.
fn fill(text: &str, name: &str) -> String {
    text.replace("@NAME@", name)
        .replace("@SNAKE@", &snake(name))
}

/// Files that both languages have.
fn common(name: &str, folder: &Path, c: bool) -> Vec<File> {
    let path = folder.join(library(name, c).trim_start_matches("./"));
    let conf = format!(
        "# The entry of this provider; dat.conf(5) explains the fields.\n{name}0 u2.0 nonthreadsafe default \"{}\" {name}.0.1 \"127.0.0.1 0\" \"\"\n",
        path.display()
    );
    let script = fill(include_str!("../template/dtest.sh.in"), name);
    vec![
        ("dat.conf".into(), conf, false),
        ("dtest.sh".into(), script, true),
        (
            ".gitignore".into(),
            "/target\n/*.so\n/dtest-*.log\n".into(),
            false,
        ),
    ]
}

/// Returns the files of a crate: `examples/pipe` under its own name.
fn rust(name: &str, folder: &Path, kit: Option<&Path>) -> Vec<File> {
    let version = env!("CARGO_PKG_VERSION");
    let dependency = match kit {
        // JSON writes a string as TOML reads it.
        Some(kit) => format!(
            "{{ version = \"{version}\", path = {} }}",
            json!(kit.join("dat-provider"))
        ),
        None => format!("\"{version}\""),
    };
    let manifest =
        fill(include_str!("../template/Cargo.toml.in"), name).replace("@KIT@", &dependency);
    let own = |text: &str| {
        text.replace("libdat-pipe.so", &format!("lib{}.so", snake(name)))
            .replace("dat-pipe", name)
            .replace("\"pipe\"", &format!("\"{name}\""))
            .replace("\"pipe: ", &format!("\"{name}: "))
            .replace("Pipe", "MyTransport")
    };
    let mut files = common(name, folder, false);
    files.extend([
        ("Cargo.toml".into(), manifest, false),
        (
            "build.rs".into(),
            own(include_str!("../../examples/pipe/build.rs")),
            false,
        ),
        (
            "src/lib.rs".into(),
            own(include_str!("../../examples/pipe/src/lib.rs")),
            false,
        ),
        (
            "src/socket.rs".into(),
            own(include_str!("../../examples/pipe/src/socket.rs")),
            false,
        ),
        (
            "README.md".into(),
            fill(include_str!("../template/README.rust.in"), name),
            false,
        ),
    ]);
    files
}

/// Returns the files of a folder in C: `examples/c-transport` under its own name.
fn c(name: &str, folder: &Path) -> Vec<File> {
    let snake = snake(name);
    let source = include_str!("../../examples/c-transport/sockets.c")
        .replace("dat-c-example", name)
        .replace("\"sockets\"", &format!("\"{name}\""))
        .replace("\"sockets: ", &format!("\"{name}: "))
        .replace("\"c-transport\"", &format!("\"{name}\""));
    let mut makefile =
        include_str!("../../examples/c-transport/Makefile").replace("sockets", &snake);
    // The kit that this command belongs to, unless pkg-config finds it in its own folders.
    if let Some(found) =
        beside("lib/pkgconfig").filter(|kit| kit.join("dat-transport.pc").is_file())
    {
        makefile = makefile.replace("KIT =\n", &format!("KIT = {}\n", found.display()));
    }
    let mut files = common(name, folder, true);
    files.extend([
        (format!("{snake}.c"), source, false),
        ("Makefile".into(), makefile, false),
        (
            "README.md".into(),
            fill(include_str!("../template/README.c.in"), name),
            false,
        ),
    ]);
    files
}

fn write(folder: &Path, files: &[File]) -> Result<(), Fault> {
    for (name, text, program) in files {
        let path = folder.join(name);
        let fault = |error| Fault::Write(path.clone(), error);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(fault)?;
        }
        fs::write(&path, text).map_err(fault)?;
        if *program {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(fault)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_cargo_and_c_take() {
        for good in ["a", "my-provider", "x9_y"] {
            check(good).unwrap();
        }
        let long = "a".repeat(51);
        for bad in [
            "",
            "9a",
            "-a",
            "A",
            "a/b",
            "..",
            "a b",
            "é",
            "fn",
            "dat_provider",
            "dat-provider",
            "dat-core",
            "dat_os",
            "test",
            &long,
        ] {
            let error = check(bad).unwrap_err().to_string();
            assert!(error.contains("name of a provider"), "{bad}: {error}");
        }
    }

    #[test]
    fn nothing_of_the_examples_names_is_left() {
        let folder = Path::new("/tmp/mine");
        for (path, text, _) in rust("my-dev", folder, None) {
            assert!(
                !text.contains("dat-pipe") && !text.contains("\"pipe") && !text.contains('@'),
                "{path}: {text}"
            );
        }
        let files = c("my-dev", folder);
        assert!(files.iter().any(|(path, ..)| path == "my_dev.c"));
        for (path, text, _) in files {
            let strings = ["\"sockets", "c-example", "libsockets", "\"c-transport"];
            assert!(
                !strings.iter().any(|name| text.contains(name)),
                "{path}: {text}"
            );
        }
    }

    #[test]
    fn the_manifest_takes_the_kit_by_its_path() {
        let manifest = |kit| {
            let files = rust("mine", Path::new("/x/mine"), kit);
            files
                .into_iter()
                .find(|(path, ..)| path == "Cargo.toml")
                .expect("a manifest")
                .1
        };
        assert!(manifest(Some(Path::new("/opt/kit"))).contains("path = \"/opt/kit/dat-provider\""));
        assert!(manifest(None).contains("dat-provider = \"0."));
    }
}
