//! The report in JUnit's XML, as CI servers read it: a suite for each version, a case for each statement.

use std::fmt::Write as _;
use std::time::Duration;

use dat_conformance::suite::{Counts, Outcome};

use super::run::Run;

/// Returns the report.
pub(super) fn report(runs: &[Run]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for run in runs {
        suite(&mut out, run);
    }
    out.push_str("</testsuites>\n");
    out
}

fn suite(out: &mut String, run: &Run) {
    let counts = Counts::of(&run.judged);
    let time: Duration = run.judged.iter().map(|one| one.time).sum();
    let seconds = time.as_secs_f64();
    let not_tested = usize::from(run.error.is_some());
    // A write to a `String` cannot fail.
    let _ = writeln!(
        out,
        "<testsuite name=\"uDAPL {} of {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds:.3}\">",
        run.subject.api,
        escaped(&run.subject.library.display().to_string()),
        run.judged.len() + not_tested,
        counts.broken,
        counts.crashed + counts.hung + not_tested,
        counts.lacks,
    );
    for one in &run.judged {
        let _ = write!(
            out,
            "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            escaped(one.page),
            escaped(one.says),
            one.time.as_secs_f64()
        );
        let element = match one.outcome {
            Outcome::Holds => {
                out.push_str("/>\n");
                continue;
            }
            Outcome::Lacks(_) => "skipped",
            Outcome::Broken(_) => "failure",
            Outcome::Crashed(_) | Outcome::Hung(_) => "error",
        };
        let why = escaped(one.outcome.why().unwrap_or_default());
        let _ = writeln!(out, "><{element} message=\"{why}\"/></testcase>");
    }
    if let Some(error) = &run.error {
        let why = escaped(&error.to_string());
        let _ = writeln!(
            out,
            "<testcase classname=\"dat_ia_open\" name=\"The provider loads and opens the IA.\"><error message=\"{why}\"/></testcase>"
        );
    }
    out.push_str("</testsuite>\n");
}

/// Returns text for an attribute. Control characters are not allowed in XML 1.0, so a space replaces each.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push(' '),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(
            escaped("a < \"b\" & c > d\n\u{7}"),
            "a &lt; &quot;b&quot; &amp; c &gt; d  "
        );
    }
}
