//! The program of the benchmark's rows through the C table (`tests/bench/near.c`) compiles, and takes the figures
//! whose measurement is as long on a busy machine.

use dat_tests::prefix::PREFIX;

#[test]
fn figures_of_the_same_host_are_numbers() {
    let arguments = ["-O2", "-ldat2"];
    let program = PREFIX.compile("gcc", "../bench/near.c", &arguments, "near-c");
    for figure in [
        &["rate"][..],
        &["asleep"],
        &["futex"],
        &["put", "65536", "4"],
        &["put", "1048576", "1"],
        &["get", "4096", "8"],
    ] {
        let output = PREFIX.logged(&program, figure);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value: f64 = text
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{figure:?}: {output:?}"));
        assert!(value > 0.0, "{figure:?}: {text}");
    }
}
