//! Opens an adapter: its ports, its descriptors and its protocol engine.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use dat_arena::Mutex;
use dat_handshake::{Capabilities, guid};
use dat_os::quick_clock::QuickClock;
use softrxe_near::agreement::End;
use softrxe_port::port_share::{Policy, PortShareError};
use softrxe_port::slot::SLOT_BITS;
use softrxe_proto::{Config, Engine, SecretKey};

use super::connections::Connections;
use super::contention::SharedLock;
use super::descriptors::Descriptors;
use super::driver::roles::Wakers;
use super::driver::state::Driver;
use super::hub::{Hub, RunUpcall};
use super::near::Near;
use super::near_dial::NearDial;
use super::notices::Notices;
use super::peers::Peers;
use super::pending::Pending;
use super::ports::Ports;
use super::state::State;
use crate::address::local_address::LocalAddress;
use crate::link::capture::Capture;
use crate::memory::regions::Regions;
use crate::secrets::Secrets;
use crate::settings::Settings;

/// Bytes of a receive buffer that a datagram of 4 KiB occupies at most, and bounds of the datagrams in flight.
const DATAGRAM_ROOM: usize = 8192;
const WINDOW: std::ops::RangeInclusive<usize> = 16..=512;
/// Repetitions of a refused REQ, a third of a second in all. Programs that synchronise over TCP (dtest, dtestx) sometimes connect
/// before their peer listens: no other transport connects in a tenth of a millisecond.
const REFUSED_REPEATS: u8 = 5;

impl Hub {
    /// Opens the ports of `local_address`, and a protocol engine for them.
    #[inline(never)]
    pub(crate) fn open(
        settings: Settings,
        local_address: LocalAddress,
        capture: Option<Capture>,
        secrets: Secrets,
        core: Box<dyn RunUpcall>,
    ) -> Result<Arc<Self>, PortShareError> {
        let ip = local_address.address;
        let policy = Policy {
            holder: settings.holder,
        };
        let (mut ports, liveness) = Ports::open(
            ip,
            local_address.mtu,
            policy,
            secrets.slot,
            capture,
            settings.ring,
        )?;
        let descriptors = Descriptors::new(Arc::clone(ports.socket()))?;
        if let Some(descriptor) = liveness.descriptor() {
            descriptors.liveness().add(descriptor)?;
        }
        if let Some(listener) = liveness.listener() {
            descriptors.add_listener(listener);
        }
        ports.watch(&descriptors)?;
        let own = End {
            ip,
            slot: ports.slot(),
            guid: guid::own(secrets.guid),
        };
        let near_dial = NearDial::open(own, settings.near, settings.lanes == 1)?;
        descriptors.liveness().add(near_dial.answers())?;
        if let Some(door) = near_dial.door() {
            descriptors.liveness().add(door.as_raw_fd())?;
            descriptors.add_listener(door.listener());
        }
        let port = ports.socket().local().port();
        let near = Near::new(settings.near_pull, port)?;
        descriptors.add(near.descriptor())?;
        let mut config = config(ip, &mut ports, &settings, secrets.engine, secrets.guid)?;
        if near_dial.door().is_some() {
            config.offer = config.offer.with(Capabilities::NEAR);
        }
        let wakers = Wakers::new()?;
        let peers = Peers::new(ip, ports.slot(), liveness);
        let engine = engine(config, Regions::new(&secrets.keys));
        let clock = QuickClock::new();
        let state = state(engine, ports, near, near_dial, peers, clock);
        Ok(Self::assemble(
            settings,
            local_address,
            core,
            state,
            descriptors,
            wakers,
        ))
    }

    #[inline(never)]
    fn assemble(
        settings: Settings,
        local_address: LocalAddress,
        core: Box<dyn RunUpcall>,
        state: Box<State>,
        descriptors: Descriptors,
        wakers: Wakers,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            local_address,
            core,
            upcall_lock: Mutex::new(()),
            guid: state.engine.guid(),
            state: SharedLock::new(*state),
            descriptors,
            wakers,
            give_way: AtomicU32::new(0),
            helper_runs: AtomicU64::new(0),
            helper_thread: AtomicUsize::new(0),
            process: std::process::id(),
            says_end: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        })
    }
}

// A thread with a small stack may open an adapter. Engine, state and hub have 4 to 6 KiB, and one contains the other: a frame that made all
// of them would have 27 KiB. So each is made in a frame of its own, that has ended when the next one begins.

#[inline(never)]
fn engine(config: Config, memory: Regions) -> Box<Engine<Regions>> {
    Box::new(Engine::new(config, memory))
}

#[inline(never)]
fn state(
    engine: Box<Engine<Regions>>,
    ports: Ports,
    near: Near,
    near_dial: NearDial,
    peers: Peers,
    clock: QuickClock,
) -> Box<State> {
    Box::new(State {
        engine: *engine,
        peers,
        ports,
        near,
        near_dial,
        connections: Connections::default(),
        notices: Notices::default(),
        pending: Pending::default(),
        driver: Driver::new(),
        clock,
    })
}

/// Returns the configuration of the protocol engine.
fn config(
    ip: IpAddr,
    ports: &mut Ports,
    settings: &Settings,
    secret: SecretKey,
    guid: u64,
) -> Result<Config, PortShareError> {
    let link = ports.properties();
    let mut config = Config::new(ip, secret, guid);
    config.offer = config.offer.with(Capabilities::REQUEST_ACKNOWLEDGES);
    config.port = ports.socket().local().port();
    // The size of the peer's buffer matters. A peer with this engine has one of the same size; for others the window shrinks as packets get
    // lost.
    let room = ports.socket().receive_buffer()? / DATAGRAM_ROOM;
    config.max_window = room.clamp(*WINDOW.start(), *WINDOW.end()) as u32;
    config.qpn_prefix = ports.slot().into();
    config.qpn_prefix_bits = SLOT_BITS as u8;
    config.mtu = settings.mtu.min(link.mtu);
    config.verify_icrc = link.checksummed;
    config.rnr_code = settings.rnr_timer;
    config.refused_repeats = REFUSED_REPEATS;
    config.keepalive = settings.keepalive;
    if let Some(timeout) = settings.ack_timeout {
        config.ack_timeout = timeout;
    }
    Ok(config)
}
