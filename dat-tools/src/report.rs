//! `dat report`: what this machine finds out about an IA, in one file that can be sent without anything that names the
//! machine or its user.
//!
//! Each part is what another subcommand prints as JSON. The subcommand runs in a process of its own, so a provider that
//! crashes or hangs ends one part only. `facts.rs` describes the machine, `part.rs` runs the subcommands, `scrub.rs`
//! removes names and addresses.

mod facts;
mod part;
mod scrub;

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::cli::{Report, ReportPart};
use crate::{Outcome, out, read};
use part::{Part, Server};
use scrub::Scrubber;

/// Time limit of a part other than `dat conform`, which has a limit for each statement.
const LIMIT: Duration = Duration::from_secs(600);
/// Time limit of `dat conform` as a whole.
const CONFORM_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// Version of the file's form.
const FORM: u32 = 1;

/// Runs the parts and writes the file.
pub(crate) fn run(arguments: &Report, json: bool) -> Outcome {
    let output = read::output(Some(&arguments.output));
    if let Some(file) = output.filter(|file| !arguments.force && file.symlink_metadata().is_ok()) {
        return Err(format!(
            "{} exists; --force replaces it, --output names another file",
            file.display()
        )
        .into());
    }
    let ia = arguments.ia.as_str();
    let mut parts = Map::new();
    for chosen in ReportPart::ALL {
        if arguments.without.contains(&chosen) {
            continue;
        }
        eprintln!("dat: {} ...", chosen.about());
        let part = match chosen {
            ReportPart::Devices => part::run(&["devices", "--json"], LIMIT),
            ReportPart::Doctor => part::run(&["doctor", ia, "--json"], LIMIT),
            ReportPart::Info => part::run(&["info", ia, "--json"], LIMIT),
            ReportPart::Conform => conform(arguments),
            ReportPart::Perf => perf(arguments),
        };
        parts.insert(
            chosen.name().into(),
            part.unwrap_or_else(|error| Part::failed(&error)).json(),
        );
    }
    let mut scrubber = Scrubber::of_this_machine(arguments.peer.as_deref());
    let mut parts = Value::Object(parts);
    scrubber.value(&mut parts);
    // Administrators name IAs after addresses and hosts.
    let mut ia = Value::from(ia);
    scrubber.value(&mut ia);
    let summary = summary(&parts);
    let report = json!({
        "form": FORM,
        "dat": env!("CARGO_PKG_VERSION"),
        "ia": ia,
        "machine": facts::all(),
        "parts": parts,
    });
    let text = serde_json::to_string_pretty(&report)? + "\n";
    read::write(&text, output, arguments.force)?;
    // Standard output has the report alone.
    if let Some(file) = output {
        announce(file, &summary, json);
    }
    Ok(())
}

fn announce(file: &Path, summary: &[(String, String)], json: bool) {
    if json {
        let parts: Map<String, Value> = summary
            .iter()
            .map(|(name, text)| (name.clone(), text.as_str().into()))
            .collect();
        out::json(
            &json!({ "file": file.display().to_string(), "parts": parts }),
            false,
        );
        return;
    }
    for (name, text) in summary {
        println!("{name:<8} {text}");
    }
    println!(
        "{} is complete. Read it before you send it: your-adapter.md of the documentation says what it has, and where to send it",
        file.display()
    );
}

/// Judges the provider.
fn conform(arguments: &Report) -> io::Result<Part> {
    let timeout = arguments.timeout.to_string();
    let mut words = vec![
        "conform",
        &arguments.ia,
        "--json",
        "--timeout",
        timeout.as_str(),
    ];
    for page in &arguments.page {
        words.extend(["--page", page.as_str()]);
    }
    part::run(&words, CONFORM_LIMIT)
}

/// Measures against the peer that the user names, else against a server of this machine.
fn perf(arguments: &Report) -> io::Result<Part> {
    let ia = arguments.ia.as_str();
    let port = arguments.port.to_string();
    let (_server, host) = match &arguments.peer {
        Some(host) => (None, host.clone()),
        None => {
            let server = Server::start(ia, &port)?;
            let address = server.address.clone();
            (Some(server), address)
        }
    };
    let iterations = arguments.iterations.map(|n| n.to_string());
    let mut words = vec![
        "perf",
        ia,
        &host,
        "--port",
        &port,
        "--op",
        "all",
        "--size",
        "64,4K,64K,1M",
        "--json",
    ];
    if let Some(iterations) = &iterations {
        words.extend(["--iterations", iterations.as_str()]);
    }
    part::run(&words, LIMIT)
}

/// Returns a line for each part.
fn summary(parts: &Value) -> Vec<(String, String)> {
    let about = |name: &str, part: &Value| -> String {
        let output = &part["output"];
        if let Some(why) = part["failed"].as_str() {
            return format!("failed: {why}");
        }
        match (name, part["status"].as_i64()) {
            ("doctor", _) => {
                let of = |state: &str| {
                    let all = output.as_array().map_or(&[][..], Vec::as_slice);
                    all.iter().filter(|f| f["state"] == state).count()
                };
                format!("{} faults, {} warnings", of("fault"), of("warning"))
            }
            ("conform", _) if output["runs"][0]["not_tested"].is_null() => {
                let counts = &output["runs"][0]["counts"];
                let of = |word: &str| counts[word].as_u64().unwrap_or(0);
                format!(
                    "{} statements hold, {} lacked, {} broken, {} crashed, {} hung",
                    of("holds"),
                    of("lacks"),
                    of("broken"),
                    of("crashed"),
                    of("hung")
                )
            }
            ("conform", _) => format!("not tested: {}", output["runs"][0]["not_tested"]),
            ("perf", Some(0)) => {
                let rows = output["results"].as_array().map_or(0, Vec::len);
                format!("{rows} measurements")
            }
            (_, Some(0)) => "complete".to_owned(),
            _ => {
                let said = part["messages"].as_str().unwrap_or_default();
                format!("failed: {}", said.lines().last().unwrap_or("no message"))
            }
        }
    };
    let all = parts.as_object().into_iter().flatten();
    all.map(|(name, part)| (name.clone(), about(name, part)))
        .collect()
}
