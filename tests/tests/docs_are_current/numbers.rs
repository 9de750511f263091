//! Limits and times that pages state, compared with the constants. Tests of the code use a constant by its name, so they hold with
//! another value as well.

use crate::tree::Tree;

/// Page, what it says, and the file and the line that make it true.
const NUMBERS: [(&str, &str, &str, &str); 21] = [
    (
        "docs/security.md",
        "a freed key is not used again until 4,096 others were freed",
        "dat-provider-softrxe/engine/src/memory/keys.rs",
        "const QUARANTINE: usize = 4096;",
    ),
    (
        "docs/security.md",
        "| 34 s after the peer's last repetition, 103 s after an MRA;",
        "dat-provider-softrxe/proto/src/cm/connection.rs",
        "const MISSED_REPETITIONS: u32 = 8;",
    ),
    (
        "docs/security.md",
        "| 8,192, the oldest is forgotten first | 60 s |",
        "dat-provider-softrxe/proto/src/cm/answered.rs",
        "const MOST: usize = 8192;",
    ),
    (
        "docs/security.md",
        "| 8,192, the oldest is forgotten first | 60 s |",
        "dat-provider-softrxe/proto/src/cm/answered.rs",
        "const KEPT: Duration = Duration::from_secs(60);",
    ),
    (
        "docs/security.md",
        "An accepted request draws at most three times its bytes",
        "dat-provider-softrxe/proto/src/cm/connection.rs",
        "const AMPLIFICATION: u32 = 3;",
    ),
    (
        "docs/security.md",
        "a quarter of the descriptors, 4,096 at most;",
        "dat-provider-softrxe/port/src/liveness.rs",
        "const MAX_CONNECTIONS: usize = 4096;",
    ),
    (
        "docs/security.md",
        "to route a REJ | 256 |",
        "dat-provider-softrxe/port/src/route.rs",
        "const MAX_REMEMBERED: usize = 256;",
    ),
    (
        "docs/security.md",
        "| 1 MiB | with the answer, or after 1 s;",
        "dat-provider-softrxe/port/src/member.rs",
        "const MAX_BACKLOG: usize = 1 << 20;",
    ),
    (
        "docs/security.md",
        "| 64, each with a descriptor | after 2 s,",
        "dat-provider-softrxe/engine/src/adapter/near_dial.rs",
        "const MAX_CALLS: usize = 64;",
    ),
    (
        "docs/security.md",
        "| 64, each with a descriptor | after 2 s,",
        "dat-provider-softrxe/engine/src/adapter/near_dial.rs",
        "const ANSWER_WITHIN: Duration = Duration::from_secs(2);",
    ),
    (
        "docs/security.md",
        "| 1,024; all are forgotten then | 5 s;",
        "dat-provider-softrxe/engine/src/adapter/near_dial.rs",
        "const MAX_FAILED: usize = 1024;",
    ),
    (
        "docs/security.md",
        "its holder, for 60 s; 128 such ports for each address",
        "dat-provider-softrxe/port/src/port_keeper.rs",
        "const MAX_KEPT: usize = 128;",
    ),
    (
        "docs/security.md",
        "its holder, for 60 s; 128 such ports for each address",
        "dat-provider-softrxe/port/src/port_keeper.rs",
        "const KEPT_FOR: Duration = Duration::from_secs(60);",
    ),
    (
        "docs/security.md",
        "at most 128 in a batch, and pauses for 5 ms after each",
        "dat-provider-softrxe/port/src/listener.rs",
        "const BATCH: usize = 128;",
    ),
    (
        "docs/security.md",
        "at most 128 in a batch, and pauses for 5 ms after each",
        "dat-provider-softrxe/port/src/listener.rs",
        "const PAUSE: Duration = Duration::from_millis(5);",
    ),
    (
        "docs/security.md",
        "at most 512 members per user;",
        "dat-provider-softrxe/port/src/registry.rs",
        "members_per_user: 512,",
    ),
    (
        "docs/security.md",
        "| services | 16,384 per user |",
        "dat-provider-softrxe/port/src/registry.rs",
        "services_per_user: 16_384,",
    ),
    (
        "docs/security.md",
        "slots and services are kept for 10 s after a restart",
        "dat-provider-softrxe/port/src/serve/mod.rs",
        "const RESERVED_FOR: Duration = Duration::from_secs(10);",
    ),
    (
        "docs/user-engine.md",
        "Closing an IA waits at most 0.9 s,",
        "dat-provider-softrxe/engine/src/adapter/driver/closing.rs",
        "const CLOSING_TIME: Duration = Duration::from_millis(900);",
    ),
    (
        "docs/user-engine.md",
        "into a ring of 256 slots",
        "dat-provider-softrxe/port/src/socket/ring/layout.rs",
        "const SLOTS: u64 = 256;",
    ),
    (
        "docs/datagrams.md",
        "the request is repeated five times in half a second",
        "dat-provider-softrxe/engine/src/adapter/open.rs",
        "const REFUSED_REPEATS: u8 = 5;",
    ),
];

/// Returns each number whose page or constant has changed without the other.
pub(crate) fn compare(tree: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    for (page, statement, file, constant) in NUMBERS {
        for (path, text) in [(page, statement), (file, constant)] {
            if !tree.text(path).contains(text) {
                wrong.push(format!(
                    "{path} no longer says {text:?}: {page} says {statement:?}, and {file} {constant:?}; correct both, and NUMBERS"
                ));
            }
        }
    }
    wrong
}
