//! UNIX sockets in the abstract name space, whose names need no files: one for each connection qualifier of each address. Every user
//! of the host can connect to them.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use dat_provider::parts::pipe::session::Socket;
use dat_provider::prelude::*;

fn name(address: IpAddr, qual: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("dat-pipe/{address}/{qual}"))
}

/// Connects to a qualifier of an address.
pub(crate) fn dial(address: IpAddr, qual: u64) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&name(address, qual)?)
}

/// A socket that listens at a qualifier.
#[derive(Debug)]
pub struct Door(UnixListener);

impl Door {
    pub(crate) fn open(address: IpAddr, qual: u64) -> Result<Self> {
        let bound = name(address, qual).and_then(|name| UnixListener::bind_addr(&name));
        bound.map(Self).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::of(Kind::ConnQualInUse),
            _ => Error::resource(Subtype::ResourceDevice),
        })
    }
}

impl Socket for Door {
    type Stream = UnixStream;

    fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.0.accept()?.0)
    }

    fn wake(&self) {
        // An error means that the thread does not wait.
        let _ = self
            .0
            .local_addr()
            .and_then(|own| UnixStream::connect_addr(&own));
    }
}
