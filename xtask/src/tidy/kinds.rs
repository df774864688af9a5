//! The kinds of tasks: each has a name of its own, and a row in the document.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Finding;
use super::source::is_test_path;

/// Where the rows are.
pub(super) const DOCUMENT: &str = "docs/architecture.md";
/// The expression that defines a kind.
const MADE: &str = "Kind::new(";
/// Kinds of closures that have none of their own.
const CLOSURES: &str = "crates/kedge-executor/src/kind.rs";

/// Reports kinds of the product whose name another has, or that no row of `document` has in its first cell.
pub(super) fn check(sources: &BTreeMap<PathBuf, String>, document: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cell = |line| str::strip_prefix(line, "| ")?.split('|').next();
    let rows: Vec<&str> = document.lines().filter_map(cell).collect();
    let mut first: BTreeMap<&str, &Path> = BTreeMap::new();
    let product = sources.iter().filter(|(path, _)| {
        path.starts_with("crates") && !is_test_path(path) && *path != Path::new(CLOSURES)
    });
    for (path, text) in product {
        for name in names(text) {
            if let Some(other) = first.insert(name, path) {
                let message = format!("`{name}` is a kind of task in {}, too", other.display());
                findings.push(Finding::new(path, 0, message));
            }
            if !rows.iter().any(|cell| cell.contains(&format!("`{name}`"))) {
                let message = format!("has no row for the task `{name}`");
                findings.push(Finding::new(DOCUMENT, 0, message));
            }
        }
    }
    findings
}

/// The names of kinds that are made outside of comments and tests.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    product.match_indices(MADE).filter_map(|(at, made)| {
        let line = product[..at].rfind('\n').map_or(0, |end| end + 1);
        if product[line..at].trim_start().starts_with("//") {
            return None;
        }
        let rest = product[at + made.len()..].trim_start();
        rest.strip_prefix('"')?.split('"').next()
    })
}
