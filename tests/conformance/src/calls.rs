//! The calls that the threads of this process are in, so that a hang can be named.

use std::sync::{Arc, Mutex, PoisonError};

/// A call: a number that no other call of its thread has, and its name.
type Call = (u64, &'static str);

/// What a thread is in.
#[derive(Default)]
struct Thread(Mutex<Option<Call>>);

/// All threads that have made calls; those that have ended are in none.
static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());

thread_local! {
    static THREAD: Arc<Thread> = {
        let thread = Arc::new(Thread::default());
        let mut all = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| Arc::strong_count(other) > 1);
        all.push(Arc::clone(&thread));
        thread
    };
}

impl Thread {
    fn set(&self, name: Option<&'static str>) {
        let mut call = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = call.map_or(0, |(number, _)| number + 1);
        *call = Some((number, name.unwrap_or_default()));
    }
}

/// The calling thread is in a call as long as this lives.
#[derive(Debug)]
pub(crate) struct Inside(());

/// Records that this thread begins a call.
#[must_use]
pub(crate) fn enter(name: &'static str) -> Inside {
    // A thread that ends has no record any more.
    let _ = THREAD.try_with(|thread| thread.set(Some(name)));
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = THREAD.try_with(|thread| thread.set(None));
    }
}

/// Looks at the calls again and again, to find those that last.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    before: Vec<Call>,
}

impl Watch {
    /// Returns the names of the calls that were under way at the last look already, each once.
    pub(crate) fn lasting(&mut self) -> Vec<&'static str> {
        let all = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<Call> = all
            .iter()
            .filter_map(|thread| *thread.0.lock().unwrap_or_else(PoisonError::into_inner))
            .filter(|(_, name)| !name.is_empty())
            .collect();
        let mut names: Vec<&str> = now
            .iter()
            .filter(|call| self.before.contains(call))
            .map(|(_, name)| *name)
            .collect();
        names.sort_unstable();
        names.dedup();
        self.before = now;
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_lasts_from_one_look_to_the_next_is_named() {
        let mut watch = Watch::default();
        let has = |watch: &mut Watch, name| watch.lasting().contains(&name);
        let call = enter("a_call_of_this_test");
        assert!(!has(&mut watch, "a_call_of_this_test"));
        assert!(has(&mut watch, "a_call_of_this_test"));
        drop(call);
        // Another call of the same function is none that lasts.
        let _again = enter("a_call_of_this_test");
        assert!(!has(&mut watch, "a_call_of_this_test"));
    }
}
