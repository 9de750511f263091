//! The verbs transport under core, end to end between two processes, for `tests/lab/run.sh` in the lab.
//!
//! `pingpong [IA_PARAMS]` (default `v0 0` with short resolve time limits) starts itself again as the server. It prints
//! one line for each case; the exit status is the number of failed cases.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use dat_core::cr::Cr;
use dat_core::ep::{Ep, EpParts};
use dat_core::error::Error;
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, Dto, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::ia_params::IaParams;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::sp::Sp;
use dat_core::transport::Transport;
use dat_verbs::Verbs;

const QUAL: u64 = 45248;
const SIZE: usize = 64 * 1024;
const LIMIT: Duration = Duration::from_secs(20);
const PARAMS: &str = "v0 0 resolve_timeout=300 resolve_retry=1";
const NONE: CompletionFlags = CompletionFlags::empty();

type Case<R = ()> = Result<R, String>;

fn explain(what: &str) -> impl Fn(Error) -> String + '_ {
    move |e| format!("{what}: {e}")
}

/// One side: an IA and its objects.
struct Side {
    ia: &'static Ia<Verbs>,
    pz: &'static Pz<Verbs>,
    dtos: &'static Evd<Verbs>,
    connections: &'static Evd<Verbs>,
    memory: Vec<AtomicU8>,
    lmr: &'static Lmr<Verbs>,
}

impl Side {
    fn open(params: &str) -> Case<Self> {
        let params = IaParams::parse(params).map_err(|e| e.to_string())?;
        let ia = Ia::open("pingpong", &params, 8, AsyncEvd::New, 0).map_err(explain("open"))?;
        let pz = Pz::create(ia).map_err(explain("pz"))?;
        let evd = |flags| Evd::create(ia, 64, None, flags).map_err(explain("evd"));
        let memory: Vec<AtomicU8> = (0..SIZE).map(|_| AtomicU8::new(0)).collect();
        let source = Source::Virtual(memory.as_ptr().addr());
        let lmr = Lmr::create(ia, source, SIZE as u64, pz, MemPriv::ALL, VaType::Va);
        Ok(Self {
            ia,
            pz,
            dtos: evd(EvdFlags::DTO | EvdFlags::RMR_BIND)?,
            connections: evd(EvdFlags::CONNECTION | EvdFlags::CR)?,
            memory,
            lmr: lmr.map_err(explain("lmr"))?,
        })
    }

    fn ep(&self) -> Case<&'static Ep<Verbs>> {
        let parts = EpParts {
            pz: Some(self.pz),
            recv_evd: Some(self.dtos),
            request_evd: Some(self.dtos),
            connect_evd: Some(self.connections),
            srq: None,
        };
        Ep::create(self.ia, parts, None).map_err(explain("ep"))
    }

    fn at(&self, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            virtual_address: self.memory[offset..].as_ptr().addr() as u64,
            segment_length: length as u32,
            lmr_context: self.lmr.info().map_or(0, |i| i.lmr_context),
        }
    }

    fn fill(&self, offset: usize, data: &[u8]) {
        for (to, from) in self.memory[offset..].iter().zip(data) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let bytes = &self.memory[offset..offset + length];
        bytes.iter().map(|b| b.load(Ordering::Relaxed)).collect()
    }

    fn dto(&self) -> Case<Dto> {
        let mut event = None;
        self.dtos
            .wait(Some(LIMIT), 1, &mut event)
            .map_err(|e| format!("wait for a completion: {}", e.error))?;
        match event {
            Some(Event::Dto(dto)) => Ok(dto),
            other => Err(format!("found {other:?}, expected a completion")),
        }
    }

    fn succeeded(&self, cookie: u64) -> Case<Dto> {
        let dto = self.dto()?;
        if dto.status == DtoStatus::Success && dto.cookie == cookie {
            Ok(dto)
        } else {
            Err(format!("found {dto:?}, expected the success of {cookie}"))
        }
    }

    fn event(&self) -> Case<Event> {
        let mut event = None;
        self.connections
            .wait(Some(LIMIT), 1, &mut event)
            .map_err(|e| format!("wait for an event: {}", e.error))?;
        event.ok_or_else(|| "no event".to_owned())
    }

    fn expect(&self, wanted: ConnectionEvent) -> Case {
        match self.event()? {
            Event::Connection { number, .. } if number == wanted => Ok(()),
            other => Err(format!("found {other:?}, expected {wanted:?}")),
        }
    }

    fn address(&self) -> Case<IpAddr> {
        Ok(self.ia.attributes().map_err(explain("attributes"))?.address)
    }
}

