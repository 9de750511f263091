//! `dat devices`: what of this machine can be an IA.

use crate::{Outcome, machine};

/// Prints the devices, each with its line for dat.conf.
pub(crate) fn run(json: bool) -> Outcome {
    let devices = machine::devices()?;
    if json {
        crate::out::json(&devices, false);
        return Ok(());
    }
    for device in &devices {
        let port = device
            .port
            .map_or(String::new(), |port| format!(" port {port}"));
        let behind = device
            .netdev
            .as_ref()
            .map_or(String::new(), |n| format!(" on {n}"));
        println!(
            "{} {}{port}{behind}: {}, {}",
            device.kind,
            device.name,
            device.state,
            if device.addresses.is_empty() {
                "no address".to_owned()
            } else {
                device.addresses.join(" ")
            }
        );
        match &device.why_not {
            Some(why) => println!("    can be no IA: {why}"),
            None => println!("    {}", device.entry),
        }
    }
    if !devices.iter().any(|device| device.kind == "verbs") {
        println!();
        println!("no verbs device: the softrxe provider needs none");
    }
    Ok(())
}
