//! Spans of the crate `tracing`: each operation from its post to its completion. A span is never entered, so a cancelled wait leaves none.

use tracing::Span;
use tracing::field::Empty;

use crate::filter::{Post, Queue};

/// Returns the span of a post; a disabled one, which costs a comparison, if there is no subscriber for it.
pub(super) fn of(post: &Post) -> Span {
    let (Queue::Requests(handle) | Queue::Receives(handle)) = post.queue;
    tracing::trace_span!(
        target: "dat_provider_filter::operation",
        parent: None,
        "operation",
        operation = post.operation.word(),
        handle,
        cookie = post.cookie,
        bytes = Empty,
        code = Empty,
        status = Empty,
        transferred = Empty,
        latency_ns = Empty,
    )
}

/// Adds the bytes of an accepted post.
pub(super) fn accepted(span: &Span, bytes: u64) {
    span.record("bytes", bytes);
}

/// Adds the code of a refused post, whose span ends here.
pub(super) fn refused(span: &Span, code: u32) {
    span.record("code", code);
}

/// Adds what the completion tells. The span ends with the post.
pub(super) fn completed(span: &Span, status: u32, transferred: u32, latency_ns: u64) {
    span.record("status", status)
        .record("transferred", transferred)
        .record("latency_ns", latency_ns);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::filter::Operation;
    use crate::slots::Slot;

    const POST: Post = Post {
        slot: Slot::ep_post_send,
        queue: Queue::Requests(64),
        operation: Operation::Send,
        cookie: 7,
    };

    /// Fields of the only span, and whether it was closed.
    #[derive(Clone, Debug, Default)]
    struct One(Arc<Mutex<(BTreeMap<&'static str, String>, bool)>>);

    impl Visit for One {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let mut one = self.0.lock().expect("no panic");
            one.0.insert(field.name(), format!("{value:?}"));
        }
    }

    impl Subscriber for One {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            span.record(&mut self.clone());
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, values: &Record<'_>) {
            values.record(&mut self.clone());
        }
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
        fn try_close(&self, _: Id) -> bool {
            self.0.lock().expect("no panic").1 = true;
            true
        }
    }

    #[test]
    fn a_span_has_the_operation_its_sizes_and_its_latency() {
        // In one test with what follows: a subscriber of another thread would enable it.
        assert!(of(&POST).is_disabled(), "without a subscriber");
        let one = One::default();
        tracing::subscriber::with_default(one.clone(), || {
            let span = of(&POST);
            accepted(&span, 64);
            assert!(
                !one.0.lock().expect("no panic").1,
                "open until it completes"
            );
            completed(&span, 0, 64, 1500);
        });
        let (fields, closed) = one.0.lock().expect("no panic").clone();
        let expected = [
            ("bytes", "64"),
            ("cookie", "7"),
            ("handle", "64"),
            ("latency_ns", "1500"),
            ("operation", "\"send\""),
            ("status", "0"),
            ("transferred", "64"),
        ];
        let expected = expected.map(|(name, value)| (name, value.to_owned()));
        assert_eq!((fields, closed), (BTreeMap::from(expected), true));
    }
}
