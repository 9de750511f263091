//! `dat info`: opens an IA and prints all its attributes.

use serde_json::{Map, Value, json};

use crate::doctor::quoted;
use crate::{Outcome, counters, open};

/// Opens the IA and prints.
pub(crate) fn run(name: &str, json: bool) -> Outcome {
    let ia = open::named(name)?;
    let all = ia.all_attributes()?;
    let named = ia.attributes()?.named;
    let counters = counters::of_ia(&ia);
    let of_provider = counters::of_provider(&ia);
    let device = all.ia.iter().find(|(field, _)| *field == "adapter_name");
    let of_device = counters::of_device(device.map_or("", |(_, name)| name.as_str()));
    if json {
        let map = |fields: &[(&'static str, String)]| -> Map<String, Value> {
            let pairs = fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value_of(value)));
            pairs.collect()
        };
        let named: Map<String, Value> = named
            .into_iter()
            .map(|(n, v)| (n, Value::from(v)))
            .collect();
        let counters: Map<String, Value> =
            counters.into_iter().map(|(n, v)| (n, v.into())).collect();
        let of_device: Map<String, Value> =
            of_device.into_iter().map(|(n, v)| (n, v.into())).collect();
        crate::out::json(
            &json!({
                "ia": name,
                "attributes": map(&all.ia),
                "provider": map(&all.provider),
                "named": named,
                "counters": counters,
                "device_counters": of_device,
            }),
            false,
        );
        return Ok(());
    }
    println!("IA {name}");
    for (title, fields) in [("attributes", &all.ia), ("provider", &all.provider)] {
        println!();
        println!("{title}");
        for (field, value) in fields {
            crate::out::hanging(&format!("  {field:<36} "), value);
        }
    }
    println!();
    println!("named attributes");
    for (field, value) in named {
        println!("  {field:<36} {value}");
    }
    println!();
    println!(
        "the provider's own counters, and others that are not 0 (`dat counters -a {}` has all)",
        quoted(name)
    );
    for (counter, value) in counters
        .iter()
        .chain(&of_device)
        .filter(|counter| counter.1 > 0 || of_provider.contains(counter))
    {
        println!("  {counter:<36} {value}");
    }
    Ok(())
}

/// Returns a value as JSON: a number or truth value as such.
fn value_of(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        text => text
            .parse::<i64>()
            .map_or_else(|_| text.into(), Value::from),
    }
}
