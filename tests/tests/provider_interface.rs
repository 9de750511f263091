//! Lists the interface that `dat-provider` promises (docs/stability.md): the signatures of the modules that it re-exports. The listing is
//! docs/provider-interface.txt; `DAT_BLESS=1` writes it. A change of it needs an entry of CHANGELOG.md with the listing's number.
//!
//! cargo-semver-checks compares what rustdoc says of one crate, and rustdoc's JSON of dat-provider has no item of the crates that it
//! re-exports. This reads the formatted source instead: a line's indentation says which item it is part of.

use std::fs;
use std::path::Path;

use dat_tests::prefix::top;

/// The crate itself, and the files of the modules that it re-exports.
const FILES: &[&str] = &[
    "dat-provider/src/lib.rs",
    "dat-abi/src/export.rs",
    "dat-abi/src/provider.rs",
    "dat-arena/src/reserve.rs",
    "dat-core/src/arenas.rs",
    "dat-core/src/attributes.rs",
    "dat-core/src/counters/mod.rs",
    "dat-core/src/error.rs",
    "dat-core/src/event.rs",
    "dat-core/src/flags.rs",
    "dat-core/src/ia_params.rs",
    "dat-core/src/iov.rs",
    "dat-core/src/rmr.rs",
    "dat-core/src/transport.rs",
    "dat-core/src/transport/work.rs",
    "dat-core/src/upcall.rs",
    "dat-os/src/cancel.rs",
    "dat-os/src/permit.rs",
    "dat-os/src/sleep.rs",
    "dat-provider/parts/src/lib.rs",
    "dat-provider/parts/src/address.rs",
    "dat-provider/parts/src/cq.rs",
    "dat-provider/parts/src/keys.rs",
    "dat-provider/parts/src/memory.rs",
    "dat-provider/parts/src/pipe/mod.rs",
    "dat-provider/parts/src/pipe/session.rs",
    "dat-provider/parts/src/ports.rs",
    "dat-provider/parts/src/worker.rs",
    "dat-provider/c/include/dat_transport.h",
];

/// What the lines of an item's body mean.
#[derive(Clone, Copy, PartialEq)]
enum Body {
    /// Only public fields and functions count.
    Public,
    /// Every line counts: the variants of an enum, the arguments of a macro, a header.
    Whole,
    /// A trait: every item counts; a body of a function says that it is optional.
    Trait,
    /// Nothing counts.
    None,
}

/// Returns the signature that begins at line `at`, up to its body, and the index behind it.
fn signature(lines: &[&str], at: usize) -> (String, usize) {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate().skip(at) {
        let line = line.trim();
        text = [text.as_str(), line].join(if text.is_empty() { "" } else { " " });
        if line.ends_with(['{', ';', '}', ',']) && balanced(&text) {
            return (text, index + 1);
        }
    }
    (text, lines.len())
}

/// Returns true if the signature's round and square brackets are closed, and the braces of a `pub use`.
fn balanced(text: &str) -> bool {
    let closed =
        |open: char, close: char| text.matches(open).count() == text.matches(close).count();
    closed('(', ')') && closed('[', ']') && (!text.starts_with("pub use") || closed('{', '}'))
}

/// Returns the public signatures of a formatted source file, one a line.
fn interface(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let (mut found, mut body, mut marks) = (Vec::new(), Body::None, Vec::new());
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let indent = line.len() - line.trim_start().len();
        let word = line.trim();
        at += 1;
        if word.is_empty() || word.starts_with("//") {
            continue;
        }
        if word.starts_with("#[") || word.starts_with("#!") {
            if ["#[non_exhaustive", "#[derive", "#[repr", "#[must_use"]
                .iter()
                .any(|mark| word.starts_with(mark))
            {
                marks.push(word.to_owned());
            }
            continue;
        }
        let marked = std::mem::take(&mut marks);
        if indent == 0 {
            body = Body::None;
            let (text, next) = signature(&lines, at - 1);
            let macro_call = word
                .split_once("! {")
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            let counts = word.starts_with("pub ") || word.starts_with("impl") || macro_call;
            if !counts || word.starts_with("macro_rules") {
                continue;
            }
            at = next;
            if text.ends_with('{') {
                body = match word {
                    _ if macro_call || word.starts_with("pub enum") => Body::Whole,
                    _ if word.starts_with("pub trait") => Body::Trait,
                    _ if word.starts_with("pub struct") || word.starts_with("pub mod") => {
                        Body::Public
                    }
                    _ if word.starts_with("impl") && !text.contains(" for ") => Body::Public,
                    _ => Body::None,
                };
            }
            let text = text.trim_end_matches(['{', '}']).trim_end();
            found.push(
                [marked.join(" ").as_str(), text]
                    .join(" ")
                    .trim()
                    .to_owned(),
            );
        } else if body == Body::Whole {
            found.push(line.to_owned());
        } else if indent == 4
            && (body == Body::Trait && word != "}"
                || body == Body::Public && word.starts_with("pub "))
        {
            let (text, next) = signature(&lines, at - 1);
            at = next;
            let head = text.split(" {").next().unwrap_or_default();
            let optional = if body == Body::Trait && head.len() != text.len() {
                " { .. }"
            } else {
                ""
            };
            found.push(format!("    {head}{optional}"));
        }
    }
    found
}

