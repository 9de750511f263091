//! What a page names exists: files, headings, identifiers, functions, targets of the Makefile.

use crate::prose::{anchors, links, spans};
use crate::tree::{Page, Tree};

/// Extensions by which a word is a path.
const FILES: &[&str] = &["rs", "md", "sh", "c", "h", "toml", "txt", "svg"];

/// Beginnings of words with a slash that are no paths of this repository.
const ELSEWHERE: &[&str] = &["target/", "share/", "/", "dat-rs/", "src/ib/"];

/// Returns the links to files or headings that do not exist, and those to code without the item that they name.
pub(crate) fn dead_links(tree: &Tree, page: &Page) -> Vec<String> {
    let mut dead = Vec::new();
    for (line, label, target) in links(&page.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let file = if path.is_empty() {
            page.path.clone()
        } else {
            beside(&page.path, path)
        };
        let place = format!("{}:{line}", page.path);
        if !tree.has(&file) {
            dead.push(format!("{place}: no file {file}"));
        } else if !anchor.is_empty() && !anchors(&tree.text(&file)).iter().any(|it| it == anchor) {
            dead.push(format!("{place}: {file} has no heading #{anchor}"));
        } else if file.ends_with(".rs") && label.starts_with('`') && !label.contains(['/', '.']) {
            let text = tree.text(&file);
            let names = label
                .trim_matches('`')
                .split("::")
                .map(|name| name.trim_end_matches(['(', ')', '!']));
            for name in names.filter(|name| {
                !text
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .any(|word| word == *name)
            }) {
                dead.push(format!("{place}: {file} has no {name}"));
            }
        }
    }
    dead
}

