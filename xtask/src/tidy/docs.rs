//! Rules about documents: links lead somewhere, and a table that describes code names all of it.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;

/// A source file, and the document that must name every public constant of it.
pub(super) const TABLES: [(&str, &str); 1] = [(
    "crates/kedge-types/src/limits.rs",
    "docs/reference/limits.md",
)];

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

/// Where the numbers of commands are, the document with a row for each, and the rows' section there.
pub(super) const OPCODES: (&str, &str) = (
    "crates/kedge-protocol/src/binary/opcode.rs",
    "docs/compat.md",
);
const OPCODES_SECTION: &str = "## Binary commands";

/// Reports commands of `source` whose number no row of the section has in its second column: `a2 to a5 a8`.
pub(super) fn check_opcodes(source: &str, document: &str, text: &str) -> Vec<Finding> {
    let section = text.split("\n## ").find(|section| {
        OPCODES_SECTION.ends_with(&format!(" {}", section.lines().next().unwrap_or_default()))
    });
    let rows = section
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let there: BTreeSet<u8> = rows.flat_map(numbers).collect();
    let commands = source.lines().filter_map(|line| {
        let (_, rest) = line.trim_start().split_once(" = 0x")?;
        let (number, rest) = rest.split_once(", \"")?;
        Some((
            u8::from_str_radix(number, 16).ok()?,
            rest.split_once('"')?.0,
        ))
    });
    commands
        .filter(|(number, _)| !there.contains(number))
        .map(|(number, name)| {
            Finding::new(document, 0, format!("has no row for {name} ({number:02x})"))
        })
        .collect()
}

fn numbers(column: &str) -> Vec<u8> {
    let words = column.split([' ', ',']).filter(|word| !word.is_empty());
    let (mut found, mut is_range) = (Vec::new(), false);
    for word in words {
        match (u8::from_str_radix(word, 16), found.last().copied()) {
            (Ok(end), Some(begin)) if is_range => found.extend(begin..=end),
            (Ok(number), _) => found.push(number),
            (Err(_), _) => {}
        }
        is_range = word == "to";
    }
    found
}
