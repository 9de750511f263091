//! The threads that drive an adapter.
//!
//! * A consumer that polls reads the socket itself, and so does one that waits: first it spins, then it sleeps on the descriptors as
//!   the *leader*. No other thread stands between a datagram and the consumer.
//! * The *helper* thread drives when no consumer does: for peers that read and write our memory while the program computes, for
//!   connections, for timers. While consumers poll it sleeps for fixed times, because each datagram would wake a thread that sleeps on the socket.
//!   These times are short at first where a CNO watches a completion queue: its consumer may sleep in poll(2).
//!   While a leader sleeps on the descriptors it rests.
//! * Some machines have more runnable threads than processors ([`oversubscription`](crate::adaptive::oversubscription)). There the helper
//!   asks for short time slices and sleeps longer than it works, but only briefly when consumers begin to poll. A consumer yields or pauses
//!   between empty polls.
//! * The helper, a leader, or a spinning waiter without a completion queue runs upcalls. The lock is released then, and one upcall runs at
//!   a time, so core gets the events of a connection in order.
//!
//! A consumer leaves work undone: acknowledgements held back for its reply, posts that wait for more. Its next call transmits them. Before
//! that the helper does when its sleep ends, or the thread that watches the descriptors when a datagram wakes it. A poll that
//! [steps back](super::poll_turns) leaves them to the threads that use the lock.

mod closing;
pub(crate) mod consumer;
pub(crate) mod helper;
pub(crate) mod roles;
pub(crate) mod state;
pub(crate) mod waiter;
