//! The layer of futures, without a runtime.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use udapl::aio::{Buffer, Connection, Context, Operation, Options, block_on, join};
use udapl::{Access, DtoStatus, Error, Streams};

/// Returns two contexts with a connection between them.
fn connected(options: &Options) -> (Context, Connection, Context, Connection) {
    let (a, b) = (open(), open());
    let mut listener = b.listen(None, options.clone()).expect("listens");
    let attempt = a.connect(b.address(), listener.conn_qual(), options);
    let (client, server) = block_on(join(attempt, listener.accept()));
    (a, client.expect("connects"), b, server.expect("accepts"))
}

fn open() -> Context {
    udapl::log::install();
    Context::open("softrxe-lo").expect("opens")
}

#[test]
fn buffers_move_into_operations_and_come_back() {
    let (a, client, b, server) = connected(&Options::default());
    let rights = Access::ALL | Access::REMOTE_ATOMIC;
    let exposed = b.pz().allocate(4096, rights).expect("memory");
    let pool = a.pool(2, 64).expect("a pool");
    block_on(async {
        let buffer = pool.take().await.filled(b"hello");
        let (buffer, sent) = client.send(buffer).await;
        assert_eq!((sent.expect("sent"), &buffer[..]), (5, &b"hello"[..]));
        assert_eq!(&server.recv().await.expect("received")[..], b"hello");

        let (mut buffer, written) = client.write(buffer, exposed.remote(8..13)).await;
        written.expect("written");
        assert_eq!(exposed.to_vec(7..14), b"\0hello\0");
        buffer.fill(0);
        let (buffer, read) = client.read(exposed.remote(8..13), buffer).await;
        assert_eq!((read.expect("read"), &buffer[..]), (5, &b"hello"[..]));
        let (_, told) = client
            .write_immediate(buffer, exposed.remote(0..5), 77)
            .await;
        told.expect("written");
        let told = server.recv().await.expect("told");
        assert_eq!((told.immediate(), told.written()), (Some(77), 5));
        assert!(told.is_empty());

        let word = exposed.remote(64..72);
        assert_eq!(client.fetch_add(word, 5).await.expect("added"), 0);
        assert_eq!(client.compare_swap(word, 5, 9).await.expect("swapped"), 5);
        assert_eq!(exposed.load_u64(64), 9);

        // A part of a region, which peers may write too.
        let part = exposed.part(64..72);
        let (part, sent) = server.send(part).await;
        assert_eq!((sent.expect("sent"), part.range()), (8, 64..72));
        assert_eq!(
            &client.recv().await.expect("received")[..],
            9_u64.to_ne_bytes()
        );
    });
}

#[test]
fn errors_say_what_happened() {
    let (a, client, b, server) = connected(&Options::default());
    let nothing = block_on(a.connect(b.address(), 0x7abc, &Options::default()));
    let nothing = nothing.expect_err("nothing listens");
    assert!(matches!(nothing, Error::Disconnected { .. }), "{nothing}");

    let mut listener = b.listen(None, Options::default()).expect("listens");
    let options = Options::default();
    let attempt = a.connect(b.address(), listener.conn_qual(), &options);
    let refuse = async {
        let request = listener.next_request().await.expect("a request");
        request.reject(b"full").expect("rejects");
    };
    let (refused, ()) = block_on(join(attempt, refuse));
    match refused.expect_err("rejected") {
        Error::Rejected { private_data } => assert!(private_data.starts_with(b"full")),
        other => panic!("{other}"),
    }

    let wrong = udapl::Remote {
        address: 8,
        length: 8,
        key: 1,
    };
    let pool = a.pool(1, 8).expect("a pool");
    let (buffer, failed) = block_on(client.write(pool.try_take().expect("one"), wrong));
    match failed.expect_err("a wrong key") {
        Error::Failed { status, .. } => assert_eq!(status, DtoStatus::RemoteAccess),
        other => panic!("{other}"),
    }
    drop(buffer);
    assert!(pool.try_take().is_some(), "the buffer came back");
    let end = block_on(server.recv()).expect_err("it ended");
    assert!(end.is_connection_gone(), "{end}");
    assert!(block_on(client.closed()).is_connection_gone());
}

struct Ignore;

impl Wake for Ignore {
    fn wake(self: Arc<Self>) {}
}

/// Polls a future once.
fn once<F: Future>(future: F) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Ignore));
    pin!(future)
        .as_mut()
        .poll(&mut TaskContext::from_waker(&waker))
}

