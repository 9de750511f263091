//! The manual pages for C programmers (docs/man) agree with the headers.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::process::Command;

use crate::headers::{FOLDERS, Headers, one_line, parameters};
use crate::tree::Tree;

/// Sections that each page of a function has, in this order; those with a question mark may be missing.
const SECTIONS: [&str; 9] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "ARGUMENTS?",
    "RETURN VALUE",
    "EVENTS?",
    "NOTES",
    "EXAMPLE?",
    "SEE ALSO",
];

/// Variables of the environment and attributes, whose names begin as those of the headers do.
const NOT_IN_HEADERS: [&str; 4] = [
    "DAT_LOG",
    "DAT_OVERRIDE",
    "DAT_IB_TRANSPORT_MTU",
    "DAT_PROVIDER_COUNTERS",
];

/// Pages of the system that ours refer to.
const OF_THE_SYSTEM: [&str; 4] = ["fork(2)", "poll(2)", "socket(2)", "pthread_cancel(3)"];

/// A page in roff.
struct Manual {
    /// Relative to the root.
    path: String,
    source: String,
    /// Sections by title, in order, each without macros' names and fonts, a line of the source a line.
    sections: Vec<(String, String)>,
}

/// Returns a line of roff as text: without the name of a macro, its quotes, fonts and escapes.
fn plain(line: &str) -> String {
    let mut text = line.to_owned();
    let macros = [
        ".B ",
        ".I ",
        ".BR ",
        ".BI ",
        ".IR ",
        ".IP \\(bu 2",
        ".TH ",
        ".SH ",
        ".PP",
        ".TP",
        ".EX",
        ".EE",
        ".nf",
        ".fi",
        ".sp",
        ".ad l",
        ".RS",
        ".RE",
    ];
    if let Some(name) = macros.iter().find(|name| line.starts_with(**name)) {
        text = line[name.len()..].to_owned();
        if matches!(*name, ".BR " | ".BI " | ".IR ") {
            text = text.replace(' ', "");
        }
        text = text.replace('"', "");
    }
    for (escape, with) in [
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\%", ""),
        ("\\&", ""),
        ("\\|", ""),
        ("\\-", "-"),
        ("\\(bu", ""),
        ("\\e", "\\"),
    ] {
        text = text.replace(escape, with);
    }
    text
}

impl Manual {
    fn read(tree: &Tree, path: &str) -> Self {
        let source = tree.text(path);
        let mut sections: Vec<(String, String)> = Vec::new();
        for line in source.lines() {
            if let Some(title) = line.strip_prefix(".SH ") {
                sections.push((title.to_owned(), String::new()));
            } else if let Some((_, text)) = sections.last_mut() {
                *text += &plain(line);
                text.push('\n');
            }
        }
        Self {
            path: path.to_owned(),
            source,
            sections,
        }
    }

    /// Returns the page's name: that of its file without the section.
    fn name(&self) -> &str {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        file.rsplit_once('.').map_or(file, |(name, _)| name)
    }

    /// Returns the page that this one only leads to.
    fn leads_to(&self) -> Option<String> {
        let target = self.source.strip_prefix(".so ")?;
        Some(format!("docs/man/{}", target.trim()))
    }

    fn section(&self, title: &str) -> &str {
        let found = self.sections.iter().find(|(it, _)| it == title);
        found.map_or("", |(_, text)| text)
    }

    /// Returns the source of a section.
    fn source_of(&self, title: &str) -> &str {
        let start = format!(".SH {title}\n");
        let after = self
            .source
            .split_once(&start)
            .map_or("", |(_, after)| after);
        after.split("\n.SH ").next().unwrap_or_default()
    }

    /// Returns the names that the section NAME has.
    fn names(&self) -> Vec<&str> {
        let names = self.section("NAME").split(" - ").next().unwrap_or_default();
        names.split(',').map(str::trim).collect()
    }

