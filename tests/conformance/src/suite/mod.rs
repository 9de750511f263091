//! Judges a provider in processes of their own. A provider under test may crash or hang; both are verdicts on the statement
//! that was being tested, and the statements after it are tested in a new process.
//!
//! [`judge_all`] runs in the program that the user starts. It starts the same program again for each group of statements,
//! which calls [`serve`] and reports through a pipe (`report.rs`).

mod child;
mod parent;
mod report;

use std::path::PathBuf;
use std::time::Duration;

pub use child::serve;
pub use parent::judge_all;

use crate::api::Api;
use crate::dat::Launcher;
use crate::pages::{STATEMENTS, Statement};

/// The provider under test.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Path of the shared object, or its name for the dynamic loader.
    pub library: PathBuf,
    /// Name of the IA.
    pub name: String,
    /// `ia_params` of the IA.
    pub params: String,
    /// Version of the function table.
    pub api: Api,
}

impl Subject {
    /// Returns how statements start a second process with this provider: `program` passes what follows its own arguments to [`serve`].
    #[must_use]
    pub fn launcher(&self, program: &[String]) -> Launcher {
        let mut command = program.to_vec();
        command.extend(child::words(self));
        Launcher { command }
    }
}

/// How statements are chosen and tested.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program and its first arguments; a test process gets further ones, which the program passes to [`serve`].
    pub program: Vec<String>,
    /// Only statements of these pages; all if there is none.
    pub pages: Vec<String>,
    /// Only the statements with these texts; all if there is none.
    pub says: Vec<String>,
    /// Longest time without progress: a statement may last longer if it reports progress. Also the time limit of loading the provider,
    /// opening the IA and closing it again.
    pub timeout: Duration,
}

/// Result of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The statement holds.
    Holds,
    /// The provider reports that it does not support this.
    Lacks(String),
    /// The provider behaves differently.
    Broken(String),
    /// The process ended during the test, by a signal or an exit.
    Crashed(String),
    /// The test made no progress for as long as the time limit.
    Hung(String),
}

impl Outcome {
    /// Returns the word for a report.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Lacks(_) => "lacks",
            Self::Broken(_) => "broken",
            Self::Crashed(_) => "crashed",
            Self::Hung(_) => "hung",
        }
    }

    /// Returns the reason why the statement does not hold.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Holds => None,
            Self::Lacks(why) | Self::Broken(why) | Self::Crashed(why) | Self::Hung(why) => {
                Some(why)
            }
        }
    }

    /// Returns true unless the statement holds, or concerns what the provider lacks.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Holds | Self::Lacks(_))
    }
}

/// A judged statement.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Page of the statement.
    pub page: &'static str,
    /// What the statement says.
    pub says: &'static str,
    /// Its result.
    pub outcome: Outcome,
    /// Duration of the test.
    pub time: Duration,
}

/// Numbers of statements by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Statements that hold.
    pub holds: usize,
    /// Statements about what the provider lacks.
    pub lacks: usize,
    /// Statements that do not hold.
    pub broken: usize,
    /// Statements during which the process ended.
    pub crashed: usize,
    /// Statements that made no progress in time.
    pub hung: usize,
}

impl Counts {
    /// Counts the results of judged statements.
    #[must_use]
    pub fn of(all: &[Judgement]) -> Self {
        let mut counts = Self::default();
        for one in all {
            match one.outcome {
                Outcome::Holds => counts.holds += 1,
                Outcome::Lacks(_) => counts.lacks += 1,
                Outcome::Broken(_) => counts.broken += 1,
                Outcome::Crashed(_) => counts.crashed += 1,
                Outcome::Hung(_) => counts.hung += 1,
            }
        }
        counts
    }

    /// Returns the number of statements that fail.
    #[must_use]
    pub const fn failures(&self) -> usize {
        self.broken + self.crashed + self.hung
    }
}

/// The reason why no statement, or no further one, could be tested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// The provider does not load, or does not open the IA.
    #[error("{0}")]
    Unusable(String),
    /// No statement has one of the requested pages in this version.
    #[error("no statement of uDAPL {api} has the page {pages}; --list prints the pages")]
    NoStatement {
        /// The requested pages.
        pages: String,
        /// The version.
        api: Api,
    },
    /// This program cannot be started again.
    #[error("cannot start {program} for a test process: {why}")]
    NoProcess {
        /// The program.
        program: String,
        /// Error of the kernel.
        why: String,
    },
}

/// Page and text of the statement about the end of a test process. It has no test of its own: a process that crashes or hangs after
/// its last statement breaks it.
pub const END: (&str, &str) = (
    "every page",
    "A process that has used the provider exits normally.",
);

/// Returns all statements with their numbers, which parent and child agree on as both are one program.
fn numbered() -> impl Iterator<Item = (usize, &'static Statement)> {
    STATEMENTS.iter().copied().flatten().enumerate()
}