/// Returns the path of a link's target, which is relative to its page.
fn beside(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the paths in code spans that no file's or folder's path ends in.
pub(crate) fn dead_paths(tree: &Tree, page: &Page) -> Vec<String> {
    let mut dead = Vec::new();
    for (line, span) in spans(&page.text) {
        for word in span.split_whitespace() {
            let path = word.split_once("::").map_or(word, |(path, _)| path);
            if is_path(tree, path) && tree.ending_in(path.trim_end_matches('/')).is_empty() {
                dead.push(format!("{}:{line}: no {path}", page.path));
            }
        }
    }
    dead
}

/// Returns true if a word claims to be a path of this repository.
fn is_path(tree: &Tree, word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let extension = word
        .rsplit_once('.')
        .is_some_and(|(stem, it)| !stem.is_empty() && FILES.contains(&it));
    let folder = word
        .split_once('/')
        .is_some_and(|(first, _)| tree.has(first));
    plain
        && (extension || folder)
        && !ELSEWHERE.iter().any(|it| word.starts_with(it))
        && !NOT_HERE.contains(&word)
}

/// Files of examples, of users and of the kernel.
const NOT_HERE: &[&str] = &["prog.c", "cm.c", "cma.c", "dat.toml"];

/// Names of the kernel's, and parts of names.
const FOREIGN: &[&str] = &["rxe_xmit_packet", "rxe_cq_post", "get_"];

/// Returns the names `a::b`, `name()`, `name!` and `snake_case` names in code spans that the code does not have.
pub(crate) fn dead_names(tree: &Tree, page: &Page) -> Vec<String> {
    let mut dead = Vec::new();
    for (line, span) in spans(&page.text) {
        let called = span
            .strip_suffix("()")
            .or_else(|| span.strip_suffix('!'))
            .unwrap_or(&span);
        let identifier = !called.is_empty()
            && called
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
        let snake = called.contains('_')
            && called
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let begun = span.strip_suffix("...").filter(|begin| begin.contains('_'));
        if let Some(begin) =
            begun.filter(|it| it.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        {
            if !tree.words().iter().any(|word| word.starts_with(begin)) {
                dead.push(format!("{}:{line}: nothing begins with {begin}", page.path));
            }
        } else if identifier && (called != span || called.contains("::") || snake) {
            for name in called.split("::").filter(|name| {
                !(name.is_empty() || FOREIGN.contains(name) || tree.words().contains(*name))
            }) {
                dead.push(format!("{}:{line}: the code has no {name}", page.path));
            }
        }
    }
    dead
}

/// Returns the `file.rs::function` in code spans whose file does not have the function. `::function` means the file before.
pub(crate) fn dead_functions(tree: &Tree, page: &Page) -> Vec<String> {
    let mut dead = Vec::new();
    let mut files: Vec<&str> = Vec::new();
    for (line, span) in spans(&page.text) {
        let Some((path, function)) = span
            .split_once("::")
            .filter(|(path, _)| path.is_empty() || path.ends_with(".rs"))
        else {
            continue;
        };
        if !path.is_empty() {
            files = tree.ending_in(path);
        }
        let defined = |file: &&&str| defines(&tree.text(file), function);
        if !function.contains("::") && files.iter().find(defined).is_none() {
            dead.push(format!(
                "{}:{line}: {} has no {function}",
                page.path,
                files.join(", ")
            ));
        }
    }
    dead
}

/// Returns true if Rust code defines an item.
fn defines(code: &str, name: &str) -> bool {
    const KINDS: [&str; 8] = [
        "fn ",
        "struct ",
        "enum ",
        "trait ",
        "const ",
        "static ",
        "mod ",
        "macro_rules! ",
    ];
    KINDS.iter().any(|kind| {
        let item = format!("{kind}{name}");
        let mut after = code
            .match_indices(&item)
            .map(|(at, found)| &code[at + found.len()..]);
        after.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Returns the rows `| NUMBER or question | [file](path) | items | text |` of a page whose file does not define one of the items.
pub(crate) fn dead_steps(tree: &Tree, page: &Page) -> Vec<String> {
    let mut dead = Vec::new();
    for (at, row) in page.text.lines().enumerate() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells.len() != 6 {
            continue;
        }
        let target = links(cells[2]).pop().map(|(_, _, target)| target);
        let is_step = cells[1].parse::<u32>().is_ok();
        if !is_step && !target.as_ref().is_some_and(|file| file.ends_with(".rs")) {
            continue;
        }
        let Some(target) = target else {
            dead.push(format!("{}:{}: a step without a file", page.path, at + 1));
            continue;
        };
        let file = beside(&page.path, &target);
        // A file that does not exist is a dead link.
        let code = if tree.has(&file) {
            tree.text(&file)
        } else {
            continue;
        };
        for (_, item) in spans(cells[3]) {
            let name = item.rsplit("::").next().unwrap_or(&item);
            let found = if file.ends_with(".rs") && !name.starts_with("dat_") {
                defines(&code, name)
            } else {
                code.contains(name)
            };
            if !found {
                dead.push(format!("{}:{}: {file} has no {item}", page.path, at + 1));
            }
        }
    }
    dead
}

/// Returns the `make TARGET` that the Makefile does not have.
pub(crate) fn dead_targets(tree: &Tree, page: &Page) -> Vec<String> {
    let makefile = tree.text("Makefile");
    let targets: Vec<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, _)| name)
        .collect();
    let commands = spans(&page.text).into_iter().chain(
        page.text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.to_owned())),
    );
    let mut dead = Vec::new();
    for (line, command) in commands {
        let Some(rest) = command.trim().strip_prefix("make ") else {
            continue;
        };
        let target = rest
            .split(|c: char| c.is_whitespace() || c == '`')
            .next()
            .unwrap_or_default();
        let command = command.starts_with("make ")
            && target.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        if command
            && page.text.contains(&format!("make {target}"))
            && is_command(&page.text, target)
            && !targets.contains(&target)
        {
            dead.push(format!(
                "{}:{line}: the Makefile has no target {target}",
                page.path
            ));
        }
    }
    dead
}

/// Returns true if `make TARGET` stands in a code span or at the begin of a code block's line, not in prose.
fn is_command(text: &str, target: &str) -> bool {
    let span = [format!("`make {target}`"), format!("`make {target} ")];
    let mut inside = false;
    let block = text.lines().any(|line| {
        inside ^= line.trim_start().starts_with("```");
        inside && line.split_whitespace().take(2).eq(["make", target])
    });
    block || span.iter().any(|it| text.contains(it.as_str()))
}
