//! Rules about structure: no god object, no long function, no crate whose files all import each other.
//!
//! Tests are not counted. Records of settings, documents, statistics and options may have any number of fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{FnArg, ImplItem, Item, UseTree};

use super::Finding;
use super::source::is_test_path;

/// Largest number of fields of a type.
const FIELDS_MAX: usize = 20;
/// Largest number of methods of a type, over all its `impl` blocks but those of traits.
const METHODS_MAX: usize = 60;
/// Largest number of lines of a function.
const LINES_MAX: usize = 70;
/// Largest number of parameters of a function, `self` apart.
const PARAMETERS_MAX: usize = 6;
/// Largest number of files that import each other in a cycle.
const CYCLE_MAX: usize = 6;

/// Plain records, which may have more fields: crate and type.
const RECORDS: [(&str, &str); 6] = [
    ("kedge", "LoadArgs"),
    ("kedge", "LoadPlan"),
    ("kedge", "RunReport"),
    ("kedge-couchstore", "VbStateDocument"),
    ("kedge-frontend", "MetricsSnapshot"),
    ("kedge-mgmt", "BucketDocument"),
];

/// Counts of a type.
#[derive(Debug, Default)]
struct TypeCounts {
    fields: usize,
    methods: usize,
    /// The definition: path and line.
    place: (PathBuf, usize),
}

/// Counts of a crate.
#[derive(Debug, Default)]
struct Crate {
    types: BTreeMap<String, TypeCounts>,
    /// Modules by the path of their files below `src`, without `.rs` and `/mod`, and the modules that they import.
    imports: BTreeMap<String, BTreeSet<String>>,
    findings: Vec<Finding>,
}

/// Checks the sources of all crates below `crates/`.
///
/// # Errors
/// A source that is not Rust.
pub(super) fn check(sources: &BTreeMap<PathBuf, String>) -> anyhow::Result<Vec<Finding>> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    let mut modules: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for path in sources.keys() {
        if let Some((name, module)) = place_of(path) {
            modules.entry(name).or_default().insert(module);
        }
    }
    for (path, text) in sources {
        let Some((name, module)) = place_of(path) else {
            continue;
        };
        let file = syn::parse_file(text).with_context(|| format!("{}", path.display()))?;
        let of_crate = crates.entry(name).or_default();
        of_crate.count(path, &file);
        let mut imports = Imports {
            module: &module,
            known: &modules[name],
            found: BTreeSet::new(),
        };
        imports.visit_file(&file);
        let found = imports.found;
        of_crate.imports.insert(module, found);
    }
    let mut findings = Vec::new();
    for (name, of_crate) in crates {
        findings.extend(of_crate.finish(name));
    }
    Ok(findings)
}

/// The crate and the module of a source below `crates/`, unless it is a test.
fn place_of(path: &Path) -> Option<(&str, String)> {
    let (name, below) = path
        .to_str()?
        .strip_prefix("crates/")?
        .split_once("/src/")?;
    let module = below.strip_suffix(".rs")?;
    let is_test = is_test_path(path) || module.ends_with("_tests");
    let module = module.strip_suffix("/mod").unwrap_or(module);
    (!is_test && !matches!(module, "lib" | "main")).then(|| (name, module.to_owned()))
}

impl Crate {
    fn count(&mut self, path: &Path, file: &syn::File) {
        for item in &file.items {
            match item {
                Item::Struct(item) => {
                    let counts = self.types.entry(item.ident.to_string()).or_default();
                    counts.fields = counts.fields.max(item.fields.len());
                    counts.place = (path.to_owned(), item.span().start().line);
                }
                Item::Impl(item) => {
                    let functions = item.items.iter().filter_map(|item| match item {
                        ImplItem::Fn(function) => Some(function),
                        _ => None,
                    });
                    let mut methods = 0;
                    for function in functions {
                        methods += 1;
                        self.measure(path, &function.sig, function.span());
                    }
                    if item.trait_.is_none()
                        && let syn::Type::Path(of) = &*item.self_ty
                        && let Some(last) = of.path.segments.last()
                    {
                        let counts = self.types.entry(last.ident.to_string()).or_default();
                        counts.methods += methods;
                    }
                }
                Item::Fn(item) => self.measure(path, &item.sig, item.span()),
                _ => {}
            }
        }
    }

