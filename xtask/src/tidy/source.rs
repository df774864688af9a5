//! Rules about one Rust file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Finding;
use super::lexer::code_only;

/// Lines above which a file says at its top why it is long.
const LONG_FILE_LINES: usize = 900;

/// Files that may contain `unsafe`, and why they need it. Everything else is safe code.
const UNSAFE_FILES: [(&str, &str); 5] = [
    (
        "bench/common/src/alloc.rs",
        "an allocator that counts, for a benchmark",
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
        "crates/kedge-server/src/session/counting.rs",
        "an allocator that counts, for tests",
    ),
    (
        "crates/kedge-vbucket/src/item.rs",
        "a document is one allocation behind a thin pointer",
    ),
];

/// What [`check`] found in a file.
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    /// The file contains the keyword `unsafe`.
    pub(super) has_unsafe: bool,
}

/// Checks one file; `path` is below the root of the repository.
pub(super) fn check(path: &Path, text: &str) -> Checked {
    let code = code_only(text);
    let mut findings = Vec::new();
    check_length(path, text, &mut findings);
    check_place(path, &mut findings);

    let original: Vec<&str> = text.lines().collect();
    let mut in_tests = is_test_path(path);
    let mut has_unsafe = false;
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
        if has_word(line, "unsafe") {
            has_unsafe = true;
            if !may_be_unsafe(path) {
                report("`unsafe` outside the list in xtask/src/tidy/source.rs");
            }
        }
        if in_tests && sleeps(line) && !sleep_is_reasoned(&original, index) {
            report(
                "a test that sleeps; wait for the event, or write `// sleep: WHY` on the line above",
            );
        }
    }
    Checked {
        findings,
        has_unsafe,
    }
}

/// Entries of the list of unsafe files whose file no longer needs one.
pub(super) fn stale_unsafe_entries(seen: &BTreeSet<PathBuf>) -> Vec<Finding> {
    let stale = UNSAFE_FILES
        .iter()
        .filter(|(path, _)| !seen.contains(Path::new(path)));
    stale
        .map(|(path, _)| {
            Finding::new(
                *path,
                0,
                "has no `unsafe`; take it off the list in xtask/src/tidy/source.rs",
            )
        })
        .collect()
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

fn is_test_path(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "tests" || part == "tests.rs")
}

fn may_be_unsafe(path: &Path) -> bool {
    UNSAFE_FILES
        .iter()
        .any(|(allowed, _)| path == Path::new(allowed))
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

/// Whether `pattern` stands in `line` and is not the end or, when it ends in a letter, the start of a longer word.
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
