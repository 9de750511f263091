//! Opens IAs for the other commands, so that an error is one line with the cause, and finds the first IA that opens.

use std::io::{self, Write as _};
use std::net::ToSocketAddrs as _;
use std::process::{Command, ExitStatus, Stdio};

use dat_os::held_stderr::HeldStderr;
use dat_registry::catalog::{Catalog, Request};
use dat_registry::conf::suggest;
use dat_registry::registry::LookupError;

use crate::assess::Hopeless;
use crate::{Outcome, Status, Usage, assess, machine, read};

/// Status of a process that cannot open an IA because dat.conf does not lead to a provider.
const NO_PROVIDER: u8 = 3;

/// Why an IA does not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unopened {
    /// dat.conf does not lead to a provider; the text names the IA or its entry.
    #[error("{0}")]
    NoProvider(String),
    /// The provider refuses, or its process crashes.
    #[error("{0}")]
    Refused(String),
}

impl Unopened {
    /// Returns what a process that was to open the IA says in its log and by its status.
    pub(crate) fn of(name: &str, log: &str, status: ExitStatus) -> Self {
        if let Some(text) = logged(name, log) {
            return Self::Refused(text);
        }
        let said = log.lines().find_map(|line| line.strip_prefix("dat: "));
        let text = match said {
            Some(said) => said.trim().to_owned(),
            None => format!("the process that opens it ends with {status}"),
        };
        if status.code() == Some(NO_PROVIDER.into()) {
            Self::NoProvider(text)
        } else {
            Self::Refused(text)
        }
    }

    /// Returns the message about the IA of this name.
    pub(crate) fn message(&self, name: &str) -> String {
        let found = read::configuration().unwrap_or_default();
        let entry = Catalog::of(&found).find(&Request::new(name, (2, 0)));
        match self {
            Self::NoProvider(text) => {
                let hint = entry.as_ref().map(assess::library_hint);
                format!("{text}{}", hint.unwrap_or_default())
            }
            Self::Refused(text) => {
                let origin = entry.map(|entry| format!("{ENTRY}{}", entry.origin));
                format!(
                    "{}{text}{}",
                    does_not_open(name),
                    origin.unwrap_or_default()
                )
            }
        }
    }
}

/// What precedes the place of the entry in a message.
pub(crate) const ENTRY: &str = "; its entry is ";

/// Returns how the message about a provider that refuses begins.
pub(crate) fn does_not_open(name: &str) -> String {
    format!("IA {name} does not open: ")
}

/// Opens the IA of this name, or the first of dat.conf that opens.
pub(crate) fn ia(name: Option<&str>) -> Outcome<dat::Ia> {
    match name {
        Some(name) => named(name),
        None => Ok(dat::Ia::open(&first()?.name)?),
    }
}

/// Opens the IA of this name, so that an error is one message with the cause. What the provider logs meanwhile is printed if it
/// opens; a crash loses it, unless the user has requested the log.
pub(crate) fn named(name: &str) -> Outcome<dat::Ia> {
    let held = (!is_verbose()).then(HeldStderr::begin);
    let opened = dat::Ia::open(name);
    let log = held.and_then(Result::ok).map(HeldStderr::end);
    let log = log.unwrap_or_default();
    let why = match opened {
        Ok(ia) => {
            pass_on(log.lines());
            return Ok(ia);
        }
        Err(error) => match (logged(name, &log), error) {
            (Some(text), _) => Unopened::Refused(text),
            (None, dat::Error::Lookup(error)) => Unopened::NoProvider(no_provider(error, name)?),
            (None, error) => Unopened::Refused(error.to_string()),
        },
    };
    // What is in no log of ours, such as the messages of a classic provider.
    pass_on(log.lines().filter(|line| !line.contains("] error: ")));
    Err(why.message(name).into())
}

fn pass_on<'a>(lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        // Without standard error there is nothing to tell it to.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Opens the IA in a process that was started for that. [`Unopened::of`] reads what it says.
pub(crate) fn in_own_process(name: &str) -> Outcome<dat::Ia> {
    match dat::Ia::open(name) {
        Err(dat::Error::Lookup(error)) => {
            eprintln!("dat: {}", no_provider(error, name)?);
            Err(Status(NO_PROVIDER).into())
        }
        opened => Ok(opened?),
    }
}

/// Returns the message about a name that does not lead to a provider.
fn no_provider(error: LookupError, name: &str) -> Outcome<String> {
    match error {
        LookupError::NoEntry(_) => {
            let catalog = Catalog::of(&read::configuration()?);
            Ok(assess::explain_missing(&catalog, name))
        }
        error => Ok(error.to_string()),
    }
}

/// The first IA of dat.conf that opens.
pub(crate) struct First {
    pub(crate) name: String,
    /// Those before it.
    pub(crate) skipped: Skipped,
}

