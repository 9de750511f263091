//! dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_*.

use std::sync::atomic::Ordering;

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::DtoStatus;
use dat_core::flags::{CompletionFlags, MemPriv};

use super::{NOT_INLINE, statements};
use crate::dat::{Dat, Post};
use crate::event::{FLUSHED, REMOTE_ACCESS, SUCCESS, Seen};
use crate::fixture::{ABRUPT, Pair, Side, expect_ok};
use crate::names::Status;
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    "dat_ep_post_send": "The bytes are in the peer's receive, whose completion reports their number." => arrives;
    "dat_ep_post_send": "Completions come in the order of the posts, with their cookies." => in_order;
    "dat_ep_post_send": "DAT_COMPLETION_SUPPRESS_FLAG: no event on success." => suppressed;
    "dat_ep_post_send": "DAT_COMPLETION_SUPPRESS_FLAG: a failure has its event." => suppressed_failure;
    "dat_ep_post_send": "An endpoint that is Disconnected flushes the post." => flushed_after;
    "dat_ep_post_send": "A message longer than its receive ends in DAT_DTO_ERR_LOCAL_LENGTH there, and the connection breaks." => too_long;
    "dat_ep_post_recv": "Receives may be posted before the connection, and are used in order." => before_connection;
    "dat_ep_post_recv": "A negative number of segments is DAT_INVALID_PARAMETER." => too_many_segments;
    "dat_ep_post_rdma_write": "The bytes are in the peer's memory, and the peer gets no event." => writes;
    "dat_ep_post_rdma_write": "The peer's key and not the length of the remote segment bounds a request; more bytes than it grants end in DAT_DTO_ERR_REMOTE_ACCESS." => write_length;
    "dat_ep_post_rdma_read": "The bytes of the peer's memory are in the local memory." => reads;
    "dat_ep_post_rdma_read": "Two segments take the bytes one after the other; where max_iov_segments_per_rdma_read is 1 they are DAT_INVALID_PARAMETER." => reads_to_segments;
}

const ALL: u32 = MemPriv::ALL.bits();

fn arrives(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (source, into) = (pair.a.memory(32, ALL)?, pair.b.memory(64, ALL)?);
    source.fill(6);
    let mut half = into.local();
    half.segment_length = 32;
    pair.b.post(pair.to, Post::Recv, &[half], 1)?;
    pair.a.post(pair.from, Post::Send, &[source.local()], 2)?;
    let expected = Seen::Dto {
        ep: pair.to,
        cookie: 1,
        status: SUCCESS,
        length: 32,
    };
    same(&pair.b.wait(pair.b.recv)?, &expected, "completion")?;
    source.fill(0);
    let mut back = source.local();
    back.segment_length = 32;
    pair.a.post(pair.from, Post::Recv, &[back], 3)?;
    pair.b.post(pair.to, Post::Send, &[half], 4)?;
    pair.a.completes(pair.a.recv, 3, SUCCESS)?;
    holds(
        source.is_all(6),
        "the bytes that came back differ from the bytes sent",
    )
}

fn in_order(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    for cookie in 1..=8 {
        pair.b.post(pair.to, Post::Recv, &[], 100 + cookie)?;
    }
    for cookie in 1..=8 {
        pair.a.post(pair.from, Post::Send, &[], cookie)?;
    }
    for cookie in 1..=8 {
        pair.a.completes(pair.a.request, cookie, SUCCESS)?;
        pair.b.completes(pair.b.recv, 100 + cookie, SUCCESS)?;
    }
    Ok(())
}

