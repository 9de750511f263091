//! Event streams that feed an EVD, and the configuration that they lead to.

use std::sync::atomic::Ordering;

use super::state::{Config, Input};
use super::{Evd, Inner};
use crate::error::{Error, Result, Subtype};
use crate::flags::{CompletionFlags, EvdFlags};
use crate::head::raw;
use crate::ia::Ia;
use crate::transport::Transport;
use crate::use_count::Claim;

/// Event stream that feeds an EVD. While it exists the EVD cannot be freed; dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Feed<T: Transport> {
    evd: &'static Evd<T>,
    generation: u32,
    stream: EvdFlags,
    completion: CompletionFlags,
    depth: u32,
    claim: Option<Claim>,
}

impl<T: Transport> Feed<T> {
    /// Returns the EVD.
    pub(crate) fn evd(&self) -> &'static Evd<T> {
        self.evd
    }

    /// Returns true if the EVD is still the one that was claimed: an IA's close frees its EVDs even if another IA
    /// feeds them with asynchronous errors or connection events.
    pub(crate) fn valid(&self) -> bool {
        self.evd.head.alive() && self.evd.head.generation.load(Ordering::Acquire) == self.generation
    }

    /// Reserves room for `depth` completions of this stream in the completion queue, in place of what the stream has
    /// reserved before: an endpoint that is reset gets a new queue pair, again and again.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if the transport cannot make the queue as large.
    pub(crate) fn reserve(&mut self, depth: u32) -> Result<()> {
        let mut inner = self.evd.inner.lock();
        let Some(cq) = inner.queue.cq.clone() else {
            return Ok(());
        };
        let expected = (inner.cq_reserved - self.depth).saturating_add(depth);
        if expected > inner.cq_depth {
            let doubled = expected.max(inner.cq_depth.saturating_mul(2));
            // Where the device has a limit, a longer queue fails, and this one would grow by one endpoint at a time from there on.
            let doubled = match Ia::<T>::of(&self.evd.head).attributes() {
                Ok(attr) if expected <= attr.max_evd_qlen => doubled.min(attr.max_evd_qlen),
                _ => doubled,
            };
            let grown = T::resize_cq(&cq, doubled).map(|()| doubled);
            inner.cq_depth = grown
                .or_else(|_| T::resize_cq(&cq, expected).map(|()| expected))
                .inspect_err(|error| {
                    tracing::warn!(
                        evd = raw(self.evd),
                        %error,
                        "the endpoints of an EVD may have {expected} completions at once, more than its queue can hold; \
                         create the EVD with this length, or use more EVDs"
                    );
                })?;
        }
        inner.cq_reserved = expected;
        self.depth = depth;
        Ok(())
    }
}

impl<T: Transport> Drop for Feed<T> {
    fn drop(&mut self) {
        let mut inner = self.evd.inner.lock();
        if self.valid() {
            inner.count(self.stream, self.completion, u32::wrapping_sub);
            inner.cq_reserved -= self.depth;
        }
        // Under the lock, so that the counts match the claims.
        self.claim.take();
    }
}

impl<T: Transport> Evd<T> {
    /// Adds an event stream to this EVD. `completion` are the endpoint's flags for this direction (they decide what
    /// notifies); empty for streams without completions.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` with `subtype` if the EVD is dead or does not take `stream`.
    pub(crate) fn feed(
        &'static self,
        stream: EvdFlags,
        completion: CompletionFlags,
        subtype: Subtype,
    ) -> Result<Feed<T>> {
        let mut inner = self.inner.lock();
        let claim = self.head.claim(subtype)?;
        if !inner.flags.contains(stream) {
            return Err(Error::handle(subtype));
        }
        inner.count(stream, completion, u32::wrapping_add);
        Ok(Feed {
            evd: self,
            generation: self.head.generation.load(Ordering::Acquire),
            stream,
            completion,
            depth: 0,
            claim: Some(claim),
        })
    }
}

impl<T: Transport> Inner<T> {
    /// Adds a stream to the counts, or subtracts it, and applies the resulting configuration.
    fn count(
        &mut self,
        stream: EvdFlags,
        completion: CompletionFlags,
        count: impl Fn(u32, u32) -> u32,
    ) {
        let quiet = u32::from(completion.contains(CompletionFlags::UNSIGNALLED));
        let solicited = u32::from(completion.contains(CompletionFlags::SOLICITED_WAIT));
        let loose = u32::from(!stream.intersects(EvdFlags::QUEUED));
        self.unsignalled_feeds = count(self.unsignalled_feeds, quiet);
        self.solicited_feeds = count(self.solicited_feeds, solicited);
        self.cqless_feeds = count(self.cqless_feeds, loose);
        let config = match (self.solicited_feeds, self.unsignalled_feeds) {
            (0, 0) => Config::Threshold,
            (0, _) => Config::Notify,
            _ => Config::Solicited,
        };
        // The state machine never refuses a configuration.
        let _ = self.state.apply(Input::Streams(config));
        let solicited = config == Config::Solicited;
        if self.queue.solicited_only != solicited
            && let Some(cq) = &self.queue.cq
        {
            T::solicited_only(cq, solicited);
            self.queue.solicited_only = solicited;
        }
    }
}
