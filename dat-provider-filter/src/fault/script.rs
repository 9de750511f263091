//! The script of a `fault` filter: one rule a line, `TARGET WHEN WHAT`. docs/design/filters.md has the grammar.

use std::time::Duration;

use dat_core::error::{Error, Kind};

use crate::filter::Operation;
use crate::slots::Slot;

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// Number of its line, from 1.
    pub(crate) line: usize,
    /// The line, without what surrounds the words.
    pub(crate) text: String,
    /// What it is about.
    pub(crate) target: Target,
    /// Which ones.
    pub(crate) when: When,
    /// The fault.
    pub(crate) what: What,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Calls of a function.
    Call(Slot),
    /// Completions of an operation, or all.
    Completion(Option<Operation>),
}

/// Which calls or completions of a target are meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// The one with this number, from 1.
    Nth(u64),
    /// Each whose number is a multiple.
    Every(u64),
    /// Each with this probability.
    Chance(f64),
    /// The first one after this time, counted from the first open of an IA.
    After(Duration),
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The post is not made but succeeds; the completion is not delivered.
    Drop,
    /// The call, or the delivery of the completion, takes longer.
    Delay(Duration),
    /// The call is not made and returns this code.
    FailCall(u32),
    /// The completion has this status.
    FailCompletion(u32),
    /// This many bytes of what was received or read are changed.
    Corrupt(u64),
    /// The endpoint is disconnected abruptly.
    Disconnect,
    /// The process is killed.
    Kill,
}

/// The reason why a script cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {word:?} is not possible: {expected}")]
pub(crate) struct ScriptError {
    line: usize,
    word: String,
    expected: String,
}

/// Statuses of completions, in the order of their numbers from 1 on.
const STATUSES: [&str; 11] = [
    "DAT_DTO_ERR_FLUSHED",
    "DAT_DTO_ERR_LOCAL_LENGTH",
    "DAT_DTO_ERR_LOCAL_EP",
    "DAT_DTO_ERR_LOCAL_PROTECTION",
    "DAT_DTO_ERR_BAD_RESPONSE",
    "DAT_DTO_ERR_REMOTE_ACCESS",
    "DAT_DTO_ERR_REMOTE_RESPONDER",
    "DAT_DTO_ERR_TRANSPORT",
    "DAT_DTO_ERR_RECEIVER_NOT_READY",
    "DAT_DTO_ERR_PARTIAL_PACKET",
    "DAT_RMR_OPERATION_FAILED",
];

/// Slots whose handle is an endpoint, for `disconnect`.
fn is_of_endpoint(slot: Slot) -> bool {
    slot.name().starts_with("dat_ep_") && !slot.name().starts_with("dat_ep_create")
}

/// Slots that post a request, for `drop`.
fn posts_request(slot: Slot) -> bool {
    slot.name().starts_with("dat_ep_post_") && slot != Slot::ep_post_recv
}

/// Parses a script. Blank lines, and what follows a `#`, are ignored.
///
/// # Errors
/// [`ScriptError`] for the first wrong word.
pub(crate) fn parse(text: &str) -> Result<Vec<Rule>, ScriptError> {
    let mut rules = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = at + 1;
        let wrong = |word: &str, expected: String| ScriptError {
            line: number,
            word: word.to_owned(),
            expected,
        };
        match words[..] {
            [] => {}
            [first, second, third] => {
                let target = target(first).map_err(|expected| wrong(first, expected))?;
                rules.push(Rule {
                    line: number,
                    text: words.join(" "),
                    target,
                    when: when(second).map_err(|expected| wrong(second, expected))?,
                    what: what(third, target).map_err(|expected| wrong(third, expected))?,
                });
            }
            _ => {
                let expected =
                    "a rule has three words, TARGET WHEN WHAT, such as completion:send nth=3 drop";
                return Err(wrong(line.trim(), expected.into()));
            }
        }
    }
    Ok(rules)
}

fn target(word: &str) -> Result<Target, String> {
    if let Some(operation) = word.strip_prefix("completion:") {
        let found = Operation::ALL.into_iter().find(|o| o.word() == operation);
        return match operation {
            "any" => Ok(Target::Completion(None)),
            _ => found.map(|o| Target::Completion(Some(o))).ok_or_else(|| {
                let words = Operation::ALL.map(Operation::word).join(", ");
                format!("completions are of any, {words}")
            }),
        };
    }
    let found = Slot::ALL.iter().find(|(_, name)| *name == word);
    found
        .map(|(slot, _)| Target::Call(*slot))
        .ok_or_else(|| "write a function such as dat_ep_connect, or completion:OPERATION; dat_ia_open cannot be named".into())
}

