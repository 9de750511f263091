use super::*;

const PD: Pd = Pd(1);
const SECRET: SecretKey = SecretKey::new([1; 32]);

/// Returns a bind that opens the 8 bytes at `address` for reads of peers.
const fn readable_8(window: Window, new_key: u32, lkey: u32, address: u64) -> MwBind {
    MwBind {
        window: window.0,
        order: 1,
        new_key,
        lkey,
        address,
        length: 8,
        rights: Rights::REMOTE_READ,
        kind: WindowType::Type1,
    }
}

fn access(key: u32, need: Rights) -> Access {
    Access {
        key,
        pd: PD,
        qpn: Qpn::new(17),
        need,
    }
}

fn region(regions: &Regions, memory: &mut [u8], rights: Rights) -> (u32, u64) {
    let range = Range::probe(memory.as_mut_ptr() as usize, memory.len() as u64, true).unwrap();
    let start = memory.as_ptr() as u64;
    (regions.register(range, start, rights, PD).unwrap(), start)
}

#[test]
fn payload_references_are_checked_like_copies_and_end_with_the_run() {
    let regions = Regions::new(&SECRET);
    crate::memory::guard::install();
    regions.prepare(Time::ZERO);
    let mut memory: Vec<u8> = (0..2 * MIN_REFERENCED).map(|n| n as u8).collect();
    let (key, at) = region(&regions, &mut memory, Rights::LOCAL_READ);
    let read = access(key, Rights::LOCAL_READ);
    let pieces = || regions.gather(&[0; 4 * MIN_REFERENCED], |pieces| pieces.as_slice().len());
    let whole = crc32fast::hash(&memory[1..=MIN_REFERENCED]);
    assert_eq!(
        regions.lend(&read, at + 1, MIN_REFERENCED, 9, 0),
        Ok(Some(whole))
    );
    assert_eq!((pieces(), pieces()), (3, 1));
    assert_eq!(regions.lend(&read, at, MIN_REFERENCED - 1, 0, 0), Ok(None));
    let beyond = regions.lend(&read, at + 1, 2 * MIN_REFERENCED, 0, 0);
    assert!(matches!(beyond, Err(AccessError::Bounds { .. })));
    let write = access(key, Rights::LOCAL_WRITE);
    let refused = regions.lend(&write, at, MIN_REFERENCED, 0, 0);
    assert!(matches!(refused, Err(AccessError::Right { .. })));
    regions.deregister(key);
    let gone = regions.lend(&read, at, MIN_REFERENCED, 0, 0);
    assert!(matches!(gone, Err(AccessError::Key(_))));
    assert_eq!(pieces(), 1);
}

#[test]
fn key_zone_bounds_and_right_are_each_checked() {
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0u8; 100];
    let (key, at) = region(
        &regions,
        &mut memory,
        Rights::LOCAL_READ | Rights::REMOTE_WRITE,
    );
    let write = access(key, Rights::REMOTE_WRITE);
    assert_eq!(regions.write(&write, at + 90, &[1; 10]), Ok(()));
    assert!(matches!(
        regions.write(&write, at + 91, &[1; 10]),
        Err(AccessError::Bounds { .. })
    ));
    assert!(matches!(
        regions.write(&write, at - 1, &[1; 10]),
        Err(AccessError::Bounds { .. })
    ));
    assert!(matches!(
        regions.check(&write, u64::MAX, u64::MAX),
        Err(AccessError::Bounds { .. })
    ));
    assert!(matches!(
        regions.write(&access(key ^ 1, Rights::REMOTE_WRITE), at, &[1]),
        Err(AccessError::Key(_))
    ));
    assert!(matches!(
        regions.check(&Access { pd: Pd(2), ..write }, at, 1),
        Err(AccessError::Scope(_))
    ));
    assert!(matches!(
        regions.check(&access(key, Rights::REMOTE_READ), at, 1),
        Err(AccessError::Right { .. })
    ));
    regions.deregister(key);
    assert_eq!(regions.write(&write, at, &[2]), Err(AccessError::Key(key)));
    assert_eq!(memory[..90], [0; 90]);
    assert_eq!(memory[90..], [1; 10]);
}

