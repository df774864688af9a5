//! Rules about documents: links lead somewhere, and a table that describes code names all of it.

use std::path::Path;

use super::Finding;

/// A source file, and the document that must name every public constant of it.
pub(super) const TABLES: [(&str, &str); 1] =
    [("crates/kedge-types/src/limits.rs", "docs/limits.md")];

/// Reports relative links of a Markdown text whose target is not there.
pub(super) fn check_links(root: &Path, path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in link_targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:");
            let base = path.parent().unwrap_or(Path::new(""));
            if !outside && !file.is_empty() && !root.join(base).join(file).exists() {
                let message = format!("the link leads to {file}, which is not there");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, opening)| {
        let rest = &line[at + opening.len()..];
        rest.find(')').map(|end| &rest[..end])
    })
}

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
