//! The future of one operation.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::link::Inner;
use super::pool::IoBuffer;
use crate::error::{Error, Result};
use crate::{Completion, DtoStatus, Ep, Slice};

type Post = Box<dyn FnOnce(&Ep, Slice<'_>, u64) -> Result<()> + Send>;

/// An operation of a [`Connection`](super::Connection). It begins when it is first polled; its output is the memory, and the number of
/// bytes or the error. If it is dropped while it is under way, it goes on, and the memory stays until it completes.
#[must_use = "an operation begins when it is polled"]
pub struct Operation<B: IoBuffer> {
    link: Arc<Inner>,
    buffer: Option<B>,
    post: Option<Post>,
    cookie: Option<u64>,
}

impl<B: IoBuffer> fmt::Debug for Operation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({:?} of {})", self.cookie, self.link.id())
    }
}

// Nothing points into it.
impl<B: IoBuffer> Unpin for Operation<B> {}

impl<B: IoBuffer> Operation<B> {
    pub(super) fn new(
        link: &Arc<Inner>,
        buffer: B,
        post: impl FnOnce(&Ep, Slice<'_>, u64) -> Result<()> + Send + 'static,
    ) -> Self {
        Self {
            link: Arc::clone(link),
            buffer: Some(buffer),
            post: Some(Box::new(post)),
            cookie: None,
        }
    }

    /// Posts the operation, if there is room. Returns false if it waits for room.
    fn begin(&mut self, context: &Context<'_>) -> Result<bool> {
        let id = self.link.id();
        let shared = self.link.shared();
        let Some(cookie) = shared.state().begin(id, context.waker()) else {
            return Ok(false);
        };
        let (Some(post), Some(buffer)) = (self.post.take(), &self.buffer) else {
            return Ok(false);
        };
        match post(self.link.ep(), buffer.segment(), cookie) {
            Ok(()) => {
                self.cookie = Some(cookie);
                Ok(true)
            }
            Err(error) => {
                shared.state().abandon(id, cookie);
                Err(error)
            }
        }
    }
}

fn result(done: Completion) -> Result<u32> {
    match done.status {
        DtoStatus::Success => Ok(done.length),
        status => Err(Error::Failed {
            op: done.op,
            status,
        }),
    }
}

impl<B: IoBuffer> Future for Operation<B> {
    type Output = (B, Result<u32>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(
            this.buffer.is_some(),
            "an operation was polled after its end"
        );
        let polled = if this.cookie.is_none() {
            this.begin(context).err()
        } else {
            this.link.shared().poll_events().err()
        };
        let outcome = match (polled, this.cookie) {
            (Some(error), None) => Some(Err(error)),
            (_, Some(cookie)) => {
                let done = this.link.shared().state().poll(cookie, context.waker());
                done.map(result)
            }
            (None, None) => None,
        };
        let Some(outcome) = outcome else {
            return Poll::Pending;
        };
        this.cookie = None;
        match this.buffer.take() {
            Some(buffer) => Poll::Ready((buffer, outcome)),
            None => Poll::Pending,
        }
    }
}

impl<B: IoBuffer> Drop for Operation<B> {
    fn drop(&mut self) {
        if let (Some(cookie), Some(buffer)) = (self.cookie, self.buffer.take()) {
            let left = self.link.shared().state().detach(cookie, Box::new(buffer));
            drop(left);
        }
    }
}
