//! Agents of CNOs, and how many of them a thread calls inside each other.
//!
//! An agent sets itself again, and dat_cno_modify_agent calls it at once if something has come since. Where each call causes the next
//! event, as with an agent that posts a request when the previous one is complete, the calls would use up the stack. Beyond some depth the
//! timer thread makes the call, when the calls of the present thread are over.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;

use super::{Cno, Inner, Proxy};
use crate::event::RawHandle;
use crate::timer;
use crate::transport::Transport;

/// Maximum number of agents that a thread calls inside each other.
const MOST_NESTED: u32 = 8;

thread_local! {
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// An OS wait proxy agent (dat_cno_create). It is called once, with the handle of the EVD that has an event, or with 0 when the
/// IA closes; then it is dropped. The calling thread holds no lock of this library.
pub struct Agent {
    /// The function of the consumer.
    pub call: Box<dyn Fn(RawHandle) + Send + Sync>,
    /// `instance_data`, for dat_cno_query.
    pub instance_data: usize,
    /// `proxy_agent_func`, for dat_cno_query.
    pub function: usize,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({:#x}, {:#x})", self.instance_data, self.function)
    }
}

/// Returns true if the calling thread has made as many calls inside each other as it may, and the timer thread can make another one.
pub(super) fn is_due_later() -> bool {
    NESTED.get() >= MOST_NESTED && timer::ready().is_ok()
}

/// A call of an agent by this thread.
struct Nested;

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED.set(NESTED.get() - 1);
    }
}

impl Agent {
    /// Calls the agent. The caller holds no lock.
    pub(super) fn run(self, evd: RawHandle) {
        NESTED.set(NESTED.get() + 1);
        let _nested = Nested;
        (self.call)(evd);
    }
}

impl<T: Transport> Cno<T> {
    /// Has the timer thread call the agent for `evd`.
    #[cold]
    pub(super) fn call_later(&'static self, inner: &mut Inner<T>, evd: RawHandle) {
        if inner.agent_due.replace(evd).is_none() {
            let generation = self.head.generation.load(Ordering::Relaxed);
            timer::run_soon(move || self.call_due(generation));
        }
    }

    /// Calls the agent that was due when the CNO had this generation, on the timer thread.
    fn call_due(&'static self, generation: u32) {
        let (agent, evd) = {
            let mut inner = self.inner.lock();
            if self.head.generation.load(Ordering::Relaxed) != generation {
                return;
            }
            // The EVD may have been freed, or moved to another CNO.
            let due = inner.agent_due.take().filter(|evd| inner.has(*evd));
            let evd = due.or_else(|| inner.pending.front().copied());
            let Some(evd) = evd else {
                return;
            };
            if !matches!(inner.proxy, Proxy::Agent(_)) {
                inner.came_since_agent(evd);
                return;
            }
            let agent = std::mem::replace(&mut inner.proxy, Proxy::None);
            self.update_listens(&inner);
            (agent, evd)
        };
        if let Proxy::Agent(agent) = agent {
            agent.run(evd);
        }
    }
}
