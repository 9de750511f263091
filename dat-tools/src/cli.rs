//! The command line: what clap parses, and what man pages and completions are made from.

mod filter;
mod measure;
mod report;
mod value;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use filter::{Fault, Trace};
pub(crate) use measure::{Measure, OpArgument, Perf, Ping, Serve};
pub(crate) use report::{Report, ReportPart};

/// List, configure, examine and try the interface adapters (IAs) of DAT programs.
#[derive(Debug, Parser)]
#[command(
    name = "dat",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = AFTER,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
Files:
  dat.conf(5) is what DAT_OVERRIDE names, else ../etc/dat.conf beside the command, else /etc/dat.conf; files in dat.conf.d beside it \
win over it.

Environment:
  DAT_OVERRIDE   files or folders to read instead, separated by colons
  DAT_LOG        off, error, warn, info, debug or trace: the libraries' messages on standard error

Exit status:
  0 if all is well (dat list: if an entry is usable), 1 if something is wrong, 2 for a wrong command line, 3 if dat conform could test \
nothing, 141 if the reader of the output goes away; dat fault and dat trace: the program's.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every entry of dat.conf: usable as far as that shows without opening it, or why not.
    #[command(after_help = LIST)]
    List(List),
    /// List the netdevs and verbs devices of this machine that can be IAs, with the line for each.
    Devices,
    /// Write a dat.conf for this machine.
    Init(Init),
    /// Open an IA and print its attributes.
    Info {
        /// Name of the IA in dat.conf.
        ia: String,
    },
    /// Open an IA and print its counters, and those of its device.
    #[command(after_help = COUNTERS)]
    Counters(Counters),
    /// Check dat.conf, or the files and folders that are named: syntax, libraries, parameters, dead entries.
    Check(Check),
    /// Convert a dat.conf to the other form, TOML or classic.
    Convert(Convert),
    /// Judge a provider: statements of the manual pages, each with a test.
    #[command(after_help = CONFORM)]
    Conform(Conform),
    /// Make the folder of a provider that works: a crate, or C with a Makefile.
    NewProvider(NewProvider),
    /// A test process of `dat conform`.
    #[command(hide = true)]
    ConformProcess {
        /// What to test.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Find out why an IA does not work; each finding comes with the command that mends it.
    Doctor {
        /// Name of the IA in dat.conf; without it, only what concerns all.
        ia: Option<String>,
    },
    /// Write one file of what doctor, info, conform and perf find out about an IA, to be sent with a report on an adapter.
    #[command(after_help = report::HELP)]
    Report(Report),
    /// Transfer data between two processes through an IA, and verify it.
    Demo(Demo),
    /// The second process of `dat demo`.
    #[command(hide = true)]
    DemoPeer {
        /// Name of the IA.
        ia: String,
    },
    /// Open an IA and end: a process that other commands start, since the log and a crash are its own.
    #[command(hide = true)]
    TryOpen {
        /// Name of the IA.
        ia: String,
    },
    /// Answer `dat ping` and `dat perf` of other processes and hosts, until interrupted.
    Serve(Serve),
    /// Send messages to `dat serve`, and print how long each takes there and back. Every byte is compared.
    Ping(Ping),
    /// Measure latency, bandwidth and message rate against `dat serve`.
    Perf(Perf),
    /// Run a program with an IA that fails, delays, drops and corrupts what a script says.
    #[command(after_help = FAULT)]
    Fault(Fault),
    /// Run a program with an IA whose calls are counted and timed, and print a table for each process.
    #[command(after_help = TRACE)]
    Trace(Trace),
    /// Hold UDP port 4791 for the user engine's processes of all users; run by root.
    ServePort {
        /// Folder that keeps what users registered over a restart.
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Addresses of this host; without any, all of them.
        addresses: Vec<IpAddr>,
    },
    /// Print the completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

const LIST: &str = "\
An entry is usable if its line and its parameters have no fault, its library is there, and this machine has the device. Only --open finds out \
what else is in the way, such as a netdev that is down or a missing module.

Exit status:
  0 if one entry is usable, also where others are not; 1 if none is. `dat check` ends with 1 for each fault.";

const FAULT: &str = "\
A rule is TARGET WHEN WHAT; # begins a comment.

  TARGET   a function, such as dat_ep_post_send (not dat_ia_open), or completion:OPERATION with send, rdma_write, rdma_read, rmr_bind, receive or any
  WHEN     nth=N, every=N, chance=P (0 to 1), or after=MILLISECONDS: the first one after that time
  WHAT     delay=MILLISECONDS, kill (SIGKILL), disconnect (the endpoint, abruptly),
           fail=ERROR (a call returns it and does nothing) or fail=STATUS (a completion has it),
           drop (a request is posted but does nothing; a completion is not delivered), corrupt[=BYTES] (what was received or read)

The same seed and the same order of calls give the same faults. design/filters.md of the documentation says what each means for RDMA.

The exit status is the program's; 128 and the signal's number if a signal ended it.

  echo 'completion:receive nth=3 corrupt' >faults; dat fault softrxe-lo --script faults -- PROGRAM";

const TRACE: &str = "\
The program needs no change: it runs with a dat.conf of its own, in which the name of the IA means a filter over the IA. A process reports when its \
last IA is closed, and when it ends by exit(3); a process that is killed does not.

  empty   calls that found nothing: DAT_QUEUE_EMPTY, DAT_TIMEOUT_EXPIRED
  bytes   of posts the sum of their local segments, of completions what was transferred
  us      microseconds; those of waits include the sleep

The exit status is the program's; 128 and the signal's number if a signal ended it.

  dat trace softrxe-lo -- dtest -P softrxe-lo -s";

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also open each entry that looks usable, and report the ones that do not open.
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Name of the IA in dat.conf; without it, the first one that opens.
    #[arg(value_name = "IA")]
    name: Option<String>,
    /// The same.
    #[arg(long, conflicts_with = "name")]
    ia: Option<String>,
}

