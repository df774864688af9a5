//! Edits of documents.

use Edit::{AddUnique, Counter, Delete, DictAdd, DictUpsert, Insert, PushFirst, PushLast, Replace};
use SubdocError::{
    DeltaEinval, DocE2deep, DocNotjson, NumErange, PathEexists, PathEinval, PathEnoent,
    PathMismatch, ValueCantinsert, ValueEtoodeep,
};
use kedge_json::{Edit, Path, SUBDOC_DEPTH_MAX, SubdocError, edit, is_json, parse_delta};

fn edited(
    document: &str,
    path: &str,
    change: Edit<'_>,
    make_parents: bool,
) -> Result<(String, Option<i64>), SubdocError> {
    let path = Path::parse(path.as_bytes())?;
    let edited = edit(document.as_bytes(), &path, change, make_parents)?;
    assert!(is_json(&edited.document), "{:?}", edited.document);
    let text = String::from_utf8(edited.document).expect("UTF-8");
    Ok((text, edited.number))
}

/// Document, path, edit, result.
pub(crate) type Row<'a> = (&'a str, &'a str, Edit<'a>, Result<&'a str, SubdocError>);

pub(crate) fn check(rows: &[Row<'_>], make_parents: bool) {
    for &(document, path, change, ref expected) in rows {
        let made = edited(document, path, change, make_parents).map(|(text, _)| text);
        let expected = expected.map(str::to_owned);
        assert_eq!(
            made, expected,
            "{document} {path} {change:?} {make_parents}"
        );
    }
}

#[test]
fn dict_add_and_dict_upsert() {
    let both: &[Row<'_>] = &[
        ("{}", "a", DictAdd(b"1"), Ok(r#"{"a":1}"#)),
        (" { } ", "a", DictAdd(b"1"), Ok(r#" {"a":1 } "#)),
        (
            r#"{"b":1}"#,
            "a",
            DictAdd(b" [ 2 ] "),
            Ok(r#"{"b":1,"a": [ 2 ] }"#),
        ),
        (
            "{\n  \"b\": 1\n}",
            "a",
            DictAdd(b"2"),
            Ok("{\n  \"b\": 1,\"a\":2\n}"),
        ),
        (
            r#"{"b":{"c":[{}]}}"#,
            "b.c[0].a",
            DictAdd(b"{}"),
            Ok(r#"{"b":{"c":[{"a":{}}]}}"#),
        ),
        (
            r#"{"b":{"c":[{}]}}"#,
            "b.c[-1].a",
            DictAdd(b"{}"),
            Ok(r#"{"b":{"c":[{"a":{}}]}}"#),
        ),
        ("[{},{}]", "[-1].a", DictAdd(b"1"), Ok(r#"[{},{"a":1}]"#)),
        ("{}", "`a.``b`", DictAdd(b"1"), Ok(r#"{"a.`b":1}"#)),
        (
            "{}",
            r#"a\"\u0041"#,
            DictAdd(b"1"),
            Ok(r#"{"a\"\u0041":1}"#),
        ),
        (r#"{"a":1}"#, "a", DictAdd(b"2"), Err(PathEexists)),
        (r#"{"\u0061":1}"#, "a", DictAdd(b"2"), Err(PathEexists)),
        (r#"{"a":null}"#, "a", DictAdd(b"2"), Err(PathEexists)),
        (r#"{"a":null}"#, "a.b", DictAdd(b"2"), Err(PathMismatch)),
        ("[]", "a", DictAdd(b"2"), Err(PathMismatch)),
        ("5", "a", DictAdd(b"2"), Err(PathMismatch)),
        ("{}", "", DictAdd(b"2"), Err(PathEinval)),
        ("[1]", "[0]", DictAdd(b"2"), Err(PathEinval)),
        ("[1]", "[-1]", DictAdd(b"2"), Err(PathEinval)),
        ("{", "a", DictAdd(b"2"), Err(DocNotjson)),
        (r#"{"a":1}"#, "a", DictUpsert(b"2"), Ok(r#"{"a":2}"#)),
        (
            r#"{"a" : [1,{}] , "b":3}"#,
            "a",
            DictUpsert(b"\"x\""),
            Ok(r#"{"a" : "x" , "b":3}"#),
        ),
        (
            r#"{"a":1,"a":2}"#,
            "a",
            DictUpsert(b"3"),
            Ok(r#"{"a":3,"a":2}"#),
        ),
        (
            r#"{"\u0061":1}"#,
            "a",
            DictUpsert(b"2"),
            Ok(r#"{"\u0061":2}"#),
        ),
        (r#"{"a":1}"#, "b", DictUpsert(b"2"), Ok(r#"{"a":1,"b":2}"#)),
        ("[1]", "[0]", DictUpsert(b"2"), Err(PathEinval)),
    ];
    check(both, false);
    check(both, true);
    check(
        &[
            ("{}", "a.b", DictAdd(b"1"), Err(PathEnoent)),
            ("{}", "a.b", DictUpsert(b"1"), Err(PathEnoent)),
            ("{}", "a[0].b", DictUpsert(b"1"), Err(PathEnoent)),
            ("[]", "[0].b", DictUpsert(b"1"), Err(PathEnoent)),
        ],
        false,
    );
    check(
        &[
            ("{}", "a.b", DictAdd(b"1"), Ok(r#"{"a":{"b":1}}"#)),
            (
                "{\"x\":0 }",
                "a.`b`.c.d",
                DictUpsert(b"1"),
                Ok(r#"{"x":0,"a":{"b":{"c":{"d":1}}} }"#),
            ),
            (
                r#"{"a":{}}"#,
                "a.b.c",
                DictAdd(b"true"),
                Ok(r#"{"a":{"b":{"c":true}}}"#),
            ),
            ("[{}]", "[0].b.c", DictAdd(b"1"), Ok(r#"[{"b":{"c":1}}]"#)),
            ("{}", "a[0].b", DictUpsert(b"1"), Err(PathEnoent)),
            ("{}", "a[-1].b", DictUpsert(b"1"), Err(PathEnoent)),
            ("[]", "[0].b", DictUpsert(b"1"), Err(PathEnoent)),
            ("[]", "[-1].b", DictUpsert(b"1"), Err(PathEnoent)),
            (r#"{"a":1}"#, "a.b.c", DictAdd(b"1"), Err(PathMismatch)),
        ],
        true,
    );
}

#[test]
fn inserted_values_must_be_json_at_their_position() {
    for value in [
        "",
        " ",
        "x",
        "1,2",
        "\"a\":1",
        "1}",
        "{",
        "]",
        "[1",
        "\"",
        "\"\n\"",
        "tru",
        "01",
        "1}, \"b\":{",
        "{\"a\":1},",
        ",1",
    ] {
        let value = value.as_bytes();
        for (path, change) in [
            ("b", DictAdd(value)),
            ("b", DictUpsert(value)),
            ("a", DictUpsert(value)),
            ("a", Replace(value)),
            ("c", AddUnique(value)),
        ] {
            let document = r#"{"a":1,"c":[]}"#;
            let made = edited(document, path, change, true);
            assert_eq!(made, Err(ValueCantinsert), "{change:?}");
        }
    }
    for values in [
        "", " ", "1,", ",1", "1,,2", "1 2", "[1", "1]", "1],[2", "\"a\":1", "{\"a\"}",
    ] {
        let values = values.as_bytes();
        for (path, change) in [
            ("", PushLast(values)),
            ("", PushFirst(values)),
            ("[0]", Insert(values)),
        ] {
            assert_eq!(
                edited("[7]", path, change, false),
                Err(ValueCantinsert),
                "{change:?}"
            );
        }
    }
    let invalid = b"\"\xff\"".as_slice();
    assert_eq!(
        edited("{}", "a", DictAdd(invalid), false),
        Err(ValueCantinsert)
    );
    assert_eq!(
        edited("[]", "", PushLast(invalid), false),
        Err(ValueCantinsert)
    );
    for container in [b"[]".as_slice(), b"{}", b" [1]"] {
        assert_eq!(
            edited("[]", "", AddUnique(container), false),
            Err(ValueCantinsert)
        );
    }
}

#[test]
fn delete() {
    check(
        &[
            (r#"{"a":1}"#, "a", Delete, Ok("{}")),
            (r#"{"a":1,"b":2}"#, "a", Delete, Ok(r#"{"b":2}"#)),
            (r#"{"a":1,"b":2}"#, "b", Delete, Ok(r#"{"a":1}"#)),
            (
                r#"{"a":1,"b":2,"c":3}"#,
                "b",
                Delete,
                Ok(r#"{"a":1,"c":3}"#),
            ),
            (
                "{\n  \"a\" : 1 ,\n  \"b\" : 2\n}",
                "a",
                Delete,
                Ok("{\n  \"b\" : 2\n}"),
            ),
            (
                "{\n  \"a\" : 1,\n  \"b\" : 2\n}",
                "b",
                Delete,
                Ok("{\n  \"a\" : 1\n}"),
            ),
            ("[ 1 ]", "[0]", Delete, Ok("[  ]")),
            ("[1,2,3]", "[0]", Delete, Ok("[2,3]")),
            ("[1, 2, 3]", "[1]", Delete, Ok("[1, 3]")),
            ("[1, 2, 3]", "[2]", Delete, Ok("[1, 2]")),
            ("[1, 2, 3 ]", "[-1]", Delete, Ok("[1, 2 ]")),
            ("[[1],[2,[3]]]", "[-1][-1]", Delete, Ok("[[1],[2]]")),
            ("[[1],[2,[3]]]", "[-1][-1][-1]", Delete, Ok("[[1],[2,[]]]")),
            ("[[1,4],[2,[3]]]", "[0][-1]", Delete, Ok("[[1],[2,[3]]]")),
            (
                r#"{"a":[{"b":",]}\""},2]}"#,
                "a[0].b",
                Delete,
                Ok(r#"{"a":[{},2]}"#),
            ),
            (r#"{"a":1}"#, "b", Delete, Err(PathEnoent)),
            (r#"{"a":1}"#, "a.b", Delete, Err(PathMismatch)),
            ("[1]", "[1]", Delete, Err(PathEnoent)),
            ("[]", "[-1]", Delete, Err(PathEnoent)),
            ("{}", "", Delete, Err(PathEinval)),
            ("[1 2]", "[0]", Delete, Err(DocNotjson)),
        ],
        false,
    );
}

#[test]
fn replace() {
    check(
        &[
            (
                r#"{ "a" : 1 , "b" : 2 }"#,
                "a",
                Replace(b"[3]"),
                Ok(r#"{ "a" : [3] , "b" : 2 }"#),
            ),
            ("[1, 2]", "[0]", Replace(b"\"x\""), Ok("[\"x\", 2]")),
            ("[1, 2]", "[-1]", Replace(b"{}"), Ok("[1, {}]")),
            ("[1, 2]", "[2]", Replace(b"3"), Err(PathEnoent)),
            ("{}", "a", Replace(b"3"), Err(PathEnoent)),
            ("{}", "", Replace(b"3"), Err(PathEinval)),
            ("[]", "a", Replace(b"3"), Err(PathMismatch)),
        ],
        true,
    );
}

#[test]
fn counter() {
    let max = i64::MAX.to_string();
    for (document, path, delta, expected) in [
        (
            r#"{"a": 5 }"#,
            "a",
            3,
            Ok((r#"{"a": 8 }"#.to_owned(), Some(8))),
        ),
        (
            r#"{"a":5}"#,
            "a",
            -7,
            Ok((r#"{"a":-2}"#.to_owned(), Some(-2))),
        ),
        (
            r#"{"a":-0}"#,
            "a",
            1,
            Ok((r#"{"a":1}"#.to_owned(), Some(1))),
        ),
        ("[1,2]", "[-1]", 1, Ok(("[1,3]".to_owned(), Some(3)))),
        (
            "{}",
            "a",
            i64::MIN,
            Ok((format!("{{\"a\":{}}}", i64::MIN), Some(i64::MIN))),
        ),
        (
            &format!("[{max}]"),
            "[0]",
            -1,
            Ok((format!("[{}]", i64::MAX - 1), Some(i64::MAX - 1))),
        ),
        (&format!("[{max}]"), "[0]", 1, Err(ValueCantinsert)),
        (&format!("[{}]", i64::MIN), "[0]", -1, Err(ValueCantinsert)),
        ("[9223372036854775808]", "[0]", -1, Err(NumErange)),
        ("[-9223372036854775809]", "[0]", 1, Err(NumErange)),
        ("[1.5]", "[0]", 1, Err(PathMismatch)),
        ("[1e3]", "[0]", 1, Err(PathMismatch)),
        ("[\"1\"]", "[0]", 1, Err(PathMismatch)),
        ("[null]", "[0]", 1, Err(PathMismatch)),
        ("[[1]]", "[0]", 1, Err(PathMismatch)),
        ("[]", "[0]", 1, Err(PathEnoent)),
        ("[]", "[-1]", 1, Err(PathEnoent)),
        ("{}", "a.b", 1, Err(PathEnoent)),
        ("[]", "a", 1, Err(PathMismatch)),
        ("{}", "", 1, Err(PathEinval)),
        (r#"{"a":5}"#, "a", 0, Err(DeltaEinval)),
    ] {
        let made = edited(document, path, Counter(delta), false);
        assert_eq!(made, expected, "{document} {path} {delta}");
    }
    let made = edited("{}", "a.b", Counter(7), true);
    assert_eq!(made, Ok((r#"{"a":{"b":7}}"#.to_owned(), Some(7))));
}

#[test]
fn deltas() {
    for (text, delta) in [("1", 1), ("-12", -12), ("9223372036854775807", i64::MAX)] {
        assert_eq!(parse_delta(text.as_bytes()), Ok(delta));
    }
    assert_eq!(parse_delta(i64::MIN.to_string().as_bytes()), Ok(i64::MIN));
    for text in [
        "",
        "0",
        "-0",
        "-",
        "+1",
        "01",
        "-01",
        "1.0",
        "1e1",
        " 1",
        "1 ",
        "x",
        "\"1\"",
        "9223372036854775808",
        "-9223372036854775809",
    ] {
        assert_eq!(parse_delta(text.as_bytes()), Err(DeltaEinval), "{text}");
    }
    assert_eq!(parse_delta(b"\xff"), Err(DeltaEinval));
}

#[test]
fn edit_results_have_a_depth_limit() {
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
    let (fits, deeper) = (nested(SUBDOC_DEPTH_MAX - 1), nested(SUBDOC_DEPTH_MAX));
    let (fits, deeper) = (fits.as_bytes(), deeper.as_bytes());
    for (document, path, change) in [
        ("{}", "a", DictAdd as fn(_) -> _),
        (r#"{"a":1}"#, "a", DictUpsert),
        (r#"{"a":1}"#, "a", Replace),
        ("[1]", "", PushLast),
        ("[1]", "", PushFirst),
        ("[1]", "[0]", Insert),
    ] {
        assert!(edited(document, path, change(fits), true).is_ok(), "{path}");
        let made = edited(document, path, change(deeper), true);
        assert_eq!(made, Err(ValueEtoodeep), "{path}");
    }
    let deep = vec!["a"; SUBDOC_DEPTH_MAX].join(".");
    assert!(edited("{}", &deep, DictUpsert(b"1"), true).is_ok());
    assert!(edited("{}", &deep, Counter(1), true).is_ok());
    for change in [DictUpsert(b"{}"), PushLast(b"1"), AddUnique(b"1")] {
        assert_eq!(edited("{}", &deep, change, true), Err(ValueEtoodeep));
    }
    let document = format!(r#"{{"a":{},"b":1}}"#, nested(SUBDOC_DEPTH_MAX));
    assert_eq!(edited(&document, "b", Delete, false), Err(DocE2deep));
    let made = edited(&document, "a", DictAdd(b"1"), false);
    assert_eq!(made, Err(PathEexists));
}
