//! Parts of the tests of the verbs provider's connection managers on real rdma_rxe (`lab_socket_*.rs`).

use std::ffi::OsStr;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dat::{ConnRequest, ConnectionEvent, Ep, Evd, Event, Ia, Listener, Pz, Streams};

/// Time in which everything happens that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Address of the lab's device.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
/// Variable with the role of a process; unset in the process that nextest started.
pub const ROLE: &str = "DAT_TEST_ROLE";
/// Offset of TCP ports from the qualifier.
pub const PORT_OFFSET: u64 = 1000;

/// Returns the command that runs this test in a process with the dat.conf.
fn again(name: &str, role: &str, conf: &OsStr) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env("DAT_OVERRIDE", conf)
        .env(ROLE, role);
    command
}

/// Runs `body`, in a process of its own that this one waits for, where the IA called `ia` of the ibverbs provider has the parameters
/// `params`.
///
/// # Panics
/// If the process fails.
pub fn with_params(name: &str, params: &str, body: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return body();
    }
    let exe = std::env::current_exe().expect("this test has a path");
    let dist = exe.ancestors().nth(3).expect("target").join("dist");
    let library = dist.join("lib/libdat-provider-ibverbs.so.2");
    assert!(library.exists(), "run make dist first");
    let dir = tempfile::tempdir().expect("a folder");
    let conf = dir.path().join("dat.conf");
    let line = format!(
        "ia u2.0 threadsafe default {} dat.2.0 \"{params}\" \"\"\n",
        library.display()
    );
    std::fs::write(&conf, line).expect("written");
    let status = again(name, "main", conf.as_os_str())
        .status()
        .expect("the test runs");
    assert!(status.success());
}

/// An endpoint with its EVDs, not connected yet.
#[derive(Debug)]
pub struct Side {
    /// The endpoint.
    pub ep: Ep,
    /// EVD of its completions.
    pub done: Evd,
    /// EVD of its connection, and of requests.
    pub connections: Evd,
    /// Its protection zone.
    pub pz: Pz,
    /// Its IA.
    pub ia: Ia,
}

/// Opens the IA and makes the objects.
///
/// # Panics
/// If a call fails.
#[must_use]
pub fn side() -> Side {
    let ia = Ia::open("ia").expect("the IA opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
    let streams = Streams::CR | Streams::CONNECTION;
    let connections = ia.create_evd(16, streams).expect("an EVD");
    let ep = endpoint(&ia, &pz, &done, &connections);
    Side {
        ep,
        done,
        connections,
        pz,
        ia,
    }
}

fn endpoint(ia: &Ia, pz: &Pz, done: &Evd, connections: &Evd) -> Ep {
    let builder = ia.endpoint(pz).recv_evd(done).request_evd(done);
    builder.connect_evd(connections).create().expect("an EP")
}

impl Side {
    /// Replaces the endpoint by one that has not connected yet.
    pub fn renew(&mut self) {
        self.ep = endpoint(&self.ia, &self.pz, &self.done, &self.connections);
    }

    /// Listens on a qualifier that the provider chooses.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn listen(&self) -> Listener {
        let listener = self.ia.listen(None, &self.connections);
        listener.expect("listens")
    }

    /// Starts to connect, without a time limit.
    ///
    /// # Panics
    /// If the call fails.
    pub fn connect(&self, conn_qual: u64, private_data: &[u8]) {
        let connect = self.ep.connect(HERE, conn_qual).private_data(private_data);
        connect.start().expect("starts");
    }

    /// Waits for a request.
    ///
    /// # Panics
    /// If none comes.
    #[must_use]
    pub fn request(&self) -> ConnRequest {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Request(request)) => request,
            other => panic!("no request: {other:?}"),
        }
    }

    /// Waits until the connection is established, with `words` as the private data.
    ///
    /// # Panics
    /// If it is not.
    pub fn established(&self, words: &[u8]) {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Established { ep, private_data }) => {
                assert_eq!(ep, self.ep.id());
                assert_eq!(private_data, words);
            }
            other => panic!("not established: {other:?}"),
        }
    }

    /// Waits for the end of the connection or of the attempt.
    ///
    /// # Panics
    /// If it ends otherwise.
    #[track_caller]
    pub fn ended(&self, wanted: ConnectionEvent) {
        assert_eq!(self.end(), wanted);
    }

    /// Returns how the endpoint's connection ends.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    #[must_use]
    pub fn end(&self) -> ConnectionEvent {
        match self.connections.wait(PATIENCE) {
            Ok(Event::Ended { ep, how }) if ep == self.ep.id() => how,
            other => panic!("no end: {other:?}"),
        }
    }

    /// Checks that there is no event.
    ///
    /// # Panics
    /// If there is one.
    pub fn nothing_more(&self) {
        let event = self.connections.poll().expect("an EVD");
        assert!(event.is_none(), "{event:?}");
    }
}

/// Starts a process of this test with the role `role`, and returns the qualifier that it says it "listens at".
///
/// # Panics
/// If it ends without that.
#[must_use]
pub fn victim(name: &str, role: &str) -> (Child, u64) {
    let conf = std::env::var_os("DAT_OVERRIDE").expect("a dat.conf");
    let mut child = again(name, role, &conf)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut out = child.stdout.take().expect("its stdout");
    let mut said = Vec::new();
    let qual = loop {
        let mut byte = [0];
        assert_eq!(out.read(&mut byte).expect("reads"), 1, "{said:?}");
        said.push(byte[0]);
        let text = String::from_utf8_lossy(&said);
        if let Some((_, qual)) = text.split_once("listens at ")
            && let Some(qual) = qual.strip_suffix('\n')
        {
            break qual.parse().expect("a number");
        }
    };
    // The rest is discarded, but must be read.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    (child, qual)
}
