//! The corner cases of RFC 8259 in which validators differ.

use JsonErrorKind::{
    BadEscape, BadNumber, BadUtf8, ControlCharacter, TooDeep, TrailingText, UnexpectedByte,
    UnexpectedEnd,
};
use kedge_json::{JsonError, JsonErrorKind, MAX_DEPTH, is_json, validate};

const YES: &[&[u8]] = &[
    // Structure.
    b"[]",
    b"{}",
    b"[[]]",
    b"[{}]",
    b"{\"a\":{}}",
    b"{\"a\":[]}",
    b"[[] ,[[]]]",
    b"{\"\":0}",
    b"{\"a\":1,\"a\":1}",
    b"{\"a\":\"b\",\"c\":[1,2,{\"d\":null}]}",
    b"{\"\\u0000\":0}",
    b"{\"a\\\"b\":\"c\\\\\"}",
    b"{\"min\": -1.0e+28, \"max\": 1.0e+28}",
    // Single values.
    b"null",
    b"true",
    b"false",
    b"0",
    b"-0",
    b"42",
    b"-0.1",
    b"\"\"",
    b"\"asd\"",
    b"[null]",
    b"[true,false,null]",
    // White space: space, tab, line feed, carriage return.
    b" \t\r\n[ \t\r\n1 \t\r\n, \t\r\n2 \t\r\n] \t\r\n",
    b" 1 ",
    b"{ \"a\" : 1 , \"b\" : 2 }",
    b"\n\"a\"\n",
    // Numbers.
    b"[0e+1]",
    b"[0e1]",
    b"[0E0]",
    b"[1E22]",
    b"[1E-2]",
    b"[1E+2]",
    b"[123e45]",
    b"[123.456e78]",
    b"[123.456789]",
    b"[-1]",
    b"[-123]",
    b"[-0]",
    b"[-0.0e-0]",
    b"[1.7976931348623157e999]",
    b"[-237462374673276894279832749832423479823246327846]",
    b"[0.00000000000000000000000000000000000000000000000000000000000000000001]",
    // Strings and escapes.
    b"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    b"\"\\u0041\\u00e9\\uABCD\\uabcd\"",
    b"\"\\ud83d\\ude00\"",
    b"\"\\uD800\"",
    b"\"\\uDC00\\uD800\"",
    b"\"\\uDFFFx\"",
    b"\"\\\\u0000\"",
    b"\"\x7f\"",
    b"\"a/*b*/c\"",
    b"\"0123456789abcdef0123456789abcdef\"",
    b"\"0123456\\n0123456\\u00410123456\"",
    // UTF-8.
    "\"\u{e9}\"".as_bytes(),
    "\"\u{20ac}\"".as_bytes(),
    "\"\u{1f600}\"".as_bytes(),
    "\"\u{10ffff}\"".as_bytes(),
    "\"\u{ffff}\"".as_bytes(),
    "\"\u{2028}\u{2029}\"".as_bytes(),
    "\"\u{feff}\"".as_bytes(),
    "{\"\u{d55c}\u{ad6d}\":\"\u{c5b4}\"}".as_bytes(),
];

#[test]
fn valid_json_is_accepted() {
    for text in YES {
        let shown = text.escape_ascii();
        assert_eq!(validate(text), Ok(()), "{shown}");
        assert!(is_json(text), "{shown}");
    }
}

