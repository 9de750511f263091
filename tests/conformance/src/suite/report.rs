//! What a test process reports, a line each.

/// A report of a test process. Numbers are those of statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The provider is loaded and opens the IA.
    Ready,
    /// The provider does not load, or does not open the IA.
    Unusable(String),
    /// The test of a statement begins.
    Begins(usize),
    /// The statement under test has made progress.
    Progress,
    /// The calls that last, separated by commas; empty if none does any more.
    Inside(String),
    /// The statement holds.
    Holds(usize),
    /// The provider reports that it does not support this.
    Lacks(usize, String),
    /// The provider behaves differently.
    Broken(usize, String),
    /// All statements are tested.
    Done,
}

impl Report {
    /// Returns the line, with the line break.
    pub(super) fn line(&self) -> String {
        let text = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            Self::Ready => "ready\n".into(),
            Self::Unusable(why) => format!("unusable {}\n", text(why)),
            Self::Begins(number) => format!("begins {number}\n"),
            Self::Progress => "progress\n".into(),
            Self::Inside(calls) => format!("inside {calls}\n"),
            Self::Holds(number) => format!("holds {number}\n"),
            Self::Lacks(number, why) => format!("lacks {number} {}\n", text(why)),
            Self::Broken(number, why) => format!("broken {number} {}\n", text(why)),
            Self::Done => "done\n".into(),
        }
    }

    /// Reads a line; `None` if it is no report, as where the provider writes to the pipe.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (number, why) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = number.parse();
        Some(match word {
            "ready" => Self::Ready,
            "unusable" => Self::Unusable(rest.to_owned()),
            "begins" => Self::Begins(number.ok()?),
            "progress" => Self::Progress,
            "inside" => Self::Inside(rest.to_owned()),
            "holds" => Self::Holds(number.ok()?),
            "lacks" => Self::Lacks(number.ok()?, why.to_owned()),
            "broken" => Self::Broken(number.ok()?, why.to_owned()),
            "done" => Self::Done,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn each_report_is_read_as_it_was_written() {
        let why = || "it returned 5; expected 6".to_owned();
        for report in [
            Report::Ready,
            Report::Unusable(why()),
            Report::Begins(0),
            Report::Progress,
            Report::Inside("dat_evd_wait, dat_ep_free".into()),
            Report::Inside(String::new()),
            Report::Holds(7),
            Report::Lacks(8, why()),
            Report::Broken(9, why()),
            Report::Done,
        ] {
            let line = report.line();
            assert_eq!(
                Report::parse(line.trim_end_matches('\n')),
                Some(report),
                "{line}"
            );
        }
        let line = Report::Broken(1, "two\nlines".into()).line();
        assert_eq!(line, "broken 1 two lines\n");
        for other in ["", "holds", "holds x", "dapl: holds 1"] {
            assert_eq!(Report::parse(other), None, "{other}");
        }
    }
}
