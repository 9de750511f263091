//! Errors name what was refused or failed, so that a program can match on it.

mod common;

use common::{PATIENCE, pair, side};
use udapl::{Access, Changes, Close, DtoOp, DtoStatus, Error, Ia, Streams};

#[test]
fn errors_name_what_an_adapter_refuses() {
    let s = side();
    let endpoint = || {
        let builder = s.ia.endpoint(&s.pz);
        builder.recv_evd(&s.done).request_evd(&s.done)
    };
    let limits = s.ia.attributes().expect("attributes");
    let refused = endpoint().max_recv(limits.max_posts + 1).create();
    match refused.expect_err("too many receives") {
        Error::Limit { what, most, .. } => {
            assert_eq!((what, most), ("receives", limits.max_posts));
        }
        other => panic!("{other}"),
    }
    let refused = endpoint().max_segments(limits.max_segments + 1).create();
    match refused.expect_err("too many segments") {
        Error::Limit { what, most, .. } => {
            assert_eq!((what, most), ("segments", limits.max_segments));
        }
        other => panic!("{other}"),
    }
    match s.ia.create_evd(0, Streams::DTO).expect_err("no events") {
        Error::Limit { what, given, .. } => assert_eq!((what, given), ("events", 0)),
        other => panic!("{other}"),
    }
    let refused = s.ia.create_srq(&s.pz, 8, limits.max_segments + 1);
    match refused.expect_err("too many segments") {
        Error::Limit { what, .. } => assert_eq!(what, "segments"),
        other => panic!("{other}"),
    }

    // A dispatcher of completions gets neither requests nor connection events nor software events.
    let refused = [
        (s.ia.listen(None, &s.done).map(drop), Streams::CR),
        (
            endpoint().connect_evd(&s.done).create().map(drop),
            Streams::CONNECTION,
        ),
        (s.done.post(1), Streams::SOFTWARE),
    ];
    for (refused, missing) in refused {
        let refused = refused.expect_err("the dispatcher does not take them");
        assert!(
            matches!(refused, Error::WrongStreams { needs, .. } if needs == missing),
            "{refused}"
        );
        assert!(refused.to_string().contains("Streams::"), "{refused}");
    }
}

#[test]
fn a_wait_for_a_completion_says_why_it_failed() {
    let (a, b) = pair();
    let room = b.pz.allocate(8, Access::ALL).expect("memory");
    b.ep.post_recv(&[room.slice(0..8)], 1).expect("posts");
    a.ep.disconnect(Close::Abrupt).expect("disconnects");
    let flushed = b.done.wait_completion(PATIENCE);
    let flushed = flushed.expect_err("the receive is flushed");
    assert!(flushed.is_connection_gone(), "{flushed}");
    match flushed {
        Error::Failed { op, status } => {
            assert_eq!((op, status), (DtoOp::Receive, DtoStatus::Flushed));
        }
        other => panic!("{other}"),
    }
    let ended = b.connections.wait_completion(PATIENCE);
    assert!(
        matches!(ended, Err(Error::Disconnected { .. })),
        "{ended:?}"
    );
}

#[test]
fn a_file_that_cannot_be_mapped_is_not_a_lack_of_memory() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(4096).expect("it has room");
    let for_reading = std::fs::File::open(file.path()).expect("opens");
    match udapl::Memory::file(&for_reading, 4096).expect_err("it is for reading only") {
        Error::System { source, .. } => {
            assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
        }
        other => panic!("{other}"),
    }
    let most = isize::MAX as usize;
    let refused = udapl::Memory::file(file.as_file(), most).expect_err("too much");
    assert!(
        matches!(refused, Error::OutOfMemory { bytes } if bytes == most),
        "{refused}"
    );
}

#[test]
fn a_change_of_an_endpoint_with_posts_is_refused_for_them() {
    let s = side();
    let room = s.pz.allocate(8, Access::ALL).expect("memory");
    s.ep.post_recv(&[room.slice(0..8)], 1).expect("posts");
    let other = s.ia.create_pz().expect("a PZ");
    let changes = Changes {
        pz: Some(&other),
        ..Changes::default()
    };
    let refused = s.ep.modify(&changes).expect_err("a receive is posted");
    assert!(matches!(refused, Error::State { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("on which nothing is posted"), "{text}");
}

#[test]
fn a_name_that_is_unknown_is_told_the_built_in_ones() {
    let refused = Ia::open("softrxe-no0").expect_err("no such interface");
    let text = refused.to_string();
    for part in [
        r#""no0" is no network interface and no address of this machine"#,
        "built in are softrxe-lo, softrxe, and softrxe- with a network interface",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
