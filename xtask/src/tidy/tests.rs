//! Each rule is shown a text that breaks it and one that keeps it; then the repository itself is checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{docs, kinds, language, layers, lexer, links, modules, source};

fn manifest(name: &str, tables: &str) -> String {
    format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{tables}")
}

fn layer_messages(text: String) -> Vec<String> {
    let manifests = [(PathBuf::from("crates/x/Cargo.toml"), text)];
    let findings = layers::check(&manifests).expect("the text is TOML");
    findings
        .into_iter()
        .map(|finding| finding.to_string())
        .collect()
}

#[track_caller]
fn check_layers(name: &str, tables: &str, expected: Option<&str>) {
    let messages = layer_messages(manifest(name, tables));
    match expected {
        None => assert_eq!(messages, Vec::<String>::new()),
        Some(part) => {
            assert_eq!(messages.len(), 1, "{messages:?}");
            assert!(
                messages[0].contains(part),
                "{messages:?} does not contain {part:?}"
            );
        }
    }
}

#[test]
fn edges_point_downwards_only() {
    let down = "[dependencies]\nkedge-types.workspace = true\n";
    check_layers("kedge-log", down, None);
    check_layers(
        "kedge-log",
        "[dependencies]\nkedge-vbucket.workspace = true\n",
        Some("sideways"),
    );
    check_layers(
        "kedge-log",
        "[dependencies]\nkedge-bucket.workspace = true\n",
        Some("upwards"),
    );
    check_layers(
        "kedge-types",
        "[dependencies]\nkedge-types.workspace = true\n",
        Some("sideways"),
    );
}

#[test]
fn every_kind_of_dependency_is_an_edge() {
    for kind in [
        "dev-dependencies",
        "build-dependencies",
        "target.'cfg(unix)'.dependencies",
    ] {
        let upwards = format!("[{kind}]\nkedge-server = {{ workspace = true }}\n");
        check_layers("kedge-types", &upwards, Some("upwards"));
    }
    let renamed = "[dependencies]\nengine = { workspace = true, package = \"kedge-bucket\" }\n";
    check_layers("kedge-types", renamed, Some("upwards"));
}

#[test]
fn manifests_keep_to_the_workspace() {
    let version = "[dependencies]\nserde = \"1.0\"\n";
    check_layers("kedge-log", version, Some("serde.workspace = true"));
    check_layers("kedge-lgo", "", Some("has no layer"));
    check_layers(
        "kedge-server",
        "[dependencies]\nkedge-lgo.workspace = true\n",
        Some("no layer"),
    );
    let bare = layer_messages("[package]\nname = \"kedge-log\"\n".to_owned());
    assert!(bare[0].contains("lints"), "{bare:?}");
}

#[test]
fn messages_name_path_and_line() {
    let messages = layer_messages(manifest(
        "kedge-log",
        "[dependencies]\nkedge.workspace = true\n",
    ));
    assert!(
        messages[0].starts_with("crates/x/Cargo.toml:6: "),
        "{messages:?}"
    );
}

#[test]
fn a_manifest_that_is_not_toml_is_an_error() {
    let manifests = [(PathBuf::from("crates/x/Cargo.toml"), "[package".to_owned())];
    let error = layers::check(&manifests).expect_err("the text is not TOML");
    assert!(error.to_string().contains("crates/x/Cargo.toml"));
}

#[test]
fn comments_and_literals_are_not_code() {
    let cases = [
        ("a // todo!()\nb", "a \nb"),
        ("a /* x /* y */ z */ b", "a  b"),
        ("f(\"todo!() \\\" unsafe\") g", "f(\"\") g"),
        ("r#\"unsafe \" here\"# x", "r#\"\"# x"),
        ("br\"unsafe\" x", "br\"\" x"),
        ("'\"' unsafe", "'' unsafe"),
        ("'\\'' unsafe", "'' unsafe"),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        ("\"unterminated", "\""),
        ("attr\"x\"", "attr\"\""),
        ("\"ä\nunsafe\" é", "\"\n\" é"),
    ];
    for (text, expected) in cases {
        let squeezed: String = lexer::code_only(text)
            .split(' ')
            .filter(|part| !part.is_empty())
            .collect();
        let wanted: String = expected
            .split(' ')
            .filter(|part| !part.is_empty())
            .collect();
        assert_eq!(squeezed, wanted, "{text:?}");
        assert_eq!(
            lexer::code_only(text).lines().count(),
            text.lines().count(),
            "{text:?}"
        );
    }
}