/// Serves until it is killed. Private data `reject` is refused, `die` kills the process once connected; any other
/// connection receives the key of the server's memory, and its messages are sent back.
fn serve(params: &str) -> Case {
    let side = Side::open(params)?;
    Sp::psp_create(side.ia, Some(QUAL), side.connections, false).map_err(explain("psp"))?;
    println!("ready");
    loop {
        let cr = match side.event()? {
            Event::ConnectionRequest { cr, .. } => Verbs::arenas().cr.from_addr(cr),
            Event::Connection {
                number: ConnectionEvent::Disconnected | ConnectionEvent::Broken,
                ..
            } => continue,
            other => return Err(format!("server: {other:?}")),
        };
        let cr: &'static Cr<Verbs> = cr.ok_or("no request")?;
        let wish = cr.private_data().to_vec();
        if wish.starts_with(b"reject") {
            cr.reject(b"not today").map_err(explain("reject"))?;
            continue;
        }
        let ep = side.ep()?;
        for slot in 0..4 {
            let at = side.at(slot * 4096, 4096);
            ep.post_recv(&[at], slot as u64, NONE)
                .map_err(explain("post_recv"))?;
        }
        cr.accept(Some(ep), b"welcome").map_err(explain("accept"))?;
        side.expect(ConnectionEvent::Established)?;
        if wish.starts_with(b"die") {
            std::process::abort();
        }
        // The first message carries address and key, the later ones are echoes.
        let region = side.at(32 * 1024, 32 * 1024);
        let key = side.lmr.info().map_err(explain("lmr"))?.rmr_context;
        let mut hello = region.virtual_address.to_ne_bytes().to_vec();
        hello.extend(key.to_ne_bytes());
        side.fill(24 * 1024, &hello);
        ep.post_send(&[side.at(24 * 1024, 12)], 100, NONE)
            .map_err(explain("post_send"))?;
        loop {
            let dto = side.dto()?;
            if dto.status != DtoStatus::Success {
                break;
            }
            // The client's next message may overtake the completion of the last echo.
            if dto.cookie < 4 {
                let slot = dto.cookie as usize * 4096;
                let back = side.at(slot, dto.length as usize);
                ep.post_send(&[back], 101, NONE).map_err(explain("echo"))?;
                ep.post_recv(&[side.at(slot, 4096)], dto.cookie, NONE)
                    .map_err(explain("repost"))?;
            }
        }
        side.event()?;
        ep.free().map_err(explain("ep_free"))?;
        while side.dtos.dequeue(None).is_ok() {}
    }
}

struct Server(Child);

