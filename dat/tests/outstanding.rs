//! Ten thousand futures outstanding on a hundred connections: the memory of a program stays the same from round to round. Each
//! allocation of this process is counted, also those of the engine, which is linked in.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use udapl::Access;
use udapl::aio::{Buffer, Connection, Context, Operation, Options, Pool, block_on, join};

const CONNECTIONS: usize = 100;
const EACH: usize = 100;
const SIZE: usize = 8;
/// Rounds after which queues and tables have their usual size.
const WARM_UP: usize = 4;
/// A queue may still double when more events than ever wait in it, which depends on the scheduler: but not always within this many rounds.
/// A leak of one future in a hundred shows in each of them.
const CALM: usize = 8;
const ROUNDS: usize = 80;
/// One future in a hundred, of 100 bytes and more. Other threads' allocations vary by less.
const STEP: isize = 8 << 10;

/// Bytes that are allocated.
static LIVE: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: all calls are handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn connect(client: &Context, server: &Context, options: &Options) -> [Connection; 2] {
    let mut listener = server.listen(None, options.clone()).expect("listens");
    let attempt = client.connect(server.address(), listener.conn_qual(), options);
    let (here, there) = join(attempt, listener.accept()).await;
    [here.expect("connects"), there.expect("accepts")]
}

/// Has all writes under way at the same time, then takes all results. Returns the number of slots while all were under way.
async fn round(
    context: &Context,
    connections: &[[Connection; 2]],
    pool: &Pool,
    to: udapl::Remote,
    under_way: &mut Vec<Operation<Buffer>>,
) -> usize {
    for _ in 0..EACH {
        for [connection, _] in connections {
            let write = connection.write(pool.take().await, to);
            under_way.push(write.posted().await);
        }
    }
    assert_eq!(under_way.len(), CONNECTIONS * EACH);
    let slots = context.operation_slots();
    for write in under_way.drain(..) {
        let (_, written) = write.await;
        assert_eq!(written.expect("written"), SIZE as u32);
    }
    slots
}

#[test]
fn ten_thousand_futures_on_a_hundred_connections_do_not_grow() {
    udapl::log::install();
    let [client, server] = [(); 2].map(|()| Context::open("softrxe-lo").expect("opens"));
    let options = Options {
        receives: 2,
        message_size: 64,
        requests: EACH as u32,
        ..Options::default()
    };
    block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(connect(&client, &server, &options).await);
        }
        let memory = server.pz().allocate(SIZE, Access::ALL).expect("memory");
        let to = memory.remote(0..SIZE);
        let pool = client.pool(CONNECTIONS * EACH, SIZE).expect("a pool");
        let mut under_way = Vec::with_capacity(CONNECTIONS * EACH);
        let (mut most, mut calm, mut most_slots) = (0, 0, 0);
        for number in 0..ROUNDS {
            let slots = round(&client, &connections, &pool, to, &mut under_way).await;
            // A future keeps its slot until its result is taken, so all were outstanding.
            assert!(slots >= CONNECTIONS * EACH, "{slots} slots");
            let live = LIVE.load(Ordering::Relaxed);
            if number >= WARM_UP {
                assert_eq!(slots, most_slots, "slots grew in round {number}");
                calm = if live > most + STEP { 0 } else { calm + 1 };
            }
            (most, most_slots) = (most.max(live), slots);
            if calm == CALM {
                return;
            }
        }
        panic!("memory grew within each {CALM} of {ROUNDS} rounds, to {most} bytes");
    });
}
