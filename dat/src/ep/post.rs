//! Posts: sends, receives, RDMA and atomics.

use std::sync::atomic::Ordering;

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::v2_0::types::ib_op;
use dat_core::error::{Error as Code, Kind};

use super::Ep;
use crate::CompletionFlags;
use crate::error::Queue;
use crate::extension::operate_post;
use crate::hot::quick;
use crate::ids::Side;
use crate::memory::region::Slice;
use crate::memory::remote::Remote;
use crate::post_error::{PostCall, PostError};
use crate::segments::{Segments, require_writable};
use crate::sys::call;

/// Instead of a return code: the post is none of those with one segment that need no other check. No call returns this number.
const SEVERAL: u32 = u32::MAX;

/// `post_one!(ep, slices, zone, call, flags, slot(arguments...))`: makes a post with one segment of the endpoint's zone, and returns its
/// result from the caller. Anything else falls through. One `return` of a success, rather than one for each way there, keeps the
/// result out of memory.
macro_rules! post_one {
    ($ep:expr, $slices:expr, $zone:ident, $call:expr, $flags:expr, $slot:ident($($arg:expr),*)) => {
        let mut code = SEVERAL;
        if let [slice] = $slices
            && slice.$zone == $ep.entry.$zone()
        {
            let mut one = slice.triplet;
            $ep.count(side($call), $flags);
            code = quick!($ep.hot, $ep.handle(), $slot(1, &raw mut one $(, $arg)*));
        }
        if code == DAT_SUCCESS {
            return Ok(());
        }
        if code != SEVERAL {
            return Err($ep.refused($call, code));
        }
    };
}

/// Returns the side of an endpoint that counts a post.
#[inline]
const fn side(call: PostCall) -> Side {
    match call.queue() {
        Queue::Receives => Side::Receives,
        _ => Side::Requests,
    }
}

