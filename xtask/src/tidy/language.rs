//! Rules about language: item documentation starts with a noun or a verb, and retired names do not come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Finding;
use super::lexer::code_only;
use super::source::is_test_path;

/// First words that make a clause of item documentation.
const CLAUSES: [&str; 5] = ["What", "Who", "Which", "How", "Whether"];

/// Names of types and modules that are retired, and the names to use instead. A definition of one is a finding.
const RETIRED_TYPES: [(&str, &str); 26] = [
    ("Aside", "Quarantine"),
    ("Awaiting", "PendingStateQueue"),
    ("Begun", "a name of its own"),
    ("Boards", "ReplicationStatus"),
    ("Crowd", "AdmissionLimiter"),
    ("Duties", "Reconciler"),
    ("Flights", "InFlight"),
    ("Floor", "LogTruncation"),
    ("Held", "a queue's name"),
    ("Heard", "PeerStatus"),
    ("Lasting", "BucketTask"),
    ("Leftovers", "DroppedPurge"),
    ("Lent", "PerThreadBuffers"),
    ("NotTaken", "ApplyError"),
    ("Pacer", "Throttle"),
    ("Pacing", "CompactionThrottle"),
    ("Preparer", "SegmentPreallocator"),
    ("Rests", "ThrottlePause"),
    ("Seat", "ConnectionSlot"),
    ("Settler", "LogApplier"),
    ("Sleeper", "Parker"),
    ("Together", "ParallelForEach"),
    ("Told", "a name of its own"),
    ("Turn", "a name of its own"),
    ("Watched", "Instrumented"),
    ("WriteOut", "CommitTask"),
];

/// Identifiers that are retired wherever code uses them, and the names to use instead.
const RETIRED_WORDS: [(&str, &str); 6] = [
    ("kick", "request_flush"),
    ("lie_down", "park"),
    ("rouse", "unpark"),
    ("set_aside", "quarantine"),
    ("settler", "applier"),
    ("unsettled", "unapplied"),
];

/// Reports findings of all sources.
pub(super) fn check(sources: &BTreeMap<PathBuf, String>) -> Vec<Finding> {
    let files = sources.iter();
    files
        .flat_map(|(path, text)| check_file(path, text))
        .collect()
}

fn check_file(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut before = "";
    for (index, line) in text.lines().map(str::trim_start).enumerate() {
        let first = line.strip_prefix("///").unwrap_or_default();
        let word = first.split_whitespace().next().unwrap_or_default();
        if CLAUSES.contains(&word) && !before.starts_with("///") {
            let message = format!(
                "the documentation starts with \"{word}\"; start with a noun phrase, or a verb in the third person"
            );
            findings.push(Finding::new(path, index + 1, message));
        }
        before = line;
    }
    if !is_test_path(path) {
        findings.extend(retired_names(path, text));
    }
    findings
}

fn retired_names(path: &Path, text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let product = code.split("#[cfg(test)]").next().unwrap_or_default();
    let mut findings = Vec::new();
    for (index, line) in product.lines().enumerate() {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        let defined = words
            .windows(2)
            .filter(|pair| matches!(pair[0], "struct" | "enum" | "trait" | "type" | "union"))
            .map(|pair| pair[1]);
        let types = defined.filter_map(|name| lookup(&RETIRED_TYPES, name));
        let others = words.iter().filter_map(|word| lookup(&RETIRED_WORDS, word));
        for (name, instead) in types.chain(others) {
            let message = format!("`{name}` is a retired name; use {instead}");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

fn lookup(table: &'static [(&str, &str)], name: &str) -> Option<(&'static str, &'static str)> {
    table.iter().find(|(retired, _)| *retired == name).copied()
}
