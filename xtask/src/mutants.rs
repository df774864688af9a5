//! Rules of the code, broken on purpose: do the simulated histories find it?
//!
//! `sim/mutants.toml` lists replacements of text. Each is made in a copy of the tree, so the tree itself stays as it is.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// Where they are listed.
pub(crate) const LIST: &str = "sim/mutants.toml";
/// Histories that have to find a mutant.
const SEEDS: &str = "1500";
/// The test that draws them.
const HISTORIES: &str = "acknowledged_writes_survive";

/// A rule that is broken.
pub(crate) struct Mutant {
    /// The rule, in words.
    breaks: String,
    file: PathBuf,
    find: String,
    replace: String,
}

impl Mutant {
    /// The file with the rule broken.
    pub(crate) fn apply(&self, root: &Path) -> anyhow::Result<String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
        match text.matches(&self.find).count() {
            1 => Ok(text.replace(&self.find, &self.replace)),
            found => bail!(
                "{LIST}: {:?} stands {found} times in {:?}, not once ({})",
                self.find,
                self.file,
                self.breaks
            ),
        }
    }
}

/// Reads the list.
pub(crate) fn list(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let path = root.join(LIST);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
    let table: toml::Table = text
        .parse()
        .with_context(|| format!("{LIST} is not TOML"))?;
    let mutants = table.get("mutant").and_then(toml::Value::as_array);
    let field = |mutant: &toml::Value, name: &str| {
        let text = mutant.get(name).and_then(toml::Value::as_str);
        let text = text.with_context(|| format!("{LIST}: a mutant has no text {name:?}"))?;
        anyhow::Ok(text.to_owned())
    };
    mutants
        .with_context(|| format!("{LIST} lists no mutant"))?
        .iter()
        .map(|mutant| {
            Ok(Mutant {
                breaks: field(mutant, "breaks")?,
                file: field(mutant, "file")?.into(),
                find: field(mutant, "find")?,
                replace: field(mutant, "replace")?,
            })
        })
        .collect()
}

/// Tries all; returns how many were not found out.
pub(crate) fn run(root: &Path) -> anyhow::Result<usize> {
    let tree = root.join("target/mutants/tree");
    copy_tree(root, &tree)?;
    let mut out = std::io::stdout().lock();
    let mut survivors = 0;
    for mutant in list(root)? {
        let path = tree.join(&mutant.file);
        fs::write(&path, mutant.apply(root)?)?;
        let verdict = try_out(&tree);
        fs::copy(root.join(&mutant.file), &path)?;
        match verdict? {
            Some(found) => writeln!(out, "found: {} ({found})", mutant.breaks)?,
            None => {
                survivors += 1;
                writeln!(out, "NOT FOUND: {}", mutant.breaks)?;
            }
        }
    }
    Ok(survivors)
}

/// Returns the objection of the histories to the tree, if there is one.
fn try_out(tree: &Path) -> anyhow::Result<Option<String>> {
    let output = Command::new("cargo")
        .args(["test", "--quiet", "--package", "kedge-sim", "--test", "it"])
        .arg(HISTORIES)
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", tree.with_file_name("build"))
        .env("KEDGE_SEEDS", SEEDS)
        .output()
        .context("cargo does not run")?;
    if output.status.success() {
        return Ok(None);
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let line_with = |text: &str| said.lines().find(|line| line.contains(text));
    let found = line_with("KEDGE_SEED=").or_else(|| line_with("panicked"));
    match found {
        Some(line) => Ok(Some(line.chars().take(120).collect())),
        // It does not compile, say.
        None => bail!("the simulation did not run:\n{said}"),
    }
}

/// Copies what git has of the tree.
fn copy_tree(root: &Path, to: &Path) -> anyhow::Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("git does not run")?;
    let files = String::from_utf8(listed.stdout).context("a name is not UTF-8")?;
    for file in files.split_terminator('\0') {
        let (from, to) = (root.join(file), to.join(file));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        // What is the same stays as it is, so that it need not be built again.
        if fs::read(&to).ok() != Some(fs::read(&from)?) {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
