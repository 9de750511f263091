//! `dat doctor`: finds out why an IA does not work. Each finding that is not well comes with a command for the shell; what is to
//! be said about it stands behind a `#`.

mod finding;
mod firewall;
mod limits;
mod network;
mod unopened;

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use dat_registry::catalog::{Catalog, Request};
use dat_registry::conf::{ConfError, Effect, Entry};
use dat_registry::search::{Found, SearchError};

pub(crate) use finding::quoted;
use finding::{Finding, State, edit};

use crate::assess::Verdict;
use crate::{Outcome, Reported, assess, check, demo, open, read};

/// Name of the finding about the file.
const CONFIGURATION: &str = "dat.conf";

/// Examines the machine, and the IA if one is named.
pub(crate) fn run(name: Option<&str>, json: bool) -> Outcome {
    let mut findings = Vec::new();
    let judged = configuration(name, &mut findings);
    findings.extend(limits::all());
    findings.extend(network::all(judged.as_ref().map(|(entry, _)| entry)));
    if let Some((entry, verdict)) = &judged {
        findings.extend(library(entry, verdict));
        // Else the reason would be told twice.
        if verdict.faults.is_empty() && entry.api.major == 2 {
            opening(entry, &mut findings);
        }
    }
    let bad = findings.iter().any(|finding| finding.state == State::Fault);
    if json {
        crate::out::json(&findings, false);
    } else {
        for finding in &findings {
            let mark = match finding.state {
                State::Ok => "ok     ",
                State::Warning => "warning",
                State::Fault => "FAULT  ",
                State::Unknown => "unknown",
            };
            println!("{mark} {:<12} {}", finding.check, finding.text);
            if let Some(remedy) = &finding.remedy {
                println!("                     do: {remedy}");
            }
        }
    }
    if bad { Err(Reported.into()) } else { Ok(()) }
}

/// Examines dat.conf; returns the entry of the IA, judged.
fn configuration(name: Option<&str>, findings: &mut Vec<Finding>) -> Option<(Entry, Verdict)> {
    let found = match read::configuration() {
        Ok(found) => found,
        Err(error) => {
            let remedy = without_configuration(error.downcast_ref());
            findings.push(Finding::bad(
                CONFIGURATION,
                State::Fault,
                error.to_string(),
                remedy,
            ));
            return None;
        }
    };
    let catalog = Catalog::of(&found);
    let Some(name) = name else {
        let of_libraries = libraries(&catalog);
        let is_told = of_libraries.as_ref().is_some_and(|f| f.state != State::Ok);
        findings.push(entries(&found, &catalog, is_told));
        findings.extend(of_libraries);
        return None;
    };
    let files = catalog.source();
    let faults = catalog
        .errors()
        .iter()
        .filter(|e| e.kind.effect() != Effect::Warning)
        .count();
    findings.push(match faults {
        0 => Finding::ok(
            CONFIGURATION,
            format!(
                "{files}: {}",
                crate::out::plural(catalog.entries().len(), "entry", "entries")
            ),
        ),
        n => Finding::bad(
            CONFIGURATION,
            State::Warning,
            format!(
                "{files}: {}",
                crate::out::plural(n, "faulty entry", "faulty entries")
            ),
            "dat check",
        ),
    });
    let of = |api| catalog.find(&Request::new(name, api));
    let entry = of((2, 0)).or_else(|| of((1, 2)));
    let judged = entry.map(|entry| {
        let verdict = assess::entry(&entry);
        (entry, verdict)
    });
    match &judged {
        Some((entry, verdict)) => findings.extend(line(entry, verdict)),
        None => findings.push(Finding::bad(
            "entry",
            State::Fault,
            assess::explain_missing(&catalog, name),
            "dat list; dat devices",
        )),
    }
    judged
}

/// Returns the command that leads to a configuration where none can be read.
fn without_configuration(error: Option<&SearchError>) -> String {
    let Some(SearchError::Override { path, source }) = error else {
        return "dat init --output /etc/dat.conf".to_owned();
    };
    let unset = "unset DAT_OVERRIDE";
    let is_writable = source.kind() == ErrorKind::NotFound
        && path
            .parent()
            .is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir());
    if is_writable {
        let path = quoted(&path.display().to_string());
        format!("{unset}  # or: dat init --output {path}")
    } else {
        unset.to_owned()
    }
}

/// Examines all entries as `dat check` does. The first fault is shown, unless another finding tells it.
fn entries(found: &[Found], catalog: &Catalog, is_told: bool) -> Finding {
    let count = crate::out::plural(catalog.entries().len(), "entry", "entries");
    let text = format!("{}: {count}", catalog.source());
    let errors = check::errors(found);
    let Some(first) = errors.first() else {
        return Finding::ok(CONFIGURATION, text);
    };
    let mut text = format!(
        "{text}, {}",
        crate::out::plural(errors.len(), "error", "errors")
    );
    if !is_told {
        let which = if errors.len() > 1 { ", the first" } else { "" };
        text += &format!("{which}: {first}");
    }
    Finding::bad(CONFIGURATION, State::Fault, text, "dat check")
}