impl Ep {
    /// Returns the segments of a request.
    #[inline]
    pub(crate) fn segments(
        &self,
        slices: &[Slice<'_>],
        call: PostCall,
    ) -> Result<Segments, PostError> {
        let most = self.most_segments(Side::Requests);
        Segments::request(slices, self.zone(), most, call)
    }

    /// Returns the segments of a request that writes to them.
    fn writable(&self, slices: &[Slice<'_>], call: PostCall) -> Result<Segments, PostError> {
        for slice in slices {
            require_writable(slice, call)?;
        }
        self.segments(slices, call)
    }

    /// Counts a post and makes it.
    #[inline]
    pub(crate) fn counted(
        &self,
        side: Side,
        flags: CompletionFlags,
        post: impl FnOnce() -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.count(side, flags);
        // Not `if posted.is_err()`: the result, with room for an error, would be copied.
        match post() {
            Ok(()) => Ok(()),
            Err(error) => {
                self.entry.unpost(side);
                Err(error)
            }
        }
    }

    /// Counts a post, before it is made.
    #[inline]
    fn count(&self, side: Side, flags: CompletionFlags) {
        if flags.contains(CompletionFlags::SUPPRESS) {
            self.entry.inexact();
        }
        self.entry.post(side);
    }

    /// Takes the count of a quick post back, which was refused.
    #[cold]
    #[inline(never)]
    fn refused(&self, call: PostCall, code: u32) -> PostError {
        self.entry.unpost(side(call));
        // The caller has seen that it is no success.
        let code = Code::from_code(code).unwrap_or(Code::of(Kind::InternalError));
        PostError::of(call, code)
    }

    /// Posts a message (dat_ep_post_send); at most 16 slices.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` and `server` are connected endpoints; completions arrive in `sent` and `received`.
    /// let memory = pz.allocate(4096, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// server.post_recv(&[memory.slice(1024..2048)], 1)?; // before the message comes
    /// memory.write(0, b"head");
    /// memory.write(512, b"body");
    /// client.post_send(&[memory.slice(0..4), memory.slice(512..516)], 2)?; // one message
    /// sent.wait_completion(Duration::from_secs(60))?;
    /// let message = received.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!((message.cookie, message.length), (1, 8));
    /// assert_eq!(memory.to_vec(1024..1032), b"headbody");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PostError::NotConnected`](crate::PostError::NotConnected), [`PostError::QueueFull`](crate::PostError::QueueFull),
    /// [`PostError::TooManySegments`](crate::PostError::TooManySegments), [`PostError::OtherZone`](crate::PostError::OtherZone),
    /// [`PostError::Refused`](crate::PostError::Refused).
    #[inline]
    pub fn post_send(&self, slices: &[Slice<'_>], cookie: u64) -> Result<(), PostError> {
        self.post_send_with(slices, cookie, CompletionFlags::empty())
    }

    /// Posts a message with completion flags: [`CompletionFlags::SOLICITED_WAIT`] wakes a peer that waits for such messages only,
    /// `SUPPRESS` omits the event of a success, `BARRIER_FENCE` waits for earlier reads, `UNSIGNALLED` wakes no waiter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags, Error, Queue};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is connected; its completions arrive in `sent`. Only every eighth send has an event.
    /// let message = pz.allocate(64, Access::LOCAL_READ)?;
    /// # let room = pz.allocate(64, Access::LOCAL_WRITE)?;
    /// for number in 1..=16 {
    /// #   server.post_recv(&[room.slice(0..64)], number)?;
    ///     let flags = match number % 8 {
    ///         0 => CompletionFlags::empty(),
    ///         _ => CompletionFlags::SUPPRESS,
    ///     };
    ///     client.post_send_with(&[message.slice(0..10)], number, flags)?;
    ///     if number % 8 == 0 {
    ///         // Requests complete in order: the earlier ones are complete too.
    ///         assert_eq!(sent.wait_completion(Duration::from_secs(60))?.cookie, number);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    #[inline]
    pub fn post_send_with(
        &self,
        slices: &[Slice<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        post_one!(
            self,
            slices,
            zone,
            PostCall::Send,
            flags,
            ep_post_send(cookie, flags.bits())
        );
        self.send_several(slices, cookie, flags)
    }

    #[inline(never)]
    fn send_several(
        &self,
        slices: &[Slice<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        let mut s = self.segments(slices, PostCall::Send)?;
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Requests, flags, || {
            call!(post PostCall::Send, self.handle(), ep_post_send(count, iov, cookie, flags.bits()))
        })
    }

    /// Posts a message that invalidates a window of the peer, given by its key (dat_ep_post_send_with_invalidate); at most 16 slices.
    /// The peer must have created the window by [`Pz::create_rmr_for_ep`](crate::Pz::create_rmr_for_ep) and bound it on the
    /// connected endpoint.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, DtoOp};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` and `server` are connected. The server opens 16 bytes for one use.
    /// # let patience = Duration::from_secs(60);
    /// let region = pz.allocate(4096, Access::ALL)?;
    /// let mut window = pz.create_rmr_for_ep()?;
    /// let open = window.bind(&region, 0..16, Access::REMOTE_WRITE, &server, 1)?;
    /// received.wait_completion(patience)?;
    /// server.post_recv(&[], 2)?;
    ///
    /// // The client, when it has written there:
    /// client.post_send_with_invalidate(&[], open, 3)?;
    /// let told = received.wait_completion(patience)?;
    /// assert_eq!((told.op, told.invalidated), (DtoOp::ReceiveWithInvalidate, open.key));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    pub fn post_send_with_invalidate(
        &self,
        slices: &[Slice<'_>],
        window: Remote,
        cookie: u64,
    ) -> Result<(), PostError> {
        let mut s = self.segments(slices, PostCall::SendWithInvalidate)?;
        let (count, iov, key) = (s.count(), s.as_mut_ptr(), window.key);
        self.counted(Side::Requests, CompletionFlags::empty(), || {
            call!(post PostCall::SendWithInvalidate, self.handle(), ep_post_send_with_invalidate(count, iov, cookie, 0, 1, key))
        })
    }

    /// Posts a receive (dat_ep_post_recv); at most 16 slices.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `server` is a connected endpoint. Each receive has 1 KiB of the region, whose number is the cookie.
    /// let room = pz.allocate(16 * 1024, Access::LOCAL_WRITE)?;
    /// let part = |number: usize| room.slice(number * 1024..(number + 1) * 1024);
    /// for number in 0..16 {
    ///     server.post_recv(&[part(number)], number as u64)?;
    /// }
    /// # let hello = pz.register(b"hello".to_vec(), Access::LOCAL_READ)?;
    /// # client.post_send(&[hello.slice(0..5)], 1)?;
    /// let message = received.wait_completion(Duration::from_secs(60))?;
    /// let number = message.cookie as usize;
    /// let bytes = room.to_vec(number * 1024..number * 1024 + message.length as usize);
    /// assert_eq!(bytes, b"hello");
    /// server.post_recv(&[part(number)], number as u64)?; // for another message
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PostError::QueueFull`](crate::PostError::QueueFull), [`PostError::NoEvd`](crate::PostError::NoEvd),
    /// [`PostError::HasSrq`](crate::PostError::HasSrq), [`PostError::OtherZone`](crate::PostError::OtherZone),
    /// [`PostError::ReadOnly`](crate::PostError::ReadOnly), [`PostError::TooManySegments`](crate::PostError::TooManySegments),
    /// [`PostError::Refused`](crate::PostError::Refused).
    #[inline]
    pub fn post_recv(&self, slices: &[Slice<'_>], cookie: u64) -> Result<(), PostError> {
        self.post_recv_with(slices, cookie, CompletionFlags::empty())
    }

    /// Posts a receive with completion flags.
    ///
    /// # Errors
    /// As [`Ep::post_recv`].
    #[inline]
    pub fn post_recv_with(
        &self,
        slices: &[Slice<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        post_one!(
            self,
            slices,
            receive_zone,
            PostCall::Receive,
            flags,
            ep_post_recv(cookie, flags.bits())
        );
        self.receive_several(slices, cookie, flags)
    }

    #[inline(never)]
    fn receive_several(
        &self,
        slices: &[Slice<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        const NAME: PostCall = PostCall::Receive;
        let zone = self.inner.receive_zone.load(Ordering::Relaxed);
        if zone == 0 {
            return Err(self.receive_refused(NAME));
        }
        let most = self.most_segments(Side::Receives);
        let mut s = Segments::receive(slices, zone, most, NAME, || self.receive_refused(NAME))?;
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Receives, flags, || {
            call!(post PostCall::Receive, self.handle(), ep_post_recv(count, iov, cookie, flags.bits()))
        })
    }

    /// Writes to the peer's memory (dat_ep_post_rdma_write); at most 16 slices.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags, Remote};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint. The server opens memory, and has sent its key.
    /// let opened = pz.allocate(4096, Access::REMOTE_WRITE | Access::LOCAL_WRITE)?;
    /// let key: [u8; Remote::SIZE] = opened.remote(0..4096).to_bytes();
    ///
    /// let remote = Remote::from_bytes(key);
    /// let local = pz.register(b"some bytes".to_vec(), Access::LOCAL_READ)?;
    /// client.post_rdma_write(&[local.slice(0..10)], remote.slice(100..110), 1, CompletionFlags::empty())?;
    /// sent.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!(opened.to_vec(100..110), b"some bytes");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// As many bytes are written as `slices` have. The peer's provider checks all of them against the memory that it has granted. The
    /// length of `remote` is checked only if the adapter's line of dat.conf says `strict=lengths`.
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    #[inline]
    pub fn post_rdma_write(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        post_one!(
            self,
            slices,
            zone,
            PostCall::RdmaWrite,
            flags,
            ep_post_rdma_write(cookie, remote.as_triplet(), flags.bits())
        );
        self.write_several(slices, remote, cookie, flags)
    }

    #[inline(never)]
    fn write_several(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        let mut s = self.segments(slices, PostCall::RdmaWrite)?;
        let to = remote.triplet();
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Requests, flags, || {
            call!(post PostCall::RdmaWrite, self.handle(), ep_post_rdma_write(count, iov, cookie, &raw const to, flags.bits()))
        })
    }

    /// Reads the peer's memory (dat_ep_post_rdma_read); at most 16 slices.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint, and `remote` a segment of the server's memory.
    /// # let opened = pz.register(b"some bytes".to_vec(), Access::REMOTE_READ | Access::LOCAL_READ)?;
    /// # let remote = opened.remote(0..10);
    /// let local = pz.allocate(10, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// client.post_rdma_read(&[local.slice(0..10)], remote, 1, CompletionFlags::empty())?;
    /// sent.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!(local.to_vec(0..10), b"some bytes");
    /// # server.post_recv(&[local.slice(0..10)], 2)?;
    /// // A request that must see the bytes that an earlier read brings waits for it:
    /// client.post_rdma_read(&[local.slice(0..4)], remote.slice(5..9), 2, CompletionFlags::SUPPRESS)?;
    /// client.post_send_with(&[local.slice(0..4)], 3, CompletionFlags::BARRIER_FENCE)?;
    /// sent.wait_completion(Duration::from_secs(60))?;
    /// # received.wait_completion(Duration::from_secs(60))?;
    /// # assert_eq!(local.to_vec(0..4), b"byte");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// As many bytes are read as `slices` have; for the length of `remote` see [`Ep::post_rdma_write`].
    ///
    /// # Errors
    /// As [`Ep::post_send`]; [`PostError::ReadOnly`](crate::PostError::ReadOnly).
    pub fn post_rdma_read(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        let mut s = self.writable(slices, PostCall::RdmaRead)?;
        let from = remote.triplet();
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.counted(Side::Requests, flags, || {
            call!(post PostCall::RdmaRead, self.handle(), ep_post_rdma_read(count, iov, cookie, &raw const from, flags.bits()))
        })
    }

    /// Writes to the peer's memory and completes a receive of the peer, whose event has `immediate` (dat_ib_post_rdma_write_immed).
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags, DtoOp};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` and `server` are connected, and `remote` is a segment of the server's memory.
    /// # let opened = pz.allocate(64, Access::REMOTE_WRITE | Access::LOCAL_WRITE)?;
    /// # let remote = opened.remote(0..4);
    /// server.post_recv(&[], 1)?; // the immediate data uses a receive, and none of its bytes
    /// let local = pz.register(b"data".to_vec(), Access::LOCAL_READ)?;
    /// client.post_rdma_write_immediate(&[local.slice(0..4)], remote, 0xfeed, 2, CompletionFlags::empty())?;
    /// let told = received.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!((told.op, told.immediate), (DtoOp::ReceiveRdmaImmediate, 0xfeed));
    /// assert_eq!(opened.to_vec(0..4), b"data");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ep::post_send`]; [`PostError::Refused`](crate::PostError::Refused) without the IB extension.
    pub fn post_rdma_write_immediate(
        &self,
        slices: &[Slice<'_>],
        remote: Remote,
        immediate: u32,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        let s = self.segments(slices, PostCall::RdmaWriteImmediate)?;
        let to = remote.triplet();
        let arguments = [
            s.count() as u64,
            s.as_ptr() as u64,
            cookie,
            &raw const to as u64,
            immediate.into(),
            flags.bits().into(),
        ];
        self.extended(
            ib_op::RDMA_WRITE_IMMED,
            PostCall::RdmaWriteImmediate,
            flags,
            &arguments,
        )
    }

    /// Adds `add` to the peer's aligned word `remote`; `old` gets the value before (dat_ib_post_fetch_and_add). `old` is 8 bytes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint. The server opens one word.
    /// let counter = pz.allocate(8, Access::REMOTE_ATOMIC | Access::LOCAL_WRITE)?;
    /// counter.store_u64(0, 40);
    /// let word = counter.remote(0..8);
    /// let old = pz.allocate(8, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// client.post_fetch_add(old.slice(0..8), word, 2, 1, CompletionFlags::empty())?;
    /// sent.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!((old.load_u64(0), counter.load_u64(0)), (40, 42));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write_immediate`]; [`PostError::ReadOnly`](crate::PostError::ReadOnly).
    pub fn post_fetch_add(
        &self,
        old: Slice<'_>,
        remote: Remote,
        add: u64,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        let local = self.writable(&[old], PostCall::FetchAdd)?;
        let to = remote.triplet();
        let arguments = [
            add,
            local.as_ptr() as u64,
            cookie,
            &raw const to as u64,
            flags.bits().into(),
        ];
        self.extended(ib_op::FETCH_AND_ADD, PostCall::FetchAdd, flags, &arguments)
    }

    /// Replaces the peer's aligned word `remote` by `new` if it is `expected`; `old` gets the value before
    /// (dat_ib_post_cmp_and_swap). `old` is 8 bytes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, CompletionFlags};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint, and `word` a lock in the server's memory: 0 is free, 1 is taken.
    /// # let lock = pz.allocate(8, Access::REMOTE_ATOMIC | Access::LOCAL_WRITE)?;
    /// # let word = lock.remote(0..8);
    /// let old = pz.allocate(8, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// client.post_compare_swap(old.slice(0..8), word, (0, 1), 1, CompletionFlags::empty())?;
    /// sent.wait_completion(Duration::from_secs(60))?;
    /// match old.load_u64(0) {
    ///     0 => println!("it is ours"),
    ///     _ => println!("another client has it"),
    /// }
    /// # assert_eq!((old.load_u64(0), lock.load_u64(0)), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ep::post_fetch_add`].
    pub fn post_compare_swap(
        &self,
        old: Slice<'_>,
        remote: Remote,
        (expected, new): (u64, u64),
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<(), PostError> {
        let local = self.writable(&[old], PostCall::CompareSwap)?;
        let to = remote.triplet();
        let arguments = [
            expected,
            new,
            local.as_ptr() as u64,
            cookie,
            &raw const to as u64,
            flags.bits().into(),
        ];
        self.extended(
            ib_op::CMP_AND_SWAP,
            PostCall::CompareSwap,
            flags,
            &arguments,
        )
    }

    fn extended(
        &self,
        op: i32,
        call: PostCall,
        flags: CompletionFlags,
        arguments: &[u64],
    ) -> Result<(), PostError> {
        self.counted(Side::Requests, flags, || {
            // SAFETY: the callers pass the arguments of the operation; their pointers are valid during the call.
            unsafe { operate_post(self.handle(), op, call, arguments) }
        })
    }
}
