//! Agents of CNOs whose calls cause each other, over a transport that makes upcalls from its own thread.
#![allow(missing_docs, reason = "a test")]

mod loopback;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::ep::{Ep, EpParts};
use dat_core::evd::Evd;
use dat_core::event::Event;
use dat_core::flags::{Close, CompletionFlags as F, EvdFlags};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::transport::Transport;
use dat_loopback::Loopback;
use loopback::wait;

/// Messages that an agent sends, each when the one before is complete.
const MESSAGES: u32 = 200;
/// Calls of agents that a thread may make inside each other: a library's thread has little stack.
const MOST_NESTED: u32 = 20;

thread_local! {
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// A program that sends a message after the other, without a thread of its own.
struct Sender {
    from: &'static Ep<Loopback>,
    to: &'static Ep<Loopback>,
    received: &'static Evd<Loopback>,
    sent: &'static Evd<Loopback>,
    cno: &'static Cno<Loopback>,
    completed: AtomicU32,
    deepest: AtomicU32,
    over: mpsc::Sender<()>,
}

impl Sender {
    fn agent(self: &Arc<Self>) -> Agent {
        let sender = Arc::clone(self);
        Agent {
            call: Box::new(move |_| sender.go_on()),
            instance_data: 0,
            function: 0,
        }
    }

    /// The agent: takes what is complete, sends the next message, and sets itself again.
    fn go_on(self: &Arc<Self>) {
        let nested = NESTED.get() + 1;
        NESTED.set(nested);
        self.deepest.fetch_max(nested, Ordering::SeqCst);
        let mut completed = self.completed.load(Ordering::SeqCst);
        while self.sent.dequeue(None).is_ok() {
            completed += 1;
        }
        self.completed.store(completed, Ordering::SeqCst);
        if completed < MESSAGES {
            let _ = self.received.dequeue(None);
            self.to.post_recv(&[], 1, F::empty()).unwrap();
            self.from.post_send(&[], 1, F::empty()).unwrap();
            self.cno.modify_agent(Some(self.agent())).unwrap();
        } else {
            let _ = self.over.send(());
        }
        NESTED.set(nested - 1);
    }
}

#[test]
fn an_agent_whose_calls_cause_the_next_ones_does_not_use_up_the_stack() {
    let params = IaParams::parse("127.0.7.9").unwrap();
    let ia = Ia::<Loopback>::open("agents", &params, 8, AsyncEvd::New, 0x7ab1e).unwrap();
    let pz = Pz::create(ia).unwrap();
    let evd = |flags| Evd::create(ia, 16, None, flags).unwrap();
    let cno = Cno::create(ia, CnoProxy::None).unwrap();
    let sent = Evd::create(ia, 16, Some(cno), EvdFlags::DTO).unwrap();
    let (received, connected) = (evd(EvdFlags::DTO), evd(EvdFlags::CONNECTION));
    let requests = evd(EvdFlags::CR);
    let ep = |request_evd| {
        let parts = EpParts {
            pz: Some(pz),
            recv_evd: Some(received),
            request_evd: Some(request_evd),
            connect_evd: Some(connected),
            srq: None,
        };
        Ep::create(ia, parts, None).unwrap()
    };
    let (from, to) = (ep(sent), ep(received));
    let psp = Sp::psp_create(ia, Some(790), requests, false).unwrap();
    let remote = ia.attributes().unwrap().address;
    from.connect(remote, 790, None, b"", 0, 0).unwrap();
    let Event::ConnectionRequest { cr, .. } = wait(requests) else {
        panic!("no request");
    };
    let cr = Loopback::arenas().cr.from_addr(cr).unwrap();
    cr.accept(Some(to), b"").unwrap();
    wait(connected);
    wait(connected);
    let (over, end) = mpsc::channel();
    let sender = Arc::new(Sender {
        from,
        to,
        received,
        sent,
        cno,
        completed: AtomicU32::new(0),
        deepest: AtomicU32::new(0),
        over,
    });
    cno.modify_agent(Some(sender.agent())).unwrap();
    to.post_recv(&[], 1, F::empty()).unwrap();
    from.post_send(&[], 1, F::empty()).unwrap();
    let ended = end.recv_timeout(Duration::from_secs(60));
    ended.expect("the last message");
    let deepest = sender.deepest.load(Ordering::SeqCst);
    assert!(deepest <= MOST_NESTED, "{deepest} calls inside each other");
    psp.free().unwrap();
    ia.close(Close::Abrupt).unwrap();
}
