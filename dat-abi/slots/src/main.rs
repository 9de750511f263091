//! Writes what every function of the API needs alike, from the manifest `slots.txt`: the structs of both function
//! tables and their constants, the exported functions of both C libraries, the declarations in the C headers, and the list
//! that the conformance suite calls.
//!
//! The generated text stands in the sources, between a line `BEGIN slots.txt: REGION` and a line `END slots.txt`, so that
//! editors and rustdoc see it. `make slots` runs this program, which rewrites the regions; the test fails when a region is not
//! what the manifest says. The crate imports nothing, so that it also runs when a region does not compile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const BEGIN: &str = "BEGIN slots.txt: ";
const END: &str = "END slots.txt";

/// Files with generated regions.
const FILES: [&str; 17] = [
    "dat-abi/src/v1_2/table.rs",
    "dat-abi/src/v1_2/tables.rs",
    "dat-abi/src/v2_0/table.rs",
    "dat-abi/src/v2_0/tables.rs",
    "capi/libdat/src/redirect.rs",
    "capi/libdat2/src/redirect.rs",
    "capi/libdat2/src/ia.rs",
    "capi/include/dat/dat.h",
    "capi/include/dat/udat.h",
    "capi/include/dat/dat_redirection.h",
    "capi/include/dat/udat_redirection.h",
    "capi/include/dat2/dat.h",
    "capi/include/dat2/udat.h",
    "capi/include/dat2/dat_redirection.h",
    "capi/include/dat2/udat_redirection.h",
    "tests/conformance/src/raw/functions.rs",
    "tests/conformance/src/dat/mod.rs",
];

fn main() {
    for (file, text) in stale() {
        std::fs::write(top().join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
        println!("{file}");
    }
}

#[test]
fn generated_regions_are_what_the_manifest_says() {
    let stale: Vec<_> = stale().into_iter().map(|(file, _)| file).collect();
    assert!(stale.is_empty(), "run `make slots`: {stale:?}");
}

/// Returns the files whose regions are not what the manifest says, with their new text.
fn stale() -> Vec<(&'static str, String)> {
    let slots = manifest();
    let mut stale = Vec::new();
    for file in FILES {
        let old = std::fs::read_to_string(top().join(file));
        let old = old.unwrap_or_else(|error| panic!("{file}: {error}"));
        let new = filled(&old, &slots).unwrap_or_else(|error| panic!("{file}: {error}"));
        if old != new {
            stale.push((file, new));
        }
    }
    stale
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns `text` with its regions generated anew.
fn filled(text: &str, slots: &[Slot]) -> Result<String, String> {
    let mut out = String::new();
    let mut inside = false;
    let mut regions = 0;
    for line in text.lines() {
        if line.contains(END) {
            inside = false;
        }
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
        if let Some((_, region)) = line.split_once(BEGIN) {
            let region = region.trim_end_matches("*/").trim();
            out.push_str(&generated(region, slots)?);
            inside = true;
            regions += 1;
        }
    }
    match (inside, regions) {
        (true, _) => Err(format!("no line `{END}` after the last `{BEGIN}`")),
        (_, 0) => Err("no generated region".into()),
        _ => Ok(out),
    }
}

/// The text of a region: a kind, a version, and for some kinds a selection of slots.
fn generated(region: &str, slots: &[Slot]) -> Result<String, String> {
    let words: Vec<&str> = region.split_whitespace().collect();
    match words[..] {
        ["probes"] => return Ok(probes(slots)),
        ["calls"] => return Ok(calls(slots, false)),
        ["constructors"] => return Ok(calls(slots, true)),
        _ => {}
    }
    let &[kind, version, ref rest @ ..] = &words[..] else {
        return Err(format!("region {region:?} names no version"));
    };
    let version = Version::parse(version)?;
    let of_version: Vec<(&Slot, &str)> = slots
        .iter()
        .filter_map(|slot| Some((slot, slot.args(version)?)))
        .collect();
    let mut out = String::new();
    match (kind, rest) {
        ("table", []) => table(&mut out, &of_version),
        ("thunks", []) => thunks(&mut out, version, &of_version),
        ("exports", rest) => exports(&mut out, &of_version, rest)?,
        ("prototypes", [header]) => {
            for (slot, args) in &of_version {
                if slot.header == *header && !NOT_EXPORTED.contains(&&*slot.name) {
                    let begin = format!("DAT_RETURN DAT_API dat_{}(", slot.name);
                    wrapped(&mut out, &begin, args, ");");
                }
            }
        }
        ("macros", [header]) => {
            for (slot, args) in &of_version {
                // Debian's dat_redirection.h has the macro of dat_lmr_query, though udat.h declares the function.
                let in_dat = slot.header == "dat.h" || slot.name == "lmr_query";
                if in_dat == (*header == "dat.h") && slot.name != "ia_open" {
                    call_macro(&mut out, &slot.name, args);
                }
            }
        }
        ("typedefs", [header]) => {
            for (slot, args) in &of_version {
                if slot.header == *header {
                    let upper = slot.name.to_uppercase();
                    wrapped(
                        &mut out,
                        &format!("typedef DAT_RETURN (DAT_API *DAT_{upper}_FUNC)("),
                        args,
                        ");",
                    );
                }
            }
        }
        ("members", []) => {
            for (slot, _) in &of_version {
                let upper = slot.name.to_uppercase();
                line(
                    &mut out,
                    &format!("    DAT_{upper}_FUNC {}_func;", slot.name),
                );
            }
        }
        _ => return Err(format!("region {region:?} is of no known kind")),
    }
    Ok(out)
}

/// Slots behind functions with another name or more arguments (dat_ia_openv, dat_extension_op).
const NOT_EXPORTED: [&str; 2] = ["ia_open", "handle_extendedop"];

/// Functions that the libraries define by hand: they do more than a call of the slot.
const DEFINED_BY_HAND: [&str; 3] = ["ia_open", "ia_close", "handle_extendedop"];

// The manifest.

#[derive(Clone, Copy, PartialEq, Debug)]
enum Version {
    V1_2,
    V2_0,
}

impl Version {
    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "1.2" => Ok(Self::V1_2),
            "2.0" => Ok(Self::V2_0),
            _ => Err(format!("{word:?} is no version")),
        }
    }
}

