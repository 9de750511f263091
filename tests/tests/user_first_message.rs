//! The first message of a connection between two processes of the user engine: its receive follows the event that the connection
//! is established, and the answer is never refused.

use std::time::Duration;

use dat_tests::{Process, first_message};

const PATIENCE: Duration = Duration::from_secs(120);
const ADDRESS: &str = "127.90.2.1";
const CONNECTIONS: u32 = 300;

#[test]
fn the_first_message_follows_its_connection() {
    let address = ADDRESS.parse().expect("an address");
    match dat_tests::role().as_deref() {
        Some("server") => return first_message::serve("user", CONNECTIONS),
        Some(_) => return first_message::call("user", address, CONNECTIONS, true),
        None => {}
    }
    let name = "the_first_message_follows_its_connection";
    let dir = tempfile::tempdir().expect("a folder");
    let conf = dir.path().join("dat.conf");
    let params = format!("{ADDRESS} 0 engine=user");
    let line = dat_tests::line("user", &dat_tests::softrxe(), &params);
    std::fs::write(&conf, line).expect("written");
    let server = Process::start(name, "server", &conf, &[]);
    assert!(server.says("listening", PATIENCE).is_some());
    let client = Process::start(name, "client", &conf, &[]);
    assert!(server.says("served", PATIENCE).is_some());
    assert!(client.says("called", PATIENCE).is_some());
}
