//! The limits that the attributes name: sizes, segments and private data; and more bytes under way than a transport holds.

use dat_core::event::ConnectionEvent;
use dat_core::flags::MemPriv;

use dat_abi::v2_0::types::DatLmrTriplet;

use super::statements;
use crate::api::Api;
use crate::dat::{Dat, Post};
use crate::event::{SUCCESS, Seen};
use crate::fixture::{FOREVER, Memory, Pair, Side, TIMEOUT, expect_ok};
use crate::names::EventNumber;
use crate::verdict::{Check, Verdict, broken, holds, ok, same};

statements! {
    "dat_ep_post_send": "A message of max_message_size, or of 4 MiB if that is less, arrives whole." => longest_message;
    "dat_ep_post_rdma_write": "A write of max_rdma_size, or of 4 MiB if that is less, arrives whole." => longest_write;
    "dat_ep_post_rdma_read": "A read of max_rdma_size, or of 4 MiB if that is less, arrives whole." => longest_read;
    "dat_ep_post_rdma_write": "Sixteen writes of up to 1 MiB in each direction at the same time arrive whole." => stream;
    "dat_ep_post_send": "Messages that fill the peer's sixteen receives, and wait for more, all arrive whole and in order." => messages;
    "dat_ep_create": "As many segments as the IA's attributes say are sent, received and written, each with its bytes." => segments;
    "dat_ep_connect": "Private data of max_private_data_size bytes arrives whole, in a request and in its answer." => private_data;
}

const ALL: u32 = MemPriv::ALL.bits();
/// Most bytes of one request: above 1 MiB, where providers cut, and not all that a device may take.
const MOST: usize = 4 << 20;

/// Checks the bytes of `into` after a transfer from memory with the pattern `seed`.
fn whole(into: &Memory, seed: u64, what: &str) -> Check {
    match into.first_difference(seed) {
        None => Ok(()),
        Some(at) => broken(format!(
            "{what} of {} bytes: byte {at} at the destination differs",
            into.bytes().len()
        )),
    }
}

fn longest_message(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(MOST, true)?;
    let (from, into) = (pair.a.memory(length, ALL)?, pair.b.memory(length, ALL)?);
    from.pattern(1);
    pair.b.post(pair.to, Post::Recv, &[into.local()], 1)?;
    pair.a.post(pair.from, Post::Send, &[from.local()], 2)?;
    pair.a.completes(pair.a.request, 2, SUCCESS)?;
    let expected = Seen::Dto {
        ep: pair.to,
        cookie: 1,
        status: SUCCESS,
        length: length as u32,
    };
    let seen = pair.b.wait(pair.b.recv)?;
    same(&seen, &expected, "completion of a receive")?;
    whole(&into, 1, "a message")
}

