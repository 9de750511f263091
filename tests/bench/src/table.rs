//! Figures, goals, and the table of both.

use std::collections::BTreeMap;

use crate::Result;

/// Sizes of the bandwidth figures in bytes.
pub(crate) const SIZES: [usize; 3] = [4096, 65_536, 1 << 20];
/// Outstanding requests of the bandwidth figures.
pub(crate) const OUTSTANDING: [usize; 3] = [64, 8, 2];
/// Numbers of endpoints of the memory figures.
pub(crate) const ENDPOINTS: [usize; 3] = [1, 1000, 10_000];

/// A measured figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Figure {
    SendPolled,
    DataOnly,
    SendBlocking,
    /// A message to an end that sleeps, one way.
    SendAsleep,
    /// An echo of futures in tokio.
    Tokio,
    WritePolled,
    /// Small RDMA writes a second.
    Messages,
    /// Small RDMA writes a second between processes that wait.
    WritesWaited,
    /// Small messages a second, each with a receive.
    Stream,
    Write(usize),
    Read(usize),
    /// One write at a time.
    Alone(usize),
    Crowd,
    Connections,
    Memory(usize),
    MemoryConnected(usize),
}

impl Figure {
    pub(crate) fn name(self) -> String {
        let size = |at: usize| match SIZES[at] {
            n if n >= 1 << 20 => format!("{} MiB", n >> 20),
            n => format!("{} KiB", n >> 10),
        };
        match self {
            Self::SendPolled => "send 64 B, polled, half round trip, us".into(),
            Self::DataOnly => "the same without acknowledgements, us".into(),
            Self::SendBlocking => "send 64 B, blocking, half round trip, us".into(),
            Self::SendAsleep => "64 B to an end that sleeps, one way, us".into(),
            Self::Tokio => "echo of 64 B in tokio, half round trip, us".into(),
            Self::WritePolled => "RDMA write 64 B, polled, half round trip, us".into(),
            Self::Messages => "RDMA writes of 64 B, million/s".into(),
            Self::WritesWaited => "the same, both processes wait, million/s".into(),
            Self::Stream => "messages of 64 B, million/s".into(),
            Self::Crowd => {
                "RDMA write to a target that spins, 4 processes on 2 processors, mean, us".into()
            }
            Self::Write(at) => format!("RDMA write {}, GB/s", size(at)),
            Self::Read(at) => format!("RDMA read {}, GB/s", size(at)),
            Self::Alone(at) => format!("{}, one at a time, us", size(at)),
            Self::Connections => "connections/s, one after the other".into(),
            Self::Memory(at) => format!("memory of an endpoint, {} of them, KiB", ENDPOINTS[at]),
            Self::MemoryConnected(at) => {
                format!("memory of a connected one, {} of them, KiB", ENDPOINTS[at])
            }
        }
    }

    const fn less_is_better(self) -> bool {
        matches!(
            self,
            Self::SendPolled
                | Self::DataOnly
                | Self::SendBlocking
                | Self::SendAsleep
                | Self::Tokio
                | Self::WritePolled
                | Self::Crowd
                | Self::Alone(_)
                | Self::Memory(_)
                | Self::MemoryConnected(_)
        )
    }

    /// Returns true if the figure varies between rounds.
    pub(crate) const fn varies(self) -> bool {
        !matches!(self, Self::Memory(_) | Self::MemoryConnected(_))
    }
}

/// A contestant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Contestant {
    Engine,
    Raw,
    Ucx,
    FabricTcp,
    FabricUdp,
    Iperf,
    /// Through the C function table.
    NearC,
    /// Through the Rust API.
    Near,
    Ring,
    Futex,
    /// tokio's TcpStream over the loopback.
    Tcp,
    UcxCma,
    UcxPosix,
    FabricShm,
}

/// Contestants over the network's loopback.
const NETWORK: &[Contestant] = &[
    Contestant::Engine,
    Contestant::Raw,
    Contestant::Ucx,
    Contestant::FabricTcp,
    Contestant::FabricUdp,
    Contestant::Iperf,
];

/// Contestants through memory of the host.
const SAME_HOST: &[Contestant] = &[
    Contestant::NearC,
    Contestant::Near,
    Contestant::Ring,
    Contestant::Futex,
    Contestant::Tcp,
    Contestant::UcxCma,
    Contestant::UcxPosix,
    Contestant::FabricShm,
];

