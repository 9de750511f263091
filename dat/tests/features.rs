//! Typed values and serialised keys.

mod common;

use bytemuck::{Pod, Zeroable};
use common::side;
use udapl::aio::Pool;
use udapl::{Access, Remote};

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Record {
    version: u64,
    value: [u32; 2],
}

#[test]
fn plain_values_are_read_and_written() {
    let s = side();
    let region = s.pz.allocate(64, Access::ALL).expect("memory");
    let record = Record {
        version: 7,
        value: [1, 2],
    };
    region.write_value(16, &record);
    assert_eq!(region.read_value::<Record>(16), record);
    assert_eq!(region.load_u64(16), 7);

    // A buffer of a pool is a slice, which is cast without a copy.
    let pool = Pool::new(&s.pz, 1, 32).expect("a pool");
    let mut buffer = pool.try_take().expect("one");
    assert!(pool.try_take().is_none());
    bytemuck::cast_slice_mut::<u8, Record>(&mut buffer)[1] = record;
    assert_eq!(buffer[16], 7);
}

#[test]
fn a_key_is_serialised() {
    let remote = Remote {
        address: 1 << 40,
        length: 9,
        key: 3,
    };
    let text = serde_json::to_string(&remote).expect("text");
    assert_eq!(
        serde_json::from_str::<Remote>(&text).expect("a key"),
        remote
    );
}