/// Returns the lines of a C header without comments.
fn header(source: &str) -> Vec<String> {
    let (mut found, mut comment) = (Vec::new(), false);
    for line in source.lines() {
        comment = comment || line.trim_start().starts_with("/*");
        if !comment && !line.trim().is_empty() {
            found.push(
                line.split("/*")
                    .next()
                    .unwrap_or_default()
                    .trim_end()
                    .to_owned(),
            );
        }
        comment = comment && !line.contains("*/");
    }
    found
}

fn listing(top: &Path) -> String {
    let mut text = String::from(
        "The interface of the provider kit, written by `DAT_BLESS=1 cargo test -p dat-tests --test provider_interface`.\n",
    );
    for file in FILES {
        let source =
            fs::read_to_string(top.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let lines = if file.ends_with(".h") {
            header(&source)
        } else {
            interface(&source)
        };
        text += &format!("\n{file}\n");
        for line in lines {
            text += &format!("    {line}\n");
        }
    }
    text
}

/// Returns the number of a listing (FNV-1a), as CHANGELOG.md has it.
fn number(listing: &str) -> String {
    let hash = listing
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    format!("interface {:08x}", hash >> 32)
}

#[test]
fn a_change_of_the_interface_has_an_entry_in_the_changelog() {
    let (now, path) = (listing(&top()), top().join("docs/provider-interface.txt"));
    if std::env::var_os("DAT_BLESS").is_some() {
        fs::write(&path, &now).expect("written");
    }
    let before = fs::read_to_string(&path).expect("docs/provider-interface.txt");
    let added: Vec<&str> = now
        .lines()
        .filter(|line| !before.lines().any(|old| old == *line))
        .collect();
    let removed: Vec<&str> = before
        .lines()
        .filter(|line| !now.lines().any(|new| new == *line))
        .collect();
    assert!(
        now == before,
        "the interface of dat-provider differs from docs/provider-interface.txt. Is it what docs/stability.md allows in this version? Then write the file \
         with DAT_BLESS=1, and say in CHANGELOG.md what an author has to change.\nadded: {added:#?}\nremoved: {removed:#?}"
    );
    let changelog = fs::read_to_string(top().join("CHANGELOG.md")).expect("CHANGELOG.md");
    let number = number(&now);
    assert!(
        changelog.contains(&number),
        "CHANGELOG.md has no entry with \"{number}\": the interface of dat-provider has changed"
    );
}

#[test]
fn every_module_that_dat_provider_names_is_in_the_listing() {
    let source = fs::read_to_string(top().join("dat-provider/src/lib.rs")).expect("the crate");
    let uses = interface(&source).join(" ");
    let names = uses
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty());
    let listing = listing(&top());
    let known = [
        "pub",
        "use",
        "as",
        "mod",
        "prelude",
        "parts",
        "dat_core",
        "dat_abi",
        "dat_os",
        "dat_provider_parts",
        "export_provider",
    ];
    for name in names.filter(|name| !known.contains(name)) {
        let module = FILES.iter().any(|file| {
            file.ends_with(&format!("/{name}.rs")) || file.ends_with(&format!("/{name}/mod.rs"))
        });
        let item = listing.lines().any(|line| {
            line.contains("pub ") && !line.contains(" use ") && line.contains(&format!(" {name}"))
        });
        assert!(
            module || item,
            "{name} of dat-provider is in no file of FILES"
        );
    }
}

#[test]
fn signatures_are_found_and_bodies_are_not() {
    let source = "\
#[derive(Debug)]
#[non_exhaustive]
pub struct A {
    /// Text.
    pub a: u8,
    b: u8,
}

impl A {
    #[must_use]
    pub fn long(
        &self,
        x: [u8; 4],
    ) -> u8 {
        pub_like()
    }
    fn hidden() {}
}

pub trait T {
    fn must(&self);
    fn may(&self) -> u8 {
        1
    }
}

impl From<A> for u8 {
    fn from(a: A) -> Self {
        a.a
    }
}

pub enum E {
    One,
    Two { x: u8 },
}

fn private() {}
";
    let expected = [
        "#[derive(Debug)] #[non_exhaustive] pub struct A",
        "    pub a: u8,",
        "impl A",
        "    pub fn long( &self, x: [u8; 4], ) -> u8",
        "pub trait T",
        "    fn must(&self);",
        "    fn may(&self) -> u8 { .. }",
        "impl From<A> for u8",
        "pub enum E",
        "    One,",
        "    Two { x: u8 },",
    ];
    assert_eq!(interface(source), expected);
    assert_eq!(
        interface("pub use a::{\n    b, c,\n};\n"),
        ["pub use a::{ b, c, };"]
    );
}
