//! The crate graph: dependencies point downwards only.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use toml::{Table, Value};

use super::Finding;

/// The layer of every crate. An edge may only go from a higher number to a lower one, so crates of one layer do not
/// know each other, and those of the lowest stand alone. `docs/architecture.md` says what each owns.
const LAYERS: [(&str, u8); 32] = [
    ("kedge-sync", 0),
    ("kedge-types", 0),
    ("kedge-executor", 0),
    ("kedge-protocol", 1),
    ("kedge-json", 1),
    ("kedge-auth", 1),
    ("kedge-disk", 1),
    ("kedge-faulty-disk", 1),
    ("kedge-tls", 1),
    ("kedge-encryption", 2),
    ("kedge-log", 2),
    ("kedge-couchstore", 2),
    ("kedge-vbucket", 2),
    ("kedge-coordination", 2),
    ("kedge-kms", 3),
    ("kedge-storage", 3),
    ("kedge-subdoc", 3),
    ("kedge-replication", 3),
    ("kedge-bucket-core", 4),
    ("kedge-cluster", 4),
    ("kedge-persistence", 5),
    ("kedge-residency", 5),
    ("kedge-bucket", 6),
    ("kedge-node", 7),
    ("kedge-coordinator", 8),
    ("kedge-external", 8),
    ("kedge-mgmt", 8),
    ("kedge-frontend", 8),
    ("kedge-server", 9),
    ("kedge", 10),
    ("kedge-sim", 10),
    ("xtask", 11),
];

/// Edges that only tests have and that do not point downwards: from, to, and why it has to be.
const TEST_EDGES: [(&str, &str, &str); 1] = [(
    "kedge-storage",
    "kedge-storage",
    "a feature shows its examples, which see it from outside, what must not compile",
)];

/// Checks the manifests, each given with its path.
///
/// # Errors
/// A manifest that is not TOML.
pub(super) fn check(manifests: &[(PathBuf, String)]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (path, text) in manifests {
        let manifest: Table = text
            .parse()
            .with_context(|| format!("{} is not TOML", path.display()))?;
        check_manifest(path, text, &manifest, &mut findings);
    }
    Ok(findings)
}

fn check_manifest(path: &Path, text: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"));
    let Some(name) = name.and_then(Value::as_str) else {
        findings.push(Finding::new(path, 0, "has no package name"));
        return;
    };
    let Some(layer) = layer_of(name) else {
        let advice = "give it a layer in xtask/src/tidy/layers.rs and docs/architecture.md";
        findings.push(Finding::new(
            path,
            0,
            format!("{name} has no layer: {advice}"),
        ));
        return;
    };
    let lints = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"));
    if lints.and_then(Value::as_bool) != Some(true) {
        findings.push(Finding::new(
            path,
            0,
            "must take the lints of the workspace",
        ));
    }
    let own = Crate {
        path,
        text,
        name,
        layer,
    };
    own.check_tables(manifest, findings);
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        for tables in targets.values().filter_map(Value::as_table) {
            own.check_tables(tables, findings);
        }
    }
}

struct Crate<'a> {
    path: &'a Path,
    text: &'a str,
    name: &'a str,
    layer: u8,
}

impl Crate<'_> {
    fn check_tables(&self, tables: &Table, findings: &mut Vec<Finding>) {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(dependencies) = tables.get(kind).and_then(Value::as_table) else {
                continue;
            };
            for (key, value) in dependencies {
                self.check_edge(kind, key, value, findings);
            }
        }
    }

    fn check_edge(&self, kind: &str, key: &str, value: &Value, findings: &mut Vec<Finding>) {
        let mut report =
            |message| findings.push(Finding::new(self.path, line_of(self.text, key), message));
        if value.get("workspace").and_then(Value::as_bool) != Some(true) {
            report(format!(
                "{key}: versions stand in the workspace, write `{key}.workspace = true`"
            ));
        }
        let target = value.get("package").and_then(Value::as_str).unwrap_or(key);
        if !target.starts_with("kedge") {
            return;
        }
        let Some(below) = layer_of(target) else {
            report(format!("{target} has no layer in xtask/src/tidy/layers.rs"));
            return;
        };
        let reasoned = kind == "dev-dependencies"
            && TEST_EDGES
                .iter()
                .any(|(from, to, _)| (*from, *to) == (self.name, target));
        if below >= self.layer && !reasoned {
            let way = if below == self.layer {
                "sideways"
            } else {
                "upwards"
            };
            report(format!(
                "{kind}: {} (layer {}) -> {target} (layer {below}) points {way}; edges point downwards only",
                self.name, self.layer
            ));
        }
    }
}

fn layer_of(name: &str) -> Option<u8> {
    LAYERS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, layer)| *layer)
}

/// The line that names a dependency; good enough for a message.
fn line_of(text: &str, key: &str) -> usize {
    let names = |line: &str| {
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(['.', '=']))
    };
    text.lines().position(names).map_or(0, |at| at + 1)
}