fn source_lines(path: &str, text: &str) -> Vec<usize> {
    source::check(Path::new(path), text)
        .findings
        .iter()
        .map(|finding| finding.line)
        .collect()
}

#[test]
fn what_may_not_be_written() {
    let path = "crates/kedge-log/src/lib.rs";
    let cases = [
        ("fn f() {\n    todo!()\n}", vec![2]),
        ("fn f() { unimplemented!(\"later\") }", vec![1]),
        ("#[ignore]\nfn f() {}", vec![1]),
        ("#[ignore = \"slow\"]\nfn f() {}", vec![1]),
        ("#[allow(dead_code)]\nfn f() {}", vec![1]),
        ("#![allow(missing_docs)]", vec![1]),
        ("#[cfg_attr(test, allow(dead_code))]\nfn f() {}", vec![1]),
        ("#[expect(dead_code, reason = \"r\")]\nfn f() {}", vec![]),
        ("fn f() { limiter.allow(1) }", vec![]),
        ("fn f() { unsafe { g() } }", vec![1]),
        ("#![deny(unsafe_code)]", vec![]),
        ("// unsafe, todo!()", vec![]),
        ("fn f() { mytodo!() }", vec![]),
    ];
    for (text, expected) in cases {
        assert_eq!(source_lines(path, text), expected, "{text:?}");
    }
}

#[test]
fn threads_are_begun_where_the_list_says() {
    let threads = "fn f() {\n    thread::Builder::new();\n    tokio::task::spawn_blocking(g);\n}\n";
    assert_eq!(source_lines("crates/a/src/lib.rs", threads), [2, 3]);
    assert_eq!(
        source_lines("crates/kedge-executor/src/worker_threads.rs", threads),
        []
    );
    assert_eq!(source_lines("crates/a/tests/it/a.rs", threads), []);
    assert_eq!(source_lines("bench/a.rs", threads), []);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{threads}}}\n");
    assert_eq!(source_lines("crates/a/src/lib.rs", &tests), []);
}