fn suppressed(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    for cookie in 1..=2 {
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    let suppress = CompletionFlags::SUPPRESS.bits();
    let code = dat.post(pair.from, Post::Send, &[], 11, suppress);
    ok(code, "dat_ep_post_send, suppressed")?;
    pair.a.post(pair.from, Post::Send, &[], 12)?;
    pair.a.completes(pair.a.request, 12, SUCCESS)?;
    pair.a.quiet(pair.a.request)
}

fn suppressed_failure(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let own = pair.a.memory(NOT_INLINE, ALL)?;
    let far = pair.b.memory(
        NOT_INLINE,
        MemPriv::LOCAL_WRITE.bits() | MemPriv::REMOTE_READ.bits(),
    )?;
    // A provider may have each n-th request complete, the first one for example.
    pair.b.post(pair.to, Post::Recv, &[], 1)?;
    pair.a.post(pair.from, Post::Send, &[], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    let suppress = CompletionFlags::SUPPRESS.bits();
    let write = Post::Write(far.remote());
    let code = dat.post(pair.from, write, &[own.local()], 2, suppress);
    ok(code, "dat_ep_post_rdma_write, suppressed")?;
    let name = "a suppressed RDMA Write of memory without the remote write privilege";
    let status = pair.a.result(pair.a.request, 2, name)?;
    let text = format!("status of {name}");
    same(&status, &REMOTE_ACCESS, &text)?;
    pair.a.ends(pair.from)
}

fn flushed_after(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    ok(dat.ep_disconnect(pair.from, ABRUPT), "dat_ep_disconnect")?;
    pair.a.state(pair.from, EpState::Disconnected)?;
    pair.a.post(pair.from, Post::Send, &[], 1)?;
    pair.a.completes(pair.a.request, 1, FLUSHED)?;
    pair.a.post(pair.from, Post::Recv, &[], 2)?;
    pair.a.completes(pair.a.recv, 2, FLUSHED)
}

fn too_long(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (source, into) = (pair.a.memory(32, ALL)?, pair.b.memory(31, ALL)?);
    pair.b.post(pair.to, Post::Recv, &[into.local()], 1)?;
    pair.a.post(pair.from, Post::Send, &[source.local()], 2)?;
    pair.b
        .completes(pair.b.recv, 1, Status(DtoStatus::LocalLength as u32))?;
    pair.a.ends(pair.from)
}

fn before_connection(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    for cookie in 1..=3 {
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    pair.join(pair.from, pair.to)?;
    for cookie in 1..=3 {
        pair.a.post(pair.from, Post::Send, &[], 10 + cookie)?;
        pair.b.completes(pair.b.recv, cookie, SUCCESS)?;
    }
    Ok(())
}

fn too_many_segments(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let code = dat.post_recv_count(ep, -1);
    refused(
        code,
        Kind::InvalidParameter,
        "dat_ep_post_recv of -1 segments",
    )
}

fn writes(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(4096, ALL)?, pair.b.memory(4096, ALL)?);
    own.fill(8);
    let write = Post::Write(far.remote());
    pair.a.post(pair.from, write, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        far.is_all(8),
        "the destination does not hold the transferred bytes",
    )?;
    pair.b.quiet(pair.b.recv)
}

fn write_length(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(8);
    let mut named = far.remote();
    named.segment_length = 16;
    pair.a
        .post(pair.from, Post::Write(named), &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        far.is_all(8),
        "the destination does not hold the transferred bytes",
    )?;
    let more = pair.a.memory(65, ALL)?;
    let write = Post::Write(far.remote());
    pair.a.post(pair.from, write, &[more.local()], 2)?;
    pair.a.completes(pair.a.request, 2, REMOTE_ACCESS)
}

fn reads(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(4096, ALL)?, pair.b.memory(4096, ALL)?);
    far.fill(4);
    let read = Post::Read(far.remote());
    pair.a.post(pair.from, read, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        own.is_all(4),
        "the destination does not hold the transferred bytes",
    )
}

fn reads_to_segments(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (first, second) = (pair.a.memory(1024, ALL)?, pair.a.memory(3072, ALL)?);
    let far = pair.b.memory(4096, ALL)?;
    far.fill(6);
    for byte in &far.bytes()[1024..] {
        byte.store(7, Ordering::Relaxed);
    }
    let (attr, _) = expect_ok(dat.ia_query(pair.a.ia), "dat_ia_query")?;
    let read = Post::Read(far.remote());
    let code = dat.post(pair.from, read, &[first.local(), second.local()], 1, 0);
    if attr.max_iov_segments_per_rdma_read < 2 {
        refused(
            code,
            Kind::InvalidParameter,
            "dat_ep_post_rdma_read of two segments",
        )?;
        return holds(second.is_all(0), "a refused request has written to memory");
    }
    ok(code, "dat_ep_post_rdma_read of two segments")?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        first.is_all(6) && second.is_all(7),
        "the segments do not hold the transferred bytes",
    )
}