/// Returns the first IA of dat.conf that opens on this machine; names that patterns stand for come last.
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
                Err(why) => skipped.add(name, why.to_string(), false),
            },
        }
    }
    for pattern in assess::patterns(&catalog) {
        if let Some(fault) = assess::entry(pattern).faults.first() {
            skipped.add(pattern.name.clone(), fault.kind.to_string(), false);
            continue;
        }
        match assess::of_pattern(pattern, &devices) {
            Err(none) => skipped.add(pattern.name.clone(), none, true),
            Ok(names) => {
                let untried: Vec<String> = names.into_iter().filter(|n| !skipped.has(n)).collect();
                for name in untried {
                    match attempt(&name) {
                        Ok(()) => return Ok(First { name, skipped }),
                        Err(why) => skipped.add(name, why.to_string(), false),
                    }
                }
            }
        }
    }
    Err(skipped.report().into())
}

/// Opens the IA in a process of its own, and returns the first error that the provider logs. In this process the log would be on the
/// user's terminal, and a provider that crashes would end the command.
pub(crate) fn attempt(name: &str) -> Result<(), Unopened> {
    let done = std::env::current_exe().and_then(|exe| {
        let mut command = Command::new(exe);
        command.args(["try-open", name]).stdin(Stdio::null());
        if !is_verbose() {
            command.env("DAT_LOG", "error");
        }
        command.output()
    });
    let done = done.map_err(|error| Unopened::Refused(format!("cannot try it: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    if is_verbose() {
        eprint!("{said}");
    }
    Err(Unopened::of(name, &said, done.status))
}

/// Returns true if the user has requested more of the log than errors.
pub(crate) fn is_verbose() -> bool {
    let level = std::env::var("DAT_LOG").unwrap_or_default();
    ["warn", "info", "debug", "trace"].contains(&level.as_str())
}

/// Returns the first error of the log that a provider has written when it did not open the IA.
pub(crate) fn logged(name: &str, log: &str) -> Option<String> {
    let mut texts = log.lines().filter_map(|line| line.split_once(" error: "));
    // The Rust API logs this after whatever the provider logs.
    let (_, text) = texts.find(|(_, text)| !text.starts_with("dat_ia_open("))?;
    let text = text.trim();
    // The caller names the IA.
    let field = format!(" ia={name:?}");
    let text = text.strip_suffix(field.as_str()).unwrap_or(text);
    let prefix = format!("{name}: ");
    let text = text.strip_prefix(prefix.as_str()).unwrap_or(text);
    Some(text.to_owned())
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

/// Refuses the name of an IA, or one that is nearly right, in the place of the host: `dat perf IA` lacks the host.
pub(crate) fn require_host(ia: Option<&str>, host: &str, command: &str) -> Outcome {
    if ia.is_some() || (host, 0).to_socket_addrs().is_ok() {
        return Ok(());
    }
    let catalog = Catalog::of(&read::configuration()?);
    let missing = |ia: &str| format!("the host is missing: dat {command} {ia} HOST");
    let of_patterns = assess::names_of_patterns(&catalog, &machine::devices()?);
    let names = catalog.names(2).into_iter();
    let near = suggest::nearest(host, names.chain(of_patterns.iter().map(String::as_str)));
    if let Some(near) = near.filter(|near| *near != host) {
        let hint = format!("no host has the name {host}; did you mean the IA {near:?}? Then ");
        return Err(Usage(hint + &missing(near)).into());
    }
    if near.is_some() || catalog.find(&Request::new(host, (2, 0))).is_some() {
        let text = format!("{host} is the name of an IA; {}", missing(host));
        return Err(Usage(text).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn the_first_error_of_a_log_is_the_cause() {
        let cause = |log: &str, status| {
            let why = Unopened::of("a", log, ExitStatus::from_raw(status << 8));
            let is_refusal = matches!(why, Unopened::Refused(_));
            (why.to_string(), is_refusal)
        };
        let log = "softrxe_engine[7] warning: slow\nsoftrxe_engine[7] error: the port is taken ia=\"a\"\n\
                   udapl[7] error: dat_ia_open(\"a\") failed; its entry is dat.conf:1\ndat: out of resources\n";
        assert_eq!(cause(log, 1), ("the port is taken".into(), true));
        let log = "dat_verbs[7] error: a: no device\n";
        assert_eq!(cause(log, 1), ("no device".into(), true));
        // A provider that logs nothing, and one that logs why it registers nothing.
        let log = "udapl[7] error: dat_ia_open(\"a\") failed; its entry is dat.conf:1\ndat: dat_ia_open: no memory\n";
        assert_eq!(cause(log, 1), ("dat_ia_open: no memory".into(), true));
        let log = "filter[7] error: a: no file\ndat: it registered no provider\n";
        assert_eq!(cause(log, 3), ("no file".into(), true));
        assert_eq!(cause("dat: no such IA\n", 3), ("no such IA".into(), false));
        assert!(cause("", 1).0.contains("exit status: 1"));
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
