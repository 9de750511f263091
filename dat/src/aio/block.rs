//! The smallest executor, for programs and tests without a runtime.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark {
    thread: Thread,
    /// The future was woken. The thread's own token may be taken by what the future calls, as a channel of `std` that waits does.
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs a future on this thread, which sleeps while the future waits.
///
/// ```
/// assert_eq!(udapl::aio::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while !unpark.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Runs two futures at the same time and returns both outputs.
///
/// ```
/// use udapl::aio::{block_on, join};
///
/// let both = block_on(join(async { 6 }, async { "seven" }));
/// assert_eq!(both, (6, "seven"));
/// ```
pub async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let a = async { Ok::<_, Infallible>(a.await) };
    let b = async { Ok(b.await) };
    let Ok(both) = try_join(a, b).await;
    both
}

/// Runs two futures at the same time. Returns both values, or the first error, which drops the other future: where one side of a
/// connection fails, the other one would wait for ever.
///
/// ```
/// use udapl::aio::{block_on, try_join};
///
/// assert_eq!(block_on(try_join(async { Ok::<_, String>(6) }, async { Ok("seven") })), Ok((6, "seven")));
/// let endless = std::future::pending::<Result<(), &str>>();
/// assert_eq!(block_on(try_join(async { Err::<(), _>("refused") }, endless)), Err("refused"));
/// ```
pub async fn try_join<A, B, E>(
    a: impl Future<Output = Result<A, E>>,
    b: impl Future<Output = Result<B, E>>,
) -> Result<(A, B), E> {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(move |context| {
        poll_into(a.as_mut(), &mut of_a, context);
        poll_into(b.as_mut(), &mut of_b, context);
        match (of_a.take(), of_b.take()) {
            (Some(Ok(a)), Some(Ok(b))) => Poll::Ready(Ok((a, b))),
            (Some(Err(error)), _) | (_, Some(Err(error))) => Poll::Ready(Err(error)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

fn poll_into<F: Future>(future: Pin<&mut F>, output: &mut Option<F::Output>, cx: &mut Context<'_>) {
    if output.is_none()
        && let Poll::Ready(done) = future.poll(cx)
    {
        *output = Some(done);
    }
}
