//! Two processes with the provider, of which one is killed.

use std::time::Duration;

use dat_core::ep::EpState;
use dat_core::event::ConnectionEvent;
use dat_core::flags::MemPriv;

use super::statements;
use crate::dat::{Dat, Post};
use crate::event::{FLUSHED, SUCCESS, Seen};
use crate::fixture::{Memory, Side, TIMEOUT};
use crate::names::EventNumber;
use crate::peer::{Peer, Role};
use crate::verdict::{Check, broken, holds, ok, same};

statements! {
    "dat_ep_connect": "Endpoints of two processes connect, and messages go both ways." => talks;
    "dat_ep_connect": "Receives that the active side posted before it connects take what the other process sends." => receives_before;
    "dat_ep_connect": "An attempt whose peer is killed before it answers ends without ESTABLISHED, at the latest by its timeout." => killed_before_answer;
    "dat_ep_connect": "After a peer was killed, the same process connects to another one." => next_peer;
    "dat_ep_disconnect": "The death of the peer's process ends the connection, and all outstanding receives are flushed in order." => killed;
    "dat_ep_disconnect": "A process that sends while its peer is killed lives, and each request completes." => killed_while_sending;
    "dat_ep_disconnect": "The peer's process ends normally after a disconnect, and a second one is no error." => leaves;
}

const ALL: u32 = MemPriv::ALL.bits();

/// This process, connected to a second one.
struct Connected<'a> {
    side: Side<'a>,
    ep: usize,
    memory: Memory,
    peer: Peer,
}

impl<'a> Connected<'a> {
    fn new(dat: &'a Dat) -> Check<Self> {
        Self::over(Side::open(dat)?, &[])
    }

    /// Posts receives with these cookies, then connects.
    fn over(side: Side<'a>, cookies: &[u64]) -> Check<Self> {
        let dat = side.dat;
        let mut peer = Peer::start(dat, Role::Echo)?;
        let (ep, memory) = (side.ep()?, side.memory(64, ALL)?);
        for cookie in cookies {
            side.post(ep, Post::Recv, &[memory.local()], *cookie)?;
        }
        // The second process has the same address: it opens the same adapter.
        let code = dat.ep_connect(ep, &side.attr, peer.conn_qual, TIMEOUT, b"");
        ok(code, "dat_ep_connect")?;
        side.connection(ep, ConnectionEvent::Established)?;
        peer.is_asked()?;
        Ok(Self {
            side,
            ep,
            memory,
            peer,
        })
    }

    /// Sends a message and gets it back, into a receive that is posted already.
    fn round(&self, byte: u8, cookie: u64) -> Check {
        let source = self.side.memory(64, ALL)?;
        source.fill(byte);
        self.side
            .post(self.ep, Post::Send, &[source.local()], 1000 + cookie)?;
        self.side
            .completes(self.side.request, 1000 + cookie, SUCCESS)?;
        self.side.completes(self.side.recv, cookie, SUCCESS)?;
        holds(
            self.memory.is_all(byte),
            "the bytes that came back differ from the bytes sent",
        )
    }
}

fn talks(dat: &Dat) -> Check {
    let connected = Connected::new(dat)?;
    let (side, ep) = (&connected.side, connected.ep);
    for n in 1..=20 {
        side.post(ep, Post::Recv, &[connected.memory.local()], n)?;
        connected.round(n as u8, n)?;
    }
    Ok(())
}

fn receives_before(dat: &Dat) -> Check {
    let connected = Connected::over(Side::open(dat)?, &[1, 2, 3])?;
    for n in 1..=3 {
        connected.round(n as u8, n)?;
    }
    Ok(())
}

fn killed(dat: &Dat) -> Check {
    let mut connected = Connected::over(Side::open(dat)?, &[1, 2, 3, 4])?;
    connected.round(7, 1)?;
    connected.peer.kill();
    let (side, ep) = (&connected.side, connected.ep);
    side.ends(ep)?;
    for cookie in 2..=4 {
        side.completes(side.recv, cookie, FLUSHED)?;
    }
    Ok(())
}

fn killed_while_sending(dat: &Dat) -> Check {
    let mut connected = Connected::new(dat)?;
    let (side, ep) = (&connected.side, connected.ep);
    let large = side.memory(side.longest(1 << 20, true)?, ALL)?;
    // What a stopped process does not take waits here.
    connected.peer.stop();
    for cookie in 1..=8 {
        side.post(ep, Post::Send, &[large.local()], cookie)?;
    }
    std::thread::sleep(Duration::from_millis(50));
    connected.peer.kill();
    for cookie in 1..=8 {
        let name = format!("send {cookie} of eight to a peer that is killed");
        side.result(side.request, cookie, &name)?;
    }
    side.ends(ep)
}

fn killed_before_answer(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let mut peer = Peer::start(dat, Role::Mute)?;
    let ep = side.ep()?;
    let code = dat.ep_connect(ep, &side.attr, peer.conn_qual, 5_000_000, b"");
    ok(code, "dat_ep_connect")?;
    peer.is_asked()?;
    peer.kill();
    match side.wait(side.conn)? {
        Seen::Connection { number, ep: seen }
            if seen == ep && number != EventNumber::from(ConnectionEvent::Established) =>
        {
            side.state(ep, EpState::Disconnected)
        }
        other => broken(format!(
            "dat_evd_wait returned {other:?}; expected that the attempt fails"
        )),
    }
}

fn next_peer(dat: &Dat) -> Check {
    let mut first = Connected::over(Side::open(dat)?, &[1])?;
    first.round(1, 1)?;
    first.peer.kill();
    first.side.ends(first.ep)?;
    let second = Connected::over(first.side, &[2])?;
    second.round(2, 2)
}

fn leaves(dat: &Dat) -> Check {
    let connected = Connected::over(Side::open(dat)?, &[1])?;
    connected.round(3, 1)?;
    let (side, ep) = (&connected.side, connected.ep);
    ok(
        dat.ep_disconnect(ep, crate::fixture::ABRUPT),
        "dat_ep_disconnect",
    )?;
    side.ends(ep)?;
    let code = dat.ep_disconnect(ep, crate::fixture::ABRUPT);
    same(&code, &0, "code of the second dat_ep_disconnect")
}