    /// Returns the programs of the section EXAMPLE.
    fn examples(&self) -> Vec<String> {
        let blocks = self.source_of("EXAMPLE").split(".EX\n").skip(1);
        let block = |it: &str| {
            it.split("\n.EE")
                .next()
                .map(|it| it.lines().map(plain).collect::<Vec<_>>().join("\n") + "\n")
        };
        blocks.filter_map(block).collect()
    }
}

/// All pages, and what is wrong with them.
struct Check<'a> {
    tree: &'a Tree,
    headers: Headers,
    pages: BTreeMap<String, Manual>,
    wrong: Vec<String>,
}

/// Returns what is wrong with the pages.
pub(crate) fn faults(tree: &Tree) -> Vec<String> {
    let mut pages = BTreeMap::new();
    for section in ["3", "7"] {
        for path in tree.files_in(&format!("docs/man/man{section}"), section) {
            pages.insert(path.clone(), Manual::read(tree, &path));
        }
    }
    let mut check = Check {
        tree,
        headers: Headers::read(tree),
        pages,
        wrong: Vec::new(),
    };
    check.every_function_has_a_page();
    let paths: Vec<String> = check.pages.keys().cloned().collect();
    for path in paths {
        check.page(&path);
    }
    check.wrong
}

impl Check<'_> {
    fn say(&mut self, page: &str, what: &str) {
        self.wrong.push(format!("{page}: {what}"));
    }

    fn every_function_has_a_page(&mut self) {
        assert!(self.headers.functions[0].len() > 80 && self.headers.functions[1].len() > 65);
        let without: Vec<String> = self
            .headers
            .names()
            .filter(|name| !self.pages.contains_key(&format!("docs/man/man3/{name}.3")))
            .cloned()
            .collect();
        for name in without {
            self.say("docs/man/man3", &format!("no page for {name}"));
        }
    }

    fn page(&mut self, path: &str) {
        let page = self.pages.remove(path).expect("a page");
        if let Some(target) = page.leads_to() {
            let named = self.pages.get(&target).map(Manual::names);
            // Other names of functions, and functions of providers, need not be in the section NAME.
            let is_function = !self.headers.declarations(page.name()).is_empty();
            if named.is_none_or(|names| is_function && !names.contains(&page.name())) {
                self.say(path, &format!("leads to {target}, which is not its page"));
            }
        } else {
            if path.ends_with(".3") {
                self.function(&page);
            }
            self.names(&page);
            self.references(&page);
            self.sentences(&page);
        }
        self.pages.insert(path.to_owned(), page);
    }

    /// Checks sections, names, prototypes and arguments.
    fn function(&mut self, page: &Manual) {
        let titles: Vec<&str> = page
            .sections
            .iter()
            .map(|(title, _)| title.as_str())
            .collect();
        let wanted: Vec<&str> = SECTIONS
            .iter()
            .map(|it| it.trim_end_matches('?'))
            .filter(|it| titles.contains(it))
            .collect();
        let missing: Vec<&&str> = SECTIONS
            .iter()
            .filter(|it| !it.ends_with('?') && !titles.contains(it))
            .collect();
        if titles != wanted || !missing.is_empty() {
            self.say(
                &page.path,
                &format!("has the sections {titles:?}, lacks {missing:?}"),
            );
        }
        let names = page.names();
        if names.first() != Some(&page.name()) {
            self.say(&page.path, &format!("names {names:?} first"));
        }
        for name in names.iter().skip(1) {
            let link = self.pages.get(&format!("docs/man/man3/{name}.3"));
            if link.and_then(Manual::leads_to) != Some(page.path.clone()) {
                self.say(&page.path, &format!("{name}.3 does not lead here"));
            }
        }
        let synopsis = one_line(page.section("SYNOPSIS"));
        let mut declarations: Vec<String> = names
            .iter()
            .flat_map(|name| self.headers.declarations(name))
            .collect();
        let shown: Vec<String> = synopsis
            .split("DAT_RETURN dat")
            .skip(1)
            .map(|it| {
                format!(
                    "DAT_RETURN dat{});",
                    it.split(");").next().unwrap_or_default()
                )
            })
            .collect();
        for declaration in &declarations {
            if !shown.contains(declaration) {
                self.say(&page.path, &format!("SYNOPSIS lacks {declaration}"));
            }
        }
        for other in shown.iter().filter(|it| !declarations.contains(it)) {
            self.say(
                &page.path,
                &format!("SYNOPSIS has {other}, which no header has"),
            );
        }
        let arguments = page.source_of("ARGUMENTS");
        if !arguments.is_empty() {
            let said: HashSet<String> = arguments
                .lines()
                .filter_map(|line| line.strip_prefix(".I "))
                .map(plain)
                .collect();
            if page.name() == "dat_ib_post_send_ud" {
                // The one of dat_ib_post_recv_ud, which is another page's function.
                declarations.retain(|it| !it.contains("recv_ud"));
            }
            let wanted = parameters(&declarations);
            for name in said.symmetric_difference(&wanted) {
                self.say(
                    &page.path,
                    &format!("ARGUMENTS and prototype differ in {name}"),
                );
            }
        }
    }

    /// Checks that the names of constants and types are those of a header.
    fn names(&mut self, page: &Manual) {
        let mut unknown = Vec::new();
        for (_, text) in &page.sections {
            for (at, _) in text
                .match_indices("DAT_")
                .chain(text.match_indices("DCNT_"))
            {
                if text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                    continue;
                }
                let rest = &text[at..];
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let name = &rest[..end];
                let known = if rest[end..].starts_with('*') && name.ends_with('_') {
                    self.headers.words.iter().any(|word| word.starts_with(name))
                } else {
                    self.headers.words.contains(name)
                        || (NOT_IN_HEADERS.contains(&name) && self.tree.words().contains(name))
                };
                if !known {
                    unknown.push(format!("no header has {name}"));
                }
            }
        }
        for what in unknown {
            self.say(&page.path, &what);
        }
    }

    /// Checks that the pages exist that this one refers to.
    fn references(&mut self, page: &Manual) {
        let mut dead = Vec::new();
        for (_, text) in &page.sections {
            for (at, _) in text.match_indices('(') {
                let name: &str = text[..at]
                    .rsplit(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c)))
                    .next()
                    .unwrap_or_default();
                let Some((section, _)) = text[at + 1..].split_once(')').filter(|(it, _)| {
                    it.len() == 1 && it.starts_with(|c: char| c.is_ascii_digit())
                }) else {
                    continue;
                };
                let reference = format!("{name}({section})");
                let found = match section {
                    "1" => name == "dat" || self.is_command(name),
                    "5" => self.tree.has(&format!("docs/man/{name}.5")),
                    _ => {
                        let path = format!("docs/man/man{section}/{name}.{section}");
                        path == page.path || self.pages.contains_key(&path)
                    }
                };
                if !found && !OF_THE_SYSTEM.contains(&reference.as_str()) {
                    dead.push(format!("there is no page {reference}"));
                }
            }
        }
        for what in dead {
            self.say(&page.path, &what);
        }
    }

    /// Returns true for `dat-NAME`, the page of a command of `dat`.
    fn is_command(&self, name: &str) -> bool {
        let command = name
            .strip_prefix("dat-")
            .unwrap_or_default()
            .replace('-', "_");
        self.tree.has(&format!("dat-tools/src/{command}.rs"))
    }

    /// Checks the length of sentences, as of other documentation.
    fn sentences(&mut self, page: &Manual) {
        let mut words = 0;
        let mut long = Vec::new();
        let mut program = false;
        for line in page.source.lines() {
            program = line == ".EX" || line == ".nf" || (program && line != ".EE" && line != ".fi");
            if program || line.starts_with('.') {
                words = 0;
                continue;
            }
            for word in plain(line).split_whitespace() {
                words += 1;
                if words == 46 {
                    long.push(format!("a sentence of more than 45 words: ... {line}"));
                }
                if word.trim_end_matches([')', '"']).ends_with(['.', '!', '?']) {
                    words = 0;
                }
            }
        }
        for what in long {
            self.say(&page.path, &what);
        }
    }
}

