//! The seeds of `ring` and `near` reach the paths of payloads that records lend, and the invariants hold there.

use dat_fuzz::captures;
use dat_fuzz::reached::{Reached, count};

/// Runs the seed of `body` that lends, the last one. Returns how often it reached each of `paths`.
fn reached(body: &str, paths: &[Reached]) -> Vec<(Reached, u64)> {
    let seeds = captures::seeds(body).expect("the captures");
    let before: Vec<u64> = paths.iter().map(|path| count(*path)).collect();
    dat_fuzz::body(body).expect("a body")(seeds.last().expect("a seed"));
    let counts = paths.iter().zip(before);
    counts
        .map(|(path, old)| (*path, count(*path) - old))
        .collect()
}

fn assert_all(counts: &[(Reached, u64)]) {
    assert!(counts.iter().all(|(_, count)| *count > 0), "{counts:?}");
}

#[test]
fn a_ring_with_lent_records() {
    let counts = reached(
        "ring",
        &[
            Reached::Pulled,
            Reached::Withdrawal,
            Reached::Withdrawn,
            Reached::Unreadable,
        ],
    );
    assert!(
        counts[0].1 > 0 || counts[3].1 == 0,
        "not tested: no payload could be copied out of this process, as where a sandbox forbids process_vm_readv(2): {counts:?}"
    );
    assert_all(&counts);
}

#[test]
fn an_engine_that_lends_and_borrows() {
    assert_all(&reached(
        "near",
        &[
            Reached::Lent,
            Reached::Borrowed,
            Reached::BorrowFailed,
            Reached::Recalled,
        ],
    ));
}