#[test]
fn a_cancelled_operation_goes_on_and_keeps_its_buffer() {
    let (a, client, _b, server) = connected(&Options::default());
    let pool = a.pool(1, 8).expect("a pool");
    for round in 0..100_u64 {
        let buffer = block_on(pool.take()).filled(&round.to_be_bytes());
        // Dropped after the first poll; the next round's buffer is the same one, when the send is complete.
        let _ = once(client.send(buffer));
        // A receive that is cancelled before a message came loses none.
        let early = match once(server.recv()) {
            Poll::Ready(message) => Some(message.expect("received")),
            Poll::Pending => None,
        };
        let message = early.unwrap_or_else(|| block_on(server.recv()).expect("received"));
        assert_eq!(message[..], round.to_be_bytes());
    }
}

#[test]
fn ten_thousand_futures_on_a_hundred_connections() {
    let options = Options {
        receives: 100,
        requests: 100,
        message_size: 16,
        ..Options::default()
    };
    let (a, b) = (open(), open());
    let mut listener = b.listen(None, options.clone()).expect("listens");
    let mut pairs = Vec::new();
    for _ in 0..100 {
        let attempt = a.connect(b.address(), listener.conn_qual(), &options);
        let (client, server) = block_on(join(attempt, listener.accept()));
        pairs.push((client.expect("connects"), server.expect("accepts")));
    }
    let pool = a.pool(10_000, 16).expect("a pool");
    let mut slots = Vec::new();
    for _ in 0..3 {
        let mut operations = Vec::new();
        for (client, _) in &pairs {
            for _ in 0..100 {
                let buffer = pool.try_take().expect("a buffer").filled(b"one of many");
                let mut operation = client.send(buffer);
                match once(&mut operation) {
                    Poll::Ready((_, sent)) => assert!(sent.is_ok(), "{sent:?}"),
                    Poll::Pending => operations.push(operation),
                }
            }
        }
        block_on(async {
            for (_, server) in &pairs {
                for _ in 0..100 {
                    server.recv().await.expect("received");
                }
            }
            for operation in operations {
                operation.await.1.expect("sent");
            }
        });
        slots.push(a.operation_slots());
    }
    // As many as operations that can be outstanding at once: sends and receives. A send may complete while others are posted.
    assert!(slots.iter().all(|slots| *slots <= 20_000), "{slots:?}");
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_buffer_that_comes_back_wakes_a_task_that_still_waits() {
    let pool = open().pool(1, 8).expect("a pool");
    let tasks = [(); 4].map(|()| Arc::new(Task::default()));
    let wakers = tasks.each_ref().map(|task| Waker::from(Arc::clone(task)));
    let woken = || tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed));
    let mut contexts = wakers.each_ref().map(TaskContext::from_waker);
    let held = pool.try_take().expect("a buffer");
    let mut futures = [(); 4].map(|()| Some(Box::pin(pool.take())));
    for _ in 0..2 {
        // A select loop polls again and again.
        for (future, context) in futures.iter_mut().zip(&mut contexts) {
            let future = future.as_mut().expect("it waits");
            assert!(future.as_mut().poll(context).is_pending());
        }
    }
    futures[0] = None;
    drop(held);
    assert_eq!(woken(), [0, 1, 0, 0], "the first has given up");
    futures[1] = None;
    assert_eq!(
        woken(),
        [0, 1, 1, 0],
        "the second gives up when it is woken"
    );
    // Another one was faster.
    let held = pool.try_take().expect("a buffer");
    let third = futures[2].as_mut().expect("it waits");
    assert!(third.as_mut().poll(&mut contexts[2]).is_pending());
    drop(held);
    assert_eq!(woken(), [0, 1, 2, 0], "it is the first of those that wait");
    assert!(third.as_mut().poll(&mut contexts[2]).is_ready());
    assert_eq!(woken(), [0, 1, 2, 1]);
}

