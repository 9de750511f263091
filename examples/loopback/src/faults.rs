//! Faults that can be planted in this transport, one at a time, to prove that the conformance suite finds each
//! (docs/planted-faults.md). They exist only with the feature `faults`, which `tests/faulty-loopback` has and this package never;
//! `fault=` in the `ia_params` chooses one.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes the enumeration of the faults and their table.
macro_rules! faults {
    ($($name:ident $word:literal: $what:literal;)*) => {
        /// A fault.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Planted {
            $(#[doc = $what] $name,)*
        }

        /// All faults: the value of `fault=`, the fault, and what is wrong. Without the feature there is none.
        pub const FAULTS: &[(&str, Planted, &str)] = if cfg!(feature = "faults") {
            &[$(($word, Planted::$name, $what),)*]
        } else {
            &[]
        };
    };
}

faults! {
    ShortCopy "short-copy": "A message arrives without its first byte.";
    LongReport "long-report": "The completion of a receive reports one byte too many.";
    OneSegment "one-segment": "Only the first segment of a message is sent.";
    SortedSegments "sorted-segments": "The segments of a message are sent in the order of their addresses.";
    ReceivesReversed "receives-reversed": "A message takes the receive that was posted last.";
    NoRemoteRight "no-remote-right": "An RDMA Write needs no right.";
    ReadImpliesWrite "read-implies-write": "The right of remote reading also allows an RDMA Write.";
    NoLocalWriteRight "no-local-write-right": "An RDMA Read writes to memory without the local write privilege.";
    SendNeedsWrite "send-needs-write": "A Send needs the local write privilege for its memory.";
    WriteCompletesReceive "write-completes-receive": "An RDMA Write completes a receive of the peer.";
    WriteIsLost "write-is-lost": "An RDMA Write completes without its bytes.";
    ReadNothing "read-nothing": "An RDMA Read completes without its bytes.";
    SwapAlways "swap-always": "Compare-and-swap does not compare.";
    AddReturnsSum "add-returns-sum": "Fetch-and-add returns the sum.";
    SilentImmediate "silent-immediate": "A write with immediate data completes no receive.";
    InvalidatesNothing "invalidates-nothing": "A Send with invalidate leaves the window open.";
    NoRouteHeader "no-route-header": "A datagram has no space for the route header.";
    Truncates "truncates": "A message that is longer than its receive is cut off, with success.";
    FailureIsSuccess "failure-is-success": "A request that fails completes with success.";
    BindKeepsFormer "bind-keeps-former": "A new bind leaves the former key valid.";
    BindGivesAll "bind-gives-all": "A bind grants all rights.";
    PanicInRead "panic-in-read": "An RDMA Read panics.";
    AbortInAdd "abort-in-add": "Fetch-and-add aborts the process.";
    HangInSwap "hang-in-swap": "Compare-and-swap never returns.";
    NoAnswer "no-answer": "A request without a listener gets no answer.";
    RejectIsNonPeer "reject-is-non-peer": "A rejection by the consumer is reported as one by the transport.";
    RequestDataLost "request-data-lost": "The private data of a request is lost.";
    AcceptDataLost "accept-data-lost": "The private data of an acceptance is lost.";
    ListenerStays "listener-stays": "A service point that was freed takes requests.";
    QualifierTwice "qualifier-twice": "Two service points listen on one qualifier.";
    PassiveNotTold "passive-not-told": "The passive side gets no ESTABLISHED.";
    PeerNotTold "peer-not-told": "A disconnect does not reach the peer.";
    DropIsSilent "drop-is-silent": "A request that is dropped is not rejected.";
    WrongQualifier "wrong-qualifier": "The passive side reports another qualifier than its own.";
    FlushLost "flush-lost": "A disconnect forgets the outstanding receives.";
    FlushReversed "flush-reversed": "Outstanding receives are flushed in reverse order.";
    FlushIsSuccess "flush-is-success": "Flushed receives complete with success.";
    CompletionLost "completion-lost": "A request that succeeds has no completion.";
    CompletesTwice "completes-twice": "A request that succeeds has two completions.";
    NotWoken "not-woken": "A completion does not wake the thread that waits for it.";
    NoTimeout "no-timeout": "A wait ignores its timeout.";
    SrqLimitSilent "srq-limit-silent": "The low watermark of a shared queue raises no event.";
    PortPanics "port-panics": "The optional method `local_port` panics.";
    OpensOnce "opens-once": "An adapter that is open cannot be opened again.";
    NoLimits "no-limits": "The attributes say that there is no endpoint.";
    KeyStays "key-stays": "The keys of a destroyed LMR stay valid.";
    WindowStays "window-stays": "A destroyed RMR stays open.";
    FewEndpoints "few-endpoints": "No more than 300 queue pairs can exist, whatever the attributes say.";
    KeysRunOut "keys-run-out": "No more than 100 regions can be registered in the life of the process.";
    ReadNeedsNoRight "read-needs-no-right": "An RDMA Read needs no right.";
    ZoneIgnored "zone-ignored": "A key opens the memory of any PZ.";
    OneZone "one-zone": "Local memory of any PZ can be used.";
    ReceiveNeedsNoRight "receive-needs-no-right": "A receive writes to memory without the local write privilege.";
    RefusedGoesOn "refused-goes-on": "A refused access breaks no connection.";
    FailureOvertakes "failure-overtakes": "A Send whose memory is not registered completes at once, before earlier requests.";
    FenceIgnored "fence-ignored": "A Send behind an RDMA Read takes its bytes before the read is complete, also with a fence.";
    SolicitedLost "solicited-lost": "The peer is not told that a Send is solicited.";
    ReadTwice "read-completes-twice": "An RDMA Read that succeeds has two completions.";
    FlushTwice "flush-twice": "A flushed receive has two completions.";
    CutsAtMegabyte "cuts-at-1-mib": "The bytes of an RDMA Write beyond 1 MiB are lost.";
    WaitingIsCut "waiting-is-cut": "A message that had to wait for a receive arrives with 0 as its last byte.";
    FewSegments "few-segments": "The segments of a request behind the eighth are ignored.";
    ShortData "short-data": "Private data is cut to 40 bytes.";
    ThreadStays "thread-stays": "A queue pair leaves a thread.";
    DescriptorStays "descriptor-stays": "A queue pair leaves a descriptor.";
    QueuePairStays "queue-pair-stays": "A queue pair leaves its memory.";
    RegionStays "region-stays": "A region leaves 64 KiB of memory.";
    CompletionQueueStays "completion-queue-stays": "A completion queue leaves 16 KiB of memory.";
    SilentFailure "silent-failure": "A request that is not signaled and fails has no completion.";
    PeerMovesIn "peer-moves-in": "An access of a peer that begins or ends one byte outside of the memory of its key is moved into it.";
    SegmentMovesIn "segment-moves-in": "A segment that begins or ends one byte outside of its region is moved into it.";
    BindGivesMore "bind-gives-more": "A bind opens one byte more.";
    BindOvertakes "bind-overtakes": "A bind completes before the requests that were posted before it.";
    NotFromZero "not-from-zero": "A zero-based region is registered with its address.";
    WindowNotFromZero "window-not-from-zero": "A zero-based window is bound with its address.";
    SharedNotServed "shared-not-served": "A message that waits is not delivered when a receive is posted to the shared queue.";
    WrongPeerAddress "wrong-peer-address": "A request arrives with the address 0.0.0.0.";
    AtomicNeedsNoRight "atomic-needs-no-right": "An atomic operation needs no right.";
    ImmediateWithoutLength "immediate-without-length": "The completion of a write with immediate data reports a length of 0.";
    ImmediateSwapped "immediate-swapped": "Immediate data arrives in the other byte order.";
    EmptyNeedsKey "empty-needs-key": "An RDMA Write of no bytes fails without a valid key.";
    MessageStays "message-stays": "A message leaves 4 KiB of memory.";
    SrqLimitEarly "srq-limit-early": "The low watermark raises its event when as many receives are left.";
}

