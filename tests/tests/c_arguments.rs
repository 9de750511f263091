//! C programs that pass the libraries invalid handles, arrays shorter than their length, and misaligned addresses.

use std::path::Path;

use dat_tests::prefix::PREFIX;

/// Compiler arguments and name of each version.
const VERSIONS: [(&[&str], &str); 2] = [(&["-DUDAPL_1_2", "-ldat"], "1.2"), (&["-ldat2"], "2.0")];

/// Runs the program, which must succeed; returns its output.
fn passed(program: &Path, arguments: &[&str], begin: &str) -> String {
    let out = PREFIX.run(program, arguments);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.success() && said.starts_with(begin),
        "{arguments:?}: {}: {said}{words}",
        out.status
    );
    said
}

#[test]
fn an_address_without_an_object_is_an_invalid_handle_to_every_function() {
    PREFIX.classic();
    for (arguments, version) in VERSIONS {
        let name = format!("no-objects-{version}");
        let program = PREFIX.compile("gcc", "no_objects.c", arguments, &name);
        // One engine; two engines; a classic provider beside ours.
        for ias in [&["loop"][..], &["loop", "user"], &["loop", "classic"]] {
            passed(&program, ias, "no_objects: PASS");
        }
    }
}

#[test]
fn a_count_beyond_the_limit_is_refused_before_an_array_is_read() {
    for (arguments, version) in VERSIONS {
        let name = format!("short-arrays-{version}");
        let program = PREFIX.compile("gcc", "short_arrays.c", arguments, &name);
        for ia in ["loop", "user"] {
            passed(&program, &[ia], "short_arrays: PASS");
        }
    }
}

#[test]
fn arrays_and_structures_may_be_at_any_address() {
    for (arguments, version) in VERSIONS {
        let name = format!("odd-addresses-{version}");
        let program = PREFIX.compile("gcc", "odd_addresses.c", arguments, &name);
        for ia in ["loop", "user"] {
            passed(&program, &[ia], "odd_addresses: PASS");
        }
    }
}