/// Returns the real pages, those that lead to no other.
fn real(tree: &Tree) -> Vec<Manual> {
    let files = ["3", "7"]
        .into_iter()
        .flat_map(|section| tree.files_in(&format!("docs/man/man{section}"), section));
    let pages = files.map(|path| Manual::read(tree, &path));
    pages.filter(|page| page.leads_to().is_none()).collect()
}

/// Returns what a C compiler says to the programs of the pages, and to a use of every function after the header that its page names.
pub(crate) fn compiled(tree: &Tree) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a folder");
    let headers = Headers::read(tree);
    let mut programs: BTreeMap<String, String> = BTreeMap::new();
    for page in real(tree) {
        for (number, program) in page.examples().into_iter().enumerate() {
            programs.insert(format!("{}-example-{number}", page.name()), program);
        }
        if page.path.ends_with(".3") {
            add_uses(&page, &headers, &mut programs);
        }
    }
    let examples = programs.keys().filter(|it| it.contains("-example-"));
    assert!(examples.count() >= 8);
    let mut faults = Vec::new();
    for (name, program) in programs {
        let file = scratch.path().join(format!("{}.c", name.replace('/', "-")));
        fs::write(&file, program).expect("a file");
        let done = Command::new("cc")
            .args([
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fsyntax-only",
                "-I",
            ])
            .arg(tree.path("capi/include"))
            .arg(&file)
            .output()
            .expect("cc starts");
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            faults.push(format!("{name}: {said}"));
        }
    }
    faults
}

