//! Reads the C headers: functions, macros with arguments, other names of functions, and all identifiers.

use std::collections::{BTreeMap, HashSet};

use crate::tree::Tree;

/// What C programs may call, with its arguments.
pub(crate) struct Headers {
    /// Prototypes of 2.0, then of 1.2: the text between the parentheses, with one blank between words.
    pub(crate) functions: [BTreeMap<String, String>; 2],
    /// Macros with arguments, and inline functions, of 2.0. Those of 1.2 are among them.
    pub(crate) macros: BTreeMap<String, String>,
    /// Macros that stand for another function's name.
    pub(crate) renames: Vec<String>,
    /// All identifiers.
    pub(crate) words: HashSet<String>,
}

/// Folders of 2.0 and of 1.2.
pub(crate) const FOLDERS: [&str; 2] = ["dat2", "dat"];

/// Returns the text without comments.
fn without_comments(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        plain += before;
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    plain + rest
}

/// Returns the words of a text with one blank between them. The backslash at the end of a macro's line is none.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| *word != "\\")
        .collect();
    words.join(" ")
}

/// Returns the name that a text begins with.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

impl Headers {
    /// Reads capi/include.
    pub(crate) fn read(tree: &Tree) -> Self {
        let mut all = Self {
            functions: [BTreeMap::new(), BTreeMap::new()],
            macros: BTreeMap::new(),
            renames: Vec::new(),
            words: HashSet::new(),
        };
        for (version, folder) in FOLDERS.iter().enumerate() {
            for file in tree.files_in(&format!("capi/include/{folder}"), "h") {
                all.add(version, &without_comments(&tree.text(&file)));
            }
        }
        all
    }

    fn add(&mut self, version: usize, text: &str) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        self.words.extend(words.map(str::to_owned));
        for (mark, end) in [
            ("DAT_RETURN DAT_API ", ");"),
            ("static __inline__ DAT_RETURN ", ")\n{"),
        ] {
            for declared in text.split(mark).skip(1) {
                let name = name_at(declared);
                let arguments = declared[name.len()..]
                    .split_once(end)
                    .expect("a prototype")
                    .0;
                let arguments = one_line(&arguments[1..]);
                if end == ");" {
                    self.functions[version].insert(name.to_owned(), arguments);
                } else {
                    self.macros.insert(name.to_owned(), arguments);
                }
            }
        }
        for defined in text.split("#define dat_").skip(1) {
            let name = format!("dat_{}", name_at(defined));
            let rest = &defined[name.len() - "dat_".len()..];
            if let Some(arguments) = rest.strip_prefix('(') {
                let arguments = arguments.split_once(')').expect("arguments").0;
                self.macros.insert(name, one_line(arguments));
            } else {
                self.renames.push(name);
            }
        }
    }

    /// Returns the names of everything that a program may call.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let functions = self.functions.iter().flat_map(BTreeMap::keys);
        functions.chain(self.macros.keys()).chain(&self.renames)
    }

    /// Returns the declarations that the page of `name` shows: that of 2.0, and that of 1.2 if it is another.
    pub(crate) fn declarations(&self, name: &str) -> Vec<String> {
        let of = |version: usize| self.functions[version].get(name);
        let mut all: Vec<String> = of(0)
            .or_else(|| self.macros.get(name))
            .cloned()
            .into_iter()
            .collect();
        all.extend(of(1).filter(|old| Some(*old) != of(0)).cloned());
        all.iter()
            .map(|it| format!("DAT_RETURN {name}({it});"))
            .collect()
    }
}

/// Returns the names of the parameters of declarations.
pub(crate) fn parameters(declarations: &[String]) -> HashSet<String> {
    let mut names = HashSet::new();
    for declaration in declarations {
        let (_, arguments) = declaration.split_once('(').expect("arguments");
        let arguments = arguments.trim_end_matches(");");
        for argument in arguments.split(',').map(str::trim) {
            let argument = argument.trim_end_matches("[])");
            let name = argument
                .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next();
            let name = name.filter(|name| !name.is_empty()).unwrap_or(argument);
            names.insert(name.to_owned());
        }
    }
    names
}
