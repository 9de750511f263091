//! Checks that the source files of a crate do not import each other in circles.
//!
//! An edge goes from a file to each file whose items it names, by `use` or by a path. A re-export of items of the files below
//! (`pub use child::...`) is no import: an item that is named through it counts as imported from the file that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dat_tests::prefix::top;

/// Source folders without circles.
const CRATES: &[&str] = &[
    "dat-abi/src",
    "dat-abi/slots/src",
    "dat-registry/src",
    "dat/src",
    "dat-tools/src",
    "dat-verbs/src",
    "capi/library/src",
    "capi/libdat2/src",
    "capi/libdat/src",
];

#[test]
fn no_two_files_of_a_crate_import_each_other() {
    let mut circles = Vec::new();
    for folder in CRATES {
        let graph = Graph::of(&top().join(folder));
        assert!(graph.edges.len() > 3, "no source files in {folder}");
        circles.extend(
            graph
                .circles()
                .into_iter()
                .map(|c| format!("{folder}: {c}")),
        );
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_is_found_through_aliases_and_re_exports() {
    let files = BTreeMap::from([
        (module("a"), tokens("use crate::b; fn f() { b::c::g() }")),
        (module("b"), tokens("mod c; pub(crate) use c::*;")),
        (
            module("b/c"),
            tokens("use super::super::d::{self, D as E};"),
        ),
        (module("d"), tokens("fn f() { crate::a::f() } // crate::e")),
        (module("e"), tokens("use crate::b::g;")),
        (module("lib"), tokens("mod b; pub use b::{One, c::Two};")),
        (module("f"), tokens("use crate::{One, g};")),
        (
            module("g"),
            tokens("use crate::Two as Three; use crate::f;"),
        ),
    ]);
    let circles = Graph::from(&files).circles();
    assert_eq!(circles, ["a -> b/c -> d -> a", "f -> g -> f"]);
}

/// A file as the path of its module.
type Module = Vec<String>;

fn module(path: &str) -> Module {
    let parts = path
        .split('/')
        .filter(|part| !["lib", "main", "mod"].contains(part));
    parts.map(str::to_owned).collect()
}

struct Graph {
    edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Graph {
    fn of(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).expect("a source folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let name = path.strip_prefix(folder).expect("below").with_extension("");
                    let text = std::fs::read_to_string(&path).expect("a source file");
                    files.insert(module(&name.to_string_lossy()), tokens(&text));
                }
            }
        }
        Self::from(&files)
    }

    fn from(files: &BTreeMap<Module, Vec<String>>) -> Self {
        let used: BTreeMap<&Module, Used> = files
            .iter()
            .map(|(module, tokens)| (module, Used::of(module, tokens, files)))
            .collect();
        let mut edges = BTreeMap::new();
        for (from, of) in &used {
            let mut to = BTreeSet::new();
            for (target, item) in &of.imports {
                let re_exports = &used[target].re_exports;
                if let Some(owner) = re_exports.get(item) {
                    to.insert(owner.clone());
                    continue;
                }
                to.insert(target.clone());
                // Through `*` it may be any of them; a file below imports what the file above defines itself.
                if !from.starts_with(target) {
                    let any = re_exports.iter().filter(|(name, _)| name.starts_with('*'));
                    to.extend(any.map(|(_, owner)| owner.clone()));
                }
            }
            to.remove(*from);
            edges.insert((*from).clone(), to);
        }
        Self { edges }
    }

    /// Returns a shortest circle through each file that is in one, without repetitions.
    fn circles(&self) -> Vec<String> {
        let mut done = BTreeSet::new();
        let mut circles = Vec::new();
        for start in self.edges.keys() {
            let Some(path) = self.path_back(start) else {
                continue;
            };
            if done.insert(path.iter().cloned().collect::<BTreeSet<_>>()) {
                let names: Vec<String> = path.iter().chain([start]).map(|m| m.join("/")).collect();
                circles.push(names.join(" -> "));
            }
        }
        circles
    }

    /// Returns the files of a shortest way from `start` back to it.
    fn path_back(&self, start: &Module) -> Option<Vec<Module>> {
        let mut before: BTreeMap<&Module, &Module> = BTreeMap::new();
        let mut queue = vec![start];
        while !queue.is_empty() {
            let mut next = Vec::new();
            for from in queue {
                for to in &self.edges[from] {
                    if to == start {
                        let mut path = vec![from.clone()];
                        let mut at = from;
                        while let Some(earlier) = before.get(at).filter(|_| at != start) {
                            at = earlier;
                            path.push(at.clone());
                        }
                        path.reverse();
                        return Some(path);
                    }
                    if !before.contains_key(to) {
                        before.insert(to, from);
                        next.push(to);
                    }
                }
            }
            queue = next;
        }
        None
    }
}

