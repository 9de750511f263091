//! Starts a test process for each group of statements, and turns its reports, its end or its silence into verdicts.

use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::report::Report;
use super::{END, Judgement, Outcome, Plan, Subject, SuiteError, child};
use crate::pages::{STATEMENTS, Statement};

/// Pause between two looks at whether a process has ended.
const PAUSE: Duration = Duration::from_millis(2);
/// Pause between two looks at whether a silent process lives.
const LOOK: Duration = Duration::from_millis(200);

/// Tests the statements of `plan` on `subject`, and calls `each` with the verdict on each as soon as there is one.
///
/// # Errors
/// [`SuiteError`]: the provider does not load or open, so that nothing can be tested.
pub fn judge_all(
    subject: &Subject,
    plan: &Plan,
    mut each: impl FnMut(&Judgement),
) -> Result<Vec<Judgement>, SuiteError> {
    let groups = chosen(subject, plan);
    if groups.is_empty() {
        return Err(SuiteError::NoStatement {
            pages: plan.pages.join(", "),
            api: subject.api,
        });
    }
    let mut judged = Vec::new();
    let mut patience = Patience::new(plan.timeout);
    for group in groups {
        let mut left = group;
        // A process that crashes or hangs leaves statements to a next one.
        while !left.is_empty() {
            let mut run = Run::start(subject, plan, &left, patience.limit)?;
            for mut judgement in run.finish()? {
                patience.take(&mut judgement.outcome);
                each(&judgement);
                judged.push(judgement);
            }
            let tested = run.tested;
            left.retain(|(number, _)| !tested.contains(number));
        }
    }
    Ok(judged)
}

/// Statements that hang in a row until the time limit is shortened.
const HANGS: usize = 3;
/// The shortened time limit: longer than the 10 s that a statement waits for an event.
const SHORT: Duration = Duration::from_secs(15);

/// The time limit: a provider that hangs always is not waited for to the end each time.
struct Patience {
    limit: Duration,
    whole: Duration,
    hangs: usize,
}

impl Patience {
    const fn new(whole: Duration) -> Self {
        Self {
            limit: whole,
            whole,
            hangs: 0,
        }
    }

    /// Counts hangs in a row, and says in the last one's reason that the limit is another from here on.
    fn take(&mut self, outcome: &mut Outcome) {
        let Outcome::Hung(why) = outcome else {
            self.hangs = 0;
            self.limit = self.whole;
            return;
        };
        self.hangs += 1;
        if self.hangs == HANGS && SHORT < self.whole {
            self.limit = SHORT;
            *why += &format!(
                "; {HANGS} statements hung in a row, so the limit is {} s until one does not",
                SHORT.as_secs()
            );
        }
    }
}

