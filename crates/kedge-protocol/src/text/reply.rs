//! Replies to the classic commands, and the errors of all commands (memcached doc/protocol.txt, "Error strings"). Each
//! constant is a whole reply, line end included.

/// The value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of `add`, `replace`, `append` or `prepend` was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// `cas`: the document has another CAS.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such document.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The document was deleted.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The document has its new expiration time.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// `flush_all`, `verbosity`: success.
pub const OK: &[u8] = b"OK\r\n";
/// `stats reset`: success.
pub const RESET: &[u8] = b"RESET\r\n";
/// The last line of a retrieval or of statistics.
pub const END: &[u8] = b"END\r\n";
/// The reply to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";

/// No such command, or a wrong number of arguments.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// `shutdown`: refused; the operator stops the server with a signal.
pub const SHUTDOWN_REFUSED: &[u8] = b"SERVER_ERROR: shutdown not enabled\r\n";
/// A malformed argument, or an invalid key.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// A value that does not end at its given length.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// A line beyond its limit.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// A malformed expiration time.
pub const INVALID_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// A malformed amount to count by.
pub const INVALID_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// `incr`, `decr`, `ma`: the value is no number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// `delete` with an argument that is neither 0 nor `noreply`.
pub const DELETE_USAGE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
/// Meta: an unknown flag.
pub const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// Meta: a flag given twice.
pub const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// Meta: a flag's malformed token.
pub const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// Meta: a key with flag `b` that is not base64.
pub const BAD_BASE64_KEY: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// Meta: an opaque token beyond its limit.
pub const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// Meta: a mode of other than one character.
pub const BAD_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
/// `ms`: an unknown mode.
pub const BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// `ma`: an unknown mode.
pub const BAD_ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
/// `ma`: a malformed initial value.
pub const INVALID_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
/// `ma`: a malformed amount to count by.
pub const INVALID_META_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";
/// A value beyond the limit.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory for a document.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

/// Appends a document of a retrieval: `VALUE <key> <flags> <bytes> [<cas unique>]`, and the value.
pub fn write_value(
    out: &mut Vec<u8>,
    key: &[u8],
    client_flags: u32,
    value: &[u8],
    cas: Option<u64>,
) {
    // Room for the words, the numbers at their longest and the line ends.
    out.reserve(key.len() + value.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    push_number(out, client_flags);
    out.push(b' ');
    push_number(out, value.len());
    if let Some(cas) = cas {
        out.push(b' ');
        push_number(out, cas);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the new value of `incr` or `decr`.
pub fn write_number(out: &mut Vec<u8>, number: u64) {
    push_number(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends `STAT <name> <value>`. Neither may contain a line end.
pub fn write_stat(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(!name.contains(&b'\n') && !value.contains(&b'\n'));
    for part in [b"STAT ", name, b" ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends `VERSION <version>`.
pub fn write_version(out: &mut Vec<u8>, version: &str) {
    for part in ["VERSION ", version, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends `CLIENT_ERROR <text>`: the request is wrong. `text` is one line.
pub fn write_client_error(out: &mut Vec<u8>, text: &str) {
    for part in ["CLIENT_ERROR ", text, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends `SERVER_ERROR <text>`: the server cannot execute the request, perhaps only temporarily. `text` is one line.
pub fn write_server_error(out: &mut Vec<u8>, text: &str) {
    for part in ["SERVER_ERROR ", text, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Appends a number in decimal.
pub(super) fn push_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(&mut out);
        let out = String::from_utf8(out).expect("the tests write text");
        out.strip_prefix("before").expect("appended").to_owned()
    }

    #[test]
    fn text_replies_match_protocol_txt() {
        assert_eq!(
            written(|out| write_value(out, b"k", 5, b"a\r\nb", None)),
            "VALUE k 5 4\r\na\r\nb\r\n"
        );
        assert_eq!(
            written(|out| write_value(out, b"k", u32::MAX, b"", Some(u64::MAX))),
            "VALUE k 4294967295 0 18446744073709551615\r\n\r\n"
        );
        assert_eq!(written(|out| write_number(out, 0)), "0\r\n");
        assert_eq!(
            written(|out| write_stat(out, b"uptime", b"17")),
            "STAT uptime 17\r\n"
        );
        assert_eq!(
            written(|out| write_version(out, "8.0.0")),
            "VERSION 8.0.0\r\n"
        );
        assert_eq!(
            written(|out| write_client_error(out, "no")),
            "CLIENT_ERROR no\r\n"
        );
        assert_eq!(
            written(|out| write_server_error(out, "temporary failure")),
            "SERVER_ERROR temporary failure\r\n"
        );
    }
}
