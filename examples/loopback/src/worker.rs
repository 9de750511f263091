//! The thread that makes all upcalls. A transport must not call core from inside a call of core, nor while it holds a lock of its own.
//! One queue keeps the upcalls of a connection in order.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use dat_core::reserve::has_thread_room;
use dat_core::transport::Token;
use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault, Upcalls};

use crate::connect::ConnRequest;
use crate::transport::Loopback;

/// An upcall that the worker will make.
#[derive(Debug)]
pub(crate) struct Upcall {
    upcalls: Upcalls<Loopback>,
    /// Time for which the worker sleeps before the upcall; it delays all later upcalls, like a slow network.
    delay: Duration,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Request {
        sp: Token,
        request: ConnRequest,
        remote: SocketAddr,
        local: IpAddr,
        private_data: Vec<u8>,
        datagram: bool,
    },
    Connection(Token, ConnOutcome, Box<[u8]>),
    Datagram(Token, DatagramOutcome<Loopback>),
    Ready(Token),
    Fault(Fault),
}

impl Upcall {
    pub(crate) fn request(
        upcalls: Upcalls<Loopback>,
        sp: Token,
        request: ConnRequest,
        from: (IpAddr, u16),
        local: IpAddr,
        private_data: &[u8],
        datagram: bool,
    ) -> Self {
        Self::new(
            upcalls,
            Kind::Request {
                sp,
                request,
                remote: from.into(),
                local,
                private_data: private_data.to_vec(),
                datagram,
            },
        )
    }

    pub(crate) fn datagram(
        upcalls: Upcalls<Loopback>,
        token: Token,
        outcome: DatagramOutcome<Loopback>,
    ) -> Self {
        Self::new(upcalls, Kind::Datagram(token, outcome))
    }

    pub(crate) fn connection(
        upcalls: Upcalls<Loopback>,
        token: Token,
        outcome: ConnOutcome,
        private_data: &[u8],
    ) -> Self {
        Self::new(
            upcalls,
            Kind::Connection(token, outcome, private_data.into()),
        )
    }

    pub(crate) fn ready(upcalls: Upcalls<Loopback>, evd: Token) -> Self {
        Self::new(upcalls, Kind::Ready(evd))
    }

    pub(crate) fn fault(upcalls: Upcalls<Loopback>, fault: Fault) -> Self {
        Self::new(upcalls, Kind::Fault(fault))
    }

    fn new(upcalls: Upcalls<Loopback>, kind: Kind) -> Self {
        Self {
            upcalls,
            delay: Duration::ZERO,
            kind,
        }
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn make(self) {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        match self.kind {
            Kind::Request {
                sp,
                request,
                remote,
                local,
                private_data,
                datagram,
            } => self.upcalls.connect_request(
                sp,
                request,
                &Arrival {
                    remote,
                    local,
                    private_data: &private_data,
                    datagram,
                },
            ),
            Kind::Connection(token, outcome, data) => {
                self.upcalls.connection(token, outcome, &data);
            }
            Kind::Datagram(token, outcome) => self.upcalls.datagram(token, outcome),
            Kind::Ready(evd) => self.upcalls.cq_ready(evd),
            Kind::Fault(fault) => self.upcalls.fault(fault),
        }
    }
}

static QUEUE: Mutex<Option<mpsc::Sender<Upcall>>> = Mutex::new(None);

fn queue() -> MutexGuard<'static, Option<mpsc::Sender<Upcall>>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the worker unless it runs; without it no event of a connection would be reported.
///
/// # Errors
/// The errors of the kernel, if it cannot start a thread.
pub(crate) fn start() -> io::Result<()> {
    let mut queue = queue();
    if queue.is_none() {
        if !has_thread_room() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (sender, upcalls) = mpsc::channel::<Upcall>();
        std::thread::Builder::new()
            .name("dat-loopback".into())
            .spawn(move || upcalls.into_iter().for_each(Upcall::make))?;
        *queue = Some(sender);
    }
    Ok(())
}

/// Queues an upcall for the worker; never blocks.
pub(crate) fn enqueue(upcall: Upcall) {
    if let Some(queue) = &*queue() {
        // The worker never ends, so the channel is never closed.
        let _ = queue.send(upcall);
    }
}
