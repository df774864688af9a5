//! What must hold of the tree as text: the crate graph, modules, the size of files, what may not be written, and that documents
//! and tables agree with the code.
//!
//! Each rule is a function from text to findings, so that a test can show it a bad text and see it fail.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::mutants;

mod docs;
mod kinds;
mod language;
mod layers;
mod lexer;
mod links;
mod modules;
mod source;
mod structure;
#[cfg(test)]
mod tests;

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Path below the root of the repository.
    pub(crate) path: PathBuf,
    /// Line, counted from 1; 0 when the finding is about the whole file.
    pub(crate) line: usize,
    /// The problem, and what to do about it.
    pub(crate) message: String,
}

impl Finding {
    fn new(path: impl Into<PathBuf>, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.message),
        }
    }
}

/// The result of [`check`].
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Findings, in the order of their paths.
    pub(crate) findings: Vec<Finding>,
    /// Manifests read.
    pub(crate) manifests: usize,
    /// Source files and documents read.
    pub(crate) files: usize,
}

/// Directories that hold what is built, fetched or measured.
const SKIPPED: [&str; 8] = [
    "target",
    ".git",
    ".cache",
    "node_modules",
    "corpus",
    "artifacts",
    "data",
    "results",
];

/// The document about the past, which may name paths that existed once.
const CHANGES: &str = "CHANGELOG.md";

/// Checks the tree below `root`.
///
/// # Errors
/// A file or directory that cannot be read, or a manifest that is not TOML.
pub(crate) fn check(root: &Path) -> anyhow::Result<Report> {
    let mut paths = Vec::new();
    walk(root, Path::new(""), &mut paths)?;
    paths.sort();

    let mut report = Report::default();
    let mut manifests = Vec::new();
    let mut done = BTreeMap::new();
    let mut sources = BTreeMap::new();
    let mut pages = Vec::new();
    for path in &paths {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name == "Cargo.toml" && is_crate_manifest(path) {
            manifests.push((path.clone(), read(root, path)?));
        } else if name.ends_with(".rs") {
            report.files += 1;
            let text = read(root, path)?;
            let checked = source::check(path, &text);
            done.insert(path.clone(), checked.does);
            report.findings.extend(checked.findings);
            sources.insert(path.clone(), text);
        } else if name.ends_with(".md") {
            report.files += 1;
            let text = read(root, path)?;
            report.findings.extend(links::check(root, path, &text));
            if path != Path::new(CHANGES) {
                report
                    .findings
                    .extend(links::check_paths(root, path, &text));
            }
            pages.push(path.clone());
        }
    }
    report.manifests = manifests.len();
    report.findings.extend(layers::check(&manifests)?);
    report.findings.extend(source::stale_entries(&done));
    report.findings.extend(modules::check(&sources));
    report.findings.extend(language::check(&sources));
    report.findings.extend(structure::check(&sources)?);
    report.findings.extend(check_tables(root)?);
    let summary = read(root, Path::new(links::SUMMARY))?;
    report
        .findings
        .extend(links::check_summary(&pages, &summary));
    let tasks = read(root, Path::new(kinds::DOCUMENT))?;
    report.findings.extend(kinds::check(&sources, &tasks));
    report.findings.extend(check_readmes(root, &manifests)?);
    report.findings.extend(check_mutants(root)?);
    report
        .findings
        .sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(report)
}

/// The documents that must name everything a source file defines.
fn check_tables(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (source, document) in docs::TABLES {
        let source_text = read(root, Path::new(source))?;
        let document_text = fs::read_to_string(root.join(document)).unwrap_or_default();
        findings.extend(docs::check_table(&source_text, document, &document_text));
    }
    Ok(findings)
}

/// The README of each crate of `crates/`.
fn check_readmes(root: &Path, manifests: &[(PathBuf, String)]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let crates = manifests.iter().filter_map(|(path, _)| path.parent());
    for directory in crates.filter(|directory| directory.starts_with("crates")) {
        let path = directory.join("README.md");
        if !root.join(&path).exists() {
            findings.push(Finding::new(path, 0, "the crate has no README"));
            continue;
        }
        let library = read(root, &directory.join("src/lib.rs"))?;
        findings.extend(docs::check_readme(&path, &read(root, &path)?, &library));
    }
    Ok(findings)
}

/// Each rule that is to be broken on purpose stands where the list says.
fn check_mutants(root: &Path) -> anyhow::Result<Vec<Finding>> {
    if !root.join(mutants::LIST).exists() {
        return Ok(Vec::new());
    }
    let stale = |mutant: mutants::Mutant| {
        let stale = mutant.apply(root).err()?;
        Some(Finding::new(mutants::LIST, 0, stale.to_string()))
    };
    Ok(mutants::list(root)?.into_iter().filter_map(stale).collect())
}

/// `crates/NAME/Cargo.toml`, `sim/Cargo.toml` and `xtask/Cargo.toml`; the workspace's own manifest and projects outside are
/// not crates.
fn is_crate_manifest(path: &Path) -> bool {
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts.as_slice(), ["crates", _, _] | ["sim" | "xtask", _])
}

fn read(root: &Path, path: &Path) -> anyhow::Result<String> {
    let full = root.join(path);
    fs::read_to_string(&full).with_context(|| format!("cannot read {}", full.display()))
}

fn walk(root: &Path, below: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let full = root.join(below);
    let entries = fs::read_dir(&full).with_context(|| format!("cannot list {}", full.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", full.display()))?;
        let name = entry.file_name();
        let path = below.join(&name);
        let kind = entry.file_type()?;
        if kind.is_file() {
            into.push(path);
        } else if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
            walk(root, &path, into)?;
        }
    }
    Ok(())
}
