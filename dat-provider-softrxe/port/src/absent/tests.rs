use std::net::SocketAddr;

use crate::credentials::own_uid;
use crate::liveness::Liveness;
use crate::liveness::tests::beside_a_foreign_listener;
use crate::port_share::{Policy, PortShare};

use super::*;

/// More than the time for which datagrams are kept.
const LATE: Duration = Duration::from_millis(300);

fn take(local: SocketAddr) -> PortShare {
    PortShare::take(local, 1 << 20, Policy::default()).unwrap()
}

/// Member 0 is an engine that is stopped while the holder ends.
#[test]
fn what_a_stopped_engine_has_is_not_refused_by_the_next_holder() {
    let ip = "127.77.1.10".parse().unwrap();
    let local = SocketAddr::new(ip, 47_911);
    let PortShare::Holder(mut first) = take(local) else {
        panic!("the port is in use")
    };
    let mut members = [(); 2].map(|()| take(local));
    first.poll_members();
    for member in &mut members {
        let PortShare::Member(member) = member else {
            panic!("two holders")
        };
        assert!(member.receive(&mut [0; 100]).unwrap().is_none());
    }
    let _service = members[0].claim_service(ip, 5).unwrap();
    let _life = Liveness::listen(ip, 9).unwrap();
    drop(first);
    let policy = Policy::default();
    let next = members[1]
        .former_share(policy)
        .attempt(local, 1 << 20)
        .unwrap();
    let PortShare::Holder(mut holder) = next else {
        panic!("{next:?}")
    };
    std::thread::sleep(LATE);
    assert!(!holder.in_grace_period());
    let has = [Destination::Service(5), Destination::Slot(9)];
    for to in has {
        assert!(!holder.deliver(to, local, 0, b"a request"));
        assert!(holder.keep(to, local, 0, b"a request"), "{to:?} is refused");
    }
    let nobody_has = [Destination::Service(6), Destination::Slot(10)];
    for to in nobody_has {
        assert!(!holder.keep(to, local, 0, b"a request"), "{to:?} is kept");
    }
    let joined = members[0].former_share(policy).attempt(local, 1 << 20);
    let mut joined = joined.unwrap();
    for what in has {
        joined.claim(what).unwrap();
    }
    holder.poll_members();
    std::thread::sleep(PAUSE);
    for to in nobody_has {
        assert!(!holder.keep(to, local, 0, b"a request"));
    }
    assert!(holder.all_have_joined());
}

/// It would cost a peer its refusal: the attempt to connect would end by its time limit.
#[test]
fn a_name_of_another_user_is_no_absent_engine() {
    if own_uid() != 0 {
        dat_untested::untested("it takes root");
        return;
    }
    let ip = "127.77.1.12".parse().unwrap();
    let mut absent = Absent::new(ip);
    let [foreign, own] = [6, 5].map(Destination::Service);
    let name = |id| names::service_name(ip, &names::service_word(id));
    beside_a_foreign_listener(&name(6), || {
        assert_eq!(absent.has(foreign, |_| false), None);
        let _own = names::claim_name(&name(5)).unwrap();
        std::thread::sleep(PAUSE);
        assert_eq!(absent.has(foreign, |_| false), Some(false));
        assert_eq!(absent.has(own, |_| false), Some(true));
    });
}