impl Server {
    fn start(params: &str) -> Case<Self> {
        let exe = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(exe);
        command.args(["serve", params]).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(|e| e.to_string())?;
        if line.trim() == "ready" {
            Ok(Self(child))
        } else {
            Err("the server does not start".into())
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn connect(ep: &'static Ep<Verbs>, to: IpAddr, qual: u64, wish: &[u8]) -> Case {
    ep.connect(to, qual, Some(LIMIT), wish, 0, 0)
        .map_err(explain("connect"))
}

/// Connects and receives address and key of the server's memory.
fn greet(side: &Side) -> Case<(&'static Ep<Verbs>, RmrTriplet)> {
    let ep = side.ep()?;
    ep.post_recv(&[side.at(0, 4096)], 1, NONE)
        .map_err(explain("post_recv"))?;
    connect(ep, side.address()?, QUAL, b"hello")?;
    side.expect(ConnectionEvent::Established)?;
    let data = ep.private_data().to_vec();
    if !data.starts_with(b"welcome") {
        return Err(format!("private data {data:?}"));
    }
    side.succeeded(1)?;
    let hello = side.read(0, 12);
    let (address, key) = hello.split_at(8);
    let remote = RmrTriplet {
        virtual_address: u64::from_ne_bytes(address.try_into().map_err(|_| "short")?),
        segment_length: 32 * 1024,
        rmr_context: u32::from_ne_bytes(key.try_into().map_err(|_| "short")?),
    };
    Ok((ep, remote))
}

fn leave(side: &Side, ep: &'static Ep<Verbs>) -> Case {
    ep.disconnect(Close::Abrupt)
        .map_err(explain("disconnect"))?;
    side.expect(ConnectionEvent::Disconnected)?;
    ep.free().map_err(explain("free"))?;
    while side.dtos.dequeue(None).is_ok() {}
    Ok(())
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed))
        .collect()
}

fn data(side: &Side) -> Case<String> {
    let (ep, remote) = greet(side)?;
    let rounds = 200;
    let start = Instant::now();
    for round in 0..rounds {
        let message = pattern(1 + round * 20, round as u8);
        ep.post_recv(&[side.at(0, 4096)], 2, NONE)
            .map_err(explain("post_recv"))?;
        side.fill(8192, &message);
        ep.post_send(&[side.at(8192, message.len())], 3, NONE)
            .map_err(explain("post_send"))?;
        // Both completions arrive on one queue; the echo may be the first.
        let (one, other) = (side.dto()?, side.dto()?);
        let (sent, echo) = if one.cookie == 3 {
            (one, other)
        } else {
            (other, one)
        };
        for (dto, cookie) in [(sent, 3), (echo, 2)] {
            if (dto.cookie, dto.status) != (cookie, DtoStatus::Success) {
                return Err(format!("round {round}: {dto:?}"));
            }
        }
        if echo.length != message.len() as u64 || side.read(0, message.len()) != message {
            return Err(format!("round {round}: {} bytes came back", echo.length));
        }
    }
    let each = start.elapsed() / rounds as u32;
    // An RDMA write, read back.
    let block = pattern(16 * 1024, 99);
    side.fill(16 * 1024, &block);
    let remote = RmrTriplet {
        segment_length: block.len() as u32,
        ..remote
    };
    let local = side.at(16 * 1024, block.len());
    ep.post_rdma_write(&[local], 4, &remote, NONE)
        .map_err(explain("write"))?;
    side.succeeded(4)?;
    let back = side.at(40 * 1024, block.len());
    ep.post_rdma_read(&[back], 5, &remote, NONE)
        .map_err(explain("read"))?;
    side.succeeded(5)?;
    if side.read(40 * 1024, block.len()) != block {
        return Err("the read data differ from the written data".into());
    }
    leave(side, ep)?;
    Ok(format!(
        "{rounds} echoes, {each:.0?} each; 16 KiB written and read back"
    ))
}

fn window(side: &Side) -> Case<String> {
    let rmr = match Rmr::create(side.pz) {
        Ok(rmr) => rmr,
        Err(e) => return Ok(format!("no windows: {e}")),
    };
    let (ep, _) = greet(side)?;
    let range = LmrRange {
        lmr_context: side.at(0, 0).lmr_context,
        address: side.at(48 * 1024, 1).virtual_address,
        length: 4096,
    };
    let bind = |range, rights, cookie| {
        rmr.bind(Some(side.lmr), range, rights, VaType::Va, ep, cookie, NONE)
            .map_err(explain("bind"))
    };
    let first = bind(range, MemPriv::REMOTE_READ | MemPriv::REMOTE_WRITE, 6)?;
    side.succeeded(6)?;
    let second = bind(range, MemPriv::REMOTE_READ, 7)?;
    side.succeeded(7)?;
    if first == second {
        return Err("a bind does not change the key".into());
    }
    bind(LmrRange { length: 0, ..range }, MemPriv::empty(), 8)?;
    side.succeeded(8)?;
    rmr.free().map_err(explain("rmr_free"))?;
    leave(side, ep)?;
    Ok(format!("bound {first:#x}, rebound {second:#x}, unbound"))
}

fn protection(side: &Side) -> Case<String> {
    let (ep, remote) = greet(side)?;
    let wrong = RmrTriplet {
        rmr_context: remote.rmr_context ^ 0x5a00,
        segment_length: 8,
        ..remote
    };
    ep.post_rdma_write(&[side.at(0, 8)], 9, &wrong, NONE)
        .map_err(explain("write"))?;
    let dto = side.dto()?;
    if dto.status != DtoStatus::RemoteAccess || dto.cookie != 9 {
        return Err(format!("found {dto:?}, expected a remote access error"));
    }
    side.expect(ConnectionEvent::Broken)?;
    ep.free().map_err(explain("free"))?;
    Ok("remote access error, then Broken".into())
}

fn rejected(side: &Side) -> Case<String> {
    let ep = side.ep()?;
    connect(ep, side.address()?, QUAL, b"reject")?;
    side.expect(ConnectionEvent::PeerRejected)?;
    let data = ep.private_data().to_vec();
    ep.free().map_err(explain("free"))?;
    if data.starts_with(b"not today") {
        Ok("with the peer's data".into())
    } else {
        Err(format!("{data:?}"))
    }
}

fn no_host(side: &Side) -> Case<String> {
    let ep = side.ep()?;
    connect(ep, side.address()?, QUAL + 1, b"")?;
    side.expect(ConnectionEvent::NonPeerRejected)?;
    ep.free().map_err(explain("free"))?;
    Ok("NonPeerRejected".into())
}

fn unreachable(side: &Side) -> Case<String> {
    let ep = side.ep()?;
    // An address of the link that no host has.
    connect(ep, IpAddr::from([10, 9, 0, 77]), QUAL, b"")?;
    side.expect(ConnectionEvent::Unreachable)?;
    ep.free().map_err(explain("free"))?;
    Ok("Unreachable".into())
}

fn again(side: &Side) -> Case<String> {
    let ep = side.ep()?;
    let rounds = 20;
    let start = Instant::now();
    for round in 0..rounds {
        ep.post_recv(&[side.at(0, 4096)], 1, NONE)
            .map_err(explain("post_recv"))?;
        connect(ep, side.address()?, QUAL, b"hello")?;
        side.expect(ConnectionEvent::Established)
            .map_err(|e| format!("round {round}: {e}"))?;
        side.succeeded(1)?;
        ep.disconnect(Close::Abrupt)
            .map_err(explain("disconnect"))?;
        side.expect(ConnectionEvent::Disconnected)?;
        ep.reset().map_err(explain("reset"))?;
        while side.dtos.dequeue(None).is_ok() {}
    }
    let each = start.elapsed() / rounds;
    ep.free().map_err(explain("free"))?;
    Ok(format!(
        "{rounds} connections of one endpoint, {each:.0?} each"
    ))
}

fn killed(side: &Side) -> Case<String> {
    let ep = side.ep()?;
    ep.post_recv(&[side.at(0, 4096)], 1, NONE)
        .map_err(explain("post_recv"))?;
    connect(ep, side.address()?, QUAL, b"die")?;
    side.expect(ConnectionEvent::Established)?;
    match side.event()? {
        Event::Connection {
            number: ConnectionEvent::Disconnected | ConnectionEvent::Broken,
            ..
        } => {}
        other => return Err(format!("{other:?}")),
    }
    let dto = side.dto()?;
    ep.free().map_err(explain("free"))?;
    if dto.status == DtoStatus::Flushed {
        Ok("disconnected, receive flushed".into())
    } else {
        Err(format!("{dto:?}"))
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let params = |i: usize| args.get(i).map_or(PARAMS, String::as_str);
    if args.first().is_some_and(|a| a == "serve") {
        return match serve(params(1)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("server: {e}");
                ExitCode::FAILURE
            }
        };
    }
    type Run = fn(&Side) -> Case<String>;
    let cases: [(&str, Run); 8] = [
        ("data", data),
        ("window", window),
        ("again", again),
        ("protection", protection),
        ("rejected", rejected),
        ("no_host", no_host),
        ("unreachable", unreachable),
        ("killed", killed),
    ];
    let mut failed = 0;
    for (name, run) in cases {
        let result = Server::start(params(0)).and_then(|_server| run(&Side::open(params(0))?));
        match result {
            Ok(text) => println!("ok   {name}: {text}"),
            Err(text) => {
                failed += 1;
                println!("FAIL {name}: {text}");
            }
        }
    }
    println!("{} of {} cases passed", cases.len() - failed, cases.len());
    ExitCode::from(failed as u8)
}