/// A value of each version that has the slot.
type PerVersion = [Option<String>; 2];

#[derive(Debug)]
struct Slot {
    name: String,
    versions: Vec<Version>,
    /// Whether both versions have the same thunk.
    shared: bool,
    /// The header that declares the function.
    header: String,
    cancellation_point: bool,
    says: String,
    args: PerVersion,
    probes: PerVersion,
    codes: String,
}

impl Slot {
    fn args(&self, version: Version) -> Option<&str> {
        self.args[version as usize].as_deref()
    }

    fn abi(&self) -> &'static str {
        if self.cancellation_point {
            "\"C-unwind\" "
        } else {
            ""
        }
    }
}

/// Reads the manifest; its first lines say what it has.
fn manifest() -> Vec<Slot> {
    let text =
        std::fs::read_to_string(top().join("dat-abi/slots/slots.txt")).expect("the manifest");
    let mut slots: Vec<Slot> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let parsed = match line.strip_prefix("    ") {
            _ if line.is_empty() || line.starts_with('#') => Ok(()),
            None => head(line).map(|slot| slots.push(slot)),
            Some(line) => match slots.last_mut() {
                Some(slot) => property(slot, line),
                None => Err("no slot yet".into()),
            },
        };
        parsed.unwrap_or_else(|error| panic!("slots.txt:{}: {error}", number + 1));
    }
    assert!(slots.iter().all(|slot| !slot.says.is_empty()));
    slots
}

/// Parses `NAME | VERSIONS | THUNK | HEADER [| cancellation point]`.
fn head(line: &str) -> Result<Slot, String> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let (&[name, versions, thunk, header], rest) = fields
        .split_first_chunk()
        .ok_or("four fields begin a slot")?;
    Ok(Slot {
        name: name.into(),
        versions: versions
            .split_whitespace()
            .map(Version::parse)
            .collect::<Result<_, _>>()?,
        shared: match thunk {
            "shared" => true,
            "own" => false,
            _ => return Err(format!("thunk {thunk:?} is neither shared nor own")),
        },
        header: header.into(),
        cancellation_point: match rest {
            [] => false,
            ["cancellation point"] => true,
            _ => return Err(format!("{rest:?} is unknown")),
        },
        says: String::new(),
        args: PerVersion::default(),
        probes: PerVersion::default(),
        codes: String::new(),
    })
}

/// Parses `KEY [VERSION] VALUE`.
fn property(slot: &mut Slot, line: &str) -> Result<(), String> {
    let (key, value) = line.split_once(' ').ok_or("a property has a value")?;
    let value = value.trim();
    let (versions, value) = match value.split_once(' ') {
        Some((word, rest)) if word.starts_with(|c: char| c.is_ascii_digit()) => {
            (vec![Version::parse(word)?], rest.trim())
        }
        _ => (slot.versions.clone(), value),
    };
    let into = match key {
        "says" => {
            slot.says = value.into();
            return Ok(());
        }
        "codes" => {
            slot.codes = value.into();
            return Ok(());
        }
        "args" => &mut slot.args,
        "probes" => &mut slot.probes,
        _ => return Err(format!("{key:?} is no property")),
    };
    for version in versions {
        into[version as usize] = Some(value.into());
    }
    Ok(())
}

// Rust.

