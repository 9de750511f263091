//! The lock order, written down.
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
//! 10. IA, PZ, LMR, AH, what an RMR is bound to: lists and look-ups; nothing is locked under them
//!
//! No lock at all is held over a consumer's code (an OS wait proxy agent), over
//! [`Transport::open`](crate::transport::Transport::open) or
//! [`Transport::park`](crate::transport::Transport::park), or while a transport calls up. The transport's `post_*`
//! run under the queue's lock and `poll_cq` under the EVD's, so none of them may call up.
//!
//! Posting an event therefore has two halves: `Evd::post` queues it and decides
//! under the EVD's lock who is to be told, then drops the lock and tells them.
