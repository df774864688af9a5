//! Bytes as JSON: as JSON or text if they are that, otherwise in base64.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

/// Bytes in the form in which they are printed.
#[derive(Debug)]
pub(super) enum PrintedBytes {
    /// JSON, on one line.
    Json(Box<RawValue>),
    /// Text.
    Text(String),
    /// Anything else.
    Base64(String),
}

impl PrintedBytes {
    /// Converts bytes: to JSON if they are JSON.
    pub(super) fn of(bytes: &[u8]) -> Self {
        match json(bytes) {
            Some(json) => Self::Json(json),
            None => Self::plain(bytes),
        }
    }

    /// Converts bytes: to text if they are text.
    pub(super) fn plain(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    /// Returns the form, for the field that names it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Json(_) => "json",
            Self::Text(_) => "text",
            Self::Base64(_) => "base64",
        }
    }
}

impl Serialize for PrintedBytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(json) => json.serialize(serializer),
            Self::Text(text) | Self::Base64(text) => text.serialize(serializer),
        }
    }
}

/// Returns the JSON text without white space between its parts, if it is one. Numbers, the order of members and
/// duplicate members are unchanged.
pub(super) fn json(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = str::from_utf8(bytes).ok()?;
    let valid: &RawValue = serde_json::from_str(text).ok()?;
    let compact = match compact(valid.get()) {
        Cow::Borrowed(_) => return Some(valid.to_owned()),
        Cow::Owned(compact) => compact,
    };
    RawValue::from_string(compact).ok()
}

/// Removes the white space from a valid JSON text.
fn compact(json: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut kept, mut in_string, mut escaped) = (0, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\n' | b'\r' | b'\t' if !in_string => {
                out.push_str(&json[kept..at]);
                kept = at + 1;
            }
            _ => {}
        }
    }
    if kept == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[kept..]);
    Cow::Owned(out)
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

/// Parses a number in decimal digits, or in hexadecimal ones behind `0x`.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_as_json_text_or_base64() {
        let shown = |bytes: &[u8]| {
            let shown = PrintedBytes::of(bytes);
            (shown.kind(), serde_json::to_string(&shown).expect("JSON"))
        };
        let table: [(&[u8], &str, &str); 8] = [
            (b"{\"b\":1, \"a\":[ ]}", "json", "{\"b\":1,\"a\":[]}"),
            (b" 1e999999 ", "json", "1e999999"),
            (
                b"{\n\t\"a\": \" \\\" \\\\\",\r\n\"a\":2}\n",
                "json",
                "{\"a\":\" \\\" \\\\\",\"a\":2}",
            ),
            (b"0.10", "json", "0.10"),
            (b"1 2", "text", "\"1 2\""),
            (b"", "text", "\"\""),
            (b"plain \0", "text", "\"plain \\u0000\""),
            (b"\xff\xfe", "base64", "\"//4=\""),
        ];
        for (bytes, kind, text) in table {
            assert_eq!(shown(bytes), (kind, text.to_owned()), "{bytes:?}");
        }
        let deep = "[ ".repeat(10_000) + &"]".repeat(10_000);
        assert_eq!(shown(deep.as_bytes()), ("json", deep.replace(' ', "")));
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(to_hex(b"\x00\xffa"), "00ff61");
        assert_eq!(from_hex("00fF61").as_deref(), Some(&b"\x00\xffa"[..]));
        for bad in ["0", "0g", "+1", "ä"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
        assert_eq!((number("0x10"), number("16")), (Ok(16), Ok(16)));
        assert!(number("-1").is_err() && number("0x").is_err());
    }
}