/// The members of the struct, in the form of `provider_table!`.
fn table(out: &mut String, slots: &[(&Slot, &str)]) {
    for (slot, args) in slots {
        line(out, &format!("        /// {}", slot.says));
        let name = &slot.name;
        let abi = match slot.abi() {
            "" => String::new(),
            abi => format!(" {abi}"),
        };
        line(out, &format!("        {name}{abi}({});", rust_args(args)));
    }
}

/// The fields of the constant table.
fn thunks(out: &mut String, version: Version, slots: &[(&Slot, &str)]) {
    for (slot, _) in slots {
        let name = &slot.name;
        let thunk = match slot.shared {
            true => format!("shared::{name}::<T, {version:?}>"),
            false => format!("own::{name}::<T>"),
        };
        line(out, &format!("        {name}: Some({thunk}),"));
    }
}

/// Exported functions: all, or only those whose first argument is an IA, any handle, or a handle of another kind.
fn exports(out: &mut String, slots: &[(&Slot, &str)], only: &[&str]) -> Result<(), String> {
    for (slot, args) in slots {
        let name = &slot.name;
        let (first, rest) = args.split_once(", ").unwrap_or((args, ""));
        let (handle, first) = c_arg(first);
        let selected = match only {
            [] => true,
            ["ia"] => handle == "DAT_IA_HANDLE",
            ["any"] => handle == "DAT_HANDLE",
            ["others"] => !["DAT_IA_HANDLE", "DAT_HANDLE"].contains(&handle),
            _ => return Err(format!("{only:?} selects nothing")),
        };
        if !selected || DEFINED_BY_HAND.contains(&&**name) {
            continue;
        }
        let (abi, wrong) = (slot.abi(), wrong_handle(handle));
        let rest = match rest {
            "" => String::new(),
            rest => format!(", {}", rust_args(rest)),
        };
        line(
            out,
            &format!("    /// {} (dat_{name}).", slot.says.trim_end_matches('.')),
        );
        line(
            out,
            &format!("    dat_{name} = {abi}{name} / {wrong} ({first}{rest});"),
        );
    }
    Ok(())
}

/// The subtype of `DAT_INVALID_HANDLE` for a wrong first argument of this C type.
fn wrong_handle(c_type: &str) -> String {
    let kind = c_type.trim_start_matches("DAT_").trim_end_matches("HANDLE");
    match kind.trim_end_matches('_') {
        // The specification has no subtype for "an EVD", nor for "any handle": the argument's number stands for it.
        "" | "EVD" => "InvalidHandle1".into(),
        kind => format!("InvalidHandle{}{}", &kind[..1], kind[1..].to_lowercase()),
    }
}

/// Splits a C parameter into type and name.
fn c_arg(arg: &str) -> (&str, &str) {
    let at = arg
        .rfind([' ', '*'])
        .unwrap_or_else(|| panic!("{arg:?} has no type"));
    (arg[..=at].trim(), &arg[at + 1..])
}

fn rust_args(args: &str) -> String {
    let rust: Vec<String> = args
        .split(", ")
        .map(|arg| {
            let (c_type, name) = c_arg(arg);
            format!("{name}: {}", rust_type(c_type))
        })
        .collect();
    rust.join(", ")
}

/// The Rust type of a C parameter.
fn rust_type(c_type: &str) -> String {
    if let Some(to) = c_type.strip_suffix('*') {
        return match to.trim().strip_prefix("const ") {
            Some(to) => format!("*const {}", rust_type(to)),
            None => format!("*mut {}", rust_type(to.trim())),
        };
    }
    let rust = match c_type {
        "const DAT_PVOID" => "*const c_void",
        "const DAT_NAME_PTR" => "*const c_char",
        // The platforms that we know pass it as a pointer.
        "va_list" => "*mut c_void",
        "DAT_CONTEXT" | "DAT_DTO_COOKIE" | "DAT_RMR_COOKIE" => "DatContext",
        "DAT_CONN_QUAL"
        | "DAT_VLEN"
        | "DAT_VADDR"
        | "DAT_IA_ATTR_MASK"
        | "DAT_PROVIDER_ATTR_MASK"
        | "DAT_EP_PARAM_MASK" => "u64",
        "DAT_FD" | "DAT_EXTENDED_OP" => "i32",
        "DAT_LMR_CONTEXT" | "DAT_RMR_CONTEXT" | "DAT_QOS" | "DAT_MEM_TYPE" | "DAT_VA_TYPE"
        | "DAT_EP_STATE" | "DAT_HANDLE_TYPE" => "u32",
        _ if c_type.ends_with("HANDLE") => "DatHandle",
        _ if c_type.ends_with("_FLAGS") || c_type.ends_with("_MASK") => "u32",
        _ => return camel(c_type),
    };
    rust.into()
}

/// `DAT_EP_ATTR` as `DatEpAttr`.
fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()))
        .collect()
}