#[test]
fn a_region_that_was_looked_up_is_checked_and_removed_like_others() {
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0_u8; 64];
    let (key, at) = region(&regions, &mut memory, Rights::LOCAL_READ);
    let read = access(key, Rights::LOCAL_READ);
    for look in 0..3 {
        let bounds = |va, length| Err(AccessError::Bounds { key, va, length });
        assert_eq!(regions.check(&read, at, 64), Ok(()), "{look}");
        assert_eq!(regions.check(&read, at + 1, 64), bounds(at + 1, 64));
        assert_eq!(regions.check(&read, at - 1, 2), bounds(at - 1, 2));
        assert_eq!(regions.check(&read, u64::MAX, 2), bounds(u64::MAX, 2));
        let need = Rights::LOCAL_WRITE;
        let right = Err(AccessError::Right { key, need });
        assert_eq!(regions.check(&access(key, need), at, 1), right);
        let stranger = Access { pd: Pd(2), ..read };
        let scope = Err(AccessError::Scope(key));
        assert_eq!(regions.check(&stranger, at, 1), scope);
        // Another key at the same place among the recent ones.
        for other in (1..4).map(|n| key.wrapping_add(n << 16)) {
            let other = access(other, Rights::LOCAL_READ);
            let gone = Err(AccessError::Key(other.key));
            assert_eq!(regions.check(&other, at, 1), gone);
        }
    }
    let mut others = vec![vec![0_u8; 64]; 20];
    let more = others
        .iter_mut()
        .map(|memory| region(&regions, memory, Rights::LOCAL_READ));
    for (other, at) in more.collect::<Vec<_>>() {
        let other = access(other, Rights::LOCAL_READ);
        assert_eq!(regions.check(&other, at, 64), Ok(()));
    }
    assert_eq!(regions.check(&read, at, 64), Ok(()));
    regions.deregister(key);
    assert_eq!(regions.check(&read, at, 64), Err(AccessError::Key(key)));
}

#[test]
fn each_bind_gives_a_key_that_the_ones_before_do_not_tell() {
    const BINDS: usize = 600;
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0u8; 100];
    let (lkey, address) = region(&regions, &mut memory, Rights::all());
    let (window, mut old_key) = regions.create_window(WindowType::Type1, PD).unwrap();
    let mut seen = vec![old_key];
    for _ in 0..BINDS {
        let new_key = regions.draw_key();
        let bind = readable_8(window, new_key, lkey, address);
        regions.bind(&bind, PD, Qpn::new(17)).unwrap();
        let read = |key| regions.check(&access(key, Rights::REMOTE_READ), address, 8);
        assert_eq!(read(new_key), Ok(()));
        assert_eq!(read(old_key), Err(AccessError::Key(old_key)));
        assert!(!seen.contains(&new_key), "{new_key:#010x} comes again");
        seen.push(new_key);
        old_key = new_key;
    }
    // Two keys of 600 are as near to each other as 16 bits by chance, 0.02 times.
    let near = seen.windows(2).filter(|pair| pair[0] ^ pair[1] < 1 << 16);
    assert_eq!(near.count(), 0);
}

#[test]
fn a_bind_does_not_take_the_key_of_another() {
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0u8; 100];
    let (lkey, address) = region(&regions, &mut memory, Rights::all());
    let (_, other) = regions.create_window(WindowType::Type1, PD).unwrap();
    let (window, old_key) = regions.create_window(WindowType::Type1, PD).unwrap();
    for new_key in [lkey, other, old_key] {
        let bind = readable_8(window, new_key, lkey, address);
        let refused = regions.bind(&bind, PD, Qpn::new(17));
        assert_eq!(refused, Err(AccessError::Window(old_key)), "{new_key:#x}");
    }
    assert_eq!(
        regions.check(&access(lkey, Rights::REMOTE_READ), address, 8),
        Ok(())
    );
}

#[test]
fn a_window_that_is_destroyed_opens_nothing_whatever_was_posted_for_it() {
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0u8; 100];
    let (lkey, address) = region(&regions, &mut memory, Rights::all());
    let (window, _) = regions.create_window(WindowType::Type1, PD).unwrap();
    // The second bind is flushed.
    let [new_key, _flushed] = [(); 2].map(|()| regions.draw_key());
    let bind = readable_8(window, new_key, lkey, address);
    regions.bind(&bind, PD, Qpn::new(17)).unwrap();
    regions.destroy_window(window);
    let read = regions.check(&access(new_key, Rights::REMOTE_READ), address, 8);
    assert_eq!(read, Err(AccessError::Key(new_key)));
}

#[test]
fn a_window_opens_its_part_until_it_is_unbound_or_its_region_is_gone() {
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0u8; 100];
    let (lkey, at) = region(&regions, &mut memory, Rights::all());
    let (window, old_key) = regions.create_window(WindowType::Type1, PD).unwrap();
    let new_key = regions.draw_key();
    let bind = MwBind {
        window: window.0,
        order: 1,
        new_key,
        lkey,
        address: at + 10,
        length: 20,
        rights: Rights::REMOTE_WRITE,
        kind: WindowType::Type1,
    };
    assert_eq!(
        regions.write(&access(old_key, Rights::REMOTE_WRITE), at + 10, &[1]),
        Err(AccessError::Key(old_key))
    );
    regions.bind(&bind, PD, Qpn::new(17)).unwrap();
    let write = access(new_key, Rights::REMOTE_WRITE);
    assert_eq!(regions.write(&write, at + 10, &[1; 20]), Ok(()));
    assert!(regions.write(&write, at + 9, &[1]).is_err());
    assert!(regions.write(&write, at + 30, &[1]).is_err());
    assert!(
        regions
            .read(&access(new_key, Rights::REMOTE_READ), at + 10, &mut [0])
            .is_err()
    );
    assert!(
        regions
            .write(&access(old_key, Rights::REMOTE_WRITE), at + 10, &[1])
            .is_err()
    );
    let again = regions.draw_key();
    regions
        .bind(
            &MwBind {
                new_key: again,
                length: 0,
                ..bind
            },
            PD,
            Qpn::new(17),
        )
        .unwrap();
    assert!(regions.write(&write, at + 10, &[1]).is_err());
    assert!(
        regions
            .write(&access(again, Rights::REMOTE_WRITE), at + 10, &[1])
            .is_err()
    );
    let last = regions.draw_key();
    regions
        .bind(
            &MwBind {
                new_key: last,
                ..bind
            },
            PD,
            Qpn::new(17),
        )
        .unwrap();
    regions.deregister(lkey);
    assert_eq!(
        regions.write(&access(last, Rights::REMOTE_WRITE), at + 10, &[1]),
        Err(AccessError::Key(last))
    );
}