type Numbered = (usize, &'static Statement);

/// Returns the statements to test, by group.
fn chosen(subject: &Subject, plan: &Plan) -> Vec<Vec<Numbered>> {
    let mut first = 0;
    let mut groups = Vec::new();
    for group in STATEMENTS {
        let numbered = (first..).zip(group.iter());
        first += group.len();
        let wanted = numbered.filter(|(_, s)| {
            s.since <= subject.api
                && (plan.says.is_empty() || plan.says.iter().any(|says| says == s.says))
                && (plan.pages.is_empty() || plan.pages.iter().any(|page| page == s.page))
        });
        let wanted: Vec<Numbered> = wanted.collect();
        if !wanted.is_empty() {
            groups.push(wanted);
        }
    }
    groups
}

/// A test process and what it reported.
struct Run {
    process: Process,
    statements: Vec<Numbered>,
    timeout: Duration,
    /// Numbers of the statements with a verdict.
    tested: Vec<usize>,
}

/// What was under way when a test process ended or fell silent.
enum Stage {
    Opening,
    Testing(&'static Statement, Instant),
    Between,
    Ending,
}

impl Run {
    fn start(
        subject: &Subject,
        plan: &Plan,
        statements: &[Numbered],
        timeout: Duration,
    ) -> Result<Self, SuiteError> {
        let numbers: Vec<usize> = statements.iter().map(|(number, _)| *number).collect();
        let mut words = child::words(subject);
        words.push(child::task(&numbers));
        Ok(Self {
            process: Process::start(plan, &words)?,
            statements: statements.to_vec(),
            timeout,
            tested: Vec::new(),
        })
    }

    /// Takes the reports of the process until it ends, or is silent for as long as the time limit.
    fn finish(&mut self) -> Result<Vec<Judgement>, SuiteError> {
        let mut judged = Vec::new();
        let mut stage = Stage::Opening;
        loop {
            let outcome = match self.process.next(self.timeout) {
                Heard::Said(report) => {
                    if let Some(one) = self.take(report, &mut stage)? {
                        judged.push(one);
                    }
                    continue;
                }
                Heard::Ended(status) => {
                    if matches!(stage, Stage::Ending) && status.success() {
                        return Ok(judged);
                    }
                    Outcome::Crashed(describe(status))
                }
                Heard::Nothing => Outcome::Hung(self.silence()),
            };
            judged.extend(self.end(&stage, outcome)?);
            return Ok(judged);
        }
    }

    /// Says for how long the process was silent, and in which calls.
    fn silence(&self) -> String {
        let limit = self.timeout.as_secs();
        let mut text = format!("no progress within the time limit of {limit} s");
        if !self.process.inside.is_empty() {
            text += &format!("; under way: {}", self.process.inside);
        }
        text
    }

    fn statement(&self, number: usize) -> Option<&'static Statement> {
        let found = self.statements.iter().find(|(n, _)| *n == number);
        found.map(|(_, statement)| *statement)
    }

    /// Takes a report; returns the verdict that it contains.
    fn take(&mut self, report: Report, stage: &mut Stage) -> Result<Option<Judgement>, SuiteError> {
        let (number, outcome) = match report {
            Report::Ready => {
                *stage = Stage::Between;
                return Ok(None);
            }
            Report::Unusable(why) => return Err(SuiteError::Unusable(why)),
            Report::Begins(number) => {
                if let Some(statement) = self.statement(number) {
                    *stage = Stage::Testing(statement, Instant::now());
                }
                return Ok(None);
            }
            // The former has restarted the time limit; the latter was kept.
            Report::Progress | Report::Inside(_) => return Ok(None),
            Report::Done => {
                *stage = Stage::Ending;
                return Ok(None);
            }
            Report::Holds(number) => (number, Outcome::Holds),
            Report::Lacks(number, why) => (number, Outcome::Lacks(why)),
            Report::Broken(number, why) => (number, Outcome::Broken(why)),
        };
        let Stage::Testing(statement, since) = *stage else {
            return Ok(None);
        };
        *stage = Stage::Between;
        self.tested.push(number);
        Ok(Some(judgement(statement, outcome, since)))
    }

    /// Turns the end or the silence of the process at `stage` into a verdict.
    fn end(&mut self, stage: &Stage, outcome: Outcome) -> Result<Option<Judgement>, SuiteError> {
        match *stage {
            Stage::Opening => Err(SuiteError::Unusable(format!(
                "loading the provider, opening the IA and closing it again: {}",
                outcome.why().unwrap_or_default()
            ))),
            Stage::Testing(statement, since) => {
                let number = self
                    .statements
                    .iter()
                    .find(|(_, s)| std::ptr::eq(*s, statement));
                self.tested.extend(number.map(|(number, _)| *number));
                Ok(Some(judgement(statement, outcome, since)))
            }
            Stage::Between | Stage::Ending => {
                // Between two statements the process does nothing, so its threads are at fault; the next process goes on.
                if matches!(stage, Stage::Between) && self.tested.is_empty() {
                    self.tested
                        .extend(self.statements.first().map(|(number, _)| *number));
                }
                let (page, says) = END;
                Ok(Some(Judgement {
                    page,
                    says,
                    outcome,
                    time: Duration::ZERO,
                }))
            }
        }
    }
}

fn judgement(statement: &Statement, outcome: Outcome, since: Instant) -> Judgement {
    Judgement {
        page: statement.page,
        says: statement.says,
        outcome,
        time: since.elapsed(),
    }
}

/// Says how a process ended.
fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(libc::SIGSEGV), _) => "the process was killed by SIGSEGV: an invalid access".into(),
        (Some(libc::SIGABRT), _) => {
            "the process was killed by SIGABRT: an abort or a failed assertion".into()
        }
        (Some(libc::SIGBUS), _) => "the process was killed by SIGBUS".into(),
        (Some(signal), _) => format!("the process was killed by signal {signal}"),
        (None, code) => format!("the process exited with status {}", code.unwrap_or(-1)),
    }
}

