//! The lock order.
//!
//! A lock may be taken only while all locks held stand before it in this list:
//!
//! 1. registry (dat-registry)
//! 2. service point, CR
//! 3. RMR
//! 4. EP connection
//! 5. EP send queue
//! 6. EP receive queue
//! 7. SRQ
//! 8. EVD
//! 9. CNO
//! 10. IA, PZ, LMR, AH, and the binding of an RMR: lists and look-ups; only the next is taken under them
//! 11. the queue of the timer; no lock is taken under it
//!
//! No lock is held while a consumer's function runs (an OS wait proxy agent), during
//! [`Transport::open`](crate::transport::Transport::open) and [`Transport::park`](crate::transport::Transport::park), or while a
//! transport makes an upcall. The transport's `post_*` run under the queue's lock and `poll_cq` under the EVD's lock, so none
//! of them may make an upcall.
//!
//! Posting an event therefore has two halves. `Evd::enqueue` queues the event and selects the waiters and the CNO to notify under
//! the EVD's lock; `Enqueued::finish` notifies them without a lock. `Evd::post` does both. A connection event is queued under the
//! lock of the EP connection, so none comes after dat_ep_free.
