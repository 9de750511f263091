//! Calls for EVDs and CNOs.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_abi::types::{DatOsWaitProxyAgent, event_number};
use dat_abi::v1_2;
use dat_abi::v2_0::types::DatEvent;

use super::{Api, Dat, Table, convert, value};
use crate::event::Seen;

/// A consumer's agent, and a record of its calls.
#[derive(Debug, Default)]
pub struct Agent {
    /// Number of calls.
    pub calls: AtomicUsize,
    /// EVD of the last call.
    pub evd: AtomicUsize,
}

impl Agent {
    /// Returns a leaked agent: a provider may call it late.
    #[must_use]
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// Returns the `DAT_OS_WAIT_PROXY_AGENT` of an agent.
    fn given(agent: Option<&'static Self>) -> DatOsWaitProxyAgent {
        DatOsWaitProxyAgent {
            instance_data: agent.map_or(ptr::null_mut(), |a| ptr::from_ref(a).cast_mut().cast()),
            proxy_agent_func: agent.map(|_| called as _),
        }
    }
}

/// The function of an [`Agent`].
unsafe extern "C" fn called(instance_data: *mut c_void, evd: usize) {
    // SAFETY: `Agent::given` passed an agent that lives for ever.
    let agent = unsafe { &*instance_data.cast::<Agent>() };
    agent.evd.store(evd, Ordering::Release);
    agent.calls.fetch_add(1, Ordering::AcqRel);
}

impl Dat {
    /// Calls dat_cno_create without an agent.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_create(&self, ia: usize) -> Result<usize, u32> {
        self.cno_create_with(ia, None)
    }

    /// Calls dat_cno_create with an agent that counts its calls.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_create_with(&self, ia: usize, agent: Option<&'static Agent>) -> Result<usize, u32> {
        let mut cno = 0;
        value(
            call!(self.cno_create(ia, Agent::given(agent), &mut cno)),
            cno,
        )
    }

    /// Calls dat_cno_modify_agent.
    pub fn cno_modify_agent(&self, cno: usize, agent: Option<&'static Agent>) -> u32 {
        call!(self.cno_modify_agent(cno, Agent::given(agent)))
    }

    /// Calls dat_cno_wait; returns the EVD.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_wait(&self, cno: usize, microseconds: u32) -> Result<usize, u32> {
        let mut evd = 0;
        value(call!(self.cno_wait(cno, microseconds, &mut evd)), evd)
    }

    /// Calls dat_evd_wait; returns the event, and how many more there are.
    ///
    /// # Errors
    /// The code of the call.
    pub fn evd_wait(
        &self,
        evd: usize,
        microseconds: u32,
        threshold: i32,
    ) -> Result<(Seen, i32), u32> {
        let (event, more) = self.wait(evd, microseconds, threshold)?;
        Ok((Seen::of(&event), more))
    }

    /// Calls dat_evd_wait for a connection event; returns its private data too.
    ///
    /// # Errors
    /// The code of the call.
    pub fn evd_wait_data(&self, evd: usize, microseconds: u32) -> Result<(Seen, Vec<u8>), u32> {
        let (event, _) = self.wait(evd, microseconds, 1)?;
        let seen = Seen::of(&event);
        if !matches!(seen, Seen::Connection { .. }) {
            return Ok((seen, Vec::new()));
        }
        // SAFETY: the number says that this field is set; the provider, that so many bytes are there until the
        // endpoint connects again.
        let data = unsafe {
            let d = event.event_data.connect_event_data;
            match usize::try_from(d.private_data_size) {
                Ok(size) if size > 0 && !d.private_data.is_null() => {
                    std::slice::from_raw_parts(d.private_data.cast::<u8>(), size).to_vec()
                }
                _ => Vec::new(),
            }
        };
        Ok((seen, data))
    }

    pub(super) fn wait(
        &self,
        evd: usize,
        microseconds: u32,
        threshold: i32,
    ) -> Result<(DatEvent, i32), u32> {
        let (mut old, mut event, mut more) = (convert::event(), DatEvent::default(), 0);
        let code = each!(self.evd_wait {
            V1_2(evd, microseconds, threshold, &mut old, &mut more),
            V2_0(evd, microseconds, threshold, &mut event, &mut more)
        });
        value(code, (self.event(&old, event), more))
    }

    /// Calls dat_evd_dequeue.
    ///
    /// # Errors
    /// The code of the call.
    pub fn evd_dequeue(&self, evd: usize) -> Result<Seen, u32> {
        let (mut old, mut event) = (convert::event(), DatEvent::default());
        let code = each!(self.evd_dequeue { V1_2(evd, &mut old), V2_0(evd, &mut event) });
        value(code, Seen::of(&self.event(&old, event)))
    }

    fn event(&self, old: &v1_2::types::DatEvent, new: DatEvent) -> DatEvent {
        match self.api() {
            Api::V1_2 => convert::event_out(old),
            Api::V2_0 => new,
        }
    }

    /// Calls dat_evd_post_se.
    pub fn evd_post_se(&self, evd: usize, pointer: usize) -> u32 {
        let data = dat_abi::types::DatSoftwareEventData { pointer };
        let (mut old, mut new) = (convert::event(), DatEvent::default());
        (old.event_number, new.event_number) = (event_number::SOFTWARE, event_number::SOFTWARE);
        old.event_data.software_event_data = data;
        new.event_data.software_event_data = data;
        each!(self.evd_post_se { V1_2(evd, &old), V2_0(evd, &new) })
    }
}
