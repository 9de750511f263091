//! What `dat perf` and `dat ping` say to `dat serve`: one request and one answer, in the private data of the connection.
//!
//! Magic and version lead every message, and stay there in all versions. So each side reports another version, and a program that
//! is something else, before anything is transferred.

use dat::Remote;

/// First bytes of each message.
const MAGIC: [u8; 4] = *b"DATm";
/// Version of the exchange and of what follows it.
pub(crate) const VERSION: u16 = 1;
/// Connection qualifier of `dat serve`.
pub(crate) const PORT: u64 = 18_516;
/// Length of a request in bytes.
const REQUEST: usize = 40;
/// Length of an answer in bytes.
const ANSWER: usize = 24;

/// Longest message in bytes.
pub(crate) const MAX_SIZE: usize = 64 << 20;
/// Largest number of outstanding operations of a connection.
pub(crate) const MAX_DEPTH: u32 = 4096;
/// Bytes before the buffers of a server's memory: counters, and the word for atomics.
pub(crate) const HEAD: usize = 4096;
/// Offset of the number of messages that a server has checked.
pub(crate) const CHECKED: usize = 0;
/// Offset of the number of the first message that was wrong, counted from 1.
pub(crate) const FIRST_WRONG: usize = 8;
/// Offset of the word for atomics.
pub(crate) const WORD: usize = 64;
/// Offset of bytes that receive messages without data.
pub(crate) const SCRATCH: usize = 128;
/// Length of these bytes.
pub(crate) const SCRATCH_BYTES: usize = 64;
/// Receives that an echoing side keeps posted: the next message arrives before the completion of the last answer is seen.
pub(crate) const ECHO_BUFFERS: usize = 4;

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Send each message back.
    Echo,
    /// Receive messages.
    Sink,
    /// Lend memory for RDMA Write, Read and atomics.
    Memory,
    /// Write the buffer back to the peer when its last byte changes.
    EchoWrite,
    /// Write the buffer back, with immediate data, after each write with immediate data.
    EchoImmediate,
}

impl Task {
    const ALL: [Self; 5] = [
        Self::Echo,
        Self::Sink,
        Self::Memory,
        Self::EchoWrite,
        Self::EchoImmediate,
    ];

    /// Returns the name for what a server prints.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Sink => "receive",
            Self::Memory => "memory",
            Self::EchoWrite => "write echo",
            Self::EchoImmediate => "immediate echo",
        }
    }
}

/// The request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) task: Task,
    /// The server sleeps for events instead of polling.
    pub(crate) wait: bool,
    /// The server checks the bytes of messages.
    pub(crate) validate: bool,
    /// Length of a message in bytes.
    pub(crate) size: u64,
    /// Outstanding operations.
    pub(crate) depth: u32,
    /// Memory of the client that the server writes to.
    pub(crate) memory: Remote,
}

/// Why a server refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server has another version.
    Version,
    /// Sizes or depth are out of range.
    Limits,
    /// Memory or another resource of the server does not suffice.
    Resources,
    /// The server ends.
    Ending,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server's memory.
    Accepted(Remote),
    Refused(Refusal),
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The other program is none of these commands.
    Foreign,
    /// The other side has this version.
    Version(u16),
    /// A value has no meaning.
    Malformed,
}

fn head(into: &mut [u8]) {
    into[..4].copy_from_slice(&MAGIC);
    into[4..6].copy_from_slice(&VERSION.to_be_bytes());
}

/// Returns the message after magic and version were checked.
fn body<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Unreadable> {
    let version = match bytes {
        [a, b, c, d, high, low, ..] if [*a, *b, *c, *d] == MAGIC => {
            u16::from_be_bytes([*high, *low])
        }
        _ => return Err(Unreadable::Foreign),
    };
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    // Some transports pad private data.
    let whole = bytes.get(..N).and_then(|part| part.try_into().ok());
    whole.ok_or(Unreadable::Malformed)
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

impl Request {
    /// Encodes the request.
    pub(crate) fn to_bytes(self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        head(&mut bytes);
        bytes[6] = self.task as u8;
        bytes[7] = u8::from(self.wait) | u8::from(self.validate) << 1;
        bytes[8..16].copy_from_slice(&self.size.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.depth.to_be_bytes());
        bytes[24..40].copy_from_slice(&self.memory.to_bytes());
        bytes
    }

    /// Decodes a request.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        let bytes = body::<REQUEST>(bytes)?;
        let task = Task::ALL.get(usize::from(bytes[6]));
        Ok(Self {
            task: *task.ok_or(Unreadable::Malformed)?,
            wait: bytes[7] & 1 != 0,
            validate: bytes[7] & 2 != 0,
            size: u64::from_be_bytes(part(&bytes, 8)),
            depth: u32::from_be_bytes(part(&bytes, 16)),
            memory: Remote::from_bytes(part(&bytes, 24)),
        })
    }

    /// Returns whether a server can do this within its limits.
    pub(crate) fn is_within_limits(&self) -> bool {
        (1..=MAX_SIZE as u64).contains(&self.size) && (1..=MAX_DEPTH).contains(&self.depth)
    }
}