/// The calls that the conformance suite makes with right and wrong arguments.
fn probes(slots: &[Slot]) -> String {
    let mut out = String::new();
    for slot in slots {
        let [old, new] = &slot.probes;
        match (old, new) {
            (None, None) => {}
            (Some(old), Some(new)) if old == new => probe(&mut out, "", slot, old),
            _ => {
                for (only, args) in [("#[V1_2] ", old), ("#[V2_0] ", new)] {
                    if let Some(args) = args {
                        probe(&mut out, only, slot, args);
                    }
                }
            }
        }
    }
    out
}

fn probe(out: &mut String, only: &str, slot: &Slot, args: &str) {
    let call = format!("    {only}{}({args})", slot.name);
    match &*slot.codes {
        "" => line(out, &format!("{call};")),
        codes => {
            line(out, &format!("{call}:"));
            line(out, &format!("        {codes};"));
        }
    }
}

/// Slots whose methods in the conformance suite are written by hand, because they record more or return another result.
const CALLED_BY_HAND: [&str; 2] = ["cno_wait", "ep_set_watermark"];

/// Methods of the conformance suite: the slots of both versions that take numbers only, or (`makes`) numbers and the address of
/// the handle that they make.
fn calls(slots: &[Slot], makes: bool) -> String {
    let mut out = String::new();
    for slot in slots {
        let [Some(args), Some(new)] = &slot.args else {
            continue;
        };
        let args = match args.rsplit_once(", ").filter(|_| makes) {
            Some((args, made)) if made.contains("_HANDLE *") => args,
            _ if makes => continue,
            _ => args,
        };
        let rust: Vec<String> = args
            .split(", ")
            .map(|arg| {
                let (c_type, name) = c_arg(arg);
                format!("{name}: {}", number_type(&rust_type(c_type)))
            })
            .collect();
        let only_numbers = rust.iter().all(|arg| !arg.ends_with('?'));
        if new != slot.args[0].as_ref().unwrap_or(new)
            || !only_numbers
            || CALLED_BY_HAND.contains(&&*slot.name)
        {
            continue;
        }
        line(&mut out, &format!("        /// {}", slot.says));
        line(
            &mut out,
            &format!("        {}({});", slot.name, rust.join(", ")),
        );
    }
    out
}

/// The number that a conformance test passes for a parameter; `?` for a structure or a pointer.
fn number_type(rust: &str) -> &str {
    match rust {
        "DatHandle" => "usize",
        "DatContext" => "u64",
        "DatCount" => "i32",
        "DatTimeout" | "DatBoolean" => "u32",
        "u32" | "u64" | "i32" => rust,
        _ => "?",
    }
}

// C.

const WIDTH: usize = 96;

/// Writes `begin`, the arguments and `end`, broken before an argument.
fn wrapped(out: &mut String, begin: &str, args: &str, end: &str) {
    let (lines, last) = broken(begin.into(), args, end, "    ", "");
    for text in lines {
        line(out, &text);
    }
    line(out, &last);
}

/// Breaks a list into lines that end in `tail`, and a last one.
fn broken(begin: String, args: &str, end: &str, indent: &str, tail: &str) -> (Vec<String>, String) {
    let (mut lines, mut current) = (Vec::new(), begin);
    let mut args = args.split(", ").peekable();
    while let Some(arg) = args.next() {
        let comma = if args.peek().is_some() { "," } else { end };
        let space = if current.ends_with(['(', ' ']) {
            ""
        } else {
            " "
        };
        if current.len() + space.len() + arg.len() + comma.len() + tail.len() > WIDTH {
            lines.push(format!("{}{tail}", current.trim_end()));
            current = indent.into();
        } else {
            current.push_str(space);
        }
        let _ = write!(current, "{arg}{comma}");
    }
    (lines, current)
}

/// Writes the macro that calls a slot through the table at the head of its first argument.
fn call_macro(out: &mut String, name: &str, args: &str) {
    let names: Vec<&str> = args.split(", ").map(|arg| c_arg(arg).1).collect();
    let begin = format!("#define DAT_{}(", name.to_uppercase());
    let (lines, last) = broken(begin, &names.join(", "), ") \\", "        ", " \\");
    for text in lines {
        line(out, &text);
    }
    line(out, &last);
    let call = format!("    DAT_HANDLE_TO_PROVIDER({})->{name}_func(", names[0]);
    let passed: Vec<String> = names.iter().map(|name| format!("({name})")).collect();
    let passed = passed.join(", ");
    if call.len() + passed.len() + 1 <= WIDTH {
        line(out, &format!("{call}{passed})"));
        return;
    }
    line(out, &format!("{call}\\"));
    let (lines, last) = broken("        ".into(), &passed, ")", "        ", " \\");
    for text in lines {
        line(out, &text);
    }
    line(out, &last);
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