#[test]
fn a_connection_that_ends_before_it_is_seen_gives_its_messages() {
    // Nothing takes the server's events between the polls.
    let (a, b) = (open(), Context::open_manual("softrxe-lo").expect("opens"));
    let mut listener = b.listen(None, Options::default()).expect("listens");
    let (options, qual) = (Options::default(), listener.conn_qual());
    let waker = Waker::from(Arc::new(Ignore));
    let mut context = TaskContext::from_waker(&waker);
    let mut attempt = pin!(a.connect(b.address(), qual, &options));
    assert!(attempt.as_mut().poll(&mut context).is_pending());
    let mut driven = |future: &mut dyn FnMut(&mut TaskContext<'_>) -> bool| {
        while !future(&mut context) {
            b.drive().expect("drives");
            std::thread::yield_now();
        }
    };
    let mut request = None;
    driven(&mut |context| match listener.poll_request(context) {
        Poll::Ready(asked) => request.replace(asked.expect("asks")).is_none(),
        Poll::Pending => false,
    });
    let mut accept = Box::pin(request.expect("a request").accept(&options));
    // Pending, unless this thread lost its processor and the client's answer was there.
    let first = accept.as_mut().poll(&mut TaskContext::from_waker(&waker));
    block_on(async {
        let client = attempt.await.expect("connects");
        let buffer = a.pool(1, 64).expect("a pool").take().await;
        let sent = client.send(buffer.filled(b"last words")).await.1;
        sent.expect("sent");
        client.disconnect().await.expect("ends");
    });
    let mut server = match first {
        Poll::Ready(accepted) => Some(accepted),
        Poll::Pending => None,
    };
    driven(&mut |context| {
        if server.is_none()
            && let Poll::Ready(accepted) = accept.as_mut().poll(context)
        {
            server = Some(accepted);
        }
        server.is_some()
    });
    let server = server.expect("a result").expect("accepts");
    let mut messages = Vec::new();
    driven(&mut |context| match server.poll_recv(context) {
        Poll::Ready(Ok(message)) => {
            messages.push(message.to_vec());
            false
        }
        Poll::Ready(Err(end)) => end.is_connection_gone(),
        Poll::Pending => false,
    });
    assert_eq!(messages, [b"last words"]);
}

#[test]
fn datagram_endpoints_refuse_numbers_that_are_impossible() {
    let context = open();
    let most = u32::MAX;
    for (receives, requests) in [(16, 0), (16, most), (most, 16), (most, most)] {
        let options = Options {
            receives,
            requests,
            message_size: 64,
            ..Options::default()
        };
        let refused = context.datagrams(&options).expect_err("impossible");
        assert!(matches!(refused, Error::Limit { .. }), "{refused}");
    }
}

#[test]
fn a_bind_that_is_refused_leaves_the_window_as_it_was() {
    let (a, client, b, server) = connected(&Options::default());
    let memory = |of: &Context| of.pz().allocate(64, Access::ALL).expect("memory");
    let (region, foreign) = (memory(&b), memory(&a));
    let window = b.window().expect("a window");
    block_on(async {
        let rights = Access::REMOTE_WRITE;
        let (window, bound) = server.bind(window, region.part(0..16), rights).await;
        let open = bound.expect("bound");
        let (window, refused) = server.bind(window, foreign.part(0..16), rights).await;
        refused.expect_err("the region is of another adapter");
        assert_eq!(window.remote(), Some(open));
        let buffer = a.pool(1, 16).expect("a pool").take().await;
        let written = client.write(buffer, open).await.1;
        written.expect("the window is still open");
        let (window, closed) = server.unbind(window).await;
        closed.expect("closed");
        assert_eq!(window.remote(), None);
    });
}

/// A task that only its waker keeps, with an operation that is under way.
struct LastOfTask {
    _has: Mutex<Operation<Buffer>>,
}

impl Wake for LastOfTask {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_is_dropped_with_its_task_finds_no_lock_held() {
    // The receiver posts nothing, so that sends wait.
    let options = Options {
        receives: 0,
        ..Options::default()
    };
    let (a, client, _b, _server) = connected(&options);
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let pool = a.pool(3, 8).expect("a pool");
        let ignored = Waker::from(Arc::new(Ignore));
        let waits = |send: &mut Operation<Buffer>, waker: &Waker| {
            let mut context = TaskContext::from_waker(waker);
            assert!(Pin::new(send).poll(&mut context).is_pending());
        };
        let under_way = || {
            let mut send = client.send(pool.try_take().expect("one"));
            waits(&mut send, &ignored);
            send
        };
        let task = || {
            let _has = Mutex::new(under_way());
            Waker::from(Arc::new(LastOfTask { _has }))
        };
        let mut send = under_way();
        waits(&mut send, &task());
        // Another task has the operation now.
        waits(&mut send, &ignored);
        waits(&mut send, &task());
        drop(send);
        done.send(()).expect("the test waits");
    });
    let ended = ended.recv_timeout(Duration::from_secs(20));
    ended.expect("a thread waits for a lock that it holds");
}

/// Drives the context at once, as an executor does that runs tasks where they are woken.
struct DriveAtOnce(Context, AtomicUsize);

impl Wake for DriveAtOnce {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.drive().expect("drives");
    }
}

#[test]
fn a_task_that_runs_where_it_is_woken_may_drive_its_context() {
    let context = Context::open_manual("softrxe-lo").expect("opens");
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut events = context.events(8, Streams::SOFTWARE).expect("an EVD");
        let task = Arc::new(DriveAtOnce(context.clone(), AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&task));
        let mut cx = TaskContext::from_waker(&waker);
        assert!(events.poll_event(&mut cx).is_pending());
        events.evd().post(7).expect("posts");
        context.drive().expect("drives");
        assert_eq!(task.1.load(Ordering::Relaxed), 1);
        done.send(()).expect("the test waits");
    });
    let ended = ended.recv_timeout(Duration::from_secs(20));
    ended.expect("a thread waits for a lock that it holds");
}