/// Adds a use of each function of a page to the program of the header that the page names, in either version.
fn add_uses(page: &Manual, headers: &Headers, programs: &mut BTreeMap<String, String>) {
    let synopsis = page.section("SYNOPSIS");
    let named = synopsis.split(['<', '>']).nth(1).unwrap_or_default();
    for (version, folder) in FOLDERS.iter().enumerate() {
        let header = named.replace("dat2/", &format!("{folder}/"));
        for name in page.names() {
            let code = if headers.functions[version].contains_key(name) {
                format!("void *use_{name}(void) {{ return (void *){name}; }}\n")
            } else if version == 0
                && headers.macros.contains_key(name)
                && !name.contains("strerror")
            {
                format!("#ifndef {name}\n#error {name}\n#endif\n")
            } else {
                continue;
            };
            let include = || format!("#include <{header}>\n");
            *programs.entry(header.clone()).or_insert_with(include) += &code;
        }
    }
}

/// Returns the warnings of groff, and of mandoc if that is installed.
pub(crate) fn warnings(tree: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    for page in real(tree) {
        let path = tree.path(&page.path);
        for (tool, arguments) in [
            ("groff", ["-ww", "-t", "-man", "-Tutf8"].as_slice()),
            ("mandoc", ["-Tlint", "-Wwarning"].as_slice()),
        ] {
            let done = match Command::new(tool).args(arguments).arg(&path).output() {
                Ok(done) => done,
                Err(_) if tool == "mandoc" => continue,
                Err(error) => {
                    panic!("{tool}: {error}; scripts/bootstrap.sh installs it with groff-base")
                }
            };
            let said = if tool == "groff" {
                done.stderr
            } else {
                done.stdout
            };
            // Our pages have none, as dat.conf.5: they are of the version that they are installed with.
            let lines = String::from_utf8_lossy(&said);
            let lines = lines.lines().filter(|line| !line.contains("missing date"));
            all.extend(lines.map(|line| format!("{tool}: {}: {line}", page.path)));
        }
    }
    all
}