/// What came from a test process.
enum Heard {
    Said(Report),
    Ended(ExitStatus),
    Nothing,
}

/// A running test process, in a process group of its own. It is killed, with all processes that it started, when this is dropped.
struct Process {
    child: Child,
    reports: Receiver<Report>,
    /// Calls that last.
    inside: String,
}

impl Process {
    fn start(plan: &Plan, words: &[String]) -> Result<Self, SuiteError> {
        let name = plan.program.first().cloned().unwrap_or_default();
        let failed = |error: std::io::Error| SuiteError::NoProcess {
            program: name.clone(),
            why: error.to_string(),
        };
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        // Standard output is this program's report, so what a provider prints goes to standard error.
        let output = std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map_err(failed)?;
        let child = Command::new(&name)
            .args(plan.program.iter().skip(1))
            .args(words)
            .stdin(Stdio::from(OwnedFd::from(writer)))
            .stdout(Stdio::from(output))
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (sender, reports) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(reader).split(b'\n').map_while(Result::ok);
            for line in lines {
                let Some(report) = Report::parse(&String::from_utf8_lossy(&line)) else {
                    continue;
                };
                if sender.send(report).is_err() {
                    return;
                }
            }
        });
        let inside = String::new();
        Ok(Self {
            child,
            reports,
            inside,
        })
    }

    /// Waits for a report, the end of the process, or the time limit of silence. All reports of a process come before its end.
    fn next(&mut self, timeout: Duration) -> Heard {
        let end = Instant::now() + timeout;
        let mut ended = None;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match (self.reports.recv_timeout(left.min(LOOK)), ended) {
                // It is made all the time, and no progress.
                (Ok(Report::Inside(calls)), _) => self.inside = calls,
                (Ok(report), _) => return Heard::Said(report),
                (Err(RecvTimeoutError::Disconnected), Some(status)) => return Heard::Ended(status),
                (Err(RecvTimeoutError::Disconnected), None) => return self.wait(end),
                (Err(RecvTimeoutError::Timeout), _) if left.is_zero() => {
                    return ended.map_or(Heard::Nothing, Heard::Ended);
                }
                (Err(RecvTimeoutError::Timeout), None) => {
                    ended = self.child.try_wait().ok().flatten();
                    if ended.is_some() {
                        // A process that it started may keep the pipe open.
                        self.kill();
                    }
                }
                (Err(RecvTimeoutError::Timeout), Some(_)) => {}
            }
        }
    }

    /// Waits for the end of a process that closed the pipe.
    fn wait(&mut self, end: Instant) -> Heard {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Heard::Ended(status),
                _ if Instant::now() >= end => return Heard::Nothing,
                _ => sleep(PAUSE),
            }
        }
    }

    /// Kills the process and all that it started.
    fn kill(&self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: a plain call without pointers. No other process gets the number while a member of the group is left.
            unsafe { libc::killpg(group, libc::SIGKILL) };
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // After the kill this returns at once.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_some_hangs_in_a_row_the_limit_is_short_until_one_statement_does_not_hang() {
        let whole = Duration::from_secs(60);
        let mut patience = Patience::new(whole);
        let hang = |patience: &mut Patience| {
            let mut outcome = Outcome::Hung("silent".into());
            patience.take(&mut outcome);
            outcome.why().unwrap_or_default().to_owned()
        };
        assert_eq!(hang(&mut patience), "silent");
        assert_eq!(hang(&mut patience), "silent");
        assert_eq!(patience.limit, whole);
        let said = hang(&mut patience);
        assert!(said.contains("3 statements hung in a row"), "{said}");
        assert_eq!(patience.limit, SHORT);
        assert_eq!(hang(&mut patience), "silent");
        patience.take(&mut Outcome::Holds);
        assert_eq!(patience.limit, whole);
        // A limit that is short already stays.
        let mut short = Patience::new(Duration::from_secs(2));
        for _ in 0..4 {
            assert_eq!(hang(&mut short), "silent");
        }
        assert_eq!(short.limit, Duration::from_secs(2));
    }
}
