//! Resources that random calls leave in this process.

use std::ffi::CString;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dat_conformance::raw::{self, Plan, Target};
use dat_conformance::{Table, Verdict};

/// Returns the number of descriptors and threads of this process.
fn held() -> (usize, usize) {
    let count = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count);
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// Time limit for threads to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes random calls in two rounds. Descriptors and threads that exist after the second round and not after the
/// first, with all IAs closed, were leaked by it. The first round may create resources that live as long as the
/// process.
pub(crate) fn check(opener: Table, name: &str, seconds: u64) -> ExitCode {
    let target = Target {
        opener,
        name: CString::new(name).unwrap_or_default(),
    };
    let round = |seed| {
        let plan = Plan {
            seed,
            threads: 2,
            span: Duration::from_secs(seconds),
        };
        let tally = raw::fuzz(&target, &[], plan)?;
        println!("seed {seed}: {tally:?}");
        Ok::<_, Verdict>(())
    };
    if let Err(why) = round(1) {
        eprintln!("{why:?}");
        return ExitCode::FAILURE;
    }
    sleep(Duration::from_millis(100));
    let before = held();
    if let Err(why) = round(2) {
        eprintln!("{why:?}");
        return ExitCode::FAILURE;
    }
    let begun = Instant::now();
    let mut after = held();
    while (after.0 > before.0 || after.1 > before.1) && begun.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(20));
        after = held();
    }
    if after.0 > before.0 || after.1 > before.1 {
        eprintln!(
            "descriptors and threads: {before:?} before, {after:?} after all IAs were closed"
        );
        return ExitCode::FAILURE;
    }
    println!(
        "nothing is left over: {} descriptors, {} threads",
        after.0, after.1
    );
    ExitCode::SUCCESS
}
