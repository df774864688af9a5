//! Lookups of paths in documents.

use SubdocError::{DocE2deep, DocNotjson, PathEinval, PathEnoent, PathMismatch};
use kedge_json::{Path, SUBDOC_DEPTH_MAX, SubdocError, count, exists, get};

/// The example of Couchbase's `SubDocument.md`, except for two names.
const PRODUCT: &str = r#" {
  "type":"product",
  "pType" : "toy" ,
  "pDetails": { "audience":"children" },
  "pDistributors":[
    { "dName": "Going Out of Business Wholesale", "dAdded": ["Feb", 36, 2025] },
    { "dName": "Everything Must Go!", "dAdded": ["May", 72, 1492] }
  ],
  "dot.ted.field":{"subfield":null},
  "back`tick`field":-1.5e3,
  "field.with.\"quotes\"":true,
  "": "none",
  "\u0065scaped": "\u0041",
  "empty": {}, "no": [ ],
  "type": "again"
} "#;

fn path(text: &str) -> Path<'_> {
    Path::parse(text.as_bytes()).expect(text)
}

fn found<'d>(document: &'d str, text: &str) -> Result<&'d str, SubdocError> {
    let path = path(text);
    let value = get(document.as_bytes(), &path);
    assert_eq!(
        exists(document.as_bytes(), &path),
        value.map(|_| ()),
        "{text}"
    );
    value.map(|value| str::from_utf8(value).expect("UTF-8"))
}

