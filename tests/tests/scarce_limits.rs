//! Out of memory in an unmodified C program: `two_endpoints` under `ulimit -v`, from less than the provider's library
//! needs to more than the program needs. At each limit the program succeeds or a call returns
//! DAT_INSUFFICIENT_RESOURCES; it neither crashes nor hangs. The same holds if one large allocation fails, whichever it is.

use std::path::Path;

use dat_tests::prefix::PREFIX;

/// Messages of the C library when it has no memory for thread-local variables and ends the process, which a library
/// cannot prevent.
const OF_LIBC: [&str; 2] = ["thread-local data", "TLS destructor"];

/// Runs the program with each of the limits, in MiB; returns the numbers of successes and of refusals.
fn sweep(program: &str, ia: &str, limits: impl Iterator<Item = u64>) -> (u32, u32) {
    let (mut passed, mut refused, mut of_libc) = (0, 0, 0);
    for mebibytes in limits {
        let limit = format!(
            "ulimit -v {}; exec {} {ia}",
            mebibytes << 10,
            PREFIX.path(program).display()
        );
        // The program's own waits end after five seconds each.
        let output = PREFIX
            .command(Path::new("timeout"), &["120", "sh", "-c", &limit])
            .env("DAT_OVERRIDE", PREFIX.path("scarce_limits.conf"))
            .output()
            .expect("the shell starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if output.status.success() && said.contains("PASS") {
            passed += 1;
        } else if output.status.code() == Some(1) && said.contains("DAT_INSUFFICIENT_RESOURCES") {
            refused += 1;
        } else {
            let known = OF_LIBC.iter().any(|words| said.contains(words));
            assert!(known, "{program} {ia}, {mebibytes} MiB: {output:?}");
            of_libc += 1;
        }
    }
    assert!(of_libc < 5, "{of_libc} ended in the C library");
    (passed, refused)
}

#[test]
fn every_limit_of_the_address_space_is_success_or_a_clean_error() {
    let _ = PREFIX.compile("gcc", "two_endpoints.c", &["-ldat2"], "scarce-2.0");
    let arguments = ["-DUDAPL_1_2", "-ldat"];
    let _ = PREFIX.compile("gcc", "two_endpoints.c", &arguments, "scarce-1.2");
    let mut conf = String::new();
    for version in ["u1.2", "u2.0"] {
        for (name, library, params) in [
            ("scarce-loop", "loopback.so", "127.0.0.1 0"),
            ("scarce-user", "softrxe.so", "127.68.2.1 0 engine=user"),
        ] {
            conf += &dat_tests::line(name, &PREFIX.path(library), params).replace("u2.0", version);
        }
    }
    std::fs::write(PREFIX.path("scarce_limits.conf"), conf).expect("dat.conf");
    for program in ["scarce-1.2", "scarce-2.0"] {
        for (ia, enough) in [("scarce-loop", 800), ("scarce-user", 1400)] {
            let (passed, refused) = sweep(program, ia, (40..enough).step_by(11));
            assert!(
                passed > 10 && refused > 10,
                "{program} {ia}: {passed} and {refused}"
            );
        }
    }
}

/// dat-arena's pool serves smaller allocations if the C library has no memory.
const LARGEST_OF_POOL: u64 = 16 << 10;

/// Runs `program` once for each number in `failing`, and lets that one of its allocations of more than `above` bytes fail. Returns how
/// many runs passed, and how many a call ended.
fn fail_each(
    program: &str,
    library: &Path,
    host: u8,
    above: u64,
    failing: impl Iterator<Item = u64>,
) -> (u32, u32) {
    let _ = PREFIX.compile("gcc", "two_endpoints.c", &["-ldat2"], program);
    let preloaded = format!("{program}.so");
    let _ = PREFIX.compile("gcc", "fail_large.c", &["-shared", "-fPIC"], &preloaded);
    let line = dat_tests::line(program, library, &format!("127.68.2.{host} 0 engine=user"));
    let conf = PREFIX.path(&format!("{program}.conf"));
    std::fs::write(&conf, line).expect("dat.conf");
    let (mut passed, mut ended) = (0, 0);
    for n in failing {
        let preload = format!("LD_PRELOAD={}", PREFIX.path(&preloaded).display());
        let output = PREFIX
            .command(Path::new("timeout"), &["120", "env", &preload])
            .arg(PREFIX.path(program))
            .arg(program)
            .env("FAIL_ABOVE", above.to_string())
            .env("FAIL_AT", n.to_string())
            .env("DAT_OVERRIDE", &conf)
            .output()
            .expect("the program starts");
        match output.status.code() {
            Some(0) => passed += 1,
            // A call failed, which the program says; some of its checks want an error other than the lack of memory.
            Some(1) => ended += 1,
            _ => panic!("allocation {n} of more than {above} bytes fails: {output:?}"),
        }
    }
    (passed, ended)
}

#[test]
fn every_large_allocation_may_fail() {
    // The program has about 150.
    let library = PREFIX.path("softrxe.so");
    let (passed, ended) = fail_each("large-2.0", &library, 2, LARGEST_OF_POOL, 1..=200);
    assert!(passed > 10 && ended > 10, "{passed} and {ended}");
}

/// Until the provider's library is loaded, which is not there.
#[test]
fn every_allocation_of_the_registry_may_fail() {
    // The program has about 200.
    let library = PREFIX.path("no_such_library.so");
    let (passed, ended) = fail_each("small-2.0", &library, 3, 0, 1..=250);
    assert_eq!((passed, ended), (0, 250));
}
