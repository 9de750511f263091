//! Opens the IA of `dat serve`, `dat ping` and `dat perf`, and finds the one of `dat demo`.

use std::net::ToSocketAddrs as _;
use std::process::{Command, Stdio};

use dat_registry::catalog::Catalog;

use crate::assess::Hopeless;
use crate::{Outcome, assess, machine, read};

/// Opens the IA of this name, or the first of dat.conf that opens.
pub(crate) fn ia(name: Option<&str>) -> Outcome<dat::Ia> {
    let name = match name {
        Some(name) => name.to_owned(),
        None => first()?.name,
    };
    Ok(dat::Ia::open(&name)?)
}

/// The first IA of dat.conf that opens.
pub(crate) struct First {
    pub(crate) name: String,
    /// Those before it.
    pub(crate) skipped: Skipped,
}

/// Returns the first IA of dat.conf that opens on this machine.
///
/// # Errors
/// None opens; the text says why, each reason once.
pub(crate) fn first() -> Outcome<First> {
    let catalog = Catalog::of(&read::configuration()?);
    let devices = machine::devices()?;
    let mut skipped = Skipped::default();
    for (name, _) in dat::configured()? {
        if skipped.has(&name) {
            continue;
        }
        // What cannot open is not tried: each entry of the name is hopeless.
        let entries = catalog.entries().iter();
        let entries = entries.filter(|e| e.name == name && e.api.major == 2);
        let hopeless: Option<Vec<_>> = entries.map(|e| assess::hopeless(e, &devices)).collect();
        match hopeless.and_then(|all| all.into_iter().next()) {
            Some(Hopeless::NoDevice(why)) => skipped.add(name, why, true),
            Some(Hopeless::Fault(why)) => skipped.add(name, why, false),
            None => match attempt(&name) {
                Ok(()) => return Ok(First { name, skipped }),
                Err(why) => skipped.add(name, why, false),
            },
        }
    }
    Err(skipped.report().into())
}

