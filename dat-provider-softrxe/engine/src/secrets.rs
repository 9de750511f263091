//! What an engine takes from the kernel's generator when it opens: each number by itself, so that none tells of another.
//!
//! No state stays behind that a forked child could draw from again: a child's handles are dead, and an engine that it opens
//! asks the kernel anew.

use softrxe_proto::SecretKey;

/// The random numbers of one engine.
#[derive(Debug)]
pub(crate) struct Secrets {
    /// Of its communication ids, transaction ids and first PSNs.
    pub(crate) engine: SecretKey,
    /// Of the keys of its memory.
    pub(crate) keys: SecretKey,
    /// Public: of its CA GUID.
    pub(crate) guid: u64,
    /// Public: the first slot that is tried.
    pub(crate) slot: u16,
}

impl Secrets {
    /// New ones.
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

    use dat_core::ia_params::IaParams;
    use dat_core::transport::Token;
    use dat_core::upcall::Upcalls;
    use softrxe_proto::{Generator, Pd, WindowType};

    use super::super::hub::Hub;
    use super::super::place::Place;
    use super::super::settings::Settings;
    use super::*;

    /// What an engine shows: GUID, and a key.
    fn shown(address: &str) -> (u64, u32) {
        let settings = Settings::parse(&IaParams::default(), |_| None).unwrap();
        let place = Place {
            address: address.parse().unwrap(),
            netdev: "lo".into(),
            mtu: 4096,
        };
        let secrets = Secrets::draw().unwrap();
        let hub = Hub::open(
            settings,
            place,
            None,
            secrets,
            Upcalls::new(Token::default()),
        );
        let hub = hub.unwrap();
        let engine = &hub.state.lock().engine;
        let (_, key) = engine
            .memory()
            .create_window(WindowType::Type1, Pd(1))
            .unwrap();
        (engine.guid(), key)
    }

    /// fastrand is seeded from the clock, and one of its numbers leads to the others. Here both engines would draw the same.
    #[test]
    fn a_generator_of_the_process_decides_nothing() {
        let [first, second] = ["127.77.6.1", "127.77.6.2"].map(|address| {
            fastrand::seed(7);
            shown(address)
        });
        assert_ne!(first.0, second.0);
        assert_ne!(first.1, second.1);
    }

    /// What the draws of `Secrets` come to.
    fn numbers(secrets: &Secrets) -> [u64; 3] {
        let of = |key| Generator::new(key).u64();
        [of(&secrets.engine), of(&secrets.keys), secrets.guid]
    }

    #[test]
    fn all_are_drawn_by_themselves_also_in_a_forked_child() {
        // A generator that has been used before the fork is in the same state on both sides of it.
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
                for (place, number) in all.chunks_exact_mut(8).zip(numbers(&secrets)) {
                    place.copy_from_slice(&number.to_ne_bytes());
                }
                writer.write_all(&all).is_ok()
            });
            // SAFETY: ends the child without running what the parent's exit would.
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
