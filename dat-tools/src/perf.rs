//! `dat perf`: measures the operations of an IA against `dat serve`.

use std::path::Path;

use dat::Ia;
use serde_json::json;

use crate::cli::{Measure, Perf};
use crate::measure::bandwidth::Bandwidth;
use crate::measure::chart::chart;
use crate::measure::histogram::Histogram;
use crate::measure::interrupt::Interrupt;
use crate::measure::latency::Latency;
use crate::measure::plan::{Limits, Step, plan};
use crate::measure::progress::Progress;
use crate::measure::report::{self, Figures, Rate, Row};
use crate::measure::session::{Fault, Target};
use crate::measure::svg::svg;
use crate::{Outcome, open, read};

/// Characters of the longest bar of the plot as text.
const BAR: usize = 50;

/// Measures and prints.
pub(crate) fn run(arguments: &Perf, json: bool) -> Outcome {
    if let Some(path) = &arguments.plot {
        require_writable(path, arguments.force)?;
    }
    let interrupt = Interrupt::catch()?;
    open::require_host(arguments.ia.as_deref(), &arguments.host, "perf")?;
    let ia = open::ia(arguments.ia.as_deref())?;
    let plan = plan(arguments, limits(&ia)?)?;
    for text in &plan.left_out {
        eprintln!("dat: {text}");
    }
    let name = ia.name().to_owned();
    let target = Target::find(ia, &arguments.host, arguments.port)?;
    let style = match (json, arguments.csv) {
        (true, _) => Style::Json,
        (_, true) => Style::Csv,
        _ => Style::Text,
    };
    if style == Style::Csv {
        println!("{}", report::CSV);
    }
    let rows = measure_all(&target, &interrupt, &plan.steps, style)?;
    if style == Style::Json {
        let all: Vec<_> = rows.iter().map(Row::json).collect();
        let value = json!({
            "ia": name,
            "host": arguments.host,
            "address": target.address,
            "waiting": arguments.wait,
            "validated": arguments.validate,
            "results": all,
            "left_out": plan.left_out,
        });
        crate::out::json(&value, false);
    }
    if arguments.graph {
        crate::out::text(&chart(&rows, BAR));
    }
    if let Some(path) = &arguments.plot {
        let title = format!("dat perf {name} {}", arguments.host);
        read::write(&svg(&title, &rows), Some(path), arguments.force)?;
    }
    Ok(())
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Text,
    Csv,
    Json,
}

fn measure_all(
    target: &Target,
    interrupt: &Interrupt,
    steps: &[Step],
    style: Style,
) -> Outcome<Vec<Row>> {
    let mut progress = Progress::new(steps.len());
    let mut rows: Vec<Row> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &steps[at]);
        let is_new = before.is_none_or(|b| b.op != step.op || b.measure != step.measure);
        progress.begin(at, step.label());
        let row = measure(target, interrupt, *step, &mut progress, &|| {
            if style == Style::Text && is_new {
                let gap = if at > 0 { "\n" } else { "" };
                println!("{gap}{}", report::head(step));
            }
        });
        progress.erase();
        let row = row.map_err(|fault| {
            format!(
                "{}: {fault} ({} of {} measurements are complete)",
                step.label(),
                rows.len(),
                steps.len()
            )
        })?;
        match style {
            Style::Text => println!("{}", row.line()),
            Style::Csv => println!("{}", row.csv()),
            Style::Json => {}
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Makes one measurement; `connected` is called when it begins.
fn measure(
    target: &Target,
    interrupt: &Interrupt,
    step: Step,
    progress: &mut Progress,
    connected: &dyn Fn(),
) -> Result<Row, Fault> {
    let (iterations, figures) = match step.measure {
        Measure::Latency => {
            let latency = Latency::open(target, interrupt, step)?;
            connected();
            let times = latency.run(|share| progress.show(share))?;
            (times.count(), latency_figures(&times, &step))
        }
        Measure::Bandwidth => {
            let bandwidth = Bandwidth::open(target, interrupt, step)?;
            connected();
            let checkpoints = bandwidth.run(|share| progress.show(share))?;
            let count = checkpoints.last().map_or(0, |last| last.done);
            (count, Rate::of(&checkpoints).map(Figures::Bandwidth))
        }
    };
    Ok(Row {
        op: step.op,
        bytes: step.size,
        connections: step.connections,
        iterations,
        // Each measurement has at least one operation.
        figures: figures.ok_or(Fault::Interrupted)?,
    })
}

/// Returns the figures in microseconds. What the server sends back is a round trip, of which perftest reports half.
fn latency_figures(times: &Histogram, step: &Step) -> Option<Figures> {
    let trips = if step.op.is_echoed() { 2.0 } else { 1.0 };
    times.summary(0.001 / trips).map(Figures::Latency)
}

fn limits(ia: &Ia) -> Result<Limits, dat::Error> {
    let attributes = ia.attributes()?;
    Ok(Limits {
        message: attributes.max_message_size,
        rdma: attributes.max_rdma_size,
        atomics: attributes.ib_extension,
        posts: attributes.max_posts,
        events: attributes.max_evd_queue,
    })
}

/// Fails before the measurement if the plot could not be written after it.
fn require_writable(path: &Path, force: bool) -> Outcome {
    if !force && path.symlink_metadata().is_ok() {
        return Err(format!("{} exists; --force replaces it", path.display()).into());
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(format!(
            "cannot write {}: there is no folder {}",
            path.display(),
            folder.display()
        )
        .into());
    }
    Ok(())
}
