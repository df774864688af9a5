//! Checks of help texts and of the documented labels, for tests.

use std::collections::{BTreeMap, BTreeSet};

/// Words that refer to something outside of the text.
const POINTERS: [&str; 9] = [
    "those", "they", "them", "their", "these", "it", "its", "so", "did",
];

/// Terms of the field in camel case. Any other such word is the name of a type.
const CAMEL_CASE_TERMS: [&str; 2] = ["SyncWrite", "SyncWrites"];

/// Checks that each family has a help text that is understandable alone and unique.
///
/// The texts were written as a list, in which each continued the one above: "Those that did", "Changes that they read",
/// "Times that there was no room for them". A dashboard shows only one of them.
pub(crate) fn check(text: &str) {
    let families = families(text);
    assert!(families.len() > 5, "{text}");
    for (name, help) in &families {
        let words: Vec<&str> = help
            .split(|letter: char| !letter.is_alphanumeric())
            .collect();
        assert!(words.len() >= 2, "{name}: {help:?} is no sentence");
        assert!(!help.contains(['\\', '"', '\n']), "{name}: {help:?}");
        for word in words {
            // A renaming of types had changed "Revision of the cluster map" to "RevisionMetric of the cluster map".
            let is_camel_case = word.starts_with(char::is_uppercase)
                && word.contains(char::is_lowercase)
                && word.chars().skip(1).any(char::is_uppercase);
            assert!(
                !is_camel_case || CAMEL_CASE_TERMS.contains(&word),
                "{name}: {help:?} names the type {word:?}"
            );
            let word = word.to_lowercase();
            assert!(
                !POINTERS.contains(&word.as_str()),
                "{name}: {help:?} points elsewhere by {word:?}"
            );
        }
        let same = families.iter().filter(|(_, other)| other == help).count();
        assert_eq!(same, 1, "{name}: {help:?} fits several families");
    }
    check_labels(text);
}

/// Checks that the table of `docs/reference/metrics.md` has the labels of the samples, each under the longest prefix of
/// its name.
///
/// The table gave the label `op` to a family that has `operation`.
fn check_labels(text: &str) {
    let documented = documented_labels();
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name_end = line.find(['{', ' ']).expect("a name");
        let name = &line[..name_end];
        let prefixes = documented
            .keys()
            .filter(|prefix| name.starts_with(**prefix));
        let prefix = prefixes.max_by_key(|prefix| prefix.len());
        let labels = seen
            .entry(prefix.unwrap_or_else(|| panic!("{name} is in no row of the table")))
            .or_default();
        // Values of labels have neither quotes nor commas here.
        let inner = line.split(['{', '}']).nth(1).unwrap_or("");
        let names = inner.split(',').filter_map(|label| label.split_once('='));
        labels.extend(names.map(|(label, _)| label).filter(|label| *label != "le"));
    }
    for (prefix, labels) in seen {
        assert_eq!(labels, documented[prefix], "labels of {prefix}");
    }
}

/// Returns the labels of each prefix.
fn documented_labels() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let page = include_str!("../../../../docs/reference/metrics.md");
    let (_, table) = page.split_once("| prefix | labels |").expect("the table");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let mut labels = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        for prefix in quoted(cells[1]) {
            labels.insert(prefix, quoted(cells[2]).collect());
        }
    }
    labels
}

/// Returns name and help text of each family.
fn families(text: &str) -> Vec<(&str, &str)> {
    let after = |start: &'static str| {
        let rest = text
            .lines()
            .filter_map(move |line| line.strip_prefix(start));
        rest.map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
    };
    let helps: Vec<_> = after("# HELP ").collect();
    let typed: Vec<&str> = after("# TYPE ").map(|(name, _)| name).collect();
    let described: Vec<&str> = helps.iter().map(|(name, _)| *name).collect();
    assert_eq!(described, typed);
    helps
}