/// Polls a future with wakers of many tasks, one after the other, each of which gives up. Returns how many of them are kept.
fn kept<F: Future>(future: impl Fn() -> F) -> usize {
    let tasks = (0..100).map(|_| {
        let task = Arc::new(Ignore);
        let kept = Arc::downgrade(&task);
        let waker = Waker::from(task);
        let polled = pin!(future()).poll(&mut TaskContext::from_waker(&waker));
        assert!(polled.is_pending());
        kept
    });
    let tasks: Vec<_> = tasks.collect();
    tasks.iter().filter(|task| task.strong_count() > 0).count()
}

#[test]
fn tasks_that_give_up_leave_no_waker() {
    let context = open();
    let receives = context.shared_receives(1, 64).expect("a queue");
    // The receiver posts nothing, so that the second send waits for room.
    let options = Options {
        receives: 0,
        requests: 1,
        ..Options::default()
    };
    let (_a, client, _b, _server) = connected(&options);
    let pool = client.context().pool(2, 8).expect("a pool");
    let mut first = client.send(pool.try_take().expect("one"));
    assert!(once(&mut first).is_pending());
    assert_eq!(kept(|| client.send(pool.try_take().expect("one"))), 0);
    assert_eq!(kept(|| client.recv()), 0);
    assert_eq!(kept(|| client.closed()), 0);
    assert_eq!(kept(|| context.next_error()), 0);
    assert_eq!(kept(|| receives.next()), 0);
    let taken = pool.try_take();
    assert_eq!(kept(|| pool.take()), 0);
    drop(taken);
    let datagrams = context.datagrams(&Options::default()).expect("an EP");
    assert_eq!(kept(|| datagrams.recv()), 0);

    // One task at a time waits for these, and the last one is known.
    let listener = context.listen(None, Options::default()).expect("listens");
    let listener = Mutex::new(listener);
    let request = || poll_fn(|cx| listener.lock().expect("no panic").poll_request(cx));
    assert_eq!(kept(request), 1);
    let events = context.events(8, Streams::SOFTWARE).expect("an EVD");
    let events = Mutex::new(events);
    let event = || poll_fn(|cx| events.lock().expect("no panic").poll_event(cx));
    assert_eq!(kept(event), 1);
}

#[test]
fn a_future_may_park_its_thread_without_losing_a_wake_up() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let woken: Mutex<Option<Waker>> = Mutex::default();
        let mut polls = 0;
        let first = poll_fn(|context| {
            polls += 1;
            *woken.lock().expect("no panic") = Some(context.waker().clone());
            if polls > 1 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let second = async {
            let waker = woken.lock().expect("no panic").take();
            waker.expect("the first was polled").wake();
            // As a channel of the standard library does, or another `block_on`: it takes the thread's wake-up.
            thread::park();
        };
        block_on(join(first, second));
        done.send(()).expect("the test waits");
    });
    let patience = Duration::from_secs(20);
    ended.recv_timeout(patience).expect("the first is polled");
}

#[test]
fn an_operation_that_has_ended_is_posted_and_takes_no_other_request() {
    let options = Options {
        requests: 1,
        ..Options::default()
    };
    let (a, client, _b, _server) = connected(&options);
    let pool = a.pool(1, 8).expect("a pool");
    let mut operation = client.send(pool.try_take().expect("a buffer"));
    let (buffer, sent) = block_on(&mut operation);
    sent.expect("sent");
    assert!(once(operation.posted()).is_ready(), "it was posted");
    let (next, patience) = (client.send(buffer), Duration::from_secs(20));
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(block_on(next).1));
    ended
        .recv_timeout(patience)
        .expect("in time")
        .expect("sent");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("an executor runs a task where it is woken, and the task panics");
    }
}

#[test]
fn a_wake_up_that_panics_leaves_the_other_tasks_theirs() {
    let (a, client, _b, server) = connected(&Options::default());
    let task = Arc::new(Task::default());
    let wakers = [Arc::new(Panics).into(), Arc::clone(&task).into()];
    let mut receives = wakers.each_ref().map(|_| Box::pin(server.recv()));
    for (receive, waker) in receives.iter_mut().zip(&wakers) {
        let polled = receive.as_mut().poll(&mut TaskContext::from_waker(waker));
        assert!(polled.is_pending());
    }
    let buffer = a.pool(1, 8).expect("a pool").try_take().expect("a buffer");
    block_on(client.send(buffer)).1.expect("sent");
    let end = Instant::now() + Duration::from_secs(20);
    while task.0.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "the other task is not woken");
        thread::yield_now();
    }
}
