//! Edits of arrays.

use Edit::{AddUnique, Insert, PushFirst, PushLast};
use SubdocError::{DocNotjson, PathEexists, PathEinval, PathEnoent, PathMismatch};
use kedge_json::{Edit, SubdocError};

use crate::edits::{Row, check};

#[test]
fn array_push_first_and_last() {
    let both: &[Row<'_>] = &[
        ("[]", "", PushLast(b"1"), Ok("[1]")),
        ("[]", "", PushFirst(b"1"), Ok("[1]")),
        ("[ ]", "", PushLast(b"1, 2,3"), Ok("[1, 2,3 ]")),
        ("[ 1 ]", "", PushLast(b"2"), Ok("[ 1,2 ]")),
        ("[ 1 ]", "", PushFirst(b"2,3"), Ok("[ 2,3,1 ]")),
        (
            r#"{"a":[1],"b":2}"#,
            "a",
            PushLast(b"[],{}"),
            Ok(r#"{"a":[1,[],{}],"b":2}"#),
        ),
        (
            r#"{"a":[1],"b":2}"#,
            "a",
            PushFirst(b"[],{}"),
            Ok(r#"{"a":[[],{},1],"b":2}"#),
        ),
        ("[[1],[2]]", "[-1]", PushLast(b"3"), Ok("[[1],[2,3]]")),
        ("[[1],[2]]", "[0]", PushFirst(b"3"), Ok("[[3,1],[2]]")),
        ("{}", "", PushLast(b"1"), Err(PathMismatch)),
        (r#"{"a":{}}"#, "a", PushLast(b"1"), Err(PathMismatch)),
        (r#"{"a":1}"#, "a", PushFirst(b"1"), Err(PathMismatch)),
        (r#"{"a":1}"#, "a.b", PushFirst(b"1"), Err(PathMismatch)),
        ("[]", "[0]", PushLast(b"1"), Err(PathEnoent)),
        ("[]", "[-1]", PushLast(b"1"), Err(PathEnoent)),
        ("[1,", "", PushLast(b"1"), Err(DocNotjson)),
    ];
    check(both, false);
    check(both, true);
    let made: &[Row<'_>] = &[
        ("{}", "a", PushLast(b"1,2"), Ok(r#"{"a":[1,2]}"#)),
        (
            r#"{"b":0}"#,
            "a.c",
            PushFirst(b"1,2"),
            Ok(r#"{"b":0,"a":{"c":[1,2]}}"#),
        ),
        ("{}", "a.b", AddUnique(b"1"), Ok(r#"{"a":{"b":[1]}}"#)),
        ("[{}]", "[0].b", AddUnique(b"1"), Ok(r#"[{"b":[1]}]"#)),
    ];
    check(made, true);
    let not_made: Vec<_> = made
        .iter()
        .map(|row| (row.0, row.1, row.2, Err(PathEnoent)))
        .collect();
    check(&not_made, false);
    check(&[("{}", "a[0].b", PushLast(b"1"), Err(PathEnoent))], true);
}

#[test]
fn array_insert() {
    check(
        &[
            ("[]", "[0]", Insert(b"1"), Ok("[1]")),
            ("[1]", "[0]", Insert(b"0"), Ok("[0,1]")),
            ("[ 1 , 3 ]", "[1]", Insert(b"2, 2"), Ok("[ 1 , 2, 2,3 ]")),
            ("[1,2]", "[2]", Insert(b"3"), Ok("[1,2,3]")),
            ("[1,2]", "[3]", Insert(b"3"), Err(PathEnoent)),
            ("[]", "[1]", Insert(b"3"), Err(PathEnoent)),
            ("[[1],[2]]", "[-1][1]", Insert(b"3"), Ok("[[1],[2,3]]")),
            ("[[1],[2]]", "[2][0]", Insert(b"3"), Err(PathEnoent)),
            ("[1]", "[1][0]", Insert(b"3"), Err(PathEnoent)),
            (r#"{"a":[1]}"#, "a[1]", Insert(b"3"), Ok(r#"{"a":[1,3]}"#)),
            (r#"{"a":[1]}"#, "b[0]", Insert(b"3"), Err(PathEnoent)),
            (r#"{"a":[1]}"#, "[0]", Insert(b"3"), Err(PathMismatch)),
            (r#"{"a":[1]}"#, "a", Insert(b"3"), Err(PathEinval)),
            ("[1]", "[-1]", Insert(b"3"), Err(PathEinval)),
            ("[1]", "", Insert(b"3"), Err(PathEinval)),
        ],
        true,
    );
}

#[test]
fn array_add_unique() {
    check(
        &[
            ("[]", "", AddUnique(b"1"), Ok("[1]")),
            (
                "[1, \"1\", true]",
                "",
                AddUnique(b" null "),
                Ok("[1, \"1\", true, null ]"),
            ),
            ("[1]", "", AddUnique(b"1.0"), Ok("[1,1.0]")),
            ("[1]", "", AddUnique(b"\"1\""), Ok("[1,\"1\"]")),
            ("[true]", "", AddUnique(b"\"true\""), Ok("[true,\"true\"]")),
            ("[ 0 , 1 ]", "", AddUnique(b" 1 "), Err(PathEexists)),
            (r#"{"a":["x"]}"#, "a", AddUnique(b"\"x\""), Err(PathEexists)),
            (
                r#"{"a":["x"]}"#,
                "a",
                AddUnique(b"\"y\""),
                Ok(r#"{"a":["x","y"]}"#),
            ),
            (
                r#"[["x"],["y"]]"#,
                "[-1]",
                AddUnique(b"\"x\""),
                Ok(r#"[["x"],["y","x"]]"#),
            ),
            ("[[],1]", "", AddUnique(b"1"), Err(PathMismatch)),
            ("[1,{}]", "", AddUnique(b"2"), Err(PathMismatch)),
            ("{}", "", AddUnique(b"1"), Err(PathMismatch)),
            (r#"{"a":1}"#, "a", AddUnique(b"1"), Err(PathMismatch)),
            (r#"{"a":1}"#, "b", AddUnique(b"1"), Err(PathEnoent)),
        ],
        false,
    );
}
