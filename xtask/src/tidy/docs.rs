//! Rules about documents: a table that describes code names all of it.

use std::path::Path;

use super::Finding;

/// A source file, and the document that must name every public constant of it.
pub(super) const TABLES: [(&str, &str); 1] = [(
    "crates/kedge-types/src/limits.rs",
    "docs/reference/limits.md",
)];

/// Reports public constants of `source` that `document` does not name in backquotes.
pub(super) fn check_table(source: &str, document: &str, text: &str) -> Vec<Finding> {
    let names = source.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("pub const ")?.split_once(':')?;
        Some(name)
    });
    names
        .filter(|name| !text.contains(&format!("`{name}`")))
        .map(|name| Finding::new(document, 0, format!("does not say what `{name}` is")))
        .collect()
}

/// Sections that the README of a crate has, in this order.
const README_SECTIONS: [&str; 5] = [
    "## Purpose",
    "## What it must not know",
    "## Main types",
    "## Example",
    "## Tests",
];

/// Reports what the README of a crate lacks. `library` is the text of its `src/lib.rs`, whose first example the README
/// repeats, unless that text includes the README, so that the example of the README is a test itself.
pub(super) fn check_readme(path: &Path, readme: &str, library: &str) -> Vec<Finding> {
    let sections = readme.lines().filter(|line| line.starts_with("## "));
    if !sections.eq(README_SECTIONS) {
        let message = format!("its sections are not {}", README_SECTIONS.join(", "));
        return vec![Finding::new(path, 0, message)];
    }
    if library.contains("include_str!(\"../README.md\")") {
        return Vec::new();
    }
    let documentation = library
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line));
    let is_hidden = |line: &&str| *line == "#" || line.starts_with("# ");
    let expected = example(documentation)
        .into_iter()
        .filter(|line| !is_hidden(line));
    if expected.eq(example(readme.lines())) {
        return Vec::new();
    }
    vec![Finding::new(
        path,
        0,
        "its example is not the first one of the documentation in src/lib.rs",
    )]
}

/// The lines of the first block of Rust code.
fn example<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut lines = lines.skip_while(|line| !matches!(*line, "```" | "```rust"));
    lines.next();
    lines.take_while(|line| !line.starts_with("```")).collect()
}
