//! The thread that makes all upcalls: core must not be called from inside a call of its own, nor with a lock of the
//! transport held. One queue keeps what concerns one connection in order.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use dat_core::reserve::has_thread_room;
use dat_core::transport::Token;
use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault, Upcalls};

use crate::connect::ConnRequest;
use crate::transport::Loopback;

/// An upcall to be made.
#[derive(Debug)]
pub(crate) struct Job {
    upcalls: Upcalls<Loopback>,
    /// Slept off first; holds up everything behind it, as a slow link would.
    delay: Duration,
    what: What,
}

#[derive(Debug)]
enum What {
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

impl Job {
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
            What::Request {
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
        Self::new(upcalls, What::Datagram(token, outcome))
    }

    pub(crate) fn connection(
        upcalls: Upcalls<Loopback>,
        token: Token,
        outcome: ConnOutcome,
        private_data: &[u8],
    ) -> Self {
        Self::new(
            upcalls,
            What::Connection(token, outcome, private_data.into()),
        )
    }

    pub(crate) fn ready(upcalls: Upcalls<Loopback>, evd: Token) -> Self {
        Self::new(upcalls, What::Ready(evd))
    }

    pub(crate) fn fault(upcalls: Upcalls<Loopback>, fault: Fault) -> Self {
        Self::new(upcalls, What::Fault(fault))
    }

    fn new(upcalls: Upcalls<Loopback>, what: What) -> Self {
        Self {
            upcalls,
            delay: Duration::ZERO,
            what,
        }
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn carry_out(self) {
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        match self.what {
            What::Request {
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
            What::Connection(token, outcome, data) => {
                self.upcalls.connection(token, outcome, &data);
            }
            What::Datagram(token, outcome) => self.upcalls.datagram(token, outcome),
            What::Ready(evd) => self.upcalls.cq_ready(evd),
            What::Fault(fault) => self.upcalls.fault(fault),
        }
    }
}

static QUEUE: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);

fn queue() -> MutexGuard<'static, Option<mpsc::Sender<Job>>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes sure that there is a worker: without one no connection would be announced.
///
/// # Errors
/// As of the kernel, if it has no thread for us.
pub(crate) fn start() -> io::Result<()> {
    let mut queue = queue();
    if queue.is_none() {
        if !has_thread_room() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("dat-loopback".into())
            .spawn(move || jobs.into_iter().for_each(Job::carry_out))?;
        *queue = Some(sender);
    }
    Ok(())
}

/// Has the worker make the upcall; never blocks.
pub(crate) fn tell(job: Job) {
    if let Some(queue) = &*queue() {
        // The worker lives as long as the queue, which is for ever.
        let _ = queue.send(job);
    }
}