/// Text, offset of the first wrong byte, kind.
const NO: &[(&[u8], usize, JsonErrorKind)] = &[
    // No value.
    (b"", 0, UnexpectedEnd),
    (b" ", 1, UnexpectedEnd),
    // Truncated.
    (b"[", 1, UnexpectedEnd),
    (b"{", 1, UnexpectedEnd),
    (b"[1", 2, UnexpectedEnd),
    (b"[1,", 3, UnexpectedEnd),
    (b"{\"a\"", 4, UnexpectedEnd),
    (b"{\"a\":", 5, UnexpectedEnd),
    (b"{\"a\":1", 6, UnexpectedEnd),
    (b"{\"a\":1,", 7, UnexpectedEnd),
    (b"\"", 1, UnexpectedEnd),
    (b"\"abc", 4, UnexpectedEnd),
    (b"\"0123456789abcdef", 17, UnexpectedEnd),
    (b"\"\\", 2, UnexpectedEnd),
    (b"\"\\u", 3, UnexpectedEnd),
    (b"\"\\u12", 5, UnexpectedEnd),
    (b"\"\\u1234", 7, UnexpectedEnd),
    (b"t", 1, UnexpectedEnd),
    (b"nul", 3, UnexpectedEnd),
    (b"-", 1, UnexpectedEnd),
    (b"1.", 2, UnexpectedEnd),
    (b"1e", 2, UnexpectedEnd),
    (b"1e+", 3, UnexpectedEnd),
    // Structure.
    (b"]", 0, UnexpectedByte),
    (b"}", 0, UnexpectedByte),
    (b",", 0, UnexpectedByte),
    (b":", 0, UnexpectedByte),
    (b"[}", 1, UnexpectedByte),
    (b"{]", 1, UnexpectedByte),
    (b"[1}", 2, UnexpectedByte),
    (b"{\"a\":1]", 6, UnexpectedByte),
    (b"[1,]", 3, UnexpectedByte),
    (b"[,1]", 1, UnexpectedByte),
    (b"[1,,2]", 3, UnexpectedByte),
    (b"[1 2]", 3, UnexpectedByte),
    (b"[1:2]", 2, UnexpectedByte),
    (b"{\"a\":1,}", 7, UnexpectedByte),
    (b"{,\"a\":1}", 1, UnexpectedByte),
    (b"{\"a\"}", 4, UnexpectedByte),
    (b"{\"a\",1}", 4, UnexpectedByte),
    (b"{\"a\" 1}", 5, UnexpectedByte),
    (b"{\"a\"::1}", 5, UnexpectedByte),
    (b"{\"a\":1:2}", 6, UnexpectedByte),
    (b"{\"a\":}", 5, UnexpectedByte),
    (b"{1:1}", 1, UnexpectedByte),
    (b"{a:1}", 1, UnexpectedByte),
    (b"{'a':1}", 1, UnexpectedByte),
    (b"{null:1}", 1, UnexpectedByte),
    (b"{[]:1}", 1, UnexpectedByte),
    (b"[\"a\":1]", 4, UnexpectedByte),
    (b"[1}]", 2, UnexpectedByte),
    // More than one value.
    (b"[][]", 2, TrailingText),
    (b"1 2", 2, TrailingText),
    (b"{}}", 2, TrailingText),
    (b"[]]", 2, TrailingText),
    (b"\"a\"b", 3, TrailingText),
    (b"true1", 4, TrailingText),
    (b"{}#", 2, TrailingText),
    (b"{}//", 2, TrailingText),
    (b"1\x00", 1, TrailingText),
    (b"{} \xff", 3, TrailingText),
    // Values of some parsers.
    (b"NaN", 0, UnexpectedByte),
    (b"Infinity", 0, UnexpectedByte),
    (b"True", 0, UnexpectedByte),
    (b"undefined", 0, UnexpectedByte),
    (b"nan", 1, UnexpectedByte),
    (b"nulL", 3, UnexpectedByte),
    (b"tru]", 3, UnexpectedByte),
    (b"'a'", 0, UnexpectedByte),
    (b"a", 0, UnexpectedByte),
    (b"/**/1", 0, UnexpectedByte),
    (b"[1/**/]", 2, UnexpectedByte),
    (b"\xef\xbb\xbf{}", 0, UnexpectedByte),
    (b"\xff\xfe[\x00]\x00", 0, UnexpectedByte),
    (b"\x00", 0, UnexpectedByte),
    // Other white space.
    (b"\x0b1", 0, UnexpectedByte),
    (b"\x0c[]", 0, UnexpectedByte),
    (b"[\x0c]", 1, UnexpectedByte),
    (b"\xc2\xa01", 0, UnexpectedByte),
    (b"[\xe2\x81\xa0]", 1, UnexpectedByte),
    // Numbers.
    (b"+1", 0, UnexpectedByte),
    (b".5", 0, UnexpectedByte),
    (b"[-]", 2, BadNumber),
    (b"[-a]", 2, BadNumber),
    (b"[- 1]", 2, BadNumber),
    (b"[--1]", 2, BadNumber),
    (b"[-.5]", 2, BadNumber),
    (b"[-Infinity]", 2, BadNumber),
    (b"[1.]", 3, BadNumber),
    (b"[1.e1]", 3, BadNumber),
    (b"[1.a]", 3, BadNumber),
    (b"[0.e1]", 3, BadNumber),
    (b"[1e]", 3, BadNumber),
    (b"[1e+]", 4, BadNumber),
    (b"[1e-a]", 4, BadNumber),
    (b"[1eE2]", 3, BadNumber),
    (b"[01]", 2, UnexpectedByte),
    (b"[-01]", 3, UnexpectedByte),
    (b"[00]", 2, UnexpectedByte),
    (b"[-0123]", 3, UnexpectedByte),
    (b"01", 1, TrailingText),
    (b"[0x1]", 2, UnexpectedByte),
    (b"[1_000]", 2, UnexpectedByte),
    (b"[1.2.3]", 4, UnexpectedByte),
    (b"[1+2]", 2, UnexpectedByte),
    (b"[0e1.5]", 4, UnexpectedByte),
    (b"[\xef\xbc\x91]", 1, UnexpectedByte),
    // Strings.
    (b"\"\x00\"", 1, ControlCharacter),
    (b"\"\x1f\"", 1, ControlCharacter),
    (b"\"\n\"", 1, ControlCharacter),
    (b"\"\t\"", 1, ControlCharacter),
    (b"\"0123456789\r\n\"", 11, ControlCharacter),
    (b"{\"a\nb\":1}", 3, ControlCharacter),
    (b"\"\\a\"", 2, BadEscape),
    (b"\"\\'\"", 2, BadEscape),
    (b"\"\\x41\"", 2, BadEscape),
    (b"\"\\0\"", 2, BadEscape),
    (b"\"\\U0041\"", 2, BadEscape),
    (b"\"\\\n\"", 2, BadEscape),
    (b"\"\\\x00\"", 2, BadEscape),
    (b"\"\\\xc3\xa9\"", 2, BadEscape),
    (b"\"\\u\"", 3, BadEscape),
    (b"\"\\u004\"", 6, BadEscape),
    (b"\"\\u00g0\"", 5, BadEscape),
    (b"\"\\u-123\"", 3, BadEscape),
    (b"\"\\u 041\"", 3, BadEscape),
    (b"\"\\u{41}\"", 3, BadEscape),
    // UTF-8: stray and missing continuation bytes, overlong forms, surrogates, beyond U+10FFFF.
    (b"\"\x80\"", 1, BadUtf8),
    (b"\"\xff\"", 1, BadUtf8),
    (b"\"\xc3\"", 1, BadUtf8),
    (b"\"ab\xe2\x82\"", 3, BadUtf8),
    (b"\"\xc0\x80\"", 1, BadUtf8),
    (b"\"\xc0\xaf\"", 1, BadUtf8),
    (b"\"\xe0\x80\x80\"", 1, BadUtf8),
    (b"\"\xf0\x80\x80\x80\"", 1, BadUtf8),
    (b"\"\xed\xa0\x80\"", 1, BadUtf8),
    (b"\"\xed\xbf\xbf\"", 1, BadUtf8),
    (b"\"\xf4\x90\x80\x80\"", 1, BadUtf8),
    (b"\"\xf8\x88\x80\x80\x80\"", 1, BadUtf8),
    (b"\"0123456789abcdef\xe9 latin\"", 17, BadUtf8),
    (b"{\"\xe9\":\"a\"}", 2, BadUtf8),
];