impl Contestant {
    /// Returns the title of the contestant's table.
    pub(crate) fn part(self) -> &'static str {
        if SAME_HOST.contains(&self) {
            "same host"
        } else {
            "network"
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Engine => "user engine",
            Self::Raw => "raw UDP",
            Self::Ucx => "UCX tcp",
            Self::FabricTcp => "libfabric tcp",
            Self::FabricUdp => "libfabric udp",
            Self::Iperf => "iperf3 TCP",
            Self::NearC => "user engine, near=auto, C table",
            Self::Near => "user engine, near=auto, Rust API",
            Self::Ring => "bare ring",
            Self::Futex => "bare futex",
            Self::Tcp => "TcpStream",
            Self::UcxCma => "UCX posix,cma",
            Self::UcxPosix => "UCX posix",
            Self::FabricShm => "libfabric shm",
        }
    }
}

/// The value that a goal compares with.
#[derive(Clone, Copy)]
enum Against {
    /// The same figure of another contestant.
    Other(Contestant),
    /// Another figure of the engine.
    Own(Figure),
    /// Another figure of another contestant.
    Figure(Figure, Contestant),
    /// A number.
    Fixed,
}

/// Goals of the user engine with `near=auto` through the C table, in the same way.
const SAME_HOST_GOALS: [(Figure, Against, f64); 19] = [
    (Figure::SendPolled, Against::Other(Contestant::UcxCma), 1.1),
    (Figure::SendPolled, Against::Fixed, 0.65),
    (
        Figure::WritePolled,
        Against::Figure(Figure::SendPolled, Contestant::UcxCma),
        1.1,
    ),
    (Figure::SendBlocking, Against::Own(Figure::SendPolled), 1.5),
    (Figure::SendAsleep, Against::Other(Contestant::Futex), 1.2),
    (Figure::Messages, Against::Fixed, 10.0),
    (Figure::Stream, Against::Other(Contestant::UcxCma), 1.5),
    (Figure::Write(0), Against::Fixed, 7.0),
    (Figure::Write(1), Against::Other(Contestant::UcxCma), 1.0),
    (Figure::Write(1), Against::Other(Contestant::UcxPosix), 1.2),
    (Figure::Write(1), Against::Other(Contestant::Ring), 0.85),
    (Figure::Write(2), Against::Other(Contestant::UcxCma), 1.0),
    (Figure::Write(2), Against::Other(Contestant::UcxPosix), 1.2),
    (Figure::Write(2), Against::Other(Contestant::Ring), 0.85),
    (
        Figure::Read(1),
        Against::Figure(Figure::Write(1), Contestant::UcxCma),
        1.0,
    ),
    (
        Figure::Read(2),
        Against::Figure(Figure::Write(2), Contestant::UcxCma),
        1.0,
    ),
    (
        Figure::Read(2),
        Against::Figure(Figure::Write(2), Contestant::Ring),
        0.85,
    ),
    (Figure::Alone(1), Against::Other(Contestant::UcxCma), 1.2),
    (Figure::Alone(2), Against::Other(Contestant::UcxCma), 1.2),
];

/// Goals of the Rust API, with `near=auto`.
const RUST_GOALS: [(Figure, Against, f64); 4] = [
    (Figure::SendPolled, Against::Other(Contestant::NearC), 1.03),
    (
        Figure::SendBlocking,
        Against::Other(Contestant::NearC),
        1.03,
    ),
    (
        Figure::Tokio,
        Against::Figure(Figure::SendBlocking, Contestant::NearC),
        1.5,
    ),
    (Figure::Tokio, Against::Other(Contestant::Tcp), 1.0),
];

/// Goals of the user engine: its figure is at most (less is better) or at least `factor` times the other value.
const GOALS: [(Figure, Against, f64); 13] = [
    (Figure::SendPolled, Against::Other(Contestant::Raw), 1.25),
    (Figure::SendPolled, Against::Other(Contestant::Ucx), 0.85),
    (
        Figure::SendPolled,
        Against::Other(Contestant::FabricTcp),
        0.75,
    ),
    (Figure::SendBlocking, Against::Own(Figure::SendPolled), 1.5),
    (Figure::Messages, Against::Fixed, 3.0),
    (Figure::Messages, Against::Other(Contestant::Ucx), 5.0),
    (Figure::Write(1), Against::Other(Contestant::Ucx), 2.0),
    (Figure::Write(1), Against::Other(Contestant::Raw), 0.8),
    (Figure::Write(2), Against::Other(Contestant::Ucx), 2.0),
    (Figure::Write(2), Against::Other(Contestant::Raw), 0.8),
    (Figure::Read(0), Against::Other(Contestant::Ucx), 1.0),
    (Figure::Read(1), Against::Other(Contestant::Ucx), 1.0),
    (Figure::Read(2), Against::Other(Contestant::Ucx), 1.0),
];

/// All measured figures.
#[derive(Default)]
pub(crate) struct Table {
    figures: BTreeMap<(Figure, Contestant), std::result::Result<f64, String>>,
}

