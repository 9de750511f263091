//! Copies of every length and alignment, to memory that is lost as well.

use std::ptr::NonNull;

use super::*;

const PAGE: usize = 4096;

/// Installs the handler and returns both copy methods.
fn methods() -> [CopyMethod; 2] {
    guard::install();
    [CopyMethod::Direct, CopyMethod::Kernel]
}

/// Registers three pages, then unmaps (0), protects (1) or truncates (2) the second and third.
fn lost(how: usize) -> Range {
    // SAFETY: new mappings of this test, over each other.
    unsafe {
        let map = |at: usize, bytes: usize, rights: i32, flags: i32, file: i32| {
            let hint = at as *mut libc::c_void;
            let got = libc::mmap(hint, bytes, rights, flags, file, 0);
            assert_ne!(got, libc::MAP_FAILED);
            got as usize
        };
        let (both, own) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let base = map(0, 3 * PAGE, both, own | libc::MAP_ANONYMOUS, -1);
        let range = Range::probe(base, 3 * PAGE as u64, true).unwrap();
        let second = (base + PAGE) as *mut libc::c_void;
        match how {
            0 => assert_eq!(libc::munmap(second, 2 * PAGE), 0),
            1 => assert_eq!(libc::mprotect(second, 2 * PAGE, libc::PROT_NONE), 0),
            _ => {
                // A file that ends after the first page: SIGBUS.
                let file = libc::memfd_create(c"short".as_ptr(), 0);
                assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
                let flags = libc::MAP_SHARED | libc::MAP_FIXED;
                map(base, 3 * PAGE, both, flags, file);
                libc::close(file);
            }
        }
        range
    }
}

#[test]
fn access_to_lost_memory_fails() {
    for method in methods() {
        for how in 0..3 {
            let range = lost(how);
            let what = (method, how);
            let page = PAGE as u64;
            // Lengths from less than a word to a page, across the edge and behind it.
            for length in [1, 3, 7, 8, 15, 16, 33, 64, 200, 1000, 1024, 4096] {
                let mut bytes = vec![7; length];
                for offset in [
                    page,
                    page + 1,
                    page - 1,
                    2 * page - 8,
                    page - length as u64 + 1,
                ] {
                    if offset + length as u64 <= page {
                        continue;
                    }
                    let fault = Err(Failed::Fault);
                    assert_eq!(
                        range.read(method, offset, &mut bytes),
                        fault,
                        "{what:?} {length}"
                    );
                    assert_eq!(range.write(method, offset, &bytes), fault, "{what:?}");
                }
                // The first page is still usable.
                bytes.fill(length as u8);
                let at = page - length as u64;
                range.write(method, at, &bytes).unwrap();
                let mut back = vec![0; length];
                range.read(method, at, &mut back).unwrap();
                assert_eq!(back, bytes);
            }
            assert_eq!(
                range.update(method, page, |old| old + 1),
                Err(Failed::Fault)
            );
            range.write(method, 8, &5u64.to_ne_bytes()).unwrap();
            assert_eq!(range.update(method, 8, |old| old + 1), Ok(5));
            assert_eq!(range.checksum(method, 0), Err(Failed::Fault), "{what:?}");
            let first = range.part(0, page).unwrap();
            let mut bytes = vec![0; PAGE];
            first.read(method, 0, &mut bytes).unwrap();
            assert_eq!(first.checksum(method, 0), Ok(crc32fast::hash(&bytes)));
        }
    }
}

#[test]
fn a_copy_of_lost_memory_past_the_caches_fails() {
    let mut memory = vec![0_u8; 2 * PAGE];
    let aligned = memory.as_ptr().align_offset(64);
    let at = NonNull::from(&mut memory[aligned]);
    for method in methods() {
        for how in 0..3 {
            let range = lost(how);
            for (length, record) in [16, 63, 64, 200, 2048, 4096]
                // SAFETY: memory of this test, of that length, which nothing else uses.
                .map(|length| (length as u64, unsafe { RecordBytes::new(at, length) }))
            {
                let read = |from| range.read_to_record(method, from, record, true);
                let page = PAGE as u64;
                assert_eq!(read(page - length), Ok(()));
                for from in [page - length + 1, page - 1, page] {
                    assert_eq!(read(from), Err(Failed::Fault), "{method:?} {how} {length}");
                }
            }
        }
    }
}

