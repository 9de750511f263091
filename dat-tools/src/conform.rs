//! `dat conform`: judges a provider by the conformance suite. The suite starts this command again for each group of statements.

mod junit;
mod run;
mod subject;

use std::process::ExitCode;
use std::time::Duration;

use dat_conformance::suite::{self, Counts, Judgement, Plan, Subject};
use dat_conformance::{Api, STATEMENTS};
use serde_json::{Value, json};

use run::Run;

use crate::cli::{Conform, Versions};
use crate::{Outcome, Status};

/// Status where statements fail.
const FAILED: u8 = 1;
/// Status of a wrong command line.
const USAGE: u8 = 2;
/// Status where nothing could be tested.
const NOT_TESTED: u8 = 3;

/// Runs a test process, and ends with its status.
pub(crate) fn process(words: &[String]) -> Outcome {
    if suite::serve(words) == ExitCode::SUCCESS {
        return Ok(());
    }
    Err(Status(FAILED).into())
}

/// Judges the provider and prints the report.
pub(crate) fn run(arguments: &Conform, json: bool) -> Outcome {
    if let Some(page) = unknown_page(&arguments.page) {
        eprintln!("dat: no statement has the page {page:?}; `dat conform --list` prints the pages");
        return Err(Status(USAGE).into());
    }
    let Some(name) = arguments.subject.as_deref().filter(|_| !arguments.list) else {
        list(arguments, json);
        return Ok(());
    };
    let subjects = subject::find(name, arguments.params.as_deref(), arguments.api)?;
    let program = std::env::current_exe()?;
    let plan = Plan {
        program: vec![
            program.display().to_string(),
            "conform-process".into(),
            "--".into(),
        ],
        pages: arguments.page.clone(),
        says: Vec::new(),
        timeout: Duration::from_secs(arguments.timeout),
    };
    let text = !json && !arguments.junit;
    let runs: Vec<Run> = subjects
        .into_iter()
        .map(|subject| judge(subject, &plan, text))
        .collect();
    if json {
        crate::out::json(
            &json!({ "runs": runs.iter().map(of_run).collect::<Vec<_>>() }),
            false,
        );
    }
    if arguments.junit {
        crate::out::text(&junit::report(&runs));
    }
    if runs
        .iter()
        .any(|run| Counts::of(&run.judged).failures() > 0)
    {
        return Err(Status(FAILED).into());
    }
    if runs.iter().any(|run| run.error.is_some()) {
        return Err(Status(NOT_TESTED).into());
    }
    Ok(())
}

/// Returns a requested page that no statement has.
fn unknown_page(pages: &[String]) -> Option<&String> {
    let known = |page: &str| STATEMENTS.iter().copied().flatten().any(|s| s.page == page);
    pages.iter().find(|page| !known(page))
}

fn judge(subject: Subject, plan: &Plan, text: bool) -> Run {
    if text {
        println!(
            "uDAPL {}: {}, IA {:?}, ia_params {:?}",
            subject.api,
            subject.library.display(),
            subject.name,
            subject.params
        );
    }
    let mut judged = Vec::new();
    let done = suite::judge_all(&subject, plan, |one| {
        if text {
            print(one);
        }
        judged.push(one.clone());
    });
    let run = Run {
        subject,
        judged,
        error: done.err(),
    };
    if text {
        summary(&run);
    }
    run
}

fn print(one: &Judgement) {
    let word = one.outcome.word();
    let word = if one.outcome.is_failure() {
        word.to_uppercase()
    } else {
        word.to_owned()
    };
    println!("{word:<7} {}: {}", one.page, one.says);
    if let Some(why) = one.outcome.why() {
        println!("        {why}");
    }
}

fn summary(run: &Run) {
    if let Some(error) = &run.error {
        println!("not tested: {error}");
        println!(
            "        `dat devices` lists what of this machine can be an IA, with its ia_params"
        );
    }
    if run.error.is_none() || !run.judged.is_empty() {
        let counts = Counts::of(&run.judged);
        println!(
            "uDAPL {}: {} statements hold, {} concern what the provider lacks, {} are broken, {} crashed, {} hung",
            run.subject.api, counts.holds, counts.lacks, counts.broken, counts.crashed, counts.hung
        );
    }
}

fn of_run(run: &Run) -> Value {
    let counts = Counts::of(&run.judged);
    let statements: Vec<Value> = run
        .judged
        .iter()
        .map(|one| {
            json!({
                "page": one.page,
                "statement": one.says,
                "result": one.outcome.word(),
                "why": one.outcome.why(),
                "seconds": one.time.as_secs_f64(),
            })
        })
        .collect();
    json!({
        "provider": run.subject.library.display().to_string(),
        "ia": run.subject.name,
        "ia_params": run.subject.params,
        "api": run.subject.api.to_string(),
        "not_tested": run.error.as_ref().map(ToString::to_string),
        "counts": {
            "holds": counts.holds,
            "lacks": counts.lacks,
            "broken": counts.broken,
            "crashed": counts.crashed,
            "hung": counts.hung,
        },
        "statements": statements,
    })
}

/// Prints the statements.
fn list(arguments: &Conform, json: bool) {
    let only_1_2 = arguments.api == Some(Versions::V1_2);
    let chosen = STATEMENTS.iter().copied().flatten().filter(|s| {
        (arguments.page.is_empty() || arguments.page.iter().any(|page| page == s.page))
            && !(only_1_2 && s.since == Api::V2_0)
    });
    if json {
        let all: Vec<Value> = chosen
            .map(|s| json!({ "page": s.page, "statement": s.says, "since": s.since.to_string() }))
            .collect();
        crate::out::json(&json!({ "statements": all }), false);
        return;
    }
    for s in chosen {
        let since = if s.since == Api::V2_0 { " (2.0)" } else { "" };
        println!("{}{since}: {}", s.page, s.says);
    }
}