    fn measure(&mut self, path: &Path, signature: &syn::Signature, span: proc_macro2::Span) {
        let function = signature.ident.to_string();
        let first = signature.span().start().line;
        let lines = span.end().line + 1 - first;
        if lines > LINES_MAX {
            let message = format!("`{function}` has {lines} lines, {LINES_MAX} at most");
            self.findings.push(Finding::new(path, first, message));
        }
        let is_typed = |argument: &&FnArg| matches!(argument, FnArg::Typed(_));
        let parameters = signature.inputs.iter().filter(is_typed).count();
        if parameters > PARAMETERS_MAX {
            let message =
                format!("`{function}` has {parameters} parameters, {PARAMETERS_MAX} at most");
            self.findings.push(Finding::new(path, first, message));
        }
    }

    fn finish(self, name: &str) -> Vec<Finding> {
        let mut findings = self.findings;
        for (type_name, counts) in &self.types {
            let is_record = RECORDS.contains(&(name, type_name.as_str()));
            let (path, line) = &counts.place;
            if counts.fields > FIELDS_MAX && !is_record {
                let message = format!(
                    "`{type_name}` has {} fields, {FIELDS_MAX} at most",
                    counts.fields
                );
                findings.push(Finding::new(path, *line, message));
            }
            if counts.methods > METHODS_MAX {
                let message = format!(
                    "`{type_name}` has {} methods, {METHODS_MAX} at most",
                    counts.methods
                );
                findings.push(Finding::new(path, *line, message));
            }
        }
        let cycle = largest_cycle(&self.imports);
        let root = format!("crates/{name}/src");
        if cycle.len() > CYCLE_MAX {
            let files = cycle.join(", ");
            let message = format!(
                "{} files import each other, {CYCLE_MAX} at most: {files}",
                cycle.len()
            );
            findings.push(Finding::new(&root, 0, message));
        }
        findings
    }
}