fn longest_write(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(MOST, false)?;
    let (from, into) = (pair.a.memory(length, ALL)?, pair.b.memory(length, ALL)?);
    from.pattern(2);
    let write = Post::Write(into.remote());
    pair.a.post(pair.from, write, &[from.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    whole(&into, 2, "an RDMA Write")
}

fn longest_read(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(MOST, false)?;
    let (into, from) = (pair.a.memory(length, ALL)?, pair.b.memory(length, ALL)?);
    from.pattern(3);
    let read = Post::Read(from.remote());
    pair.a.post(pair.from, read, &[into.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    whole(&into, 3, "an RDMA Read")
}

fn stream(dat: &Dat) -> Check {
    /// The default of outstanding requests.
    const WRITES: u64 = 16;
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(1 << 20, false)?;
    let ways = [(&pair.a, pair.from, &pair.b), (&pair.b, pair.to, &pair.a)];
    let mut targets = Vec::new();
    for cookie in 0..WRITES {
        for (way, (from, ep, to)) in (0..).zip(ways) {
            let (source, into) = (from.memory(length, ALL)?, to.memory(length, ALL)?);
            source.pattern(2 * cookie + way);
            targets.push((source, into));
            let write = Post::Write(into.remote());
            from.post(ep, write, &[source.local()], cookie)?;
        }
        dat.report_progress();
    }
    for cookie in 0..WRITES {
        for (from, ..) in ways {
            from.completes(from.request, cookie, SUCCESS)?;
        }
        dat.report_progress();
    }
    for (seed, (_, into)) in (0..).zip(&targets) {
        whole(into, seed, "one of sixteen RDMA Writes at the same time")?;
    }
    Ok(())
}

fn messages(dat: &Dat) -> Check {
    const MESSAGES: u64 = 64;
    /// The default of outstanding requests and receives.
    const AHEAD: u64 = 16;
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(1 << 18, true)?;
    let memory = |side: &Side<'_>| -> Check<Vec<Memory>> {
        (0..AHEAD).map(|_| side.memory(length, ALL)).collect()
    };
    let (sources, targets) = (memory(&pair.a)?, memory(&pair.b)?);
    let at = |of: &[Memory], n: u64| of[(n % AHEAD) as usize];
    let receive = |n| {
        pair.b
            .post(pair.to, Post::Recv, &[at(&targets, n).local()], n)
    };
    let send = |n| {
        at(&sources, n).pattern(n);
        pair.a
            .post(pair.from, Post::Send, &[at(&sources, n).local()], n)
    };
    // More sends than receives, so that messages wait in the transport.
    (0..AHEAD / 2).try_for_each(receive)?;
    (0..AHEAD).try_for_each(send)?;
    (AHEAD / 2..AHEAD).try_for_each(receive)?;
    for n in 0..MESSAGES {
        dat.report_progress();
        pair.b.completes(pair.b.recv, n, SUCCESS)?;
        whole(&at(&targets, n), n, "a message of a stream")?;
        pair.a.completes(pair.a.request, n, SUCCESS)?;
        if n + AHEAD < MESSAGES {
            send(n + AHEAD)?;
            receive(n + AHEAD)?;
        }
    }
    Ok(())
}

/// Splits memory into `count` segments of `size` bytes, the last ones first.
fn reversed(whole: DatLmrTriplet, count: usize, size: u32) -> Vec<DatLmrTriplet> {
    let part = |n: usize| DatLmrTriplet {
        virtual_address: whole.virtual_address + n as u64 * u64::from(size),
        segment_length: size,
        ..whole
    };
    (0..count).rev().map(part).collect()
}

/// Creates an endpoint of `side` for as many segments as the attributes say.
fn with_all_segments(side: &Side<'_>) -> Check<usize> {
    let dat = side.dat;
    let mut attr = expect_ok(dat.ep_query(side.ep()?), "dat_ep_query")?.ep_attr;
    attr.max_request_iov = side.attr.max_iov_segments_per_dto;
    attr.max_recv_iov = side.attr.max_iov_segments_per_dto;
    attr.max_rdma_write_iov = side.attr.max_iov_segments_per_rdma_write;
    // A device has less room for the segments of many requests.
    (attr.max_request_dtos, attr.max_recv_dtos) = (4, 4);
    let evds = [side.recv, side.request, side.conn];
    dat.ep_create_with(side.ia, side.pz, evds, &attr)
        .map_err(|code| {
            // Devices give the most of each attribute, and not of all of them together.
            Verdict::Lacks(format!(
                "dat_ep_create for {} segments, as max_iov_segments_per_dto says, returned {code:#x}",
                side.attr.max_iov_segments_per_dto
            ))
        })
}

fn segments(dat: &Dat) -> Check {
    const SIZE: u32 = 24;
    let pair = Pair::apart(dat)?;
    let (from, to) = (with_all_segments(&pair.a)?, with_all_segments(&pair.b)?);
    pair.join(from, to)?;
    let count = |n: i32| usize::try_from(n).unwrap_or(0);
    let most = count(pair.a.attr.max_iov_segments_per_dto);
    let writes = count(pair.a.attr.max_iov_segments_per_rdma_write).min(most);
    for write in [false, true] {
        let count = if write { writes } else { most };
        let bytes = count * SIZE as usize;
        let (source, into) = (pair.a.memory(bytes, ALL)?, pair.b.memory(bytes, ALL)?);
        source.pattern(7);
        let list = reversed(source.local(), count, SIZE);
        if write {
            pair.a.post(from, Post::Write(into.remote()), &list, 1)?;
        } else {
            pair.b
                .post(to, Post::Recv, &reversed(into.local(), count, SIZE), 2)?;
            pair.a.post(from, Post::Send, &list, 1)?;
        }
        let what = if write { "an RDMA Write" } else { "a message" };
        let status = pair.a.result(pair.a.request, 1, what)?;
        let what = format!("{what} of {count} segments, as the attributes say");
        same(&status, &SUCCESS, &format!("status of {what}"))?;
        if write {
            // Segment n of the list is segment count - 1 - n of the source.
            let right = (0..bytes).all(|at| {
                let (n, within) = (at / SIZE as usize, at % SIZE as usize);
                into.byte(at) == source.byte((count - 1 - n) * SIZE as usize + within)
            });
            holds(right, &format!("the bytes of {what} differ"))?;
        } else {
            pair.b.completes(pair.b.recv, 2, SUCCESS)?;
            whole(&into, 7, &what)?;
        }
    }
    Ok(())
}

fn private_data(dat: &Dat) -> Check {
    let most = Side::open(dat)?.too_much_data()?.len() - 1;
    let bytes = |seed: u8| -> Vec<u8> {
        (0..most)
            .map(|n| (n as u8).wrapping_mul(7) ^ seed)
            .collect()
    };
    let (question, answer) = (bytes(0x55), bytes(0xaa));
    let what = format!("{most} bytes of private data, as max_private_data_size says");
    for accept in [true, false] {
        let pair = Pair::apart(dat)?;
        let (_psp, qual) = pair.b.listen()?;
        let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, &question);
        ok(code, &format!("dat_ep_connect with {what}"))?;
        let cr = pair.b.request()?;
        let asked = dat.cr_private_data(cr, most);
        holds(
            asked.is_some_and(|seen| seen.starts_with(&question)),
            &format!("dat_cr_query does not show the {what}, of dat_ep_connect"),
        )?;
        let (call, code, event) = if accept {
            let code = dat.cr_accept(cr, pair.to, &answer);
            ("dat_cr_accept", code, ConnectionEvent::Established)
        } else {
            let code = dat.cr_reject(cr, &answer);
            ("dat_cr_reject", code, ConnectionEvent::PeerRejected)
        };
        ok(code, &format!("{call} with {what}"))?;
        let told = dat.evd_wait_data(pair.a.conn, TIMEOUT);
        let (seen, data) = expect_ok(told, "dat_evd_wait (10 s) for the answer")?;
        let expected = Seen::Connection {
            number: EventNumber::from(event),
            ep: pair.from,
        };
        same(&seen, &expected, "connection event")?;
        // 1.2's dat_cr_reject has no private data.
        holds(
            data.starts_with(&answer) || !accept && dat.api() == Api::V1_2,
            &format!("the connection event does not have the {what}, of {call}"),
        )?;
    }
    Ok(())
}
