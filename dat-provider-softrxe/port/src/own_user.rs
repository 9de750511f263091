//! Connections of packets between two processes of the own user, for other crates.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::credentials::Trust;
use crate::discard::Connection;
use crate::listener::Listener;
use crate::names::{connect_exact, listen_exact, user_name};
use crate::poll_set::PollSet;
use crate::unix_socket::{Kind, allow_descriptors};

/// Listens as `role` at `ip`. `ready` becomes readable when there is something to accept.
///
/// # Errors
/// `AddrInUse` if a program has the name; else as `socket`, `bind`, `epoll_ctl`.
pub fn listen(ip: IpAddr, role: &str, ready: Arc<PollSet>) -> io::Result<Listener> {
    let socket = listen_exact(Kind::Packets, &user_name(ip, role))?;
    Listener::new(socket, Trust::Own, ready)
}

/// Connects to `role` at `ip`, without a wait. The other end may send descriptors.
///
/// # Errors
/// `PermissionDenied` when another user has the name; `ConnectionRefused` when no process listens there; `WouldBlock`
/// when the listener's queue is full; else as `socket`.
pub fn connect(ip: IpAddr, role: &str) -> io::Result<Connection> {
    let connection = connect_exact(Kind::Packets, &user_name(ip, role), Trust::Own)?;
    allow_descriptors(connection.as_fd())?;
    Ok(connection.into())
}
