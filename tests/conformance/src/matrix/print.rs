//! The matrix as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dat_core::error::Kind;

use super::{LIBRARY, Provider, REFUSALS, Refusal, Row, all_exceptions, refusal, rows};
use crate::api::Api;
use crate::pages::{STATEMENTS, Statement};

/// Returns the text of MATRIX.md.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    totals(&mut out);
    functions(&mut out);
    refusals(&mut out);
    exceptions(&mut out);
    out.push_str(RECORDED);
    libraries(&mut out);
    statements(&mut out);
    out
}

const HEAD: &str = "\
# What works where

Written by `make matrix` (`dat-conformance --matrix`); a test compares. Do not edit.

The cells are proved by running code: the conformance suite puts its statements to a provider through the function table of
either version and records each call. `yes`: a call succeeded, and the statements hold. Otherwise the return code and the number of its
[reason](#refusals): every call was refused with that code. `make test` proves all four columns on
every run: the loopback and softrxe's user engine on any host (`tests/conformance/tests/{loopback,user_engine}.rs`), ibverbs and softrxe's kernel
engine on rdma_rxe in the lab (`tests/conformance/tests/lab_conformance.rs`). By hand, for a provider of your own:
`dat conform PROVIDER.so --params \"PARAMS\" --api both` ([docs/writing-a-provider.md](docs/writing-a-provider.md#testing-it)).
";

/// Results of `dat conform` on real providers, with those of DAPL.
const RECORDED: &str = include_str!("recorded.txt");

/// Writes a line to a `String`, which cannot fail.
macro_rules! line {
    ($out:ident, $($text:tt)*) => {
        let _ = writeln!($out, $($text)*);
    };
}

/// Returns true if the row exists in this version.
fn has(row: Row, api: Api) -> bool {
    rows(api).contains(&row)
}

fn number(of: &Refusal) -> usize {
    REFUSALS
        .iter()
        .position(|r| std::ptr::eq(r, of))
        .map_or(0, |at| at + 1)
}

/// Returns the code without `DAT_`, to keep the tables narrow.
fn short(kind: Kind) -> &'static str {
    kind.name().trim_start_matches("DAT_")
}

fn cell(row: Row, provider: Provider) -> String {
    match refusal(row, provider) {
        None => "yes".into(),
        Some(r) => format!("{} [{}]", short(r.kind), number(r)),
    }
}

fn is_extension(row: Row) -> bool {
    row.function.starts_with("dat_ib_")
}

/// Counts the rows of `which` that work, and those refused with each code.
fn count(provider: Provider, which: &[Row]) -> (usize, usize, usize) {
    let kinds = which
        .iter()
        .map(|row| refusal(*row, provider).map(|r| r.kind));
    kinds.fold(
        (0, 0, 0),
        |(yes, not_supported, not_implemented), kind| match kind {
            None => (yes + 1, not_supported, not_implemented),
            Some(Kind::NotImplemented) => (yes, not_supported, not_implemented + 1),
            Some(_) => (yes, not_supported + 1, not_implemented),
        },
    )
}

fn all_statements() -> impl Iterator<Item = &'static Statement> {
    STATEMENTS.iter().copied().flatten()
}

fn totals(out: &mut String) {
    line!(out, "\n## Totals\n");
    line!(
        out,
        "| | functions | {} |",
        Provider::ALL.map(Provider::name).join(" | ")
    );
    line!(out, "|---|---|---|---|---|---|");
    let functions = |api| rows(api).into_iter().filter(|row| row.with.is_none());
    for (name, which) in [
        ("1.2", functions(Api::V1_2).collect::<Vec<_>>()),
        (
            "2.0",
            functions(Api::V2_0).filter(|r| !is_extension(*r)).collect(),
        ),
        (
            "2.0, IB extension",
            functions(Api::V2_0).filter(|r| is_extension(*r)).collect(),
        ),
    ] {
        let cells = Provider::ALL.map(|provider| {
            let (yes, not_supported, not_implemented) = count(provider, &which);
            let mut text = format!("{yes} yes");
            if not_supported > 0 {
                let _ = write!(text, ", {not_supported} not supported");
            }
            if not_implemented > 0 {
                let _ = write!(text, ", {not_implemented} not implemented");
            }
            text
        });
        line!(out, "| {name} | {} | {} |", which.len(), cells.join(" | "));
    }
    let pages: BTreeMap<&str, usize> = all_statements().map(|s| (s.page, 0)).collect();
    let both = all_statements().filter(|s| s.since == Api::V1_2).count();
    line!(
        out,
        "\n{} statements of {} pages: {both} apply to both versions, {} to 2.0 only.",
        all_statements().count(),
        pages.len(),
        all_statements().count() - both,
    );
    let broken = |provider: Provider| {
        let of = all_exceptions().filter(|e| e.providers.contains(&provider));
        format!("{} {}", provider.name(), of.count())
    };
    line!(
        out,
        "Statements that do not hold ([why](#exceptions)): {}.",
        Provider::ALL.map(broken).join(", "),
    );
}

fn functions(out: &mut String) {
    line!(out, "\n## Functions\n");
    line!(
        out,
        "| function | version | {} | tested by |",
        Provider::ALL.map(Provider::name).join(" | ")
    );
    line!(out, "|---|---|---|---|---|---|---|");
    for row in rows(Api::V2_0) {
        let version = match (has(row, Api::V1_2), is_extension(row)) {
            (true, _) => "1.2, 2.0",
            (false, false) => "2.0",
            (false, true) => "2.0 extension",
        };
        let name = match row.with {
            None => format!("`{}`", row.page()),
            Some(with) => format!("… with {with}"),
        };
        let of_page = all_statements().filter(|s| s.page == row.page()).count();
        let tested = match row.with {
            None => format!("{of_page} statement{}", if of_page == 1 { "" } else { "s" }),
            Some(_) => "among them".into(),
        };
        let cells = Provider::ALL.map(|provider| cell(row, provider));
        line!(
            out,
            "| {name} | {version} | {} | {tested} |",
            cells.join(" | ")
        );
    }
}

fn refusals(out: &mut String) {
    line!(out, "\n## Refusals\n");
    for (at, r) in REFUSALS.iter().enumerate() {
        line!(out, "{}. `{}`: {}.", at + 1, r.kind.name(), r.why);
    }
}

fn exceptions(out: &mut String) {
    line!(out, "\n## Exceptions\n");
    line!(out, "| page | statement | does not hold on | because |");
    line!(out, "|---|---|---|---|");
    for e in all_exceptions() {
        let providers: Vec<_> = e.providers.iter().map(|p| p.name()).collect();
        line!(
            out,
            "| `{}` | {} | {} | {} |",
            e.page,
            e.says,
            providers.join(", "),
            e.why
        );
    }
}

fn libraries(out: &mut String) {
    line!(out, "\n## Functions of the libraries\n");
    line!(
        out,
        "All functions above are exported by libdat2.so.2, those of 1.2 by libdat.so.1 (extensions through `dat_extension_op`), and:\n"
    );
    line!(out, "| function | libdat.so.1 | libdat2.so.2 | tested by |");
    line!(out, "|---|---|---|---|");
    for f in LIBRARY {
        let word = |has| if has { "yes" } else { "" };
        line!(
            out,
            "| `{}` | {} | {} | `{}` |",
            f.name,
            word(f.libdat),
            word(f.libdat2),
            f.tested_by
        );
    }
}

fn statements(out: &mut String) {
    line!(out, "\n## Statements");
    let mut pages: BTreeMap<&str, Vec<&Statement>> = BTreeMap::new();
    for s in all_statements() {
        pages.entry(s.page).or_default().push(s);
    }
    for (page, of) in pages {
        line!(out, "\n{page}:");
        for s in of {
            line!(out, "- {}", s.says);
        }
    }
}
