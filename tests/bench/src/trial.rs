use std::time::Duration;
use crate::Result;
use crate::cost::charge;
use crate::raw::{net::socket::{Received, Socket}, vector, send};
const H: usize = 28;
pub(crate) fn run() -> Result<()> {
    let there = Socket::bind("127.0.92.2".parse()?, 0, 4 << 20)?;
    let here = Socket::bind("127.0.92.1".parse()?, 0, 4 << 20)?;
    let mut received = Received::new();
    for (name, region) in [("hot", 0usize), ("64M", 64 << 20)] {
        for size in [4096usize, 65536, 1 << 20] {
            for mode in ["copy", "gather", "chunk256", "chunk512", "chunk1024", "chunk2048", "pref", "copy2", "copy", "gather", "chunk256", "chunk512", "chunk1024", "chunk2048", "pref", "copy2"] {
                let region = region.max(size);
                let source = vec![5u8; region];
                let mut place = vec![0u8; 1 << 20];
                let mut out = vec![0u8; 65_000];
                let mut heads = vec![[9u8; H]; 64];
                let mut checks = vec![[0u8; 4]; 64];
                let dg = H + 4096 + 4;
                let total = 300usize << 20;
                let (mut at, mut done) = (0usize, 0usize);
                let (mut s, mut r) = (Duration::ZERO, Duration::ZERO);
                let mut rounds = 0u64;
                while done < total {
                    // 8 messages' worth in runs of at most 15 packets
                    let batch = (size * 8).min(1 << 20).max(15 * 4096);
                    let mut left = batch / 4096;
                    charge(&mut s, || -> Result<()> {
                        while left > 0 {
                            let n = left.min(15);
                            left -= n;
                            if let Some(c) = mode.strip_prefix("chunk") {
                                let c: usize = c.parse()?;
                                for i in 0..n {
                                    let o = &mut out[i * dg..(i + 1) * dg];
                                    heads[i][8] = i as u8;
                                    o[..H].copy_from_slice(&heads[i]);
                                    let mut h = crc32fast::Hasher::new();
                                    h.update(&heads[i]);
                                    for (to, from) in o[H..H + 4096].chunks_mut(c).zip(source[at..at + 4096].chunks(c)) {
                                        to.copy_from_slice(from);
                                        h.update(to);
                                    }
                                    at = (at + 4096) % region;
                                    let crc = h.finalize();
                                    o[H + 4096..].copy_from_slice(&crc.to_le_bytes());
                                }
                                send(&here, &there.local(), &[vector(&out[..n * dg])], dg)?;
                            } else if mode == "pref" {
                                for i in 0..n {
                                    let o = &mut out[i * dg..(i + 1) * dg];
                                    heads[i][8] = i as u8;
                                    o[..H].copy_from_slice(&heads[i]);
                                    let next = (at + 4096) % region;
                                    for k in 0..64 { unsafe { std::arch::x86_64::_mm_prefetch::<{std::arch::x86_64::_MM_HINT_T0}>(source.as_ptr().add(next + 64 * k).cast()); } }
                                    o[H..H + 4096].copy_from_slice(&source[at..at + 4096]);
                                    at = next;
                                    let crc = crc32fast::hash(&o[..H + 4096]);
                                    o[H + 4096..].copy_from_slice(&crc.to_le_bytes());
                                }
                                send(&here, &there.local(), &[vector(&out[..n * dg])], dg)?;
                            } else if mode == "copy2" {
                                // sum over all source words first (touch), then copy
                                for i in 0..n {
                                    let o = &mut out[i * dg..(i + 1) * dg];
                                    heads[i][8] = i as u8;
                                    o[..H].copy_from_slice(&heads[i]);
                                    std::hint::black_box(crc32fast::hash(&source[at..at+4096]));
                                    o[H..H + 4096].copy_from_slice(&source[at..at + 4096]);
                                    at = (at + 4096) % region;
                                    let crc = crc32fast::hash(&o[..H + 4096]);
                                    o[H + 4096..].copy_from_slice(&crc.to_le_bytes());
                                }
                                send(&here, &there.local(), &[vector(&out[..n * dg])], dg)?;
                            } else if mode == "copy" {
                                for i in 0..n {
                                    let o = &mut out[i * dg..(i + 1) * dg];
                                    heads[i][8] = i as u8;
                                    o[..H].copy_from_slice(&heads[i]);
                                    o[H..H + 4096].copy_from_slice(&source[at..at + 4096]);
                                    at = (at + 4096) % region;
                                    let crc = crc32fast::hash(&o[..H + 4096]);
                                    o[H + 4096..].copy_from_slice(&crc.to_le_bytes());
                                }
                                send(&here, &there.local(), &[vector(&out[..n * dg])], dg)?;
                            } else {
                                let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 192];
                                for i in 0..n {
                                    heads[i][8] = i as u8;
                                    let part = &source[at..at + 4096];
                                    at = (at + 4096) % region;
                                    let mut h = crc32fast::Hasher::new();
                                    h.update(&heads[i]);
                                    h.update(part);
                                    checks[i] = h.finalize().to_le_bytes();
                                    pieces[3 * i] = vector(&heads[i]);
                                    pieces[3 * i + 1] = vector(part);
                                    pieces[3 * i + 2] = vector(&checks[i]);
                                }
                                send(&here, &there.local(), &pieces[..3 * n], dg)?;
                            }
                        }
                        Ok(())
                    })?;
                    charge(&mut r, || -> Result<()> {
                        let mut p = 0;
                        while there.receive(&mut received)? {
                            for (_, d) in received.datagrams() {
                                if !crate::raw::intact(d) { return Err("damaged".into()); }
                                place[p..p + 4096].copy_from_slice(&d[H..H + 4096]);
                                p = (p + 4096) % place.len();
                                done += 4096;
                            }
                        }
                        Ok(())
                    })?;
                    rounds += 1;
                }
                let msgs = done as f64 / size as f64;
                println!("{name} {size:>8} {mode:>7}: sender {:.2} us/msg  {:.3} us/4K   receiver {:.3} us/4K  ({rounds})", s.as_secs_f64() * 1e6 / msgs,
                  s.as_secs_f64() * 1e6 / (done as f64 / 4096.0), r.as_secs_f64() * 1e6 / (done as f64 / 4096.0));
            }
        }
    }
    Ok(())
}
