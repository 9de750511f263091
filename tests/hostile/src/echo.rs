//! An echo server and its client, over the Rust API.

use std::net::IpAddr;

use dat::{Access, Ep, Error, Evd, Event, Ia, Pz, Region, Streams};

use crate::{STEP_TIMEOUT, print_line, read_line};

/// Bytes of a message.
pub const BYTES: usize = 64;

/// One end of a connection, with one receive posted.
#[derive(Debug)]
pub struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    region: Region,
    _pz: Pz,
}

impl Side {
    /// Creates an endpoint that is not connected.
    ///
    /// # Errors
    /// As the calls of the library.
    pub fn new(ia: &Ia) -> Result<Self, Error> {
        let pz = ia.create_pz()?;
        let done = ia.create_evd(64, Streams::DTO)?;
        let connections = ia.create_evd(64, Streams::CONNECTION)?;
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let ep = builder.connect_evd(&connections).create()?;
        let region = pz.allocate(2 * BYTES, Access::ALL)?;
        ep.post_recv(&[region.slice(0..BYTES)], 1)?;
        Ok(Self {
            ep,
            done,
            connections,
            region,
            _pz: pz,
        })
    }

    /// Connects to `port` of `address` with `private` as private data. Returns the event that ends the attempt.
    ///
    /// # Errors
    /// As the calls of the library.
    pub fn connect(&self, address: IpAddr, port: u64, private: &[u8]) -> Result<Event, Error> {
        let connect = self.ep.connect(address, port).private_data(private);
        connect.timeout(STEP_TIMEOUT).start()?;
        self.connections.wait(STEP_TIMEOUT)
    }

    /// Sends `mark` and returns the answer.
    ///
    /// # Errors
    /// As the calls of the library.
    pub fn ping(&self, mark: u8) -> Result<Vec<u8>, Error> {
        self.region.write(BYTES, &[mark; BYTES]);
        let message = self.region.slice(BYTES..2 * BYTES);
        self.ep.post_send(&[message], 2)?;
        let mut answer = None;
        for _ in 0..2 {
            if self.done.wait_completion(STEP_TIMEOUT)?.cookie == 1 {
                answer = Some(self.region.to_vec(0..BYTES));
                self.ep.post_recv(&[self.region.slice(0..BYTES)], 1)?;
            }
        }
        Ok(answer.unwrap_or_default())
    }

    /// Returns the EVD for events of the connection.
    #[must_use]
    pub fn connections(&self) -> &Evd {
        &self.connections
    }

    /// Returns the endpoint.
    #[must_use]
    pub fn ep(&self) -> &Ep {
        &self.ep
    }

    /// Echoes each message until the connection ends.
    fn answer(&self) -> Result<(), Error> {
        // A message may arrive before the event that allows an answer.
        if !matches!(
            self.connections.wait(STEP_TIMEOUT)?,
            Event::Established { .. }
        ) {
            return Ok(());
        }
        loop {
            if self.done.wait_completion(20 * STEP_TIMEOUT)?.cookie == 1 {
                let message = self.region.to_vec(0..BYTES);
                self.region.write(BYTES, &message);
                self.ep.post_recv(&[self.region.slice(0..BYTES)], 1)?;
                let message = self.region.slice(BYTES..2 * BYTES);
                self.ep.post_send(&[message], 2)?;
            }
        }
    }
}

/// Serves `port` of the IA `user`: prints `ready`, then `request PRIVATE-DATA` for each connection, and echoes
/// messages. Prints `error` if the IA does not open or the port is taken.
pub fn serve(port: u64) {
    if let Err(error) = try_serve(port) {
        print_line(format_args!("error {error}"));
        while read_line().is_some() {}
    }
}

fn try_serve(port: u64) -> Result<(), Error> {
    let ia = Ia::open("user")?;
    let requests = ia.create_evd(256, Streams::CR)?;
    let _listener = ia.listen(Some(port), &requests)?;
    print_line("ready");
    loop {
        let Event::Request(request) = requests.wait(20 * STEP_TIMEOUT)? else {
            continue;
        };
        let side = Side::new(&ia)?;
        print_line(format_args!(
            "request {}",
            String::from_utf8_lossy(&request.private_data()).trim_end_matches('\0')
        ));
        if request.accept(&side.ep, &[]).is_ok() {
            std::thread::spawn(move || {
                if let Err(error) = side.answer() {
                    print_line(format_args!("connection over: {error}"));
                }
            });
        }
    }
}

/// Executes commands from standard input. `connect ADDRESS PORT WORD` connects with the word as private data and prints
/// `established`, or `error` and the reason. `ping N` sends N over the last connection and prints `pong N`, or `error`.
/// Prints `ready` when the IA `user` is open.
pub fn ask() {
    let ia = match Ia::open("user") {
        Ok(ia) => ia,
        Err(error) => {
            print_line(format_args!("error {error}"));
            while read_line().is_some() {}
            return;
        }
    };
    print_line("ready");
    let mut sides = Vec::new();
    while let Some(line) = read_line() {
        let words: Vec<&str> = line.split(' ').collect();
        match obey(&ia, &mut sides, &words) {
            Ok(said) => print_line(said),
            Err(error) => print_line(format_args!("error {error}")),
        }
    }
}

fn obey(ia: &Ia, sides: &mut Vec<Side>, words: &[&str]) -> Result<String, String> {
    let words_of = |error: Error| error.to_string();
    match words {
        ["connect", address, port, word] => {
            let address = address.parse().map_err(|_| "no address")?;
            let port = port.parse().map_err(|_| "no port")?;
            let side = Side::new(ia).map_err(words_of)?;
            match side
                .connect(address, port, word.as_bytes())
                .map_err(words_of)?
            {
                Event::Established { .. } => {
                    sides.push(side);
                    Ok("established".into())
                }
                other => Err(format!("{other:?}")),
            }
        }
        ["ping", mark] => {
            let mark: u8 = mark.parse().map_err(|_| "no number")?;
            let side = sides.last().ok_or("no connection")?;
            let answer = side.ping(mark).map_err(words_of)?;
            if answer == [mark; BYTES] {
                Ok(format!("pong {mark}"))
            } else {
                Err(format!("{answer:?} came back"))
            }
        }
        other => Err(format!("{other:?} is no order")),
    }
}
