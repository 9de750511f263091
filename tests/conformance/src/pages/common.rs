//! Common service points (2.0 headers; there are no manual pages): dat_csp_*, dat_ep_common_connect.

use std::net::{IpAddr, SocketAddr};

use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;

use super::statements;
use crate::dat::{Dat, address_of};
use crate::event::Seen;
use crate::fixture::{MOMENT, Pair, Side, TIMEOUT, expect_ok};
use crate::verdict::{Check, broken, holds, ok, refused, same};

statements! {
    since V2_0;
    "dat_csp_create": "A request at its port is reported with its handle, and can be accepted." => announces;
    "dat_csp_create": "Port 0 selects a free port." => finds_a_port;
    "dat_csp_create": "A port in use is DAT_PORT_IN_USE." => in_use;
    "dat_csp_create": "Any protocol but a TCP stream is DAT_COMM_NOT_SUPPORTED." => other_protocols;
    "dat_csp_create": "An address that is not the IA's is DAT_INVALID_ADDRESS." => elsewhere;
    "dat_csp_create": "An EVD without the connection request stream is DAT_INVALID_HANDLE." => wrong_evd;
    "dat_csp_query": "The query returns IA, EVD, communicator, address and port." => query;
    "dat_csp_free": "The handle of a destroyed CSP fails in any later operation." => freed;
    "dat_csp_free": "Requests no longer arrive after the call; connections stay." => no_more;
    "dat_csp_free": "A PSP is no CSP, and a CSP is no PSP: DAT_INVALID_HANDLE." => apart;
    "dat_ep_common_connect": "It connects to a common service point, with private data." => connects;
    "dat_ep_common_connect": "It connects to a public service point of that qualifier too, and dat_ep_connect to a common one." => across;
    "dat_ep_common_connect": "Without a listener it ends in DAT_CONNECTION_EVENT_NON_PEER_REJECTED." => no_listener;
    "dat_ep_common_connect": "An address without port is DAT_INVALID_ADDRESS; a timeout of 0, or too much private data, is DAT_INVALID_PARAMETER." => wrong;
    "dat_ep_common_connect": "The endpoint must be Unconnected: DAT_INVALID_STATE." => twice;
}

const STREAM: i32 = 1;
const DATAGRAM: i32 = 2;
const TCP: i32 = 6;
const UDP: i32 = 17;

fn family(ip: IpAddr) -> i32 {
    if ip.is_ipv4() { 2 } else { 10 }
}

fn address(side: &Side<'_>) -> Check<IpAddr> {
    address_of(&side.attr).map_or_else(|| broken("dat_ia_query returned no address of the IA"), Ok)
}

/// Creates a common service point of `side` at this port; returns it with its address.
fn listen(side: &Side<'_>, port: u16) -> Check<(usize, SocketAddr)> {
    let ip = address(side)?;
    let at = SocketAddr::new(ip, port);
    let comm = [family(ip), STREAM, TCP];
    let csp = expect_ok(
        side.dat.csp_create(side.ia, comm, at, side.cr),
        "dat_csp_create",
    )?;
    let told = expect_ok(side.dat.csp_query(csp), "dat_csp_query")?;
    told.at.map_or_else(
        || broken("dat_csp_query returned no address of the CSP"),
        |at| Ok((csp, at)),
    )
}

fn announces(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (csp, at) = listen(&pair.b, 0)?;
    let code = dat.ep_common_connect(pair.from, at, TIMEOUT, b"");
    ok(code, "dat_ep_common_connect")?;
    let Seen::Request { sp, cr, conn_qual } = pair.b.wait(pair.b.cr)? else {
        return broken("dat_evd_wait returned an event that is no connection request");
    };
    same(&(sp, conn_qual), &(csp, at.port().into()), "CSP and port")?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)
}

fn finds_a_port(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, first) = listen(&side, 0)?;
    let (_, second) = listen(&side, 0)?;
    holds(
        first.port() != 0 && second.port() != 0 && first != second,
        "dat_csp_create with port 0 found a port that is 0 or taken",
    )
}

fn in_use(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, at) = listen(&side, 0)?;
    let comm = [family(at.ip()), STREAM, TCP];
    let again = dat.csp_create(side.ia, comm, at, side.cr);
    refused(
        again.err().unwrap_or(0),
        Kind::PortInUse,
        "dat_csp_create again",
    )
}

fn other_protocols(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ip = address(&side)?;
    let at = SocketAddr::new(ip, 0);
    // Protocol 0 is the default protocol of a stream socket.
    expect_ok(
        dat.csp_create(side.ia, [family(ip), STREAM, 0], at, side.cr),
        "dat_csp_create",
    )?;
    for comm in [
        [1, STREAM, 0],
        [family(ip), DATAGRAM, UDP],
        [family(ip), STREAM, UDP],
    ] {
        let code = dat.csp_create(side.ia, comm, at, side.cr).err();
        refused(code.unwrap_or(0), Kind::CommNotSupported, "dat_csp_create")?;
    }
    Ok(())
}

fn elsewhere(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ip = address(&side)?;
    // Addresses for documentation (TEST-NET-3 and its IPv6 counterpart), which no IA has.
    let other = match ip {
        IpAddr::V4(_) => IpAddr::from([203, 0, 113, 99]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 99]),
    };
    let comm = [family(ip), STREAM, TCP];
    let code = dat.csp_create(side.ia, comm, SocketAddr::new(other, 0), side.cr);
    refused(
        code.err().unwrap_or(0),
        Kind::InvalidAddress,
        "dat_csp_create",
    )
}

