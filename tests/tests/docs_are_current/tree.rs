//! The files of the repository, and the words that the code is made of.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
pub(crate) struct Tree {
    root: PathBuf,
    /// Paths relative to the root, of files and folders.
    paths: Vec<String>,
    /// Identifiers in code and scripts.
    words: OnceCell<HashSet<String>>,
}

/// A Markdown file.
pub(crate) struct Page {
    /// Relative to the root.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Extensions of files whose identifiers count as existing names.
const CODE: &[&str] = &["rs", "c", "h", "sh", "toml", "map", "py"];

impl Tree {
    /// Lists the files.
    pub(crate) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut paths = Vec::new();
        list(&root, "", &mut paths);
        paths.sort();
        Self {
            root,
            paths,
            words: OnceCell::new(),
        }
    }

    /// Returns the Markdown files that people write.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        let pages = self.paths.iter().filter(|path| path.ends_with(".md"));
        let written = pages.filter(|path| {
            !["MATRIX.md", "CHANGELOG.md"].contains(&path.as_str())
                && !path.starts_with("tests/vectors/")
        });
        written.map(|path| Page {
            path: path.clone(),
            text: without_old_names(&self.text(path)),
        })
    }

    /// Returns true if a file or folder has this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.paths
            .binary_search_by(|it| it.as_str().cmp(path))
            .is_ok()
    }

    /// Returns the files and folders whose path ends in `suffix`, at a component's border.
    pub(crate) fn ending_in(&self, suffix: &str) -> Vec<&str> {
        let ends = |path: &&str| {
            *path == suffix
                || path
                    .strip_suffix(suffix)
                    .is_some_and(|before| before.ends_with('/'))
        };
        self.paths.iter().map(String::as_str).filter(ends).collect()
    }

    /// Returns the files below a folder with an extension.
    pub(crate) fn files_in(&self, folder: &str, extension: &str) -> Vec<String> {
        let inside = |path: &&String| {
            path.starts_with(&format!("{folder}/")) && path.ends_with(&format!(".{extension}"))
        };
        self.paths.iter().filter(inside).cloned().collect()
    }

    /// Returns the identifiers of the code, this test's own excepted.
    pub(crate) fn words(&self) -> &HashSet<String> {
        self.words.get_or_init(|| {
            let mut words = HashSet::new();
            for path in &self.paths {
                let extension = Path::new(path).extension().and_then(|it| it.to_str());
                let script = path.starts_with("tests/lab/") || path == "Makefile";
                let own = path.starts_with("tests/tests/docs_are_current/");
                if !own && (script || extension.is_some_and(|it| CODE.contains(&it))) {
                    let text = fs::read(self.path(path)).unwrap_or_default();
                    identifiers(&String::from_utf8_lossy(&text), &mut words);
                }
            }
            words
        })
    }

    /// Returns a file's text.
    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Returns a path that can be opened.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// Empties the table of renames: its first column has names that are gone.
fn without_old_names(text: &str) -> String {
    let Some((before, after)) = text.split_once("<!-- renamed -->") else {
        return text.to_owned();
    };
    let (table, rest) = after.split_once("<!-- end -->").expect("the table ends");
    format!("{before}{}{rest}", "\n".repeat(table.matches('\n').count()))
}

/// Adds the paths of a folder's files and folders.
fn list(root: &Path, folder: &str, into: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && ![".config", ".ci"].contains(&name.as_str());
        if hidden || name == "target" {
            continue;
        }
        let path = if folder.is_empty() {
            name
        } else {
            format!("{folder}/{name}")
        };
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            list(root, &path, into);
        }
        into.push(path);
    }
}

/// Adds the identifiers of a text.
fn identifiers(text: &str, into: &mut HashSet<String>) {
    for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if !word.is_empty() && !into.contains(word) {
            into.insert(word.to_owned());
        }
    }
}
