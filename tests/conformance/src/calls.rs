//! The calls that the threads of this process are in, so that a hang can be named.

use std::sync::{Arc, Mutex, PoisonError};

/// A call: a number that no other call of its thread has, and its name.
type Call = (u64, &'static str);

/// What a thread is in, and the event that it waits for.
#[derive(Default)]
struct Thread {
    call: Mutex<Option<Call>>,
    awaits: Mutex<Option<String>>,
}

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
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let number = call.map_or(0, |(number, _)| number + 1);
        *call = Some((number, name.unwrap_or_default()));
    }

    fn await_event(&self, what: Option<String>) {
        *self.awaits.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// Returns the call that the thread is in, with the event that it waits for.
    fn look(&self) -> Option<(Call, String)> {
        let call = *self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, name) = call.filter(|(_, name)| !name.is_empty())?;
        let awaits = self.awaits.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match awaits.as_ref() {
            Some(what) => format!("{name} (waiting for {what}; it did not arrive)"),
            None => name.to_owned(),
        };
        Some(((number, name), text))
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

/// The calling thread waits for an event as long as this lives.
#[derive(Debug)]
pub(crate) struct Awaits(());

/// Records which event this thread waits for, and where: `what` follows "waiting for".
#[must_use]
pub(crate) fn awaits(what: String) -> Awaits {
    let _ = THREAD.try_with(|thread| thread.await_event(Some(what)));
    Awaits(())
}

impl Drop for Awaits {
    fn drop(&mut self) {
        let _ = THREAD.try_with(|thread| thread.await_event(None));
    }
}

/// Looks at the calls again and again, to find those that last.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    before: Vec<Call>,
}

impl Watch {
    /// Returns the names of the calls that were under way at the last look already, each once, with the events that they wait for.
    pub(crate) fn lasting(&mut self) -> Vec<String> {
        let all = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<(Call, String)> = all.iter().filter_map(|thread| thread.look()).collect();
        let mut names: Vec<String> = now
            .iter()
            .filter(|(call, _)| self.before.contains(call))
            .map(|(_, text)| text.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        self.before = now.into_iter().map(|(call, _)| call).collect();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_lasts_from_one_look_to_the_next_is_named() {
        let mut watch = Watch::default();
        let has = |watch: &mut Watch, name| watch.lasting().iter().any(|call| call == name);
        let call = enter("a_call_of_this_test");
        assert!(!has(&mut watch, "a_call_of_this_test"));
        assert!(has(&mut watch, "a_call_of_this_test"));
        drop(call);
        // Another call of the same function is none that lasts.
        let _again = enter("a_call_of_this_test");
        assert!(!has(&mut watch, "a_call_of_this_test"));
    }

    #[test]
    fn a_wait_that_lasts_says_which_event_it_waits_for() {
        let mut watch = Watch::default();
        let awaits = awaits("an event of this test".into());
        let _call = enter("a_wait_of_this_test");
        let mut seen = || {
            let all = watch.lasting();
            all.into_iter().find(|call| call.contains("a_wait_of_this"))
        };
        assert_eq!(seen(), None);
        let text = "a_wait_of_this_test (waiting for an event of this test; it did not arrive)";
        assert_eq!(seen().as_deref(), Some(text));
        drop(awaits);
        assert_eq!(seen().as_deref(), Some("a_wait_of_this_test"));
    }
}