/// Opens the IA in a process of its own, and returns the first error that the provider logs. In this process the log would be on the
/// user's terminal, and a provider that crashes would end the command.
pub(crate) fn attempt(name: &str) -> Result<(), String> {
    let level = std::env::var("DAT_LOG").unwrap_or_default();
    let is_verbose = ["warn", "info", "debug", "trace"].contains(&level.as_str());
    let done = std::env::current_exe().and_then(|exe| {
        let mut command = Command::new(exe);
        command.args(["info", name]).stdin(Stdio::null());
        if !is_verbose {
            command.env("DAT_LOG", "error");
        }
        command.output()
    });
    let done = done.map_err(|error| format!("cannot run `dat info {name}`: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    if is_verbose {
        eprint!("{said}");
    }
    Err(cause(name, &said)
        .unwrap_or_else(|| format!("`dat info {name}` ended with {}", done.status)))
}

/// Returns what a provider says in the log of an attempt to open the IA; without that, what the command says.
fn cause(name: &str, log: &str) -> Option<String> {
    let logged = log.lines().find_map(|line| line.split_once(" error: "));
    let said = || log.lines().find_map(|line| line.strip_prefix("dat: "));
    let text = logged.map(|(_, text)| text).or_else(said)?.trim();
    // The caller names the IA.
    let field = format!(" ia={name:?}");
    let text = text.strip_suffix(field.as_str()).unwrap_or(text);
    let prefix = format!("{name}: ");
    Some(
        text.strip_prefix(prefix.as_str())
            .unwrap_or(text)
            .to_owned(),
    )
}

/// The IAs that do not open, with the reasons.
#[derive(Default)]
pub(crate) struct Skipped(Vec<Reason>);

struct Reason {
    names: Vec<String>,
    why: String,
    /// This machine has not the device.
    no_device: bool,
}

/// Reasons that [`Skipped::line`] has at most.
const REASONS: usize = 3;

impl Skipped {
    fn has(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|reason| reason.names.iter().any(|n| n == name))
    }

    fn add(&mut self, name: String, why: String, no_device: bool) {
        match self.0.iter_mut().find(|reason| reason.why == why) {
            Some(reason) => reason.names.push(name),
            None => self.0.push(Reason {
                names: vec![name],
                why,
                no_device,
            }),
        }
    }

    /// Says in one line why these IAs are not used; `None` if there are none.
    pub(crate) fn line(&self) -> Option<String> {
        let mut parts: Vec<String> = self.0.iter().take(REASONS).map(Reason::text).collect();
        let more: usize = self.0.iter().skip(REASONS).map(|r| r.names.len()).sum();
        if more > 0 {
            parts.push(format!("nor do {more} more (`dat list --open` says why)"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Says that no IA opens, and why.
    fn report(&self) -> String {
        let mut text =
            "no IA of dat.conf opens on this machine; `dat init` writes a dat.conf".to_owned();
        for reason in self.0.iter().filter(|reason| !reason.no_device) {
            text += &format!("\n  {}: {}", reason.names.join(", "), reason.why);
        }
        let devices = self.0.iter().filter(|reason| reason.no_device);
        let names: Vec<&str> = devices.flat_map(|r| &r.names).map(String::as_str).collect();
        if !names.is_empty() {
            text += &format!(
                "\n  {}: no device here (`dat list` says which)",
                names.join(", ")
            );
        }
        text
    }
}

impl Reason {
    fn text(&self) -> String {
        let (names, why) = (self.names.join(", "), &self.why);
        match (self.no_device, self.names.len()) {
            (true, 1) => format!("{names} has no device here ({why})"),
            (true, _) => format!("{names} have no device here ({why})"),
            (false, 1) => format!("{names} does not open here ({why})"),
            (false, _) => format!("{names} do not open here ({why})"),
        }
    }
}

/// Refuses the name of an IA in the place of the host: `dat perf IA` lacks the host.
pub(crate) fn require_host(ia: Option<&str>, host: &str, command: &str) -> Outcome {
    let is_ia = ia.is_none() && dat::configured()?.iter().any(|(name, _)| name == host);
    if is_ia && (host, 0).to_socket_addrs().is_err() {
        return Err(format!(
            "{host} is the name of an IA; the host is missing: dat {command} {host} HOST"
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_log_is_the_cause() {
        let log = "softrxe_engine[7] warning: slow\nsoftrxe_engine[7] error: the port is taken ia=\"a\"\n\
                   udapl[7] error: dat_ia_open(\"a\") failed; its entry is dat.conf:1\ndat: out of resources\n";
        assert_eq!(cause("a", log).as_deref(), Some("the port is taken"));
        let log = "dat_verbs[7] error: a: no device\n";
        assert_eq!(cause("a", log).as_deref(), Some("no device"));
        assert_eq!(
            cause("a", "dat: no such IA\n").as_deref(),
            Some("no such IA")
        );
        assert_eq!(cause("a", ""), None);
    }

    #[test]
    fn each_reason_is_told_once() {
        let mut skipped = Skipped::default();
        assert_eq!(skipped.line(), None);
        for name in ["a", "b"] {
            skipped.add(name.into(), "no verbs device".into(), true);
        }
        skipped.add("c".into(), "the port is taken".into(), false);
        assert_eq!(
            skipped.line().as_deref(),
            Some(
                "a, b have no device here (no verbs device); c does not open here (the port is taken)"
            )
        );
        let report = skipped.report();
        assert!(
            report.contains("\n  c: the port is taken\n  a, b: no device here"),
            "{report}"
        );
        for n in 0..4 {
            skipped.add(format!("d{n}"), format!("{n}"), false);
        }
        let line = skipped.line().unwrap();
        assert!(
            line.ends_with("; nor do 3 more (`dat list --open` says why)"),
            "{line}"
        );
    }
}