fn wrong_evd(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ip = address(&side)?;
    let comm = [family(ip), STREAM, TCP];
    let code = dat.csp_create(side.ia, comm, SocketAddr::new(ip, 0), side.conn);
    refused(
        code.err().unwrap_or(0),
        Kind::InvalidHandle,
        "dat_csp_create",
    )
}

fn query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (csp, at) = listen(&side, 0)?;
    let told = expect_ok(dat.csp_query(csp), "dat_csp_query")?;
    same(&(told.ia, told.evd), &(side.ia, side.cr), "IA and EVD")?;
    same(&told.comm, &[family(at.ip()), STREAM, TCP], "communicator")?;
    same(&at.ip(), &address(&side)?, "address")
}

fn freed(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (csp, _) = listen(&side, 0)?;
    ok(dat.csp_free(csp), "dat_csp_free")?;
    let codes = [dat.csp_free(csp), dat.csp_query(csp).err().unwrap_or(0)];
    for code in codes {
        refused(code, Kind::InvalidHandle, "a call with a freed CSP")?;
    }
    Ok(())
}

fn no_more(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (csp, at) = listen(&pair.b, 0)?;
    let code = dat.ep_common_connect(pair.from, at, TIMEOUT, b"");
    ok(code, "dat_ep_common_connect")?;
    let cr = pair.b.request()?;
    ok(dat.csp_free(csp), "dat_csp_free")?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)?;
    let late = pair.a.ep()?;
    ok(
        dat.ep_common_connect(late, at, TIMEOUT, b""),
        "dat_ep_common_connect",
    )?;
    pair.a.connection(late, ConnectionEvent::NonPeerRejected)?;
    pair.b.quiet(pair.b.conn)
}

fn apart(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (csp, _) = listen(&side, 0)?;
    let (psp, _) = side.listen()?;
    let codes = [
        dat.psp_free(csp),
        dat.rsp_free(csp),
        dat.csp_free(psp),
        dat.psp_query(csp).err().unwrap_or(0),
    ];
    for code in codes {
        refused(code, Kind::InvalidHandle, "another kind of service point")?;
    }
    ok(dat.psp_free(psp), "dat_psp_free")?;
    ok(dat.csp_free(csp), "dat_csp_free")
}

fn connects(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (_, at) = listen(&pair.b, 0)?;
    let code = dat.ep_common_connect(pair.from, at, TIMEOUT, b"question");
    ok(code, "dat_ep_common_connect")?;
    let cr = pair.b.request()?;
    let asked = dat.cr_private_data(cr, 8);
    same(&asked, &Some(b"question".to_vec()), "private data")?;
    ok(dat.cr_accept(cr, pair.to, b"answer"), "dat_cr_accept")?;
    let (_, data) = pair.a.wait_with_data(pair.a.conn)?;
    holds(
        data.starts_with(b"answer"),
        "the connection event does not carry the private data of dat_cr_accept",
    )?;
    pair.b.connection(pair.to, ConnectionEvent::Established)
}

fn across(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (csp, at) = listen(&pair.b, 0)?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, at.port().into(), TIMEOUT, b"");
    ok(code, "dat_ep_connect")?;
    let cr = pair.b.request()?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)?;
    ok(dat.csp_free(csp), "dat_csp_free")?;
    let (_psp, qual) = pair.b.listen()?;
    let Ok(port) = u16::try_from(qual) else {
        return broken(format!("qualifier {qual} is no port"));
    };
    let (from, to) = (pair.a.ep()?, pair.b.ep()?);
    let code = dat.ep_common_connect(from, SocketAddr::new(at.ip(), port), TIMEOUT, b"");
    ok(code, "dat_ep_common_connect")?;
    let cr = pair.b.request()?;
    ok(dat.cr_accept(cr, to, b""), "dat_cr_accept")?;
    pair.a.connection(from, ConnectionEvent::Established)
}

fn no_listener(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (csp, at) = listen(&pair.b, 0)?;
    ok(dat.csp_free(csp), "dat_csp_free")?;
    ok(
        dat.ep_common_connect(pair.from, at, TIMEOUT, b""),
        "dat_ep_common_connect",
    )?;
    pair.a
        .connection(pair.from, ConnectionEvent::NonPeerRejected)
}

fn wrong(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (_, at) = listen(&pair.b, 0)?;
    let no_port = SocketAddr::new(at.ip(), 0);
    let code = dat.ep_common_connect(pair.from, no_port, TIMEOUT, b"");
    refused(code, Kind::InvalidAddress, "port 0")?;
    let code = dat.ep_common_connect(pair.from, at, 0, b"");
    refused(code, Kind::InvalidParameter, "timeout 0")?;
    let data = pair.a.too_much_data()?;
    let code = dat.ep_common_connect(pair.from, at, TIMEOUT, &data);
    refused(code, Kind::InvalidParameter, "too much private data")?;
    match dat.evd_wait(pair.b.cr, MOMENT, 1) {
        Ok((seen, _)) => broken(format!("{seen:?}")),
        Err(_) => Ok(()),
    }
}

fn twice(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (_, at) = listen(&pair.b, 0)?;
    let code = dat.ep_common_connect(pair.from, at, TIMEOUT, b"");
    refused(code, Kind::InvalidState, "dat_ep_common_connect, Connected")
}
