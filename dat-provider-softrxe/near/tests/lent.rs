//! Payloads that stay in the sender's memory: which processes can read them, until when, and what a reader does that cannot.

use std::ptr::NonNull;

use softrxe_near::layout::{LENT_LEN, MAX_LENT, payload_at};
use softrxe_near::{Channel, Lender, Lent, PullError, Puller, SMALL_RING, Sender};

/// Both ends of a channel in this process.
fn both_ends() -> [Channel; 2] {
    let (one, memory) = Channel::create(SMALL_RING).unwrap();
    [one, Channel::adopt(&memory, SMALL_RING).unwrap()]
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

/// Sends a record that lends `length` bytes at `address`.
fn lend(sender: &mut Sender, address: u64, length: usize) {
    let at = payload_at(28, LENT_LEN);
    let space = sender.space().unwrap();
    // SAFETY: there is room for the largest record.
    unsafe {
        let to = space.at.add(at);
        to.copy_from_nonoverlapping(NonNull::from(&address).cast(), LENT_LEN);
    }
    sender.commit_lent(&[7; 40], 28, at, length);
    sender.publish();
}

/// Returns what the next record lends, and how much.
fn next_lent(channel: &mut Channel) -> (Lent, usize) {
    let record = channel.receiver.next().unwrap().unwrap();
    channel.receiver.release();
    channel.receiver.flush();
    (record.lent.unwrap(), record.payload_length)
}

/// Copies `length` bytes from `offset`, the last 8 of them apart.
fn pull(
    puller: &mut Puller,
    lent: Lent,
    offset: usize,
    length: usize,
) -> Result<Vec<u8>, PullError> {
    let mut body = vec![0_u8; length - 8];
    let mut tail = [0_u8; 8];
    let parts = [
        (body.as_mut_ptr() as usize, body.len()),
        (tail.as_mut_ptr() as usize, tail.len()),
    ];
    // SAFETY: both are memory of this function.
    unsafe { puller.pull(lent, offset, parts)? };
    body.extend(tail);
    Ok(body)
}

/// A lender, and a puller that has probed it, or says why not.
fn introduce(ends: &[Channel; 2], pid: i32) -> (Lender, Puller, Result<(), PullError>) {
    let mut puller = ends[1].receiver.puller(pid);
    assert!(puller.probe().is_none(), "the peer has shown nothing yet");
    let lender = ends[0].sender.lender().unwrap();
    assert!(!lender.is_used());
    let probed = puller.probe().unwrap();
    puller.announce(probed.is_ok());
    assert_eq!(lender.is_used(), probed.is_ok());
    (lender, puller, probed)
}

/// A lender, and a puller that may copy out of this process. Where the kernel forbids that, as some sandboxes do, the test fails: it has
/// tested nothing.
#[track_caller]
fn introduced(ends: &[Channel; 2]) -> (Lender, Puller) {
    let (lender, puller, probed) = introduce(ends, own_pid());
    if let Err(error) = probed {
        panic!("not tested, because this process may not read its own memory: {error}");
    }
    (lender, puller)
}

#[test]
fn a_payload_is_copied_from_the_memory_of_the_sender() {
    let mut ends = both_ends();
    let (lender, mut puller) = introduced(&ends);
    let payload: Vec<u8> = (0..MAX_LENT).map(|n| (n % 251) as u8).collect();
    lend(&mut ends[0].sender, payload.as_ptr() as u64, payload.len());
    let (lent, length) = next_lent(&mut ends[1]);
    assert_eq!(length, MAX_LENT);
    assert_eq!(pull(&mut puller, lent, 0, length).unwrap(), payload);
    assert_eq!(
        pull(&mut puller, lent, 1000, 64).unwrap(),
        payload[1000..1064]
    );
    assert_eq!(lender.freed(), ends[0].sender.position());
}

#[test]
fn the_lender_learns_of_each_payload_that_was_consumed() {
    let mut ends = both_ends();
    let lender = ends[0].sender.lender().unwrap();
    let payload = [5_u8; 64];
    let mut positions = Vec::new();
    for _ in 0..3 {
        lend(&mut ends[0].sender, payload.as_ptr() as u64, 64);
        positions.push(ends[0].sender.position());
    }
    // The ring is never empty between them, so no flush says it.
    for position in positions {
        assert!(lender.freed() < position);
        ends[1].receiver.next().unwrap().unwrap();
        ends[1].receiver.release();
        assert_eq!(lender.freed(), position);
    }
}

#[test]
fn what_was_taken_back_is_not_delivered_and_what_follows_is() {
    let mut ends = both_ends();
    let (mut lender, mut puller) = introduced(&ends);
    let payload = [5_u8; 4096];
    let address = payload.as_ptr() as u64;
    lend(&mut ends[0].sender, address, 4096);
    let until = ends[0].sender.position();
    lend(&mut ends[0].sender, address, 4096);
    let (first, _) = next_lent(&mut ends[1]);
    let (second, _) = next_lent(&mut ends[1]);
    lender.withdraw(until);
    let gone = pull(&mut puller, first, 0, 4096);
    assert!(matches!(gone, Err(PullError::Withdrawn)));
    assert_eq!(pull(&mut puller, second, 0, 4096).unwrap(), payload);
    // It does not go back.
    lender.withdraw(0);
    assert!(pull(&mut puller, first, 0, 4096).is_err());
    assert!(lender.is_used());
}

#[test]
fn memory_that_cannot_be_read_is_reported_and_no_more_is_lent_after_some_times() {
    let mut ends = both_ends();
    let (lender, mut puller) = introduced(&ends);
    // The first page is never mapped.
    lend(&mut ends[0].sender, 64, 4096);
    let (lent, _) = next_lent(&mut ends[1]);
    for time in 0..8 {
        assert!(lender.is_used(), "{time}");
        let failed = pull(&mut puller, lent, 0, 4096);
        let Err(PullError::Call { error, .. }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
    assert!(!lender.is_used());
}

#[test]
fn another_process_is_not_taken_for_the_peer() {
    // Where the kernel forbids all such copies, their failure says nothing.
    drop(introduced(&both_ends()));
    let ends = both_ends();
    let mut other = std::process::Command::new("sleep")
        .arg("100")
        .spawn()
        .unwrap();
    let pid = i32::try_from(other.id()).unwrap();
    let (_, mut puller, probed) = introduce(&ends, pid);
    assert!(probed.is_err(), "it has no nonce there");
    other.kill().unwrap();
    other.wait().unwrap();
    let probed = puller.probe().unwrap();
    let Err(PullError::Call { error, .. }) = probed else {
        panic!("{probed:?}");
    };
    assert!(
        matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM)),
        "{error}"
    );
}