/// The modules of a crate that a file imports.
struct Imports<'a> {
    module: &'a str,
    known: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Imports<'_> {
    /// Notes the module that a path names, if it begins with `crate`, `super`, `self`, or a module below this one.
    fn note(&mut self, segments: &[String]) {
        let mut base: Vec<&str> = self.module.split('/').collect();
        let Some((first, after)) = segments.split_first() else {
            return;
        };
        let mut rest = after;
        match first.as_str() {
            "crate" => base.clear(),
            "super" => {
                base.pop();
            }
            "self" => {}
            child if self.known.contains(&format!("{}/{child}", self.module)) => rest = segments,
            _ => return,
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            base.pop();
            rest = &rest[1..];
        }
        let named: Vec<&str> = base
            .into_iter()
            .chain(rest.iter().map(String::as_str))
            .collect();
        let longest = (1..=named.len()).rev().map(|len| named[..len].join("/"));
        let module = longest
            .into_iter()
            .find(|module| self.known.contains(module));
        self.found
            .extend(module.filter(|module| module != self.module));
    }

    fn tree(&mut self, before: &[String], tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                let mut segments = before.to_vec();
                segments.push(path.ident.to_string());
                self.tree(&segments, &path.tree);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
            UseTree::Name(name) => {
                let mut segments = before.to_vec();
                segments.push(name.ident.to_string());
                self.note(&segments);
            }
            UseTree::Rename(_) | UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A module that hands on the names of others does not use them.
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in super)` names a module and imports nothing.
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if segments.len() > 1 {
            self.note(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        // Unit tests see everything.
        let is_test = item.attrs.iter().any(|attr| attr.path().is_ident("cfg"));
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }
}

/// The largest set of modules each of which can be reached from each other.
fn largest_cycle(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<&str> {
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from.to_owned()];
        while let Some(module) = next.pop() {
            for import in imports.get(&module).into_iter().flatten() {
                if seen.insert(import.clone()) {
                    next.push(import.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<String>> = imports
        .keys()
        .map(|module| (module.as_str(), reached(module)))
        .collect();
    let cycle_of = |module: &str| -> Vec<&str> {
        let mutual = |other: &&&str| all[module].contains(**other) && all[**other].contains(module);
        all.keys().filter(mutual).copied().collect()
    };
    all.keys()
        .map(|module| cycle_of(module))
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        let findings = check(&sources).unwrap();
        findings
            .iter()
            .map(|finding| finding.message.clone())
            .collect()
    }

    #[test]
    fn types_have_few_fields_and_methods() {
        let fields: String = (0..21).map(|n| format!("f{n}: u8, ")).collect();
        let large = format!("struct Large {{ {fields} }}");
        assert_eq!(
            findings(&[("crates/x/src/a.rs", &large)]),
            ["`Large` has 21 fields, 20 at most"]
        );
        let methods: String = (0..31).map(|n| format!("fn m{n}() {{}} ")).collect();
        let half = format!("impl Large {{ {methods} }}");
        let both = [
            ("crates/x/src/a.rs", half.as_str()),
            ("crates/x/src/b.rs", half.as_str()),
        ];
        assert_eq!(findings(&both), ["`Large` has 62 methods, 60 at most"]);
        assert_eq!(findings(&both[..1]), [""; 0]);
    }

    #[test]
    fn functions_are_short_and_have_few_parameters() {
        let long = format!("fn f() {{\n{}}}", "g();\n".repeat(69));
        assert_eq!(
            findings(&[("crates/x/src/a.rs", &long)]),
            ["`f` has 71 lines, 70 at most"]
        );
        let many = "fn f(a: A, b: B, c: C, d: D, e: E, f: F, g: G) {}";
        assert_eq!(
            findings(&[("crates/x/src/a.rs", many)]),
            ["`f` has 7 parameters, 6 at most"]
        );
        let method = "impl A { fn f(&self, b: B, c: C, d: D, e: E, f: F, g: G) {} }";
        assert_eq!(findings(&[("crates/x/src/a.rs", method)]), [""; 0]);
    }

    #[test]
    fn few_files_import_each_other() {
        let ring = |count: usize| -> Vec<String> {
            let sources: Vec<(PathBuf, String)> = (0..count)
                .map(|n| {
                    let text = format!("use crate::m{}::A;", (n + 1) % count);
                    (PathBuf::from(format!("crates/x/src/m{n}.rs")), text)
                })
                .collect();
            let findings = check(&sources.into_iter().collect()).unwrap();
            findings
                .iter()
                .map(|finding| finding.message.clone())
                .collect()
        };
        assert_eq!(ring(6), [""; 0]);
        assert_eq!(
            ring(7),
            ["7 files import each other, 6 at most: m0, m1, m2, m3, m4, m5, m6"]
        );
    }

    /// Six files in a row below `m`, and `m`, with these imports.
    fn below_a_module(of_m: &str) -> Vec<String> {
        let mut sources = vec![("crates/x/src/m.rs".to_owned(), of_m.to_owned())];
        for n in 0..6 {
            let next = if n < 5 {
                format!("super::m{}::A", n + 1)
            } else {
                "super::B".to_owned()
            };
            sources.push((format!("crates/x/src/m/m{n}.rs"), format!("use {next};")));
        }
        let sources: Vec<(&str, &str)> = sources
            .iter()
            .map(|(path, text)| (&**path, &**text))
            .collect();
        findings(&sources)
    }

    #[test]
    fn an_import_from_a_child_counts_and_a_reexport_does_not() {
        assert_eq!(below_a_module("use m0::A;").len(), 1);
        assert_eq!(below_a_module("fn f() { m0::g() }").len(), 1);
        assert_eq!(below_a_module("pub use m0::A;"), [""; 0]);
        assert_eq!(below_a_module("pub(in crate::m::m0) struct B;"), [""; 0]);
    }

    #[test]
    fn paths_and_super_are_imports_and_tests_are_not() {
        let files = [
            ("crates/x/src/a/mod.rs", "fn f() { crate::b::g() }"),
            ("crates/x/src/a/c.rs", "use super::D;"),
            (
                "crates/x/src/b.rs",
                "#[cfg(test)] mod tests { use crate::a::c::D; }",
            ),
        ];
        let sources: BTreeMap<PathBuf, String> = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        let known: BTreeSet<String> = ["a", "a/c", "b"].map(str::to_owned).into();
        let imports = |module: &str, path: &str| {
            let mut imports = Imports {
                module,
                known: &known,
                found: BTreeSet::new(),
            };
            imports.visit_file(&syn::parse_file(&sources[Path::new(path)]).unwrap());
            imports.found.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(imports("a", "crates/x/src/a/mod.rs"), ["b"]);
        assert_eq!(imports("a/c", "crates/x/src/a/c.rs"), ["a"]);
        assert_eq!(imports("b", "crates/x/src/b.rs"), [""; 0]);
    }
}
