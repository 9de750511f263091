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

#[test]
fn every_large_allocation_may_fail() {
    let _ = PREFIX.compile("gcc", "two_endpoints.c", &["-ldat2"], "large-2.0");
    let _ = PREFIX.compile(
        "gcc",
        "fail_large.c",
        &["-shared", "-fPIC"],
        "fail_large.so",
    );
    let params = "127.68.2.2 0 engine=user";
    let line = dat_tests::line("large-user", &PREFIX.path("softrxe.so"), params);
    std::fs::write(PREFIX.path("large.conf"), line).expect("dat.conf");
    let (mut passed, mut ended) = (0, 0);
    // The program has about 150.
    for n in 1..=200 {
        let preload = format!("LD_PRELOAD={}", PREFIX.path("fail_large.so").display());
        let output = PREFIX
            .command(Path::new("timeout"), &["120", "env", &preload])
            .arg(PREFIX.path("large-2.0"))
            .arg("large-user")
            .env("FAIL_AT", n.to_string())
            .env("DAT_OVERRIDE", PREFIX.path("large.conf"))
            .output()
            .expect("the program starts");
        match output.status.code() {
            Some(0) => passed += 1,
            // A call failed, which the program says; some of its checks want an error other than the lack of memory.
            Some(1) => ended += 1,
            _ => panic!("large allocation {n} fails: {output:?}"),
        }
    }
    assert!(passed > 10 && ended > 10, "{passed} and {ended}");
}
