//! Unreliable datagrams of the IB extension.

use dat_core::error::Kind;
use dat_core::flags::MemPriv;

use super::statements;
use crate::dat::{Dat, DatagramPeer, Extension};
use crate::fixture::{Side, TIMEOUT, expect_ok};
use crate::verdict::{Check, broken, holds, ok, refused};

statements! {
    since V2_0;
    "dat_ib_post_send_ud": "The bytes are in the peer's receive, after 40 bytes of routing header." => arrives;
    "dat_ib_ud_ah_free": "An address handle that was freed is DAT_INVALID_HANDLE." => handle_fails;
    "dat_ib_ud_cm_free": "The resources of the resolution can be freed; the address handle stays valid." => context;
}

/// Two datagram endpoints; the first has resolved the second.
struct Found<'a> {
    a: Side<'a>,
    b: Side<'a>,
    from: usize,
    to: usize,
    peer: DatagramPeer,
}

impl<'a> Found<'a> {
    fn new(dat: &'a Dat) -> Check<Self> {
        let (a, b) = (Side::open(dat)?, Side::open(dat)?);
        let endpoint = |side: &Side<'_>| {
            let evds = [side.recv, side.request, side.conn];
            let ep = dat.ep_create_datagram(side.ia, side.pz, evds);
            expect_ok(ep, "dat_ep_create of an endpoint for datagrams")
        };
        let (from, to) = (endpoint(&a)?, endpoint(&b)?);
        let (_, qual) = b.listen()?;
        let code = dat.ep_connect(from, &b.attr, qual, TIMEOUT, b"hello");
        ok(code, "dat_ep_connect")?;
        let cr = expect_ok(dat.evd_wait_datagram_request(b.cr, TIMEOUT), "dat_evd_wait")?;
        let Some(cr) = cr else {
            return broken("dat_evd_wait returned no DAT_IB_UD_CONNECTION_REQUEST_EVENT");
        };
        ok(dat.cr_accept(cr, to, b""), "dat_cr_accept")?;
        let peer = expect_ok(dat.evd_wait_datagram_peer(a.conn, TIMEOUT), "dat_evd_wait")?;
        let Some(peer) = peer else {
            return broken("dat_evd_wait returned no DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED");
        };
        Ok(Self {
            a,
            b,
            from,
            to,
            peer,
        })
    }

    /// Sends `own` to the peer; returns the code.
    fn send(&self, own: &crate::fixture::Memory) -> u32 {
        let (local, to) = ([own.local()], &self.peer.address);
        let arguments = [1, local.as_ptr() as u64, to.as_ptr() as u64, 1, 0];
        self.a
            .dat
            .extension(self.from, Extension::SEND_UD, &arguments)
    }
}

const ALL: u32 = MemPriv::ALL.bits();

/// Bytes of the routing header before those of a datagram.
const ROUTE: usize = 40;

fn arrives(dat: &Dat) -> Check {
    let found = Found::new(dat)?;
    let own = found.a.memory(32, ALL)?;
    let far = found.b.memory(ROUTE + 32, ALL)?;
    own.fill(5);
    found
        .b
        .post(found.to, crate::dat::Post::Recv, &[far.local()], 2)?;
    ok(found.send(&own), "dat_ib_post_send_ud")?;
    found.a.wait(found.a.request)?;
    found.b.wait(found.b.recv)?;
    holds(
        far.is_all_from(ROUTE, 5),
        "the destination does not hold the transferred bytes",
    )
}

fn handle_fails(dat: &Dat) -> Check {
    let found = Found::new(dat)?;
    let own = found.a.memory(32, ALL)?;
    let address = [found.peer.address.as_ptr() as u64];
    let code = dat.extension(found.from, Extension::UD_AH_FREE, &address);
    ok(code, "dat_ib_ud_ah_free")?;
    refused(
        found.send(&own),
        Kind::InvalidHandle,
        "dat_ib_post_send_ud to a freed address handle",
    )
}

fn context(dat: &Dat) -> Check {
    let found = Found::new(dat)?;
    let own = found.a.memory(32, ALL)?;
    let code = dat.extension(found.from, Extension::UD_CM_FREE, &[found.peer.context]);
    ok(code, "dat_ib_ud_cm_free")?;
    ok(found.send(&own), "dat_ib_post_send_ud after that")
}