impl Answer {
    /// Encodes the answer.
    pub(crate) fn to_bytes(self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        head(&mut bytes);
        match self {
            Self::Accepted(memory) => bytes[8..24].copy_from_slice(&memory.to_bytes()),
            Self::Refused(why) => bytes[6] = 1 + why as u8,
        }
        bytes
    }

    /// Decodes an answer.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        let bytes = body::<ANSWER>(bytes)?;
        Ok(match bytes[6] {
            0 => Self::Accepted(Remote::from_bytes(part(&bytes, 8))),
            1 => Self::Refused(Refusal::Version),
            2 => Self::Refused(Refusal::Limits),
            3 => Self::Refused(Refusal::Resources),
            4 => Self::Refused(Refusal::Ending),
            _ => return Err(Unreadable::Malformed),
        })
    }
}

/// Returns the number of buffers for `depth` outstanding messages of `size` bytes. Messages that are checked have a buffer each; the
/// others share buffers that stay in the processor's cache.
pub(crate) fn buffers(size: usize, depth: u32, validate: bool) -> usize {
    const CACHED: usize = 64 << 10;
    if validate {
        return depth as usize;
    }
    (CACHED / size.max(1)).clamp(1, depth as usize)
}

/// Returns the number of outstanding messages for a requested `depth`: checked messages use at most 64 MiB.
pub(crate) fn effective_depth(size: usize, depth: u32, validate: bool) -> u32 {
    let most = u32::try_from(MAX_SIZE / size.max(1)).unwrap_or(u32::MAX);
    if validate {
        depth.min(most.max(1))
    } else {
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTED: Request = Request {
        task: Task::EchoWrite,
        wait: true,
        validate: true,
        size: 0x1_0000_0003,
        depth: 77,
        memory: Remote {
            address: 0x1234_5678_9abc_def0,
            length: 9,
            key: 0xdead_beef,
        },
    };

    #[test]
    fn messages_are_read_as_they_were_written() {
        for task in Task::ALL {
            let request = Request { task, ..REQUESTED };
            let mut padded = request.to_bytes().to_vec();
            padded.extend([0; 16]);
            assert_eq!(Request::from_bytes(&padded), Ok(request));
        }
        let mut answers = vec![Answer::Accepted(REQUESTED.memory)];
        for why in [
            Refusal::Version,
            Refusal::Limits,
            Refusal::Resources,
            Refusal::Ending,
        ] {
            answers.push(Answer::Refused(why));
        }
        for answer in answers {
            assert_eq!(Answer::from_bytes(&answer.to_bytes()), Ok(answer));
        }
        assert!(REQUESTED.to_bytes().len() <= 56, "rdma_cm carries no more");
    }

    #[test]
    fn other_versions_and_other_programs_are_told_apart() {
        let mut bytes = REQUESTED.to_bytes();
        bytes[5] = 9;
        assert_eq!(Request::from_bytes(&bytes), Err(Unreadable::Version(9)));
        // A later version may be shorter.
        assert_eq!(Answer::from_bytes(&bytes[..6]), Err(Unreadable::Version(9)));
        for foreign in [&b""[..], b"DATm\0", b"welcome", &[0; 56]] {
            assert_eq!(Request::from_bytes(foreign), Err(Unreadable::Foreign));
        }
        let mut bytes = REQUESTED.to_bytes();
        assert_eq!(
            Request::from_bytes(&bytes[..39]),
            Err(Unreadable::Malformed)
        );
        bytes[6] = 5;
        assert_eq!(Request::from_bytes(&bytes), Err(Unreadable::Malformed));
    }

    #[test]
    fn limits_bound_the_memory_of_a_server() {
        let of = |size, depth| Request {
            size,
            depth,
            ..REQUESTED
        };
        assert!(of(1, 1).is_within_limits());
        assert!(of(MAX_SIZE as u64, MAX_DEPTH).is_within_limits());
        assert!(!of(0, 1).is_within_limits());
        assert!(!of(1, 0).is_within_limits());
        assert!(!of(MAX_SIZE as u64 + 1, 1).is_within_limits());
        assert!(!of(1, MAX_DEPTH + 1).is_within_limits());
        for size in [1, 64, 4096, 1 << 20, MAX_SIZE] {
            for validate in [false, true] {
                let depth = effective_depth(size, MAX_DEPTH, validate);
                let bytes = buffers(size, depth, validate) * size;
                assert!(depth > 0 && (size..=MAX_SIZE).contains(&bytes), "{size}");
            }
        }
    }
}