#[test]
fn a_bind_that_was_posted_before_another_one_and_is_executed_after_it_has_no_effect() {
    for (kind, late) in [(WindowType::Type1, true), (WindowType::Type2, false)] {
        let regions = Regions::new(&SECRET);
        let mut memory = vec![0u8; 100];
        let (lkey, at) = region(&regions, &mut memory, Rights::all());
        let (window, _) = regions.create_window(kind, PD).unwrap();
        let [first, second, third] = [1, 2, 3].map(|order| MwBind {
            order,
            kind,
            ..readable_8(window, regions.draw_key(), lkey, at)
        });
        let bind = |bind: &MwBind| regions.bind(bind, PD, Qpn::new(17));
        bind(&second).unwrap();
        assert_eq!(bind(&first).is_ok(), late);
        let read = |key| regions.check(&access(key, Rights::REMOTE_READ), at, 8);
        assert_eq!(read(second.new_key), Ok(()));
        assert!(read(first.new_key).is_err());
        // A bind in another lane.
        regions.supersede(window, 4);
        assert_eq!(bind(&third).is_ok(), late);
        assert!(read(third.new_key).is_err());
    }
}

/// A program that binds a window anew for each message reaches this within hours.
#[test]
fn binds_go_on_when_their_numbers_begin_again() {
    for kind in [WindowType::Type1, WindowType::Type2] {
        let regions = Regions::new(&SECRET);
        let mut memory = vec![0u8; 100];
        let (lkey, at) = region(&regions, &mut memory, Rights::all());
        let (window, _) = regions.create_window(kind, PD).unwrap();
        regions.supersede(window, u32::MAX - 1);
        for order in [u32::MAX, 0, 1] {
            let bind = MwBind {
                order,
                kind,
                ..readable_8(window, regions.draw_key(), lkey, at)
            };
            regions.bind(&bind, PD, Qpn::new(17)).unwrap();
            let read = access(bind.new_key, Rights::REMOTE_READ);
            assert_eq!(regions.check(&read, at, 8), Ok(()), "{order}");
        }
    }
}

#[test]
fn a_type_2_window_belongs_to_its_queue_pair_and_a_peer_may_invalidate_it() {
    let regions = Regions::new(&SECRET);
    let mut memory = vec![0u8; 100];
    let (lkey, at) = region(&regions, &mut memory, Rights::all());
    let (window, _) = regions.create_window(WindowType::Type2, PD).unwrap();
    let key = regions.draw_key();
    let rights = Rights::REMOTE_READ;
    let kind = WindowType::Type2;
    let bind = MwBind {
        window: window.0,
        order: 1,
        new_key: key,
        lkey,
        address: at,
        length: 8,
        rights,
        kind,
    };
    regions.bind(&bind, PD, Qpn::new(17)).unwrap();
    assert_eq!(regions.check(&access(key, rights), at, 8), Ok(()));
    let stranger = Access {
        qpn: Qpn::new(18),
        ..access(key, rights)
    };
    assert_eq!(
        regions.check(&stranger, at, 8),
        Err(AccessError::Scope(key))
    );
    assert_eq!(
        regions.invalidate(key, PD, Qpn::new(18), true),
        Err(AccessError::Scope(key))
    );
    assert_eq!(
        regions.invalidate(lkey, PD, Qpn::new(17), true),
        Err(AccessError::Window(lkey))
    );
    regions.invalidate(key, PD, Qpn::new(17), true).unwrap();
    assert!(regions.check(&access(key, rights), at, 8).is_err());
    assert_eq!(
        regions.invalidate(key, PD, Qpn::new(17), true),
        Err(AccessError::Window(key))
    );
    // Bound again, by another queue pair, and again by the same; only then not by a third.
    let again = |qpn| {
        let new_key = regions.draw_key();
        let bind = MwBind { new_key, ..bind };
        regions.bind(&bind, PD, Qpn::new(qpn)).map(|()| new_key)
    };
    again(18).unwrap();
    let key = again(18).unwrap();
    assert_eq!(again(19), Err(AccessError::Window(key)));
    let stranger = Access {
        qpn: Qpn::new(18),
        ..access(key, rights)
    };
    assert_eq!(regions.check(&stranger, at, 8), Ok(()));
    regions.unbind_windows_of(Qpn::new(18));
    assert!(regions.check(&stranger, at, 8).is_err());
    assert!(again(19).is_ok());
}
