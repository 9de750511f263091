//! A tutorial: from "open" to memory that a peer reads and writes without this program's processor. Each part is a program that runs;
//! no device and no configuration are needed.
//!
//! # 1. Open an adapter
//!
//! An *interface adapter* is opened by name. `dat.conf` maps names to devices; `softrxe-lo` is built in, and connects processes of this
//! host. [`Ia::attributes`](crate::Ia::attributes) says what the adapter can do, and the address to which peers connect.
//!
//! ```
//! use udapl::Ia;
//!
//! # fn main() -> Result<(), udapl::Error> {
//! let ia = Ia::open("softrxe-lo")?;
//! let attributes = ia.attributes()?;
//! println!("{} of {} at {}", attributes.adapter, attributes.vendor, attributes.address);
//! # assert!(attributes.address.is_loopback());
//! # Ok(())
//! # }
//! ```
//!
//! A name that does not exist is an [`Error::Lookup`](crate::Error::Lookup), whose text says where was looked.
//!
//! # 2. Register memory
//!
//! An adapter moves bytes of *registered* memory only. A [`Region`](crate::Region) belongs to a *protection zone*, and says what peers
//! may do with it. Peers and the adapter may access its bytes at any time, so a program copies bytes in and out.
//!
//! ```
//! use udapl::{Access, Ia};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! let ia = Ia::open("softrxe-lo")?;
//! let pz = ia.create_pz()?;
//! let region = pz.allocate(4096, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
//! region.write(100, b"hello");
//! assert_eq!(region.to_vec(98..105), b"\0\0hello");
//! # Ok(())
//! # }
//! ```
//!
//! # 3. Connect
//!
//! An *endpoint* is one end of a connection. What happens to it arrives as events in *event dispatchers*. One side listens on a number,
//! the connection qualifier, and accepts the request of the other. Here both sides are in one program:
//!
//! ```
//! use std::time::Duration;
//! use udapl::{Event, Ia, Streams};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! let patience = Duration::from_secs(60);
//! let ia = Ia::open("softrxe-lo")?;
//! let pz = ia.create_pz()?;
//! let events = ia.create_evd(64, Streams::DTO | Streams::CONNECTION | Streams::CR)?;
//! let endpoint = || ia.endpoint(&pz).recv_evd(&events).request_evd(&events).connect_evd(&events).create();
//! let (client, server) = (endpoint()?, endpoint()?);
//!
//! let listener = ia.listen(None, &events)?; // a free qualifier
//! client.connect(ia.attributes()?.address, listener.conn_qual()).private_data(b"who I am").start()?;
//! let Event::Request(request) = events.wait(patience)? else { panic!("no request") };
//! assert!(request.private_data().starts_with(b"who I am"));
//! request.accept(&server, b"")?;
//! for _ in [&client, &server] {
//!     assert!(matches!(events.wait(patience)?, Event::Established { .. }));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # 4. Messages, call by call
//!
//! A receive is posted before its message arrives. Each post has a cookie, which comes back in the completion. Posted regions
//! stay registered until then, even if the program drops them. Here a thread sleeps in `poll(2)` on the descriptor of a
//! [`NotifyFd`](crate::NotifyFd): it takes the notifications first and the events afterwards, until there are none, and only then it
//! sleeps. A program that polls leaves out the descriptor, and one that only waits calls [`Evd::wait`](crate::Evd::wait).
//!
//! ```
//! # use std::time::Duration;
//! use std::os::fd::AsRawFd;
//! use udapl::{Access, DtoOp, Event, Ia, Streams};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! # let patience = Duration::from_secs(60);
//! let ia = Ia::open("softrxe-lo")?;
//! let pz = ia.create_pz()?;
//! let notify = ia.create_notify_fd()?;
//! let done = ia.create_evd_on(notify.cno(), 64, Streams::DTO)?;
//! # let events = ia.create_evd(64, Streams::CONNECTION | Streams::CR)?;
//! let endpoint = || ia.endpoint(&pz).recv_evd(&done).request_evd(&done).connect_evd(&events).create();
//! let (client, server) = (endpoint()?, endpoint()?);
//! // ... they connect as in part 3 ...
//! # let listener = ia.listen(None, &events)?;
//! # client.connect(ia.attributes()?.address, listener.conn_qual()).start()?;
//! # let Event::Request(request) = events.wait(patience)? else { panic!("no request") };
//! # request.accept(&server, b"")?;
//! # for _ in [&client, &server] {
//! #     assert!(matches!(events.wait(patience)?, Event::Established { .. }));
//! # }
//! let memory = pz.allocate(128, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
//! server.post_recv(&[memory.slice(64..128)], 1)?;
//! memory.write(0, b"hello");
//! client.post_send(&[memory.slice(0..5)], 2)?;
//!
//! let mut left = 2; // completions
//! while left > 0 {
//!     while notify.take()? {}
//!     while let Some(event) = done.poll()? {
//!         let Event::Completion(completion) = event else { continue };
//!         completion.result()?;
//!         if completion.op == DtoOp::Receive {
//!             assert_eq!(memory.to_vec(64..64 + completion.length as usize), b"hello");
//!         }
//!         left -= 1;
//!     }
//!     if left > 0 {
//!         let mut readable = libc::pollfd { fd: notify.as_raw_fd(), events: libc::POLLIN, revents: 0 };
//!         // SAFETY: one descriptor, which lives.
//!         unsafe { libc::poll(&raw mut readable, 1, -1) };
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # 5. Messages, with futures
//!
//! The calls above map uDAPL's one to one. Most programs are shorter with the futures of [`aio`](crate::aio), where a
//! [`Context`](crate::aio::Context) owns the adapter and gives events to whatever waits for them. They work in every runtime, and in none:
//!
//! ```
//! use udapl::aio::{Context, Options, block_on, try_join};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! block_on(async {
//!     let context = Context::open("softrxe-lo")?;
//!     let mut listener = context.listen(None, Options::default())?;
//!     let (qualifier, options) = (listener.conn_qual(), Options::default());
//!     let attempt = context.connect(context.address(), qualifier, &options);
//!     let (client, server) = try_join(attempt, listener.accept()).await?;
//!
//!     // A buffer moves into the operation and comes back with its result.
//!     let pool = context.pool(4, 4096)?;
//!     let buffer = pool.take().await.filled(b"hello");
//!     let (_buffer, sent) = client.send(buffer).await;
//!     assert_eq!(sent?, 5);
//!     assert_eq!(&server.recv().await?[..], b"hello");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # 6. One-sided
//!
//! A region with rights for peers has a key. A peer that has the key as a [`Remote`](crate::Remote) reads, writes and changes the memory
//! itself. The owner's program does not run for that, and gets no event. A key is sent like any other bytes; here it is the private data
//! of the connection.
//!
//! ```
//! use udapl::aio::{Context, Options, block_on, try_join};
//! use udapl::{Access, Remote};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! block_on(async {
//!     let context = Context::open("softrxe-lo")?;
//!     let shared = context.pz().allocate(4096, Access::ALL | Access::REMOTE_ATOMIC)?;
//!     let with_key = Options {
//!         private_data: shared.remote(0..4096).to_bytes().to_vec(),
//!         ..Options::default()
//!     };
//!     let mut listener = context.listen(None, with_key)?;
//!     let (qualifier, options) = (listener.conn_qual(), Options::default());
//!     let attempt = context.connect(context.address(), qualifier, &options);
//!     let (client, server) = try_join(attempt, listener.accept()).await?;
//!     let memory = Remote::from_prefix(&client.private_data()).expect("the server sent a key");
//!
//!     // Write, read, and count, in the server's memory.
//!     let pool = context.pool(1, 5)?;
//!     let buffer = pool.take().await.filled(b"hello");
//!     let (mut buffer, written) = client.write(buffer, memory.slice(100..105)).await;
//!     written?;
//!     assert_eq!(shared.to_vec(100..105), b"hello");
//!     buffer.fill(0);
//!     let (buffer, read) = client.read(memory.slice(100..105), buffer).await;
//!     assert_eq!((read?, &buffer[..]), (5, &b"hello"[..]));
//!     assert_eq!(client.fetch_add(memory.slice(0..8), 7).await?, 0);
//!     assert_eq!(shared.load_u64(0), 7);
//!
//!     // A write that tells the server, which gets a message with a number and the length of the write.
//!     let (_, written) = client.write_immediate(buffer, memory.slice(64..69), 64).await;
//!     written?;
//!     let told = server.recv().await?;
//!     assert_eq!((told.immediate(), told.written()), (Some(64), 5));
//!     Ok(())
//! })
//! # }
//! ```
//!
//! A key is good as long as its region lives. A read with the key of a region that is gone fails with
//! [`DtoStatus::RemoteAccess`](crate::DtoStatus::RemoteAccess) and breaks the connection; other connections are not concerned. To open
//! memory for a while, and close it without an end of the connection, use a [`Window`](crate::aio::Window).
//!
//! # 7. When something fails
//!
//! Errors are variants of [`Error`](crate::Error) that a program matches on. An attempt to connect has no time limit unless
//! [`Options::timeout`](crate::aio::Options) sets one. An operation that failed breaks its connection, and an
//! error says whether the connection is gone:
//!
//! ```
//! use udapl::aio::{Context, Options, block_on};
//! use udapl::{ConnectionEvent, Error};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! let context = Context::open("softrxe-lo")?;
//! let attempt = block_on(context.connect(context.address(), 31_999, &Options::default()));
//! match attempt {
//!     Err(error) if error.is_refused() => println!("nothing listens there"),
//!     Err(Error::Disconnected { how: ConnectionEvent::TimedOut }) => println!("no answer in time"),
//!     Err(Error::Rejected { private_data }) => println!("the server said {private_data:?}"),
//!     Err(error) => return Err(error),
//!     Ok(_) => unreachable!(),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # 8. In a server, with tokio
//!
//! `Context::open_tokio` (feature `tokio`) lets a task of the runtime take the events. The runtime must live as long as the context is
//! used, and a task that blocks its only thread, for instance in [`block_on`](crate::aio::block_on), waits for ever.
//! [`Context::open`](crate::aio::Context::open) works in a task as well, with a thread of its own for that. A connection
//! is `Send` and used through `&self`, so a task or several can have it.
//!
//! * **Shutdown**: [`Connection::disconnect`](crate::aio::Connection::disconnect) lets posted operations complete. A connection that is
//!   dropped ends at once. Peers see either as [`Error::Disconnected`](crate::Error::Disconnected).
//! * **Timeouts, `select!`**: a future that is dropped cancels no operation that was posted. It goes on, its buffer stays with it, and
//!   returns to its pool when it completes. A dropped `recv` loses no message: the next one gets it.
//! * **A client that is killed**: `recv` returns an error for which
//!   [`Error::is_connection_gone`](crate::Error::is_connection_gone) is true, and so does a send that was under way.
//!   [`Connection::id`](crate::aio::Connection::id), [`remote`](crate::aio::Connection::remote), and the
//!   [`private_data`](crate::aio::Connection::private_data) of its request tell which client it was.
//! * **Messages that are kept**: each has one of the connection's receives until it is dropped. A peer that finds none waits.
//!
//! ```
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), udapl::Error> {
//! use std::time::Duration;
//! use tokio::time::timeout;
//! use udapl::aio::{Context, Options};
//!
//! let context = Context::open_tokio("softrxe-lo")?;
//! let mut listener = context.listen(None, Options::default())?;
//! let (address, qualifier) = (context.address(), listener.conn_qual());
//! let server = tokio::spawn(async move {
//!     loop {
//!         let (request, options) = (listener.next_request().await?, listener.options().clone());
//!         tokio::spawn(async move {
//!             // A client that goes away meanwhile is an error of this task only, and keeps no other client waiting.
//!             let connection = request.accept(&options).await?;
//!             let pool = connection.context().pool(4, 64)?;
//!             loop {
//!                 let message = match connection.recv().await {
//!                     Err(error) if error.is_connection_gone() => {
//!                         println!("{} of {} went: {error}", connection.id(), connection.remote());
//!                         return Ok(());
//!                     }
//!                     other => other?,
//!                 };
//!                 connection.send(pool.take().await.filled(&message)).await.1?;
//!             }
//!             # #[expect(unreachable_code)]
//!             Ok::<(), udapl::Error>(())
//!         });
//!     }
//!     # #[expect(unreachable_code)]
//!     Ok::<(), udapl::Error>(())
//! });
//!
//! let client = context.connect(address, qualifier, &Options::default()).await?;
//! let early = timeout(Duration::from_millis(1), client.recv()).await;
//! assert!(early.is_err()); // nothing was sent
//! client.send(context.pool(1, 64)?.take().await.filled(b"hello")).await.1?;
//! assert_eq!(&client.recv().await?[..], b"hello");
//! client.disconnect().await?;
//! server.abort();
//! # Ok(())
//! # }
//! ```
//!
//! # 9. Several threads
//!
//! All types may be used by several threads, but they then wait for each other. A [`Context`](crate::aio::Context) has one IA and one
//! dispatcher, and on the user engine an IA has one lock, in which every post and every poll takes its turn. Threads at high
//! rates have a context each, with its own IA:
//!
//! ```
//! use udapl::aio::{Context, Options, block_on, try_join};
//!
//! fn work() -> Result<(), udapl::Error> {
//!     let context = Context::open("softrxe-lo")?; // of this thread
//!     block_on(async {
//!         let mut listener = context.listen(None, Options::default())?;
//!         let (qualifier, options) = (listener.conn_qual(), Options::default());
//!         let attempt = context.connect(context.address(), qualifier, &options);
//!         let (client, server) = try_join(attempt, listener.accept()).await?;
//!         client.send(context.pool(1, 64)?.take().await.filled(b"hello")).await.1?;
//!         assert_eq!(&server.recv().await?[..], b"hello");
//!         Ok(())
//!     })
//! }
//!
//! # fn main() -> Result<(), udapl::Error> {
//! let threads = [std::thread::spawn(work), std::thread::spawn(work)];
//! for thread in threads {
//!     thread.join().expect("it does not panic")?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A region belongs to the IA that registered it, so each context registers memory of its own.
//!
//! Call by call, one [`Ia`](crate::Ia) serves several threads at the rate of several IAs, and one region serves them all. Its
//! entry in dat.conf has `lanes=N` in `ia_params`, for N threads, and each thread has an [`Evd`](crate::Evd) of its own, which is
//! the `recv_evd` and the `request_evd` of its endpoints and of no others. The first endpoint of a dispatcher chooses the lane,
//! and later ones are in the same. The endpoints on an [`Srq`](crate::Srq) are in its lane whatever their dispatchers, so each
//! thread needs an SRQ of its own as well. The built-in names, such as `softrxe-lo`, have one lane.
//!
//! A context gains nothing from `lanes=N`. Its one dispatcher is behind all its endpoints, so they are in one lane. Only its
//! [`SharedReceives`](crate::aio::SharedReceives) are in lanes of their own, and the dispatcher has to look at each of these, too.
//! docs/design/lanes.md of the repository has the costs.
//!
//! # Further
//!
//! The examples of the package are whole programs: `echo`, `key_value` (a store whose clients read seqlocks), `file_transfer`,
//! `counter`, `publish_subscribe` and `tokio_echo`. Many clients of one server: [`SharedReceives`](crate::aio::SharedReceives).
//! Datagrams: [`Datagrams`](crate::aio::Datagrams). Memory that is open for a while: [`Window`](crate::aio::Window).