#[test]
fn kinds_of_tasks_have_a_name_of_their_own_and_a_row() {
    let sources = [
        (
            "crates/a/src/lib.rs",
            "/// Kind::new(\"comment\")\nstatic A: Kind = Kind::new(\n    \"a\",\n);\n#[cfg(test)]\nKind::new(\"test\")",
        ),
        (
            "crates/b/src/lib.rs",
            "Kind::new(\"b\", X);\nKind::new(\"a\", X);",
        ),
        ("crates/b/tests/it/b.rs", "Kind::new(\"c\", X)"),
    ];
    let sources = sources
        .into_iter()
        .map(|(path, text)| (PathBuf::from(path), text.to_owned()))
        .collect();
    let findings = kinds::check(&sources, "## Tasks\n| `a` | NonIO |\n");
    let messages: Vec<String> = findings
        .into_iter()
        .map(|finding| finding.message)
        .collect();
    let expected = [
        "has no row for the task `b`",
        "`a` is a kind of task in crates/a/src/lib.rs, too",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn tests_do_not_sleep() {
    let sleep = "fn f() {\n    std::thread::sleep(d);\n}\n";
    assert_eq!(source_lines("crates/a/tests/it/main.rs", sleep), [2]);
    assert_eq!(source_lines("crates/a/src/tests.rs", sleep), [2]);
    assert_eq!(source_lines("crates/a/src/lib.rs", sleep), []);
    assert_eq!(
        source_lines("crates/a/src/lib.rs", &format!("#[cfg(test)]\n{sleep}")),
        [3]
    );
    let reasoned =
        "fn f() {\n    // sleep: the clock under test is the real one\n    sleep(d);\n}\n";
    assert_eq!(source_lines("crates/a/tests/it/main.rs", reasoned), []);
    let empty = "// sleep:\nfn f() { sleep(d) }\n";
    assert_eq!(source_lines("crates/a/tests/it/main.rs", empty), [2]);
}

#[test]
fn a_long_file_says_why() {
    let long = "fn f() {}\n".repeat(901);
    assert_eq!(source_lines("crates/a/src/lib.rs", &long), [0]);
    assert_eq!(source_lines("crates/a/src/lib.rs", &long[10..]), []);
    let said = format!("//! The table.\n//! Long because it is one table.\n{long}");
    assert_eq!(source_lines("crates/a/src/lib.rs", &said), []);
}

#[test]
fn a_crate_has_one_integration_binary() {
    assert_eq!(source_lines("crates/a/tests/more.rs", ""), [0]);
    assert_eq!(source_lines("crates/a/tests/it/more.rs", ""), []);
}

#[track_caller]
fn check_links(path: &str, text: &str, expected: &[&str]) {
    let root = crate::repository_root().expect("the package lies in the repository");
    let findings = links::check(&root, Path::new(path), text);
    let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), expected.len(), "{messages:?}");
    for (message, part) in messages.iter().zip(expected) {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn links_lead_to_files_that_exist() {
    check_links(
        "xtask/doc.md",
        "[a](src/main.rs) [c](https://x.invalid/y) ![d](../Makefile)\n```\n[e](no)\n```\n",
        &[],
    );
    check_links(
        "xtask/doc.md",
        "[a](src/main.rs)\n[d](src/gone.rs#x)",
        &["doc.md:2: the link leads to src/gone.rs, which is not there"],
    );
    check_links(
        "doc.md",
        "[a](../other/x.md)",
        &["../other/x.md leaves the repository"],
    );
}

#[test]
fn anchors_of_links_are_headings() {
    let text = "# A\n## The disk is `full`, again\n## A\n```\n# Not one\n```\n[a](#the-disk-is-full-again) ";
    check_links("doc.md", &format!("{text}[b](#a) [c](#a-1)"), &[]);
    check_links("doc.md", &format!("{text}[b](#a-2)"), &["#a-2"]);
    check_links("doc.md", &format!("{text}[b](#not-one)"), &["#not-one"]);
    check_links(
        "docs/doc.md",
        "[a](compat.md#binary-commands) [b](compat.md#no-such-section)",
        &["compat.md#no-such-section"],
    );
}

#[test]
fn links_of_the_site_stay_in_it() {
    check_links("docs/guides/doc.md", "[a](../config.md)", &[]);
    check_links(
        "docs/guides/doc.md",
        "[a](../../README.md)",
        &["leaves docs"],
    );
    check_links("docs/doc.md", "[a](README.md)", &["rename the page"]);
    check_links("docs/SUMMARY.md", "[a](README.md)", &[]);
}

#[test]
fn documents_name_paths_that_exist() {
    let root = crate::repository_root().expect("the package lies in the repository");
    let text = "`kedge-types/src/lib.rs` `crates/kedge-types/src/` `kedge-types` `src/x.rs`\n\
        `kedge-types/src/gone.rs` and `crates/kedge-gone/`\n```\n`kedge-x/y`\n```\n";
    let findings = links::check_paths(&root, Path::new("docs/doc.md"), text);
    let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "docs/doc.md:2: names kedge-types/src/gone.rs, which is not there",
            "docs/doc.md:2: names crates/kedge-gone/, which is not there"
        ]
    );
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = "# Summary\n\n- [A](a.md)\n- [B](b/c.md)\n- [A](a.md)\n";
    let pages = [
        "docs/SUMMARY.md",
        "docs/a.md",
        "docs/b/c.md",
        "docs/b/d.md",
        "README.md",
    ];
    let findings = links::check_summary(&pages.map(PathBuf::from), summary);
    let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "docs/a.md: docs/SUMMARY.md lists this page 2 times",
            "docs/b/d.md: docs/SUMMARY.md does not list this page, so the site does not have it"
        ]
    );
}

#[test]
fn a_table_names_every_constant() {
    let source = "pub const A_MAX: u32 = 1;\nconst HIDDEN: u32 = 2;\npub const B_MAX: u32 = 3;\n";
    let findings = docs::check_table(source, "docs/reference/limits.md", "| `A_MAX` | ... |");
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("`B_MAX`"));
}

