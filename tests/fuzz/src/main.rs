//! Runs the fuzz bodies without a fuzzer: writes seeds for one, replays a finding, or mutates the captures for some time.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dat_fuzz::{BODIES, body, captures, mutate::Mutator};

const USAGE: &str = "usage: dat-fuzz --seeds FOLDER      write FOLDER/BODY/NUMBER for each seed
       dat-fuzz --replay BODY FILE...   run the body on files
       dat-fuzz BODY SECONDS [SEED]     run it on mutated captures";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--seeds", folder] => seeds(Path::new(folder)),
        ["--replay", name, ref files @ ..] => replay(name, files),
        [name, seconds] => run(name, seconds, "0"),
        [name, seconds, seed] => run(name, seconds, seed),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn seeds(folder: &Path) -> Result<(), String> {
    for (name, _) in BODIES {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let seeds = captures::seeds(name).map_err(|e| format!("captures: {e}"))?;
        for (number, seed) in seeds.iter().enumerate() {
            let path = folder.join(number.to_string());
            std::fs::write(&path, seed).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

fn replay(name: &str, files: &[&str]) -> Result<(), String> {
    let body = body(name).ok_or(USAGE)?;
    for file in files {
        let data = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        println!("{file}: {} bytes", data.len());
        body(&data);
    }
    Ok(())
}

fn run(name: &str, seconds: &str, seed: &str) -> Result<(), String> {
    let body = body(name).ok_or(USAGE)?;
    let limit = Duration::from_secs(seconds.parse().map_err(|_| USAGE)?);
    let seeds = captures::seeds(name).map_err(|e| format!("captures: {e}"))?;
    let mut mutator = Mutator::new(seed.parse().map_err(|_| USAGE)?, seeds);
    let (begin, mut runs) = (Instant::now(), 0u64);
    while begin.elapsed() < limit {
        let input = mutator.input();
        if std::panic::catch_unwind(|| body(&input)).is_err() {
            let file = format!("finding-{name}-{seed}-{runs}");
            std::fs::write(&file, &input).map_err(|e| format!("{file}: {e}"))?;
            return Err(format!(
                "run {runs}: see above; `dat-fuzz --replay {name} {file}` shows it again"
            ));
        }
        runs += 1;
    }
    println!("{name}: {runs} runs in {} s, no finding", limit.as_secs());
    Ok(())
}
