//! Agents of CNOs: closures that a provider's thread calls.
//!
//! A provider knows an agent by a number, not by an address. It may call an agent while another thread replaces it, and a
//! foreign provider may call it twice: the number then finds nothing, where an address would be freed memory.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_abi::types::{DatHandle, DatOsWaitProxyAgent};

use crate::contain::contain;

/// What an agent does. It is called once.
pub(crate) type AgentFn = Box<dyn FnOnce() + Send>;

/// What the C call takes if there is no agent.
pub(crate) const NO_AGENT: DatOsWaitProxyAgent = DatOsWaitProxyAgent {
    instance_data: std::ptr::null_mut(),
    proxy_agent_func: None,
};

#[derive(Default)]
struct Table {
    /// The number of the newest agent. Numbers do not come again.
    newest: usize,
    agents: BTreeMap<usize, AgentFn>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    newest: 0,
    agents: BTreeMap::new(),
});

/// Locks the table. No code of a program runs under the lock.
fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An agent in the table. Dropping this removes an agent that was not called.
#[derive(Debug)]
pub(crate) struct Registered(usize);

impl Registered {
    pub(crate) fn new(function: AgentFn) -> Self {
        let mut table = table();
        table.newest += 1;
        let number = table.newest;
        table.agents.insert(number, function);
        Self(number)
    }

    /// Returns what the C call takes.
    pub(crate) fn proxy(&self) -> DatOsWaitProxyAgent {
        DatOsWaitProxyAgent {
            instance_data: std::ptr::without_provenance_mut(self.0),
            proxy_agent_func: Some(call_agent),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // The closure's own drop runs without the lock: it may set an agent.
        let uncalled = table().agents.remove(&self.0);
        drop(uncalled);
    }
}

/// Calls the agent of the number `data`, if it was neither called nor removed. A panic does not pass into the provider.
unsafe extern "C" fn call_agent(data: *mut c_void, _evd: DatHandle) {
    let Some(agent) = table().agents.remove(&data.addr()) else {
        return;
    };
    contain("the agent of a CNO", agent);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn call(proxy: DatOsWaitProxyAgent) {
        let function = proxy.proxy_agent_func.unwrap();
        // SAFETY: the function reads neither argument as an address.
        unsafe { function(proxy.instance_data, 0) };
    }

    #[test]
    fn an_agent_is_called_once_and_a_removed_one_is_dropped() {
        let witness = Arc::new(Mutex::new(0));
        let counted = || -> AgentFn {
            let witness = Arc::clone(&witness);
            Box::new(move || *witness.lock().unwrap() += 1)
        };
        let first = Registered::new(counted());
        call(first.proxy());
        call(first.proxy());
        assert_eq!(*witness.lock().unwrap(), 1);
        let second = Registered::new(counted());
        let late = second.proxy();
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&witness), 1, "the closure is gone");
        call(late);
        assert_eq!(*witness.lock().unwrap(), 1);
    }

    #[test]
    fn no_panic_of_an_agent_reaches_the_provider() {
        struct PanicsAgain;
        impl Drop for PanicsAgain {
            fn drop(&mut self) {
                panic!("the value of a panic is dropped");
            }
        }
        let agent = Registered::new(Box::new(|| std::panic::panic_any(PanicsAgain)));
        call(agent.proxy());
    }
}
