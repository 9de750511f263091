//! Out of memory on the user engine: a C program as client and server with a limited address space (RLIMIT_AS), at
//! many limits between the needs of loading and of the whole run. Each call reports the lack or succeeds; the process
//! neither crashes nor hangs, and with the limit lifted all calls succeed.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dat_tests::prefix::PREFIX;

/// Time limit, far more than a run takes on a busy machine: a longer run hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMITS: u64 = 200;
/// Messages of the C library when it has no memory for thread-local variables and ends the process, which a library
/// cannot prevent.
const OF_LIBC: [&str; 2] = ["thread-local data", "TLS destructor"];

fn run(bytes: u64) -> Output {
    let program = PREFIX.path("scarce");
    let mut child = Command::new(program)
        .args(["scarce1", "scarce2", &bytes.to_string()])
        .env("LD_LIBRARY_PATH", PREFIX.path(""))
        .env("DAT_OVERRIDE", PREFIX.path("scarce.conf"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let begin = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("with {bytes} bytes the program hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its words")
}

#[test]
fn out_of_memory_is_an_error_wherever_it_happens() {
    let _ = PREFIX.compile("gcc", "scarce.c", &["-ldat2"], "scarce");
    let line = |host: u8| {
        let params = format!("127.68.1.{host} 0 engine=user");
        dat_tests::line(
            &format!("scarce{host}"),
            &PREFIX.path("softrxe.so"),
            &params,
        )
    };
    std::fs::write(PREFIX.path("scarce.conf"), line(1) + &line(2)).expect("dat.conf");
    let all = run(0);
    let said = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(all.status.success(), "{said}");
    let need: u64 = said
        .strip_prefix("scarce: mapped ")
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .expect("what it takes");
    let (mut passed, mut refused, mut of_libc) = (0, 0, 0);
    for n in 0..LIMITS {
        // The lowest limits are too small to load the provider's library.
        let bytes = need / LIMITS * (n + 1);
        let output = run(bytes);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let died = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() && OF_LIBC.iter().any(|words| died.contains(words)) {
            of_libc += 1;
            continue;
        }
        assert!(output.status.success(), "with {bytes} bytes: {said} {died}");
        if said.contains("PASS") {
            passed += 1;
            continue;
        }
        // DAT_INSUFFICIENT_RESOURCES with any subtype.
        assert!(
            said.contains("refused") && said.contains(" 0x8003"),
            "{said}"
        );
        refused += 1;
    }
    assert!(passed > 0 && refused > LIMITS / 4, "{passed} and {refused}");
    assert!(of_libc < LIMITS / 20, "{of_libc} ended in the C library");
}
