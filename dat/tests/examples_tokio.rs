//! The examples in tokio, as processes with addresses of their own.

#[path = "common/example.rs"]
mod example;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use example::Example;

#[test]
fn the_same_echo_over_rdma_and_tcp() {
    let (_server, at) = Example::server("tokio_echo", &["server", "softrxe-127.0.83.1"]);
    let place = [
        "client",
        "softrxe-127.0.83.2",
        &at[0],
        &at[1],
        &at[2],
        "300",
    ];
    let lines = Example::start("tokio_echo", &place).finish();
    assert!(lines[0].starts_with("rdma: 300 round trips"), "{lines:?}");
    assert!(lines[1].starts_with("tcp: 300 round trips"), "{lines:?}");
}

/// Waits until the note says that at least `wanted` chunks are there, and returns how many.
fn chunks(note: &Path, wanted: u32) -> u32 {
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(note).unwrap_or_default();
        match text.split_whitespace().last().map(str::parse) {
            Some(Ok(count)) if count >= wanted => return count,
            _ => assert!(begin.elapsed() < Duration::from_secs(90), "{text:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_transfer_goes_on_after_each_end_was_killed() {
    const NAME: &str = "file_transfer";
    let folder = tempfile::tempdir().expect("a folder");
    let (source, target) = (folder.path().join("data"), folder.path().join("received"));
    fs::create_dir(&target).expect("a folder");
    // 64 chunks and a part; at half a MB a second they take half a minute, so that each kill meets a transfer under way.
    let bytes: Vec<u8> = (0..(16 << 20) + 1000_u32)
        .map(|n| (n ^ n >> 7) as u8)
        .collect();
    fs::write(&source, &bytes).expect("a file");
    let note = target.join("data.note");
    let (source, folder) = (
        source.to_str().expect("text"),
        target.to_str().expect("text"),
    );
    let receive = || Example::server(NAME, &["receive", "softrxe-127.0.83.3", folder, "4711"]).0;
    let send = |limit: &[&str]| {
        let place = ["send", "softrxe-127.0.83.4", "127.0.83.3", "4711", source];
        Example::start(NAME, &[&place, limit].concat())
    };

    let mut receiver = receive();
    let mut sender = send(&["0.5"]);
    let before = chunks(&note, 2);
    receiver.kill();
    assert!(sender.line().starts_with("lost the receiver"));
    let mut receiver = receive();
    let resumed = sender.line();
    assert!(resumed.starts_with("resumes at chunk "), "{resumed}");
    let at: Vec<u32> = resumed
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(at[0] >= before && at[0] < at[1], "{resumed} after {before}");

    chunks(&note, at[0] + 1);
    sender.kill();
    let stopped = receiver.line();
    assert!(stopped.starts_with("a transfer stopped"), "{stopped}");
    let lines = send(&[]).finish();
    assert!(lines[0].starts_with("resumes at chunk "), "{lines:?}");
    assert!(lines[1].starts_with("sent data"), "{lines:?}");
    assert!(receiver.line().starts_with("received data"));
    assert_eq!(fs::read(target.join("data")).expect("the file"), bytes);
    assert!(!note.exists());
}