/// The planted fault, as its number + 1; 0 for none.
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Plants a fault for the whole process.
pub(crate) fn plant(fault: Planted) {
    PLANTED.store(fault as usize + 1, Ordering::Relaxed);
}

/// Returns true if this fault is planted. Without the feature this is the constant false.
#[inline]
pub(crate) fn planted(fault: Planted) -> bool {
    cfg!(feature = "faults") && PLANTED.load(Ordering::Relaxed) == fault as usize + 1
}

/// Leaves what the planted fault leaves of each queue pair.
pub(crate) fn leave_of_queue_pair() {
    if planted(Planted::ThreadStays) {
        // Without a thread more the fault is not there, which the proof finds.
        let _ = std::thread::Builder::new().spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    if planted(Planted::DescriptorStays) {
        std::mem::forget(std::fs::File::open("/dev/null"));
    }
    if planted(Planted::QueuePairStays) {
        std::mem::forget(vec![1_u8; 2048]);
    }
}

/// Cuts private data, if that is planted.
pub(crate) fn cut(private_data: &[u8]) -> &[u8] {
    match private_data.get(..40) {
        Some(short) if planted(Planted::ShortData) => short,
        _ => private_data,
    }
}

/// Returns the address that a request comes from.
pub(crate) fn sender(own: IpAddr) -> IpAddr {
    if planted(Planted::WrongPeerAddress) {
        return Ipv4Addr::UNSPECIFIED.into();
    }
    own
}

/// Returns the protection zone `own`, or with this fault the first one that `opens`.
pub(crate) fn zone(fault: Planted, own: u32, opens: impl Fn(u32) -> bool) -> u32 {
    let any = |own| (0..1 << 20).find(|pz| opens(*pz)).unwrap_or(own);
    if planted(fault) { any(own) } else { own }
}