/// What a file names of its crate.
#[derive(Default)]
struct Used {
    /// Files, each with the item that is named in it; without one the item is empty.
    imports: BTreeSet<(Module, String)>,
    /// Items of files below this one that it re-exports; `*` and the file's name for all of a file.
    re_exports: BTreeMap<String, Module>,
}

impl Used {
    fn of(here: &Module, tokens: &[String], files: &BTreeMap<Module, Vec<String>>) -> Self {
        let mut used = Self::default();
        let mut aliases: BTreeMap<String, Module> = BTreeMap::new();
        let mut paths = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] == "use" {
                let public = at > 0 && ["pub", ")"].contains(&&*tokens[at - 1]);
                let mut leaves = Vec::new();
                at = tree(tokens, at + 1, &[], &mut leaves);
                for (path, alias) in leaves {
                    let Some((target, item)) = resolve(here, &path, &aliases, files) else {
                        continue;
                    };
                    let below = target.len() > here.len() && target.starts_with(here);
                    match alias {
                        Some(name) if item.is_empty() => {
                            aliases.insert(name, target.clone());
                        }
                        Some(name) if public && below => {
                            let star = format!("*{}", target.join("/"));
                            let name = if name == "*" { star } else { name };
                            used.re_exports.insert(name, target);
                            continue;
                        }
                        _ => {}
                    }
                    used.imports.insert((target, item));
                }
            } else if is_word(&tokens[at]) && tokens.get(at + 1).is_some_and(|next| next == "::") {
                let mut path = vec![tokens[at].clone()];
                while tokens.get(at + 1).is_some_and(|next| next == "::")
                    && tokens.get(at + 2).is_some_and(|next| is_word(next))
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                paths.push(path);
                at += 1;
            } else {
                at += 1;
            }
        }
        for path in paths {
            used.imports.extend(resolve(here, &path, &aliases, files));
        }
        used.imports.retain(|(target, _)| target != here);
        used
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads a use tree from `at`: its paths, with the name that each gets. Returns the position behind it.
fn tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<(Vec<String>, Option<String>)>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut alias = None;
    while at < tokens.len() {
        match &*tokens[at] {
            "::" => {}
            "as" => {
                alias = Some(tokens[at + 1].clone());
                at += 1;
            }
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = tree(tokens, at, &path, leaves);
                    if tokens[at] == "," {
                        at += 1;
                    }
                }
                // The branches are the leaves.
                return at + 1;
            }
            "," | ";" | "}" => break,
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let alias = alias.or_else(|| path.last().cloned());
    leaves.push((path, alias));
    at
}

/// Returns the file that a path leads into, and the item there; `None` for a path out of the crate.
fn resolve(
    here: &Module,
    path: &[String],
    aliases: &BTreeMap<String, Module>,
    files: &BTreeMap<Module, Vec<String>>,
) -> Option<(Module, String)> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match &**first {
        "crate" => Module::new(),
        "self" => here.clone(),
        "super" => {
            let mut at = here.clone();
            at.pop()?;
            while let Some((next, behind)) = rest.split_first()
                && next == "super"
            {
                at.pop()?;
                rest = behind;
            }
            at
        }
        first => {
            let below: Module = here.iter().cloned().chain([first.to_owned()]).collect();
            match aliases.get(first) {
                Some(module) => module.clone(),
                None if files.contains_key(&below) => below,
                None => return None,
            }
        }
    };
    let mut item = String::new();
    for part in rest {
        at.push(part.clone());
        if !files.contains_key(&at) {
            at.pop();
            item.clone_from(part);
            break;
        }
    }
    files.contains_key(&at).then_some((at, item))
}

/// Splits Rust text into words, `::` and single characters; leaves out comments, strings and unit tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut tokens = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or(line);
        // Strings hold no imports. One that goes over several lines is cut at its first and last.
        let code: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        let mut chars = code.chars().peekable();
        while let Some(c) = chars.next() {
            if c.is_alphanumeric() || c == '_' {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                tokens.push(word);
            } else if c == ':' && chars.next_if_eq(&':').is_some() {
                tokens.push("::".to_owned());
            } else if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
        }
    }
    tokens
}
