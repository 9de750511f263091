//! `dat demo`: transfers data between two processes by every operation, and verifies every byte.

mod active;
mod passive;
mod process;
mod results;
mod side;

use dat::Ia;
use serde_json::json;

use crate::{Outcome, open};
pub(crate) use passive::peer;
use process::Peer;
use results::Results;
use side::Side;

/// Returns the IA to use: the named one, or the first of dat.conf that opens. Says which ones it skips.
fn choose(name: Option<&str>, json: bool) -> Outcome<String> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let open::First { name, skipped } = open::first()?;
    if let Some(line) = skipped.line() {
        let text = format!("{line}; using {name}");
        if json {
            eprintln!("demo: {text}");
        } else {
            crate::out::hanging("demo: ", &text);
        }
    }
    Ok(name)
}

/// How the message begins where the other process has opened the IA and this one cannot.
pub(crate) const ONLY_ONE: &str = "only one process at a time opens IA ";

/// Runs both processes and prints the results.
pub(crate) fn run(name: Option<&str>, json: bool) -> Outcome {
    let name = choose(name, json)?;
    let (mut peer, line) = Peer::start(&name)?;
    let (address, qual) = line
        .trim()
        .split_once(' ')
        .ok_or("the other process did not start; its message is above")?;

    let ia = Ia::open(&name).map_err(|error| format!("{ONLY_ONE}{name}: {error}"))?;
    let side = Side::new(ia)?;
    let attributes = side.ia.attributes()?;
    let mut results = Results {
        json,
        rows: Vec::new(),
    };
    if !json {
        println!(
            "IA {name}: {} ({}) at {}",
            attributes.adapter, attributes.vendor, attributes.address
        );
        println!(
            "two processes, {} and {}; every byte below was compared\n",
            std::process::id(),
            peer.child.id()
        );
        println!(
            "{:<30} {:>9} {:>7} {:>12} {:>12}  verified",
            "operation", "bytes", "count", "time each", "rate"
        );
    }

    active::measure(&side, address, qual, &mut results)?;
    let status = peer.child.wait()?;
    if !status.success() {
        return Err(format!("the other process ended with {status}").into());
    }
    if json {
        let value = json!({
            "ia": name,
            "adapter": attributes.adapter,
            "vendor": attributes.vendor,
            "address": attributes.address,
            "processes": [std::process::id(), peer.child.id()],
            "results": results.rows,
            "pass": true,
        });
        crate::out::json(&value, false);
    } else {
        println!("\ndemo: PASS");
    }
    Ok(())
}
