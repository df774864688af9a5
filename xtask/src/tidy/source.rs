//! Rules about one Rust file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Finding;
use super::lexer::code_only;

/// Lines above which a file says at its top why it is long.
const LONG_FILE_LINES: usize = 900;

/// Something that only some files may do.
pub(super) struct Reserved {
    /// The words of code that use it.
    words: &'static [&'static str],
    /// Where the rule holds: below this, and in tests too or not.
    below: &'static str,
    in_tests: bool,
    /// The files that may, and why they have to.
    files: &'static [(&'static str, &'static str)],
}

const UNSAFE: Reserved = Reserved {
    words: &["unsafe"],
    below: "",
    in_tests: true,
    files: &[
        (
            "bench/common/src/alloc.rs",
            "an allocator that counts, for a benchmark",
        ),
        (
            "crates/kedge/src/serve/allocator.rs",
            "the global allocator of the binary, whose functions are foreign",
        ),
        (
            "crates/kedge/src/serve/start_pages.rs",
            "unmaps pages of the binary, which the system maps again",
        ),
        (
            "crates/kedge-bucket/tests/it/counting.rs",
            "an allocator that counts, for tests",
        ),
        (
            "crates/kedge-disk/src/ring/uring.rs",
            "the system writes into memory after the call that gave it has returned",
        ),
        (
            "crates/kedge-frontend/src/session/counting.rs",
            "an allocator that counts, for tests",
        ),
        (
            "crates/kedge-vbucket/src/item.rs",
            "a document is one allocation behind a thin pointer",
        ),
        (
            "crates/kedge-vbucket/src/item/slab.rs",
            "the blocks of documents, which can move within memory",
        ),
        (
            "crates/kedge-vbucket/src/item/slab/slots.rs",
            "maps the memory of slabs",
        ),
        (
            "crates/kedge-vbucket/src/item/slab/tests.rs",
            "allocates and frees blocks",
        ),
    ],
};

/// Work beside the commands is the task pools'. Other threads serve sockets, or wait for something else than a disk for so
/// long that a pool would have a thread less.
const THREADS: Reserved = Reserved {
    words: &[
        "thread::Builder",
        "thread::spawn(",
        "thread::scope(",
        "spawn_blocking(",
    ],
    below: "crates",
    in_tests: false,
    files: &[
        (
            "crates/kedge-executor/src/clock/ticks.rs",
            "ends once it has measured the processor's counter",
        ),
        (
            "crates/kedge-encryption/src/master/source.rs",
            "reads the output of the command for the master key",
        ),
        ("crates/kedge-executor/src/worker_threads.rs", "the pools"),
        (
            "crates/kedge-external/src/jwt/keys.rs",
            "waits for an issuer of tokens",
        ),
        (
            "crates/kedge-external/src/runtime.rs",
            "waits for a directory of users",
        ),
        (
            "crates/kedge-faulty-disk/src/lib.rs",
            "serves the file system of a test",
        ),
        (
            "crates/kedge-faulty-disk/src/serve.rs",
            "waits for as long as a call of a test hangs",
        ),
        (
            "crates/kedge-faulty-disk/examples/faulty_disk.rs",
            "reads the commands of a test",
        ),
        (
            "crates/kedge-frontend/src/acceptor.rs",
            "accepts connections",
        ),
        (
            "crates/kedge-mgmt/src/tls.rs",
            "loads files of TLS that have changed",
        ),
        (
            "crates/kedge-mgmt/src/threads.rs",
            "starts and ends threads of the pools themselves",
        ),
        (
            "crates/kedge-coordinator/src/cluster/peers.rs",
            "waits for each of the other nodes",
        ),
        (
            "crates/kedge-coordinator/src/cluster/mod.rs",
            "waits for maps and for the coordination store",
        ),
        (
            "crates/kedge-coordinator/src/lease/thread.rs",
            "asks nodes that may hang for promises, and is awaited for a limited time",
        ),
        (
            "crates/kedge-coordinator/src/lease/mod.rs",
            "renews the lease in time, whatever the pools do",
        ),
        (
            "crates/kedge-mgmt/src/request_context.rs",
            "a call that waits for tasks",
        ),
        (
            "crates/kedge-mgmt/src/cluster.rs",
            "a call that waits for other nodes",
        ),
        (
            "crates/kedge-mgmt/src/ready.rs",
            "a probe that waits for other nodes",
        ),
        (
            "crates/kedge-mgmt/src/serve.rs",
            "the event loop of management",
        ),
        (
            "crates/kedge-coordinator/src/replication/files.rs",
            "reads a file from another node, and waits for its throttle",
        ),
        (
            "crates/kedge-coordinator/src/replication/mod.rs",
            "the event loop of replication",
        ),
        (
            "crates/kedge-coordinator/src/replication/thread.rs",
            "waits for a connection to be made",
        ),
        (
            "crates/kedge-frontend/src/frontend.rs",
            "the front-end threads",
        ),
        (
            "crates/kedge/src/cluster_run/nodes.rs",
            "a tool: reads what each node prints",
        ),
        ("crates/kedge/src/load/connect.rs", "a tool: clients"),
        ("crates/kedge/src/load/mod.rs", "a tool: clients"),
        (
            "crates/kedge/src/serve/signals.rs",
            "waits for signals of the system",
        ),
    ],
};

const RESERVED: [Reserved; 2] = [UNSAFE, THREADS];

