//! Runs Debian's unmodified dtest on the pipe, as two processes under Debian's own libdat2.

use std::fs;
use std::process::Command;

/// Runs a server and a client with messages of 64 KiB; ends when both have. The namespace has no other programs, so the server is
/// ready when a TCP socket listens.
const BOTH: &str = "
ip link set lo up 2>/dev/null
dtest -P pipe0 -b 65536 -s >server 2>&1 & server=$!
until cat /proc/net/tcp /proc/net/tcp6 | grep -q ' 0A '; do
    kill -0 $server || { cat server; exit 1; }
    sleep 0.05
done
dtest -P pipe0 -b 65536 -h 127.0.7.9 >client 2>&1; client=$?
[ $client = 0 ] || kill $server
wait $server && [ $client = 0 ] && grep -q PASSED server && grep -q PASSED client
";

#[test]
fn two_processes_move_data_under_the_classic_library() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = std::env::current_exe().expect("this test has a path");
    // Cargo builds the shared object beside this test.
    let library = here.with_file_name("libdat_pipe.so");
    let line = format!(
        "pipe0 u2.0 nonthreadsafe default {} pipe.1.0 \"127.0.7.9 0\" \"\"\n",
        library.display()
    );
    fs::write(folder.path().join("dat.conf"), line).expect("written");
    // dtest's TCP port is fixed: a network namespace keeps concurrent runs apart. Without root it needs a user namespace.
    let done = Command::new("unshare")
        .args(["--net", "--map-root-user", "sh", "-c", BOTH])
        .env("DAT_OVERRIDE", folder.path().join("dat.conf"))
        .env("DAT_LOG", "error")
        .env_remove("LD_LIBRARY_PATH")
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
