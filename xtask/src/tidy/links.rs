//! Rules about links between documents, and about the contents of the site that `make docs` builds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::Finding;

/// Directory of the site's pages.
const SITE: &str = "docs";

/// The site's table of contents.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";

/// Reports relative links of a Markdown text that lead nowhere: to a missing file, to a heading that the target does not
/// have, or from a page of the site to a file outside of the site.
pub(super) fn check(root: &Path, path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, target) in links(text) {
        if let Some(message) = problem(root, path, text, target) {
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

/// The reason why a link target of the document at `path` is wrong.
fn problem(root: &Path, path: &Path, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    if file.is_empty() {
        return missing_anchor(text, file, anchor);
    }
    let Some(inside) = resolve(path, file) else {
        return Some(format!("the link to {file} leaves the repository"));
    };
    if path.starts_with(SITE) && !inside.starts_with(SITE) {
        return Some(format!(
            "the link to {file} leaves {SITE}, so the site has no page for it; write the path in backquotes"
        ));
    }
    let is_renamed = inside.ends_with("README.md") && path != Path::new(SUMMARY);
    if path.starts_with(SITE) && is_renamed {
        return Some(format!(
            "the site renames {file} to index.html, which the link does not follow; rename the page to index.md"
        ));
    }
    let full = root.join(&inside);
    if !full.exists() {
        return Some(format!("the link leads to {file}, which is not there"));
    }
    if anchor.is_empty() || !file.ends_with(".md") {
        return None;
    }
    let other = fs::read_to_string(full).unwrap_or_default();
    missing_anchor(&other, file, anchor)
}

fn missing_anchor(text: &str, file: &str, anchor: &str) -> Option<String> {
    (!anchors(text).contains(anchor))
        .then(|| format!("the link leads to {file}#{anchor}, but no heading has that anchor"))
}

/// The path below the root of a file that the document at `path` names relative to itself.
fn resolve(path: &Path, file: &str) -> Option<PathBuf> {
    let mut resolved = path.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => resolved.push(name),
            Component::CurDir => {}
            Component::ParentDir if resolved.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved)
}

/// Lines outside of code blocks, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        line.match_indices("](").filter_map(move |(at, opening)| {
            let rest = &line[at + opening.len()..];
            rest.find(')').map(|end| (number, &rest[..end]))
        })
    })
}

/// Anchors of the headings of a Markdown text, as mdbook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut used = BTreeMap::<String, usize>::new();
    prose(text)
        .filter_map(|(_, line)| heading(line))
        .map(|title| {
            let slug = slug(title);
            let count = used.entry(slug.clone()).or_default();
            *count += 1;
            match *count {
                1 => slug,
                count => format!("{slug}-{}", count - 1),
            }
        })
        .collect()
}

fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    ((1..=6).contains(&level) && title.starts_with(' ')).then(|| title.trim())
}

/// Letters in lower case, digits, `_` and `-`; each space becomes `-`, everything else is left out.
fn slug(title: &str) -> String {
    let characters = title.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    characters.flat_map(char::to_lowercase).collect()
}

/// Reports source paths in backquotes that do not exist: `crates/...`, and `kedge-.../...` below `crates`.
pub(super) fn check_paths(root: &Path, path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in prose(text) {
        for named in text.split('`').skip(1).step_by(2) {
            let below = match named.strip_prefix("crates/") {
                Some(rest) => rest,
                None if named.starts_with("kedge-") => named,
                None => continue,
            };
            let is_path = below.contains('/') && !below.contains([' ', '*', '<', '{']);
            if is_path && !root.join("crates").join(below).exists() {
                let message = format!("names {named}, which is not there");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// Reports pages of the site that its table of contents does not list, and those that it lists twice.
pub(super) fn check_summary(pages: &[PathBuf], summary: &str) -> Vec<Finding> {
    let mut listed = BTreeMap::<PathBuf, usize>::new();
    for (_, target) in links(summary) {
        if let Some(page) = resolve(Path::new(SUMMARY), target) {
            *listed.entry(page).or_default() += 1;
        }
    }
    let mut findings = Vec::new();
    for page in pages {
        let is_page = page.starts_with(SITE) && page != Path::new(SUMMARY);
        let count = listed.get(page).copied().unwrap_or_default();
        if is_page && count != 1 {
            let message = match count {
                0 => format!("{SUMMARY} does not list this page, so the site does not have it"),
                _ => format!("{SUMMARY} lists this page {count} times"),
            };
            findings.push(Finding::new(page, 0, message));
        }
    }
    findings
}
