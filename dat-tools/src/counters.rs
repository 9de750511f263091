//! `dat counters`: the counters of an IA, and those that the kernel keeps of its device.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;

use crate::cli::Counters;
use crate::{Outcome, open};

/// Names and values.
type Values = Vec<(String, u64)>;

/// Prints the counters, or with `--watch` their changes.
pub(crate) fn run(arguments: &Counters, json: bool) -> Outcome {
    let seconds = arguments.interval.as_secs_f64();
    let ia = open::named(&arguments.ia)?;
    let device = ia.attributes()?.adapter;
    let read = || {
        let mut all = of_ia(&ia);
        all.extend(of_device(&device));
        all
    };
    let mut last = read();
    if !arguments.watch {
        print(&last, arguments.all, json);
        return Ok(());
    }
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        thread::sleep(arguments.interval);
        let now = read();
        let before: BTreeMap<&String, u64> =
            last.iter().map(|(name, value)| (name, *value)).collect();
        let changes: Values = now
            .iter()
            .map(|(name, value)| {
                (
                    name.clone(),
                    value.saturating_sub(before.get(name).copied().unwrap_or(0)),
                )
            })
            .collect();
        if json {
            let map: BTreeMap<_, _> = changes.into_iter().collect();
            crate::out::json(&json!({ "seconds": seconds, "changes": map }), true);
        } else {
            println!("changes in {seconds} s");
            print(&changes, arguments.all, false);
        }
        last = now;
        left -= 1;
    }
    Ok(())
}

fn print(values: &[(String, u64)], all: bool, json: bool) {
    if json {
        let map: BTreeMap<_, _> = values.iter().cloned().collect();
        crate::out::json(&map, false);
        return;
    }
    let mut any = false;
    for (name, value) in values.iter().filter(|(_, value)| all || *value > 0) {
        println!("  {name:<44} {value}");
        any = true;
    }
    if !any {
        println!("  all are 0");
    }
}

/// Returns the counters of an open IA, with those that only its provider has; none from a provider without counters.
pub(crate) fn of_ia(ia: &dat::Ia) -> Values {
    let Ok(counters) = ia.counters() else {
        return Vec::new();
    };
    let named = counters
        .iter()
        .map(|(counter, value)| (dat::Counter::name(counter).to_owned(), value));
    named.chain(of_provider(ia)).collect()
}

/// Returns the counters that only the provider of an open IA has.
pub(crate) fn of_provider(ia: &dat::Ia) -> Values {
    ia.provider_counters().unwrap_or_default()
}

/// Returns the counters that the kernel keeps of a verbs device or netdev, over all processes.
pub(crate) fn of_device(name: &str) -> Values {
    if name.is_empty() || name.contains('/') {
        return Vec::new();
    }
    let mut values = Vec::new();
    let verbs = Path::new("/sys/class/infiniband").join(name);
    let ports = fs::read_dir(verbs.join("ports"))
        .into_iter()
        .flatten()
        .flatten();
    for port in ports {
        let number = port.file_name();
        let number = number.to_string_lossy();
        for folder in ["counters", "hw_counters"] {
            add(
                port.path().join(folder),
                &format!("{name}/{number}/"),
                &mut values,
            );
        }
    }
    add(
        Path::new("/sys/class/net").join(name).join("statistics"),
        &format!("{name}/"),
        &mut values,
    );
    values.sort();
    values
}

fn add(folder: PathBuf, prefix: &str, values: &mut Values) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        if let Ok(value) = text.trim().parse() {
            values.push((
                format!("{prefix}{}", file.file_name().to_string_lossy()),
                value,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_netdev_has_the_kernels_counters() {
        let values = of_device("lo");
        assert!(
            values.iter().any(|(name, _)| name == "lo/rx_bytes"),
            "{values:?}"
        );
        assert!(of_device("../lo").is_empty() && of_device("").is_empty());
    }
}
