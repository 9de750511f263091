//! Debian's unmodified dtest as two processes on an IA.

use std::fs;
use std::process::Command;

/// Runs a server and a client with messages of 64 KiB; ends when both have. The namespace has no other programs, so the server is
/// ready when a TCP socket listens. dtest's server tells its address before it listens there: a client that calls in between is
/// refused, ends with status 0, and leaves the server in an endless wait. Both are then started again.
const BOTH: &str = "
ip link set lo up 2>/dev/null
for attempt in 1 2 3 4 5; do
    dtest -P $IA -b 65536 -s >server 2>&1 & server=$!
    until cat /proc/net/tcp /proc/net/tcp6 | grep -q ' 0A '; do
        kill -0 $server || { cat server; exit 1; }
        sleep 0.05
    done
    dtest -P $IA -b 65536 -h $ADDRESS >client 2>&1; client=$?
    grep -q PASSED client || kill $server
    wait $server && [ $client = 0 ] && grep -q PASSED server && grep -q PASSED client && exit 0
    grep -q NON_PEER_REJECTED client || exit 1
done
exit 1
";

/// Runs dtest on the IA `ia`, which the dat.conf `conf` has at `address`, with the C library of the folder `libraries`; empty is
/// Debian's.
///
/// # Panics
/// If one of the two processes fails, with what both said.
pub fn pair(conf: &str, ia: &str, address: &str, libraries: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("dat.conf"), conf).expect("written");
    // dtest's TCP port is fixed: a network namespace keeps concurrent runs apart. Without root it needs a user namespace.
    let done = Command::new("unshare")
        .args(["--net", "--map-root-user", "sh", "-c", BOTH])
        .env("IA", ia)
        .env("ADDRESS", address)
        .env("DAT_OVERRIDE", folder.path().join("dat.conf"))
        .env("DAT_LOG", "error")
        .env("LD_LIBRARY_PATH", libraries)
        .current_dir(folder.path())
        .output()
        .expect("a shell");
    let said = |name| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(
        done.status.success(),
        "{}\nserver (dtest is in dapl2-utils):\n{}\nclient:\n{}",
        String::from_utf8_lossy(&done.stderr),
        said("server"),
        said("client")
    );
}