#[test]
fn get_returns_the_text_of_a_value() {
    for (path, value) in [
        ("type", r#""product""#),
        ("pType", r#""toy""#),
        ("pDetails", r#"{ "audience":"children" }"#),
        (
            "pDistributors[0].dName",
            r#""Going Out of Business Wholesale""#,
        ),
        ("pDistributors[0].dAdded", r#"["Feb", 36, 2025]"#),
        ("pDistributors[1].dAdded[2]", "1492"),
        ("pDistributors[-1].dAdded[-1]", "1492"),
        ("pDistributors[0].dAdded[-1]", "2025"),
        ("pDistributors[-1].dAdded[0]", r#""May""#),
        ("`dot.ted.field`.subfield", "null"),
        ("`back``tick``field`", "-1.5e3"),
        ("back``tick``field", "-1.5e3"),
        (r#"`field.with.\"quotes\"`"#, "true"),
        ("escaped", r#""\u0041""#),
        (r"\u0065scap\u0065d", r#""\u0041""#),
        ("empty", "{}"),
        ("no", "[ ]"),
    ] {
        assert_eq!(found(PRODUCT, path), Ok(value), "{path}");
    }
}

#[test]
fn missing_and_mismatched_paths_have_different_errors() {
    for (path, error) in [
        ("none", PathEnoent),
        ("none.none[3]", PathEnoent),
        ("pDetails.none", PathEnoent),
        ("pDistributors[2]", PathEnoent),
        ("pDistributors[2].dName", PathEnoent),
        ("pDistributors[-1].none", PathEnoent),
        ("no[0]", PathEnoent),
        ("no[-1]", PathEnoent),
        ("no[-1].a", PathEnoent),
        ("empty.a", PathEnoent),
        ("dot.ted.field", PathEnoent),
        ("pDistributors.count", PathMismatch),
        ("pType.category", PathMismatch),
        ("pType[0]", PathMismatch),
        ("pDetails[0]", PathMismatch),
        ("pDetails[-1]", PathMismatch),
        ("pDistributors[0][0]", PathMismatch),
        ("pDistributors[-1][0]", PathMismatch),
        ("[0]", PathMismatch),
        ("`back``tick``field`.a", PathMismatch),
        ("", PathEinval),
    ] {
        assert_eq!(found(PRODUCT, path), Err(error), "{path}");
    }
}

#[test]
fn nested_last_elements_are_found() {
    let array = "[[1],[2,[3,[4,{\"a\":[5,6]}]]]]";
    for (path, value) in [
        ("[-1]", Ok("[2,[3,[4,{\"a\":[5,6]}]]]")),
        ("[-1][-1]", Ok("[3,[4,{\"a\":[5,6]}]]")),
        ("[-1][-1][-1]", Ok("[4,{\"a\":[5,6]}]")),
        ("[-1][-1][-1][-1].a[-1]", Ok("6")),
        ("[-1][-1][-1][-1].a[1]", Ok("6")),
        ("[0][-1]", Ok("1")),
        ("[-1][0]", Ok("2")),
        ("[-1][2]", Err(PathEnoent)),
        ("[-1][0][-1]", Err(PathMismatch)),
        ("[-1].a[-1]", Err(PathMismatch)),
    ] {
        assert_eq!(found(array, path), value, "{path}");
    }
    // Only the last one counts, whatever the ones before are.
    for (document, value) in [
        (r#"[1,{"b":3},[7],{"a":[0,2]}]"#, Ok("2")),
        (r#"[{"a":[2]},1]"#, Err(PathMismatch)),
        (r#"[{"a":[2]},{}]"#, Err(PathEnoent)),
        (r#"[{"a":[2]},{"a":[]}]"#, Err(PathEnoent)),
        (r#"[{"a":[2]},{"a":{}}]"#, Err(PathMismatch)),
        (
            r#"[{"a":[2, {}]} , { "x" : [[]], "a" : [ 1 , "]" ] , "b":2 } ]"#,
            Ok("\"]\""),
        ),
    ] {
        assert_eq!(found(document, "[-1].a[-1]"), value, "{document}");
    }
}

#[test]
fn count_returns_the_number_of_entries() {
    for (document, text, expected) in [
        (PRODUCT, "pDistributors", Ok(2)),
        (PRODUCT, "pDistributors[-1].dAdded", Ok(3)),
        (PRODUCT, "pDetails", Ok(1)),
        (PRODUCT, "empty", Ok(0)),
        (PRODUCT, "no", Ok(0)),
        // Members with the same name are counted separately.
        (PRODUCT, "", Ok(12)),
        ("[1,[2,3]]", "", Ok(2)),
        ("[1,[2,3]]", "[-1]", Ok(2)),
        (PRODUCT, "type", Err(PathMismatch)),
        ("7", "", Err(PathMismatch)),
        (PRODUCT, "none", Err(PathEnoent)),
        (PRODUCT, "type.a", Err(PathMismatch)),
        ("[1,", "", Err(DocNotjson)),
    ] {
        assert_eq!(count(document.as_bytes(), &path(text)), expected, "{text}");
    }
}

#[test]
fn lookups_have_a_depth_limit() {
    let nested = |depth: usize| [&"[".repeat(depth), "1", &"]".repeat(depth)].concat();
    let at_limit = nested(SUBDOC_DEPTH_MAX);
    let first = "[0]".repeat(SUBDOC_DEPTH_MAX);
    assert_eq!(found(&at_limit, &first), Ok("1"));
    assert_eq!(found(&at_limit, &"[-1]".repeat(SUBDOC_DEPTH_MAX)), Ok("1"));
    let deeper = nested(SUBDOC_DEPTH_MAX + 1);
    for path in [first.as_str(), "[0]", "[-1]", "[1]"] {
        assert_eq!(found(&deeper, path), Err(DocE2deep), "{path}");
    }
    // Text after the value is not read.
    assert_eq!(found(&format!("[1,{deeper}]"), "[0]"), Ok("1"));
}

#[test]
fn invalid_json_is_reported_if_it_is_read() {
    for (document, path) in [
        ("", "a"),
        ("{", "a"),
        ("{\"a", "a"),
        ("{\"a\"", "a"),
        ("{\"a\":", "a"),
        ("{\"a\":}", "a"),
        ("{\"b\":1", "a"),
        ("{\"b\":1]", "a"),
        ("{\"b\":1 2", "a"),
        ("{b:1}", "a"),
        ("{\"b\":{\"c\":[1}", "a"),
        ("[", "[0]"),
        ("[1,", "[1]"),
        ("[1,]", "[1]"),
        ("[1 2]", "[1]"),
        ("[1", "[-1]"),
        ("[[1]", "[-1]"),
        ("xyz", "a"),
        ("\u{feff}{}", "a"),
    ] {
        assert_eq!(found(document, path), Err(DocNotjson), "{document} {path}");
    }
    assert_eq!(found("17", "a"), Err(PathMismatch));
}