impl Demo {
    /// Returns the name of the IA, which the other commands take as an argument.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref().or(self.ia.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// File to write; standard output if it is not given, or is `-`. The name decides the form: TOML if it ends in .toml.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Leave out the names that DAPL's dat.conf gives (ofa-v2-*, OpenIB-*).
    #[arg(long)]
    pub(crate) no_old_names: bool,
}

const COUNTERS: &str = "\
With --json, one object of names and values. With --watch and --json, one object on one line after each interval, also into a file or pipe: \
\"seconds\" is the interval, and \"changes\" has the counters' differences, with those that are 0.

  dat counters softrxe-lo --watch --json | jq -c --unbuffered '.changes | with_entries(select(.value > 0))'";

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Counters {
    /// Name of the IA in dat.conf.
    pub(crate) ia: String,
    /// Print the changes again and again, until the command is ended.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Seconds between two prints of --watch.
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = value::seconds(0.01), requires = "watch")]
    pub(crate) interval: Duration,
    /// Number of prints of --watch.
    #[arg(long, value_name = "NUMBER", value_parser = value::number(1..=u64::MAX), requires = "watch")]
    pub(crate) count: Option<u64>,
    /// Print the counters that are 0, too.
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Files to check, and folders such as dat.conf.d, of which the files are checked that programs read; `-` is standard input.
    pub(crate) files: Vec<PathBuf>,
    /// Standard input is in the TOML form.
    #[arg(long)]
    pub(crate) toml: bool,
    /// Count warnings as faults.
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// File to convert; `-` is standard input. Without it, the file that programs read.
    pub(crate) file: Option<PathBuf>,
    /// Form to convert to; by default the one that the file does not have.
    #[arg(long, value_enum)]
    pub(crate) to: Option<Form>,
    /// File to write; standard output if it is not given, or is `-`.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(short, long)]
    pub(crate) force: bool,
}

const CONFORM: &str = "\
Each group of statements is tested in a process of its own. A crash or a hang is the verdict on the statement that was being tested, and \
the statements after it are tested in a new process.

Results of a statement:
  holds     the provider does what the page says
  lacks     the provider reports DAT_NOT_IMPLEMENTED or DAT_MODEL_NOT_SUPPORTED
  broken    the provider does something else; the report says what
  crashed   the process ended during the test
  hung      the test made no progress within the time limit

Exit status:
  0 if every statement holds or is lacked, 1 if one is broken, crashed or hung or dat.conf has no such IA, 2 for a wrong command line, 3 if nothing could be tested: \
the provider does not load, or does not open the IA.";

#[derive(Debug, Args)]
pub(crate) struct Conform {
    /// A provider's shared object (with a slash, or named *.so or *.so.N), or the name of an IA in dat.conf.
    #[arg(value_name = "PROVIDER|IA", required_unless_present = "list")]
    pub(crate) subject: Option<String>,
    /// The ia_params for a shared object, such as "eth0 0"; for an IA, instead of the entry's.
    #[arg(long, value_name = "TEXT")]
    pub(crate) params: Option<String>,
    /// Version of uDAPL: 1.2, 2.0 or both. The default is an entry's version, and 2.0 for a shared object.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) api: Option<Versions>,
    /// Test only the statements of this page, such as dat_ep_connect; may be repeated.
    #[arg(long, value_name = "PAGE")]
    pub(crate) page: Vec<String>,
    /// Longest time without progress of a statement in seconds; statements about many connections report progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value::number(1..=86_400_u64))]
    pub(crate) timeout: u64,
    /// Print the statements with their pages, and test nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print a report in JUnit's XML.
    #[arg(long, conflicts_with = "json")]
    pub(crate) junit: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NewProvider {
    /// Name of the crate, of the new folder, and with a 0 behind it of the IA.
    pub(crate) name: String,
    /// Make it in C, over the table of dat_transport.h.
    #[arg(long)]
    pub(crate) c: bool,
    /// Folder of the provider kit; by default that of the installation that has this command.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) kit: Option<PathBuf>,
}

/// Versions of uDAPL to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Versions {
    /// uDAPL 1.2.
    #[value(name = "1.2")]
    V1_2,
    /// uDAPL 2.0.
    #[value(name = "2.0")]
    V2_0,
    /// One after the other.
    Both,
}

/// The forms of dat.conf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A line of eight fields for each IA.
    Classic,
    /// An `[[ia]]` table for each IA.
    Toml,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