/// The result of [`check`] for a file.
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    /// The indices in [`RESERVED`] of what the file does.
    pub(super) does: BTreeSet<usize>,
}

/// Checks one file; `path` is below the root of the repository.
pub(super) fn check(path: &Path, text: &str) -> Checked {
    let code = code_only(text);
    let mut findings = Vec::new();
    check_length(path, text, &mut findings);
    check_place(path, &mut findings);

    let original: Vec<&str> = text.lines().collect();
    let mut in_tests = is_test_path(path);
    let mut does = BTreeSet::new();
    for (index, line) in code.lines().enumerate() {
        in_tests |= line.trim_start().starts_with("#[cfg(test)]");
        let mut report = |message: &str| findings.push(Finding::new(path, index + 1, message));
        for (pattern, message) in FORBIDDEN {
            if has_word(line, pattern) {
                report(message);
            }
        }
        if allows_a_lint(line) {
            report(
                "`allow` hides that a lint no longer fires; write `#[expect(lint, reason = ...)]`",
            );
        }
        for (number, reserved) in RESERVED.iter().enumerate() {
            let Some(word) = reserved.word_of(path, line, in_tests) else {
                continue;
            };
            does.insert(number);
            if !reserved.allows(path) {
                report(&format!(
                    "`{word}` outside the list in xtask/src/tidy/source.rs"
                ));
            }
        }
        if in_tests && sleeps(line) && !sleep_is_reasoned(&original, index) {
            report(
                "a test that sleeps; wait for the event, or write `// sleep: WHY` on the line above",
            );
        }
    }
    Checked { findings, does }
}

impl Reserved {
    /// The word with which a line does it.
    fn word_of(&self, path: &Path, line: &str, in_tests: bool) -> Option<&'static str> {
        if !path.starts_with(self.below) || (in_tests && !self.in_tests) {
            return None;
        }
        let mut words = self.words.iter();
        words.find(|word| has_word(line, word)).copied()
    }

    fn allows(&self, path: &Path) -> bool {
        self.files
            .iter()
            .any(|(allowed, _)| path == Path::new(allowed))
    }
}

/// Files on the lists of what is reserved that do not do it any more. `done` has what each file does.
pub(super) fn stale_entries(done: &BTreeMap<PathBuf, BTreeSet<usize>>) -> Vec<Finding> {
    let mut stale = Vec::new();
    for (number, reserved) in RESERVED.iter().enumerate() {
        for (path, _) in reserved.files {
            if !done
                .get(Path::new(path))
                .is_some_and(|does| does.contains(&number))
            {
                let message = format!(
                    "has no `{}`; take it off the list in xtask/src/tidy/source.rs",
                    reserved.words.join("`, `")
                );
                stale.push(Finding::new(*path, 0, message));
            }
        }
    }
    stale
}

const FORBIDDEN: [(&str, &str); 3] = [
    ("todo!", "`todo!`: finish it, or leave the feature out"),
    (
        "unimplemented!",
        "`unimplemented!`: finish it, or answer with the status for it",
    ),
    (
        "#[ignore",
        "an ignored test proves nothing: make it run or remove it",
    ),
];

fn check_length(path: &Path, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().count();
    let says_why = || {
        text.lines()
            .take(40)
            .any(|line| line.starts_with("//! Long because "))
    };
    if lines > LONG_FILE_LINES && !says_why() {
        let message = format!(
            "{lines} lines, more than {LONG_FILE_LINES}; split it, or say `//! Long because ...` at its top"
        );
        findings.push(Finding::new(path, 0, message));
    }
}

/// Integration tests of a crate are one binary: each further one is linked anew.
fn check_place(path: &Path, findings: &mut Vec<Finding>) {
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    if let ["crates", _, "tests", file] = parts.as_slice() {
        let message = format!(
            "{file} is an integration binary of its own; make it a module of tests/it/main.rs"
        );
        findings.push(Finding::new(path, 0, message));
    }
}

pub(super) fn is_test_path(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "tests" || part == "tests.rs")
}

fn sleeps(line: &str) -> bool {
    ["thread::sleep(", "time::sleep(", "sleep("]
        .iter()
        .any(|call| has_word(line, call))
        && !line.contains("fn sleep(")
}

fn sleep_is_reasoned(lines: &[&str], index: usize) -> bool {
    let reasoned = |line: &str| {
        line.split_once("// sleep:")
            .is_some_and(|(_, reason)| !reason.trim().is_empty())
    };
    let above = index.checked_sub(1).and_then(|above| lines.get(above));
    lines.get(index).is_some_and(|line| reasoned(line)) || above.is_some_and(|line| reasoned(line))
}

/// `#[allow(...)]`, `#![allow(...)]`, or one inside `cfg_attr`.
fn allows_a_lint(line: &str) -> bool {
    let line = line.trim_start();
    let attribute = line.starts_with("#[") || line.starts_with("#![");
    attribute && has_word(line, "allow(")
}

/// Returns whether `pattern` stands in `line` and is not the end or, when it ends in a letter, the start of a longer word.
fn has_word(line: &str, pattern: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let opens = pattern.starts_with(word);
    let closes = pattern.ends_with(word);
    line.match_indices(pattern).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + pattern.len()..].chars().next();
        let longer = (opens && before.is_some_and(word)) || (closes && after.is_some_and(word));
        !longer
    })
}
