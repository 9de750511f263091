//! A test process: loads the provider, tests statements, and reports each.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use super::report::Report;
use super::{Subject, numbered};
use crate::calls::Watch;
use crate::dat::{Dat, Launcher};
use crate::peer::{self, Role};
use crate::verdict::Verdict;
use crate::{host, judge};
use dat_core::error::Error;

/// Words that a test process gets, after those of [`super::Plan::program`] and before its task: statements, or a role.
pub(super) fn words(subject: &Subject) -> Vec<String> {
    vec![
        subject.library.display().to_string(),
        subject.name.clone(),
        subject.params.clone(),
        subject.api.to_string(),
    ]
}

/// Returns the word for the statements to test.
pub(super) fn task(statements: &[usize]) -> String {
    let numbers: Vec<String> = statements.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

/// Runs a test process with the words that [`super::judge_all`] added to its command line. Descriptor 0 is the pipe for the reports:
/// a provider may write anything to the others.
#[must_use]
pub fn serve(words: &[String]) -> ExitCode {
    let [library, name, params, api, numbers] = words else {
        eprintln!("a test process needs 5 arguments; `dat conform` starts it");
        return ExitCode::from(2);
    };
    let (Ok(api), Ok(pipe)) = (api.parse(), std::io::stdin().as_fd().try_clone_to_owned()) else {
        eprintln!(
            "a test process needs a version and a pipe as standard input; `dat conform` starts it"
        );
        return ExitCode::from(2);
    };
    die_with_parent();
    let subject = Subject {
        library: library.into(),
        name: name.clone(),
        params: params.clone(),
        api,
    };
    let mut pipe = File::from(pipe);
    if let Some(role) = Role::of(numbers) {
        return peer::run(&open(&subject), role, pipe);
    }
    let progress = pipe.try_clone().ok();
    // The parent's end of the pipe closes only with the parent.
    let mut report = |report: Report| pipe.write_all(report.line().as_bytes()).is_ok();
    let dat = match open(&subject) {
        Ok(dat) => dat
            .with_launcher(same_program())
            .alone()
            .with_progress(move || tell(progress.as_ref(), &Report::Progress)),
        Err(why) => {
            report(Report::Unusable(why));
            return ExitCode::SUCCESS;
        }
    };
    report(Report::Ready);
    if let Ok(pipe) = std::io::stdin().as_fd().try_clone_to_owned() {
        std::thread::spawn(move || tell_calls(&File::from(pipe)));
    }
    let wanted: Vec<usize> = numbers.split(',').filter_map(|n| n.parse().ok()).collect();
    for (number, statement) in numbered().filter(|(number, _)| wanted.contains(number)) {
        report(Report::Begins(number));
        let result = match judge(statement, &dat) {
            Ok(()) => Report::Holds(number),
            Err(Verdict::Lacks(why)) => Report::Lacks(number, why),
            Err(Verdict::Broken(why)) => Report::Broken(number, why),
        };
        if !report(result) {
            return ExitCode::FAILURE;
        }
    }
    report(Report::Done);
    ExitCode::SUCCESS
}

/// Reports without an answer: the next report finds out if the parent has gone.
fn tell(pipe: Option<&File>, report: &Report) {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(report.line().as_bytes());
    }
}

/// Time between two looks at the calls.
const LOOK: Duration = Duration::from_millis(250);

/// Reports the calls that last, whenever they are others.
fn tell_calls(pipe: &File) {
    let mut watch = Watch::default();
    let mut told = String::new();
    loop {
        std::thread::sleep(LOOK);
        let calls = watch.lasting().join(", ");
        if calls != told {
            tell(Some(pipe), &Report::Inside(calls.clone()));
            told = calls;
        }
    }
}

/// Returns the command of this process without its last word, the statements.
fn same_program() -> Launcher {
    let mut command: Vec<String> = std::env::args().collect();
    command.pop();
    if let (Some(name), Ok(program)) = (command.first_mut(), std::env::current_exe()) {
        *name = program.display().to_string();
    }
    Launcher { command }
}

/// Loads the provider and opens the IA once.
fn open(subject: &Subject) -> Result<Dat, String> {
    let table = host::load(
        &subject.library,
        &subject.name,
        &subject.params,
        subject.api,
    )?;
    let dat = Dat::new(table, &subject.name);
    match dat.ia_open() {
        Ok((ia, _)) => {
            dat.ia_close(ia, 0);
            Ok(dat)
        }
        Err(code) => {
            let why = Error::from_code(code).map_or_else(String::new, |e| e.to_string());
            Err(format!(
                "dat_ia_open of {:?} with the ia_params {:?} returned {why}; DAT_LOG=error shows details",
                subject.name, subject.params
            ))
        }
    }
}

/// Lets the kernel kill this process when its parent ends, and write no core file of a crash: the provider's arenas are large. SIGPIPE
/// ends this process as it ends a C program, while Rust's start of a program has it ignored: a provider must not cause it.
fn die_with_parent() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the calls take plain values and a pointer to a local.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
}