#[test]
fn a_page_that_became_read_only_is_readable() {
    for method in methods() {
        let range = lost(1);
        let second = (range.base() + PAGE) as *mut libc::c_void;
        // SAFETY: pages of this test.
        let code = unsafe { libc::mprotect(second, 2 * PAGE, libc::PROT_READ) };
        assert_eq!(code, 0);
        let at = PAGE as u64;
        let mut word = [1; 8];
        assert_eq!(range.read(method, at, &mut word), Ok(()));
        assert_eq!(word, [0; 8]);
        assert_eq!(range.write(method, at, &[1; 8]), Err(Failed::Fault));
        assert_eq!(range.update(method, at, |old| old), Err(Failed::Fault));
    }
}

#[test]
fn every_length_is_copied_whole() {
    let from: Vec<u8> = (0..5000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let mut memory = vec![0u8; 5100];
    let range = Range::probe(memory.as_mut_ptr() as usize, 5100, true).unwrap();
    for method in methods() {
        for length in (0..300)
            .chain(1000..1100)
            .chain([4095, 4096, 4097, 4103, 4104, 4105, 5000])
        {
            let offset = length as u64 % 61;
            range.write(method, 0, &[0xaa; 5100]).unwrap();
            range.write(method, offset, &from[..length]).unwrap();
            let mut all = vec![0; 5100];
            range.read(method, 0, &mut all).unwrap();
            let (before, rest) = all.split_at(offset as usize);
            let (copied, behind) = rest.split_at(length);
            assert_eq!(copied, &from[..length], "{method:?} {length}");
            assert!(before.iter().chain(behind).all(|byte| *byte == 0xaa));
        }
    }
}

#[test]
fn only_mapped_memory_can_be_registered() {
    let mut memory = vec![7u8; 10_000];
    let base = memory.as_mut_ptr() as usize;
    assert!(Range::probe(base, 10_000, true).is_ok());
    assert!(matches!(
        Range::probe(base, 0, true),
        Err(RangeError::NoRange { .. })
    ));
    assert!(matches!(
        Range::probe(base, u64::MAX, true),
        Err(RangeError::NoRange { .. })
    ));
    assert!(matches!(
        Range::probe(0, 1, false),
        Err(RangeError::NoRange { .. })
    ));
    assert!(matches!(
        Range::probe(4096, 1, false),
        Err(RangeError::Unmapped { .. })
    ));
    static CONSTANT: [u8; 4096] = [1; 4096];
    let constant = CONSTANT.as_ptr() as usize;
    assert!(Range::probe(constant, 4096, false).is_ok());
    assert!(
        Range::probe(constant, 4096, true).is_err(),
        "read-only memory is not writable"
    );
    assert_eq!(memory, vec![7u8; 10_000], "probing changes nothing");
}

#[test]
fn ends_of_every_length_and_alignment_are_written_whole() {
    let mut memory = vec![0u8; 64];
    let range = Range::probe(memory.as_mut_ptr() as usize, 64, true).unwrap();
    let bytes: Vec<u8> = (1..=32).collect();
    let each = methods()
        .into_iter()
        .flat_map(|method| (0..16u64).map(move |offset| (method, offset)));
    for (method, offset) in each {
        for length in 0..=32usize {
            range.write(method, 0, &[0; 64]).unwrap();
            range.write(method, offset, &bytes[..length]).unwrap();
            let mut got = [0; 64];
            range.read(method, 0, &mut got).unwrap();
            let mut want = [0; 64];
            want[offset as usize..][..length].copy_from_slice(&bytes[..length]);
            assert_eq!(got, want, "offset {offset} length {length}");
        }
    }
    let outside = Err(Failed::Outside);
    for method in methods() {
        assert_eq!(range.write(method, 33, &bytes), outside);
        assert_eq!(range.write(method, u64::MAX, &bytes), outside);
        assert_eq!(range.read(method, 64, &mut [0]), outside);
    }
}

#[test]
fn atomics_are_whole_aligned_words() {
    for method in methods() {
        let mut memory = [5u64, 6];
        let range = Range::probe(memory.as_mut_ptr() as usize, 16, true).unwrap();
        assert_eq!(range.update(method, 8, |old| old + 1), Ok(6));
        assert_eq!(range.update(method, 8, |old| old), Ok(7));
        assert_eq!(range.update(method, 4, |old| old), Err(Failed::Outside));
        assert_eq!(range.update(method, 16, |old| old), Err(Failed::Outside));
    }
}