#[test]
fn invalid_json_is_rejected_with_offset_and_kind() {
    for &(text, offset, kind) in NO {
        let shown = text.escape_ascii();
        assert_eq!(validate(text), Err(JsonError { offset, kind }), "{shown}");
        assert!(!is_json(text), "{shown}");
    }
}

#[test]
fn nesting_depth_is_limited() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let per_unit = if open.len() > 5 { 2 } else { 1 };
        let at_limit = MAX_DEPTH / per_unit;
        let nested = |units: usize| {
            [open.repeat(units), "1".to_owned(), close.repeat(units)]
                .concat()
                .into_bytes()
        };
        assert_eq!(validate(&nested(at_limit)), Ok(()), "{open}");
        let error = validate(&nested(at_limit + 1)).expect_err(open);
        assert_eq!(
            (error.kind, error.offset),
            (TooDeep, at_limit * open.len()),
            "{open}"
        );
    }
    // The limit concerns open containers, not their total number.
    let wide = ["[", &"[],{},".repeat(4 * MAX_DEPTH), "[]]"].concat();
    assert!(is_json(wide.as_bytes()));
    // A million open brackets neither overflow a stack nor allocate.
    assert!(!is_json(&b"[".repeat(1_000_000)));
}

#[test]
fn error_message_names_the_offset() {
    let error = validate(b"[1,]").expect_err("a trailing comma");
    assert_eq!(error.to_string(), "unexpected byte at byte 3");
}
