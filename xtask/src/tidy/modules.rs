//! No Rust file is left out: what no module names is not compiled, so its tests don't run and nobody hears of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Finding;
use super::lexer::code_only;

/// Files that are no module of a file beside them.
const ROOTS: [&str; 3] = ["main", "lib", "build"];

/// Checks all files; paths are below the root of the repository. A file whose directory belongs to no module is a root
/// itself, such as a benchmark.
pub(super) fn check(sources: &BTreeMap<PathBuf, String>) -> Vec<Finding> {
    let unnamed = sources.keys().filter(|path| !is_named(path, sources));
    let found = unnamed
        .map(|path| Finding::new(path, 0, "no module names this file, so it is not compiled"));
    found.collect()
}

fn is_named(path: &Path, sources: &BTreeMap<PathBuf, String>) -> bool {
    // What `x/mod.rs` is, `x.rs` would be, too.
    let module = match path.file_stem() {
        Some(stem) if stem == "mod" => path.parent().map(Path::to_owned),
        _ => Some(path.with_extension("")),
    };
    let Some((dir, name)) = module
        .as_deref()
        .and_then(|it| it.parent().zip(it.file_name()))
    else {
        return true;
    };
    let name = name.to_string_lossy();
    if ROOTS.contains(&name.as_ref()) {
        return true;
    }
    let beside = ["mod.rs", "lib.rs", "main.rs"].map(|file| dir.join(file));
    let parents = beside.into_iter().chain([dir.with_extension("rs")]);
    let mut parents = parents.filter_map(|parent| sources.get(&parent)).peekable();
    let (declared, elsewhere) = (format!("mod {name};"), format!("{name}.rs\"]"));
    parents.peek().is_none()
        || parents.any(|text| code_only(text).contains(&declared))
        || sources.values().any(|text| text.contains(&elsewhere))
}
