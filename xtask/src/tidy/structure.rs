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
const RECORDS: [(&str, &str); 5] = [
    ("kedge", "LoadArgs"),
    ("kedge", "Plan"),
    ("kedge", "Report"),
    ("kedge-frontend", "MetricsSnapshot"),
    ("kedge-mgmt", "BucketDocument"),
];

/// Types that are larger still, with the numbers that they may not exceed: crate, type, fields, methods. A type that is
/// small enough leaves the list.
const LARGE_TYPES: &[(&str, &str, usize, usize)] = &[("kedge-bucket", "Bucket", 20, 99)];

/// Crates with a larger cycle still, with the number of files that it may not exceed.
const LARGE_CYCLES: &[(&str, usize)] = &[];

/// A function that may be longer: crate, function, the number of lines that it may not exceed, and the reason why it is not
/// split.
type LongFunction = (&'static str, &'static str, usize, &'static str);

/// Functions that are longer. A function that is short enough leaves the list.
const LONG_FUNCTIONS: &[LongFunction] = &[];
/// Largest number of entries of [`LONG_FUNCTIONS`].
const LONG_FUNCTIONS_MAX: usize = 5;

const _: () = assert!(LONG_FUNCTIONS.len() <= LONG_FUNCTIONS_MAX);

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
    /// Lines of the longest function of each name, and its path and line.
    functions: BTreeMap<String, (usize, PathBuf, usize)>,
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
        let longest = self.functions.entry(function.clone()).or_default();
        if lines > longest.0 {
            *longest = (lines, path.to_owned(), first);
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
        findings.extend(check_lengths(&self.functions, name, LONG_FUNCTIONS));
        for (type_name, counts) in &self.types {
            let is_record = RECORDS.contains(&(name, type_name.as_str()));
            let large = LARGE_TYPES
                .iter()
                .find(|(of, large, ..)| *of == name && large == type_name);
            let (fields_max, methods_max) = large
                .map_or((FIELDS_MAX, METHODS_MAX), |(_, _, fields, methods)| {
                    (*fields, *methods)
                });
            let (path, line) = &counts.place;
            if counts.fields > fields_max && !is_record {
                let message = format!(
                    "`{type_name}` has {} fields, {fields_max} at most",
                    counts.fields
                );
                findings.push(Finding::new(path, *line, message));
            }
            if counts.methods > methods_max {
                let message = format!(
                    "`{type_name}` has {} methods, {methods_max} at most",
                    counts.methods
                );
                findings.push(Finding::new(path, *line, message));
            }
            if large.is_some() && counts.fields <= FIELDS_MAX && counts.methods <= METHODS_MAX {
                let message = format!("`{type_name}` is small enough: take it out of LARGE_TYPES");
                findings.push(Finding::new(path, *line, message));
            }
        }
        let cycle = largest_cycle(&self.imports);
        let large = LARGE_CYCLES.iter().find(|(of, _)| *of == name);
        let max = large.map_or(CYCLE_MAX, |(_, files)| *files);
        let root = format!("crates/{name}/src");
        if cycle.len() > max {
            let files = cycle.join(", ");
            let message = format!(
                "{} files import each other, {max} at most: {files}",
                cycle.len()
            );
            findings.push(Finding::new(&root, 0, message));
        }
        if large.is_some() && cycle.len() <= CYCLE_MAX {
            let message = "its cycle is small enough: take it out of LARGE_CYCLES";
            findings.push(Finding::new(&root, 0, message));
        }
        findings
    }
}

/// Checks the lengths of the functions of a crate.
fn check_lengths(
    functions: &BTreeMap<String, (usize, PathBuf, usize)>,
    crate_name: &str,
    exceptions: &[LongFunction],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (function, (lines, path, first)) in functions {
        let is_this = |(of, long, ..): &&LongFunction| *of == crate_name && long == function;
        let exception = exceptions.iter().find(is_this);
        let lines_max = exception.map_or(LINES_MAX, |(_, _, lines, _)| *lines);
        if *lines > lines_max {
            let message = format!("`{function}` has {lines} lines, {lines_max} at most");
            findings.push(Finding::new(path, *first, message));
        }
        if exception.is_some() && *lines <= LINES_MAX {
            let message = format!("`{function}` is short enough: take it out of LONG_FUNCTIONS");
            findings.push(Finding::new(path, *first, message));
        }
    }
    let of_crate = exceptions.iter().filter(|(of, ..)| *of == crate_name);
    for (_, function, _, reason) in of_crate {
        if !functions.contains_key(*function) {
            let message = format!("LONG_FUNCTIONS has `{function}`, which is not there");
            findings.push(Finding::new(format!("crates/{crate_name}/src"), 0, message));
        } else if reason.is_empty() {
            let message = format!("LONG_FUNCTIONS has no reason for `{function}`");
            findings.push(Finding::new(format!("crates/{crate_name}/src"), 0, message));
        }
    }
    findings
}

/// The modules of a crate that a file imports.
struct Imports<'a> {
    module: &'a str,
    known: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Imports<'_> {
    /// Notes the module that a path names, if it begins with `crate`, `super` or `self`.
    fn note(&mut self, segments: &[String]) {
        let mut base: Vec<&str> = self.module.split('/').collect();
        let mut rest = segments;
        match rest.first().map(String::as_str) {
            Some("crate") => base.clear(),
            Some("super") => {
                base.pop();
            }
            Some("self") => {}
            _ => return,
        }
        rest = &rest[1..];
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
        self.tree(&[], &item.tree);
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
    fn exceptions_for_long_functions_have_a_reason_and_an_end() {
        let function = |lines| (lines, PathBuf::from("crates/x/src/a.rs"), 1);
        let functions = [("long", 90), ("longer", 120), ("short", 70)];
        let functions: BTreeMap<_, _> = functions
            .into_iter()
            .map(|(name, lines)| (name.to_owned(), function(lines)))
            .collect();
        let messages = |exceptions: &[LongFunction]| -> Vec<String> {
            let findings = check_lengths(&functions, "x", exceptions);
            findings.into_iter().map(|it| it.message).collect()
        };
        let good: [LongFunction; 2] = [("x", "long", 90, "a table"), ("x", "longer", 120, "too")];
        assert_eq!(messages(&good), [""; 0]);
        let bad: [LongFunction; 4] = [
            ("x", "long", 90, ""),
            ("x", "longer", 119, "a table"),
            ("x", "short", 90, "a table"),
            ("x", "gone", 90, "a table"),
        ];
        assert_eq!(
            messages(&bad),
            [
                "`longer` has 120 lines, 119 at most",
                "`short` is short enough: take it out of LONG_FUNCTIONS",
                "LONG_FUNCTIONS has no reason for `long`",
                "LONG_FUNCTIONS has `gone`, which is not there",
            ]
        );
        assert_eq!(messages(&[]).len(), 2);
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
