//! Connections over streams of bytes (UNIX sockets, TCP): the handshake, and the two threads of each connection.
//!
//! The asking side sends its address and its private data, the answering side accepts or rejects with its own, and the asking side confirms. Then
//! both send frames. Each message has its length in front.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use dat_core::error::{Error, Result, Subtype};
use dat_core::transport::{Token, Transport};
use dat_core::upcall::{Arrival, ConnOutcome, Upcalls};

use super::{MAX_FRAME, Qp};
use crate::worker::{Upcall, Worker};

/// Greatest length of a message of the handshake.
const MAX_HANDSHAKE: usize = 1024;
const ACCEPTED: u8 = 1;
const REJECTED: u8 = 0;

/// A stream of bytes in both directions.
pub trait Stream: Read + Write + Send + Sync + Sized + 'static {
    /// Returns another owner of the same stream.
    ///
    /// # Errors
    /// Those of the kernel.
    fn another(&self) -> io::Result<Self>;

    /// Ends the direction to the peer, which then reads an end of file.
    fn end(&self);
}

impl Stream for UnixStream {
    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) {
        // A peer that is gone has ended both directions.
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Stream for TcpStream {
    fn another(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// A socket that waits for streams.
pub trait Socket: Send + Sync + 'static {
    /// A stream of the socket.
    type Stream: Stream;

    /// Waits for the next stream.
    ///
    /// # Errors
    /// Those of the kernel.
    fn accept(&self) -> io::Result<Self::Stream>;

    /// Ends an [`accept`](Socket::accept) that waits, for example by connecting to the socket.
    fn wake(&self);
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(bytes)
}

fn receive(stream: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length)?;
    stream.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Starts a thread that ends by itself.
fn spawn(run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = thread::Builder::new().name("dat-pipe".into()).spawn(run);
    started.map_err(|_| Error::resource(Subtype::ResourceMemory))
}

/// Connects `qp`, whose attempt `token` has [begun](Qp::begin): calls `dial` in a thread, and asks as `own`. The attempt ends as
/// `Unreachable` if `dial` fails with an error other than `ConnectionRefused`, which says that nothing listens.
///
/// # Errors
/// `DAT_INSUFFICIENT_RESOURCES`: no thread can be started.
pub fn connect<T: Transport, S: Stream>(
    qp: Arc<Qp<T>>,
    token: Token,
    own: SocketAddr,
    private_data: &[u8],
    dial: impl FnOnce() -> io::Result<S> + Send + 'static,
) -> Result<()> {
    let mut hello = format!("{own}\n").into_bytes();
    hello.extend(private_data);
    spawn(move || match dial() {
        Ok(stream) => ask(&qp, token, stream, &hello),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            qp.failed(token, ConnOutcome::NonPeerRejected, &[]);
        }
        Err(_) => qp.failed(token, ConnOutcome::Unreachable, &[]),
    })?;
    Ok(())
}

fn ask<T: Transport, S: Stream>(qp: &Arc<Qp<T>>, token: Token, mut stream: S, hello: &[u8]) {
    let answer = send(&mut stream, hello).and_then(|()| receive(&mut stream, MAX_HANDSHAKE));
    match answer.as_deref() {
        Ok([ACCEPTED, data @ ..]) => run(qp, token, stream, data, true),
        Ok([REJECTED, data @ ..]) => qp.failed(token, ConnOutcome::PeerRejected, data),
        _ => qp.failed(token, ConnOutcome::NonPeerRejected, &[]),
    }
}

/// Runs a connection until the peer has ended its direction. The asking side confirms first.
fn run<T: Transport, S: Stream>(
    qp: &Arc<Qp<T>>,
    token: Token,
    mut stream: S,
    private_data: &[u8],
    confirms: bool,
) {
    let (out, frames) = mpsc::channel::<Vec<u8>>();
    let writer = stream.another().map_err(|_| ()).and_then(|mut to| {
        let write = move || {
            let sent = frames
                .into_iter()
                .try_for_each(|frame| send(&mut to, &frame));
            // The reader of the peer sees the end behind the last frame, also after an error.
            drop(sent);
            to.end();
        };
        spawn(write).map_err(|_| ())
    });
    if writer.is_err() {
        return qp.failed(token, ConnOutcome::Unreachable, &[]);
    }
    if confirms {
        let _ = out.send(Vec::new());
    }
    if !qp.connected(token, out, private_data) {
        return;
    }
    while let Ok(frame) = receive(&mut stream, MAX_FRAME) {
        qp.received(token, &frame);
    }
    qp.closed(token);
}

/// A connection request without an answer. Its drop ends the stream, which rejects it.
#[derive(Debug)]
pub struct Request<S> {
    stream: S,
    qual: u64,
}

impl<S: Stream> Request<S> {
    /// Connection qualifier that the peer connects to.
    pub const fn qual(&self) -> u64 {
        self.qual
    }

    /// Accepts the request for `qp`, whose attempt `token` has [begun](Qp::begin).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`: no thread can be started; the request is rejected.
    pub fn accept<T: Transport>(
        self,
        qp: Arc<Qp<T>>,
        token: Token,
        private_data: &[u8],
    ) -> Result<()> {
        let mut stream = self.stream;
        let answer = [&[ACCEPTED], private_data].concat();
        spawn(move || {
            let sent = send(&mut stream, &answer);
            match sent.and_then(|()| receive(&mut stream, MAX_HANDSHAKE)) {
                Ok(_) => run(&qp, token, stream, &[], false),
                Err(_) => qp.failed(token, ConnOutcome::AcceptError, &[]),
            }
        })?;
        Ok(())
    }

    /// Rejects the request for the consumer.
    pub fn reject(mut self, private_data: &[u8]) {
        // A peer that is gone needs no answer.
        let _ = send(&mut self.stream, &[&[REJECTED], private_data].concat());
    }
}

/// A service point that listens until it is dropped.
#[derive(Debug)]
pub struct Listener<K: Socket> {
    socket: Arc<K>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<K: Socket> Drop for Listener<K> {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.socket.wake();
        if let Some(thread) = self.thread.take() {
            // It only fails if the thread panicked; then it has ended, too.
            let _ = thread.join();
        }
    }
}

/// Reports each stream that `socket` accepts as a request at the service point `sp`, at the qualifier `qual` of the address `local`.
///
/// # Errors
/// `DAT_INSUFFICIENT_RESOURCES`: no thread can be started.
pub fn listen<T, K>(
    socket: K,
    (local, qual): (IpAddr, u64),
    (upcalls, sp): (Upcalls<T>, Token),
    worker: &'static Worker<T>,
) -> Result<Listener<K>>
where
    T: Transport<ConnRequest = Request<K::Stream>>,
    K: Socket,
{
    let (socket, stopped) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
    let (accepts, ends) = (Arc::clone(&socket), Arc::clone(&stopped));
    let greet = move |mut stream: K::Stream| {
        let hello = receive(&mut stream, MAX_HANDSHAKE).unwrap_or_default();
        let mut parts = hello.splitn(2, |byte| *byte == b'\n');
        let remote = parts
            .next()
            .and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        if let (Some(remote), Some(private_data)) = (remote, parts.next()) {
            let arrival = Arrival {
                remote,
                local,
                private_data,
                datagram: false,
            };
            worker.enqueue(Upcall::request(
                upcalls,
                sp,
                Request { stream, qual },
                &arrival,
            ));
        }
    };
    let thread = spawn(move || {
        while let Ok(stream) = accepts.accept() {
            if ends.load(Ordering::SeqCst) {
                return;
            }
            // Without a thread the stream is dropped, which rejects the request.
            let _ = spawn(move || greet(stream));
        }
    })?;
    Ok(Listener {
        socket,
        stopped,
        thread: Some(thread),
    })
}
