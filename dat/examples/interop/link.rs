//! A connection with posted receives, and calls that wait until their operation is complete.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use udapl::{
    Access, Close, CompletionFlags, ConnRequest, ConnectionEvent, Ep, Error, Evd, Event, Ia,
    PostError, Pz, Region, Remote, Streams,
};

/// Time to wait for one step of a protocol. The kernel retransmits a lost packet after two seconds at the earliest.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The objects that all connections share.
pub(crate) struct Local {
    pub(crate) ia: Ia,
    pub(crate) pz: Pz,
    pub(crate) connections: Evd,
}

/// One connection. Messages are copied: the first part of the region is a ring of receives, the rest is for sending.
pub(crate) struct Link {
    pub(crate) ep: Ep,
    received: Evd,
    done: Evd,
    region: Region,
    slots: usize,
    room: usize,
}

impl Link {
    /// Makes an unconnected link with `slots` posted receives of `room` bytes.
    pub(crate) fn new(local: &Local, slots: usize, room: usize) -> Result<Self, Error> {
        let queue = u32::try_from(slots + 8).unwrap_or(u32::MAX);
        let received = local.ia.create_evd(queue, Streams::DTO)?;
        let done = local.ia.create_evd(queue, Streams::DTO)?;
        let builder = local
            .ia
            .endpoint(&local.pz)
            .recv_evd(&received)
            .request_evd(&done)
            .connect_evd(&local.connections);
        let ep = builder.max_recv(queue).max_requests(16).create()?;
        let region = local.pz.allocate((slots + 1) * room, Access::ALL)?;
        let link = Self {
            ep,
            received,
            done,
            region,
            slots,
            room,
        };
        for slot in 0..slots {
            link.post(slot)?;
        }
        Ok(link)
    }

    fn post(&self, slot: usize) -> Result<(), PostError> {
        let at = slot * self.room;
        self.ep
            .post_recv(&[self.region.slice(at..at + self.room)], slot as u64)
    }

    /// Makes a link and connects it. Tries again if the peer does not listen yet.
    pub(crate) fn connect(
        local: &Local,
        slots: usize,
        room: usize,
        address: IpAddr,
        port: u64,
    ) -> Result<Self, Error> {
        let begin = Instant::now();
        loop {
            // A rejected attempt flushes the posted receives.
            let link = Self::new(local, slots, room)?;
            link.ep.connect(address, port).timeout(PATIENCE).start()?;
            match local.connections.wait(PATIENCE)? {
                Event::Established { ep, .. } if ep == link.ep.id() => return Ok(link),
                Event::Ended {
                    how: ConnectionEvent::NonPeerRejected,
                    ..
                } if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(200)),
                other => return Err(unexpected("a connection", &other)),
            }
        }
    }

    /// Accepts a request and waits until the link is connected.
    pub(crate) fn accept(&self, local: &Local, request: ConnRequest) -> Result<(), Error> {
        request.accept(&self.ep, &[])?;
        self.established(local)
    }

    fn established(&self, local: &Local) -> Result<(), Error> {
        match local.connections.wait(PATIENCE)? {
            Event::Established { ep, .. } if ep == self.ep.id() => Ok(()),
            other => Err(unexpected("a connection", &other)),
        }
    }

    /// Waits for the next message.
    pub(crate) fn receive(&self) -> Result<Vec<u8>, Error> {
        self.received
            .wait_completion(PATIENCE)
            .and_then(|done| self.take(done.cookie, done.length))
    }

    /// Returns the next message if there is one; `None` also for other completions (flushes at the end).
    pub(crate) fn poll(&self) -> Result<Option<Vec<u8>>, Error> {
        match self.received.poll()? {
            Some(Event::Completion(done)) if done.status == udapl::DtoStatus::Success => {
                self.take(done.cookie, done.length).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn take(&self, slot: u64, length: u32) -> Result<Vec<u8>, Error> {
        let slot = slot as usize;
        let at = slot * self.room;
        let bytes = self.region.to_vec(at..at + length as usize);
        self.post(slot)?;
        Ok(bytes)
    }

    /// Sends a message and waits until it is received.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        let at = self.slots * self.room;
        self.region.write(at, bytes);
        self.ep
            .post_send(&[self.region.slice(at..at + bytes.len())], 0)?;
        self.done.wait_completion(PATIENCE).map(drop)
    }

    /// Sends the contents of a region.
    pub(crate) fn send_region(&self, region: &Region) -> Result<(), Error> {
        self.ep.post_send(&[region.slice(0..region.len())], 0)?;
        self.done.wait_completion(PATIENCE).map(drop)
    }

    /// Writes the beginning of `from` to the peer.
    pub(crate) fn write(&self, from: &Region, length: usize, to: Remote) -> Result<(), Error> {
        let slices = [from.slice(0..length)];
        self.ep
            .post_rdma_write(&slices, to, 0, CompletionFlags::empty())?;
        self.done.wait_completion(PATIENCE).map(drop)
    }

    /// Reads the peer's memory.
    pub(crate) fn read(&self, into: &Region, length: usize, from: Remote) -> Result<(), Error> {
        let slices = [into.slice(0..length)];
        self.ep
            .post_rdma_read(&slices, from, 0, CompletionFlags::empty())?;
        self.done.wait_completion(PATIENCE).map(drop)
    }

    /// Disconnects and waits for the event.
    pub(crate) fn close(&self, local: &Local) -> Result<(), Error> {
        self.ep.disconnect(Close::Graceful)?;
        self.ended(local)
    }

    /// Waits until the peer disconnects.
    pub(crate) fn ended(&self, local: &Local) -> Result<(), Error> {
        match local.connections.wait(PATIENCE)? {
            Event::Ended { .. } => Ok(()),
            other => Err(unexpected("the connection's end", &other)),
        }
    }
}

/// Waits for the next connection request.
pub(crate) fn request(local: &Local) -> Result<ConnRequest, Error> {
    match local.connections.wait(10 * PATIENCE)? {
        Event::Request(request) => Ok(request),
        other => Err(unexpected("a connection request", &other)),
    }
}

/// Returns the error for an unexpected event.
pub(crate) fn unexpected(wanted: &'static str, event: &Event) -> Error {
    Error::Unexpected {
        wanted,
        got: format!("{event:?}"),
    }
}