fn when(word: &str) -> Result<When, String> {
    let expected = "write nth=N, every=N, chance=P with P from 0 to 1, or after=MILLISECONDS";
    let (key, value) = word.split_once('=').ok_or(expected)?;
    let number = || value.parse().ok().filter(|n| *n > 0);
    let parsed = match key {
        "nth" => number().map(When::Nth),
        "every" => number().map(When::Every),
        "after" => value
            .parse()
            .ok()
            .map(Duration::from_millis)
            .map(When::After),
        "chance" => {
            let chance = value.parse().ok().filter(|p| (0.0..=1.0).contains(p));
            chance.map(When::Chance)
        }
        _ => None,
    };
    parsed.ok_or_else(|| expected.into())
}

fn what(word: &str, target: Target) -> Result<What, String> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let number = |usual: Option<u64>| match value {
        "" => usual,
        value => value.parse().ok().filter(|n| *n > 0),
    };
    match (key, target) {
        ("delay", _) => number(None)
            .map(|ms| What::Delay(Duration::from_millis(ms)))
            .ok_or_else(|| "write delay=MILLISECONDS".into()),
        ("kill", _) => Ok(What::Kill),
        ("drop", Target::Call(slot)) if !posts_request(slot) => {
            Err("only completions and the calls that post requests can be dropped".into())
        }
        ("drop", _) => Ok(What::Drop),
        ("disconnect", Target::Call(slot)) if !is_of_endpoint(slot) => {
            Err("only completions and calls of endpoints name a connection".into())
        }
        ("disconnect", _) => Ok(What::Disconnect),
        ("fail", Target::Call(_)) => call_error(value),
        ("fail", Target::Completion(_)) => status(value),
        ("corrupt", Target::Completion(None | Some(Operation::Receive | Operation::Read))) => {
            number(Some(1))
                .map(What::Corrupt)
                .ok_or_else(|| "write corrupt, or corrupt=BYTES".into())
        }
        ("corrupt", _) => Err("only what was received or read can be corrupted".into()),
        _ => Err("write drop, delay=MILLISECONDS, fail=NAME, corrupt, disconnect or kill".into()),
    }
}

fn call_error(name: &str) -> Result<What, String> {
    let found = Kind::ALL.iter().find(|kind| kind.name() == name);
    found
        .map(|kind| What::FailCall(Error::of(*kind).code()))
        .ok_or_else(|| {
            "write fail=ERROR with an error of dat_error.h, such as fail=DAT_INSUFFICIENT_RESOURCES"
                .into()
        })
}

fn status(name: &str) -> Result<What, String> {
    let found = STATUSES.iter().position(|status| *status == name);
    found
        .map(|at| What::FailCompletion(at as u32 + 1))
        .ok_or_else(|| format!("write fail=STATUS with one of {}", STATUSES.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_rule_is_parsed() {
        let rules = parse(
            "# a comment\n\ndat_ep_post_send nth=3 fail=DAT_INSUFFICIENT_RESOURCES # why\n\
             completion:receive chance=0.5 corrupt=4\ncompletion:any every=10 fail=DAT_DTO_ERR_TRANSPORT\n\
             dat_evd_wait after=2000 kill\ndat_ep_post_rdma_write nth=1 drop\ndat_ep_connect nth=1 delay=5\n\
             completion:send nth=2 disconnect\n",
        );
        let rules = rules.expect("a script");
        let lines: Vec<usize> = rules.iter().map(|rule| rule.line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(
            rules[0].text,
            "dat_ep_post_send nth=3 fail=DAT_INSUFFICIENT_RESOURCES"
        );
        assert_eq!(rules[0].what, What::FailCall(0x8003_0000));
        assert_eq!(
            rules[1].target,
            Target::Completion(Some(Operation::Receive))
        );
        assert_eq!(
            (rules[1].when, rules[1].what),
            (When::Chance(0.5), What::Corrupt(4))
        );
        assert_eq!(
            (rules[2].target, rules[2].what),
            (Target::Completion(None), What::FailCompletion(8))
        );
        assert_eq!(rules[3].when, When::After(Duration::from_secs(2)));
    }

    #[test]
    fn a_wrong_word_is_named_with_its_line() {
        for (rule, word, hint) in [
            ("dat_ia_open nth=1 kill", "dat_ia_open", "cannot be named"),
            (
                "completion:write nth=1 drop",
                "completion:write",
                "rdma_write",
            ),
            ("completion:any nth=0 drop", "nth=0", "nth=N"),
            (
                "completion:any chance=1.5 drop",
                "chance=1.5",
                "from 0 to 1",
            ),
            (
                "completion:any nth=1 fail=DAT_ABORT",
                "fail=DAT_ABORT",
                "DAT_DTO_ERR_FLUSHED",
            ),
            ("dat_ep_connect nth=1 drop", "drop", "post requests"),
            ("dat_pz_free nth=1 disconnect", "disconnect", "connection"),
            (
                "completion:send nth=1 corrupt",
                "corrupt",
                "received or read",
            ),
            ("dat_pz_free nth=1", "dat_pz_free nth=1", "three words"),
        ] {
            let error = parse(&format!("\n{rule}")).expect_err(rule).to_string();
            assert!(
                error.contains("line 2") && error.contains(word) && error.contains(hint),
                "{rule}: {error}"
            );
        }
    }
}