#[track_caller]
fn check_readme(readme: &str, library: &str, expected: Option<&str>) {
    let findings = docs::check_readme(Path::new("crates/x/README.md"), readme, library);
    let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages.len(),
        usize::from(expected.is_some()),
        "{messages:?}"
    );
    if let Some(part) = expected {
        assert!(messages[0].contains(part), "{messages:?}");
    }
}

#[test]
fn a_readme_repeats_the_example_of_its_crate() {
    let readme = "# x\n## Purpose\n## What it must not know\n## Main types\n## Example\n```rust\nf();\n\ng();\n```\n## Tests\n";
    let library =
        "//! X.\n//!\n//! ```\n//! f();\n//!\n//! # hidden();\n//! g();\n//! ```\nfn f() {}\n";
    check_readme(readme, library, None);
    check_readme(
        readme,
        &library.replace("f();", "h();"),
        Some("its example"),
    );
    check_readme(
        &readme.replace("## Tests", "## Else"),
        library,
        Some("its sections"),
    );
    check_readme(readme, "#[doc = include_str!(\"../README.md\")]", None);
}

fn language_messages(path: &str, text: &str) -> Vec<String> {
    let sources = BTreeMap::from([(PathBuf::from(path), text.to_owned())]);
    let findings = language::check(&sources);
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn item_documentation_does_not_start_with_a_clause() {
    let good = "/// A queue.\n/// What follows is a sentence of it.\nstruct Queue;\n//! What a file is about.\n";
    assert_eq!(language_messages("crates/a/src/lib.rs", good), [""; 0]);
    for word in ["What", "Who", "Which", "How", "Whether"] {
        let bad = format!("struct A {{\n    /// {word} it is.\n    b: u8,\n}}\n");
        let messages = language_messages("crates/a/src/lib.rs", &bad);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(
            messages[0].starts_with("crates/a/src/lib.rs:2: "),
            "{messages:?}"
        );
    }
}

#[test]
fn retired_names_are_not_defined_again() {
    let text = "struct Settler;\nfn f() { rouse(); } // settler\nenum Turning {}\nlet turn: Turn = g(\"kick\");\n";
    let messages = language_messages("crates/a/src/lib.rs", text);
    let lines: Vec<&str> = messages.iter().map(|it| &it[..22]).collect();
    assert_eq!(
        lines,
        ["crates/a/src/lib.rs:1:", "crates/a/src/lib.rs:2:"],
        "{messages:?}"
    );
    let in_tests = "#[cfg(test)]\nmod tests {\n    struct Settler;\n}\n";
    assert_eq!(language_messages("crates/a/src/lib.rs", in_tests), [""; 0]);
}

#[test]
fn the_repository_is_tidy() {
    let root = crate::repository_root().expect("the package lies in the repository");
    let report = super::check(&root).expect("the tree can be read");
    let messages: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(messages.is_empty(), "\n{}", messages.join("\n"));
    assert!(
        report.manifests > 8 && report.files > 40,
        "the walk saw too little: {report:?}"
    );
}

#[test]
fn every_file_is_named_by_a_module() {
    let tree = [
        (
            "crates/x/src/lib.rs",
            "mod a;\npub(crate) mod b; // mod lost;",
        ),
        ("crates/x/src/a.rs", "#[cfg(test)]\nmod tests;"),
        ("crates/x/src/a/tests.rs", ""),
        ("crates/x/src/b/mod.rs", "#[path = \"../far.rs\"]\nmod far;"),
        ("crates/x/src/far.rs", ""),
        ("crates/x/src/lost.rs", ""),
        ("crates/x/tests/it/main.rs", "mod b;"),
        ("crates/x/tests/it/b.rs", ""),
        ("crates/x/tests/it/gone/mod.rs", "mod c;"),
        ("crates/x/tests/it/gone/c.rs", ""),
        ("bench/loop.rs", ""),
    ];
    let sources: BTreeMap<PathBuf, String> = tree
        .into_iter()
        .map(|(path, text)| (PathBuf::from(path), text.to_owned()))
        .collect();
    let found: Vec<PathBuf> = modules::check(&sources)
        .into_iter()
        .map(|finding| finding.path)
        .collect();
    assert_eq!(
        found,
        [
            Path::new("crates/x/src/lost.rs"),
            Path::new("crates/x/tests/it/gone/mod.rs")
        ]
    );
}