/// Examines the libraries of all entries: a fault if none of them can be used, so that nothing opens.
fn libraries(catalog: &Catalog) -> Option<Finding> {
    const CHECK: &str = "libraries";
    let mut usable = Vec::new();
    let mut faults = Vec::new();
    for entry in catalog.entries() {
        let verdict = assess::entry(entry);
        match (verdict.faults.first(), verdict.library) {
            (Some(fault), _) => faults.push(fault.to_string()),
            (None, Some(path)) if !usable.contains(&path) => usable.push(path),
            (None, _) => {}
        }
    }
    if !usable.is_empty() {
        return Some(Finding::ok(CHECK, usable.join(", ")));
    }
    let first = faults.first()?;
    let text = match faults.len() {
        1 => first.clone(),
        n => format!("none of {n} entries has one that can be used: {first}"),
    };
    Some(Finding::bad(CHECK, State::Fault, text, "dat check"))
}

/// Examines the line of the entry, without its library.
fn line(entry: &Entry, verdict: &Verdict) -> Vec<Finding> {
    const CHECK: &str = "entry";
    let findings = faults(entry, verdict, CHECK, |fault| !is_of_library(entry, fault));
    if !findings.is_empty() {
        return findings;
    }
    let text = format!(
        "{}: {} with {} {:?}",
        entry.origin, entry.name, entry.library, entry.ia_params
    );
    vec![Finding::ok(CHECK, text)]
}

/// Returns whether a fault of an entry is one of its library.
fn is_of_library(entry: &Entry, fault: &ConfError) -> bool {
    let place = entry.places.library;
    (fault.origin.line, fault.column) == (place.line, place.column)
}

/// Returns findings about those faults of an entry that are `wanted`.
fn faults(
    entry: &Entry,
    verdict: &Verdict,
    check: &'static str,
    wanted: impl Fn(&ConfError) -> bool,
) -> Vec<Finding> {
    let faults = verdict.faults.iter().filter(|fault| wanted(fault));
    let finding = |fault: &ConfError| {
        let text = format!("{}:{}: {}", fault.origin, fault.column, fault.kind);
        Finding::bad(check, State::Fault, text, edit(&entry.origin.path))
    };
    faults.map(finding).collect()
}

/// Examines the library of the entry.
fn library(entry: &Entry, verdict: &Verdict) -> Vec<Finding> {
    let mut findings = faults(entry, verdict, "library", |fault| {
        is_of_library(entry, fault)
    });
    if let (Some(path), true) = (&verdict.library, findings.is_empty()) {
        findings.push(Finding::ok("library", path.clone()));
    }
    findings
}

/// Opens the IA in two processes, and moves data between them.
fn opening(entry: &Entry, findings: &mut Vec<Finding>) {
    let name = entry.name.as_str();
    const CHECK: &str = "transfer";
    let run = std::env::current_exe().and_then(|exe| {
        let mut command = Command::new(exe);
        command
            .args(["demo", "--ia", name])
            .stdin(Stdio::null())
            .output()
    });
    let again = format!("DAT_LOG=debug dat demo {}", quoted(name));
    let done = match run {
        Ok(done) => done,
        Err(error) => {
            findings.push(Finding::bad(
                CHECK,
                State::Unknown,
                error.to_string(),
                again,
            ));
            return;
        }
    };
    let (printed, log) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    if open::is_verbose() {
        eprint!("{log}");
    }
    let last = log.trim().lines().last().unwrap_or("no message");
    let why = last.strip_prefix("dat: ").unwrap_or(last);
    let start = format!("IA {name}: ");
    let opened = printed.lines().find_map(|line| line.strip_prefix(&start));
    match opened {
        Some(adapter) => findings.push(Finding::ok("open", adapter)),
        None if why.starts_with(demo::ONLY_ONE) => {}
        None => {
            let why = why.strip_prefix(&open::does_not_open(name)).unwrap_or(why);
            // That is a finding already.
            let why = why.rsplit_once(open::ENTRY).map_or(why, |(why, _)| why);
            // The warning about the port is the reason then.
            if why.starts_with("UDP port 4791 of ") {
                let mut of_port = findings.iter_mut().filter(|f| f.check == network::PORT);
                if let Some(finding) = of_port.next() {
                    finding.state = State::Fault;
                }
            }
            let found = read::configuration().unwrap_or_default();
            let catalog = Catalog::of(&found);
            let mut patterns = assess::patterns(&catalog);
            let pattern = patterns.find(|pattern| pattern.origin == entry.origin);
            findings.push(unopened::finding(entry, pattern, why));
            return;
        }
    }
    findings.push(if done.status.success() {
        Finding::ok(
            CHECK,
            "two processes sent, wrote and read; every byte was compared",
        )
    } else {
        // Its own process logs why the second one cannot open the IA.
        let logged = || {
            Some(format!(
                "{}{name}: {}",
                demo::ONLY_ONE,
                open::logged(name, &log)?
            ))
        };
        let text = why.starts_with(demo::ONLY_ONE).then(logged).flatten();
        let text = text.unwrap_or_else(|| why.to_owned());
        Finding::bad(CHECK, State::Fault, text, again)
    });
}