impl Table {
    /// Records a figure if it is the best so far.
    pub(crate) fn note(&mut self, figure: Figure, contestant: Contestant, value: Result<f64>) {
        let value = value.map_err(|error| error.to_string());
        let slot = self.figures.entry((figure, contestant));
        let old = slot.or_insert_with(|| value.clone());
        match (&value, &*old) {
            (Ok(new), Ok(best)) if (new < best) == figure.less_is_better() => *old = value,
            (Ok(_), Err(_)) => *old = value,
            _ => {}
        }
    }

    /// Returns true if the contestant is known not to have the figure.
    pub(crate) fn absent(&self, figure: Figure, contestant: Contestant) -> bool {
        matches!(self.figures.get(&(figure, contestant)), Some(Err(error)) if error.contains("not installed"))
    }

    fn get(&self, figure: Figure, contestant: Contestant) -> Option<f64> {
        self.figures
            .get(&(figure, contestant))?
            .as_ref()
            .ok()
            .copied()
    }

    /// Prints the tables in Markdown, the goals, and the figures that could not be measured.
    pub(crate) fn print(&self) {
        if self.print_part(NETWORK) {
            self.print_goals(Contestant::Engine, &GOALS);
        }
        if self.print_part(SAME_HOST) {
            self.print_goals(Contestant::NearC, &SAME_HOST_GOALS);
            self.print_goals(Contestant::Near, &RUST_GOALS);
        }
        for ((figure, contestant), value) in &self.figures {
            if let Err(error) = value {
                println!("{}, {}: {error}", figure.name(), contestant.name());
            }
        }
    }

    /// Prints the figures of `contestants`. Returns whether there are some.
    fn print_part(&self, contestants: &[Contestant]) -> bool {
        let rows: std::collections::BTreeSet<Figure> = self
            .figures
            .keys()
            .filter(|(_, contestant)| contestants.contains(contestant))
            .map(|(figure, _)| *figure)
            .collect();
        if rows.is_empty() {
            return false;
        }
        let columns: Vec<Contestant> = contestants
            .iter()
            .copied()
            .filter(|contestant| self.figures.keys().any(|(_, w)| w == contestant))
            .collect();
        println!(
            "| {} |{}",
            contestants[0].part(),
            columns
                .iter()
                .map(|w| format!(" {} |", w.name()))
                .collect::<String>()
        );
        println!("|---|{}", "---:|".repeat(columns.len()));
        for row in &rows {
            print!("| {} |", row.name());
            for contestant in &columns {
                match self.figures.get(&(*row, *contestant)) {
                    Some(Ok(value)) => print!(" {} |", digits(*value)),
                    Some(Err(_)) => print!(" none |"),
                    None => print!(" |"),
                }
            }
            println!();
        }
        true
    }

    /// Prints the goals of a contestant.
    fn print_goals(&self, engine: Contestant, goals: &[(Figure, Against, f64)]) {
        let mut is_first = true;
        for (figure, against, goal) in goals.iter().copied() {
            let other = match against {
                Against::Other(contestant) => self.get(figure, contestant),
                Against::Own(other) => self.get(other, engine),
                Against::Figure(other, contestant) => self.get(other, contestant),
                Against::Fixed => Some(1.0),
            };
            let (Some(ours), Some(other)) = (self.get(figure, engine), other) else {
                continue;
            };
            if std::mem::take(&mut is_first) {
                println!(
                    "\n| goal of the {} | ratio | goal | |\n|---|---:|---:|---|",
                    engine.name()
                );
            }
            let ratio = ours / other;
            let (sense, met) = if figure.less_is_better() {
                ("at most", ratio <= goal)
            } else {
                ("at least", ratio >= goal)
            };
            let than = match against {
                Against::Other(contestant) => format!(" / {}", contestant.name()),
                Against::Own(_) => " / polled".into(),
                Against::Figure(other, contestant) => {
                    format!(" / {}, {}", contestant.name(), other.name())
                }
                Against::Fixed => String::new(),
            };
            let verdict = if met { "met" } else { "**missed**" };
            println!(
                "| {}{than} | {ratio:.2} | {sense} {goal} | {verdict} |",
                figure.name()
            );
        }
        println!();
    }
}

/// Formats a value with three significant digits.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_figure_stays_and_an_error_gives_way() {
        let mut table = Table::default();
        let (latency, rate) = (Figure::SendPolled, Figure::Messages);
        table.note(latency, Contestant::Raw, Err("broken".into()));
        for value in [3.0, 2.0, 4.0] {
            table.note(latency, Contestant::Raw, Ok(value));
            table.note(rate, Contestant::Raw, Ok(value));
        }
        table.note(rate, Contestant::Raw, Err("broken".into()));
        assert_eq!(table.get(latency, Contestant::Raw), Some(2.0));
        assert_eq!(table.get(rate, Contestant::Raw), Some(4.0));
    }
}
