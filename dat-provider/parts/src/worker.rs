//! The thread that makes all upcalls. A transport must not call core from inside a call of core, nor while it holds a lock of its own.
//! One queue keeps the upcalls of a connection in order.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, mpsc};
use std::time::Duration;

use dat_core::reserve::has_thread_room;
use dat_core::transport::{Token, Transport};
use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault, Upcalls};
use dat_os::mutex::lock;

/// An upcall that the worker will make.
pub struct Upcall<T: Transport> {
    upcalls: Upcalls<T>,
    /// Time for which the worker sleeps before the upcall; it delays all later upcalls, like a slow network.
    delay: Duration,
    kind: Kind<T>,
}

enum Kind<T: Transport> {
    Request {
        sp: Token,
        request: T::ConnRequest,
        remote: SocketAddr,
        local: IpAddr,
        private_data: Vec<u8>,
        datagram: bool,
    },
    Connection(Token, ConnOutcome, Box<[u8]>),
    Datagram(Token, DatagramOutcome<T>),
    Ready(Token),
    Fault(Fault),
}

impl<T: Transport> Upcall<T> {
    /// Reports a connection request at the service point `sp`.
    #[must_use]
    pub fn request(
        upcalls: Upcalls<T>,
        sp: Token,
        request: T::ConnRequest,
        arrival: &Arrival<'_>,
    ) -> Self {
        Self::new(
            upcalls,
            Kind::Request {
                sp,
                request,
                remote: arrival.remote,
                local: arrival.local,
                private_data: arrival.private_data.to_vec(),
                datagram: arrival.datagram,
            },
        )
    }

    /// Reports the outcome of the lookup of a datagram peer.
    #[must_use]
    pub fn datagram(upcalls: Upcalls<T>, token: Token, outcome: DatagramOutcome<T>) -> Self {
        Self::new(upcalls, Kind::Datagram(token, outcome))
    }

    /// Reports an outcome of the connection `token`.
    #[must_use]
    pub fn connection(
        upcalls: Upcalls<T>,
        token: Token,
        outcome: ConnOutcome,
        private_data: &[u8],
    ) -> Self {
        Self::new(
            upcalls,
            Kind::Connection(token, outcome, private_data.into()),
        )
    }

    /// Reports a completion in the watched queue of `evd`.
    #[must_use]
    pub fn ready(upcalls: Upcalls<T>, evd: Token) -> Self {
        Self::new(upcalls, Kind::Ready(evd))
    }

    /// Reports a fault.
    #[must_use]
    pub fn fault(upcalls: Upcalls<T>, fault: Fault) -> Self {
        Self::new(upcalls, Kind::Fault(fault))
    }

    fn new(upcalls: Upcalls<T>, kind: Kind<T>) -> Self {
        Self {
            upcalls,
            delay: Duration::ZERO,
            kind,
        }
    }

    /// Returns the upcall with a delay: the worker sleeps before it, as on a slow network.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
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

/// A thread that makes upcalls in the order in which they were queued. A transport has one: `static WORKER: Worker<MyTransport> =
/// Worker::new("my-upcalls");`. The thread never ends, so the shared object is linked with `-z nodelete`.
pub struct Worker<T: Transport> {
    name: &'static str,
    queue: Mutex<Option<mpsc::Sender<Upcall<T>>>>,
}

impl<T: Transport> std::fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Worker").field(&self.name).finish()
    }
}

impl<T: Transport> Worker<T> {
    /// Makes a worker whose thread gets this name once it is started.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            queue: Mutex::new(None),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Option<mpsc::Sender<Upcall<T>>>> {
        lock(&self.queue)
    }

    /// Starts the thread unless it runs; without it no event of a connection would be reported. For
    /// [`Transport::open`].
    ///
    /// # Errors
    /// The errors of the kernel, if it cannot start a thread.
    pub fn start(&self) -> io::Result<()> {
        let mut queue = self.queue();
        if queue.is_none() {
            if !has_thread_room() {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            let (sender, upcalls) = mpsc::channel::<Upcall<T>>();
            let builder = std::thread::Builder::new().name(self.name.into());
            dat_os::signals::spawn(builder, move || upcalls.into_iter().for_each(Upcall::make))?;
            *queue = Some(sender);
        }
        Ok(())
    }

    /// Queues an upcall; never blocks, and may be called from inside any method and under any lock.
    pub fn enqueue(&self, upcall: Upcall<T>) {
        if let Some(queue) = &*self.queue() {
            // The thread never ends, so the channel is never closed.
            let _ = queue.send(upcall);
        }
    }
}
