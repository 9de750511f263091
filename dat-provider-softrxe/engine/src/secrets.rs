//! Random numbers that an engine takes from the kernel when it opens. Each is drawn by itself, so that none reveals another.
//!
//! No generator state remains that a forked child could draw from again: a child's handles are dead, and an engine that it opens
//! draws numbers of its own.

use softrxe_proto::SecretKey;

/// The random numbers of one engine.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// Key for communication ids, transaction ids and first PSNs.
    pub(crate) engine: SecretKey,
    /// Key for the keys of memory.
    pub(crate) keys: SecretKey,
    /// Public: the CA GUID.
    pub(crate) guid: u64,
    /// Public: the first slot that the engine tries to take.
    pub(crate) slot: u16,
}

impl Secrets {
    /// Draws all of them.
    ///
    /// # Errors
    /// As getrandom(2).
    pub(crate) fn draw() -> Result<Self, getrandom::Error> {
        Ok(Self {
            engine: key()?,
            keys: key()?,
            guid: getrandom::u64()?,
            slot: getrandom::u32()? as u16,
        })
    }
}

fn key() -> Result<SecretKey, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(SecretKey::new(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;

    use softrxe_proto::{Generator, Pd, WindowType};

    use super::*;
    use crate::transport::open::test_hub;

    /// Returns the GUID of an engine, and a key of its memory.
    fn shown(address: &str) -> (u64, u32) {
        let hub = test_hub(address);
        let engine = &hub.state.lock().engine;
        let (_, key) = engine
            .memory()
            .create_window(WindowType::Type1, Pd(1))
            .unwrap();
        (engine.guid(), key)
    }

    /// fastrand is seeded from the clock, and one of its numbers reveals the others. Both engines of this test would draw the same.
    #[test]
    fn engines_do_not_draw_from_a_generator_of_the_process() {
        let [first, second] = ["127.77.6.1", "127.77.6.2"].map(|address| {
            fastrand::seed(7);
            shown(address)
        });
        assert_ne!(first.0, second.0);
        assert_ne!(first.1, second.1);
    }

    /// Returns a number for each secret.
    fn numbers(secrets: &Secrets) -> [u64; 3] {
        let of = |key| Generator::new(key).u64();
        [of(&secrets.engine), of(&secrets.keys), secrets.guid]
    }

    #[test]
    fn a_forked_child_draws_numbers_of_its_own() {
        // A generator that was used before the fork would be in the same state in both processes.
        let mut drawn: Vec<u64> = numbers(&Secrets::draw().unwrap()).into();
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: both were opened just now, for these owners only.
        let [mut reader, mut writer] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
        // SAFETY: the child makes system calls only, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let wrote = Secrets::draw().is_ok_and(|secrets| {
                let mut all = [0; 24];
                for (slot, number) in all.chunks_exact_mut(8).zip(numbers(&secrets)) {
                    slot.copy_from_slice(&number.to_ne_bytes());
                }
                writer.write_all(&all).is_ok()
            });
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!wrote)) };
        }
        assert!(child > 0);
        drop(writer);
        let mut all = [0; 24];
        reader.read_exact(&mut all).unwrap();
        let mut status = 0;
        // SAFETY: our own child, which is waited for once.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        let of_child = all
            .chunks_exact(8)
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
        drawn.extend(of_child);
        drawn.extend(numbers(&Secrets::draw().unwrap()));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 9);
    }
}
