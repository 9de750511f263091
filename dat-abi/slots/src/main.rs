//! Writes what every function of the API needs alike, from the manifest `slots.txt`: the structs of both function
//! tables and their constants, the exported functions of both C libraries, the declarations in the C headers, and the list
//! that the conformance suite calls.
//!
//! The generated text stands in the sources, between a line `BEGIN slots.txt: REGION` and a line `END slots.txt`, so that
//! editors and rustdoc see it. `make slots` runs this program, which rewrites the regions; the test fails when a region is not
//! what the manifest says. The crate imports nothing, so that it also runs when a region does not compile.

mod c;
mod manifest;
mod rust;
mod text;

use std::path::{Path, PathBuf};

use c::{call_macro, wrapped};
use manifest::{Slot, Version, read as manifest};
use rust::{calls, exports, probes, table, thunks};
use text::line;

const BEGIN: &str = "BEGIN slots.txt: ";
const END: &str = "END slots.txt";

/// Files with generated regions.
const FILES: [&str; 18] = [
    "dat-abi/src/v1_2/table.rs",
    "dat-abi/src/v1_2/tables.rs",
    "dat-abi/src/v2_0/table.rs",
    "dat-abi/src/v2_0/tables.rs",
    "capi/libdat/src/redirect.rs",
    "capi/libdat2/src/redirect.rs",
    "capi/libdat2/src/ia.rs",
    "dat-provider-filter/src/slots.rs",
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
    let slots = manifest(&top());
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

/// Returns the workspace.
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
