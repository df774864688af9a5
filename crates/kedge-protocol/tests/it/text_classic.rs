//! The classic commands of the memcached text protocol: the forms of protocol.txt, and what memcached 1.6 answers to
//! forms that it does not have.

use crate::text::parsed;
use kedge_protocol::text::{Parsed, TextCommand, TextLimits};

#[track_caller]
fn check(table: &[(&str, &str)]) {
    for (bytes, expected) in table {
        assert_eq!(parsed(bytes.as_bytes()), *expected, "{bytes:?}");
    }
}

#[test]
fn retrievals() {
    check(&[
        ("get a\r\n", "retrieve a"),
        ("get a b  c\r\n", "retrieve a b c"),
        ("gets a b\r\n", "retrieve a b cas"),
        ("gat 10 a b\r\n", "retrieve a b touch=10"),
        ("gats -1 a\r\n", "retrieve a cas touch=-1"),
        ("gat 0 a\r\n", "retrieve a touch=0"),
        ("get noreply\r\n", "retrieve noreply"),
        ("get a\n", "retrieve a"),
        ("  get  a  \r\n", "retrieve a"),
        ("get h\u{e9}\r\n", "retrieve h\\xc3\\xa9"),
        (
            "get\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "get \r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "gets\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "gat\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "gat 10\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "gat x a\r\n",
            "invalid CLIENT_ERROR invalid exptime argument\\r\\n",
        ),
        (
            "get a\tb\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "get a\r b\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "get a \0\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
    ]);
}

#[test]
fn stores() {
    check(&[
        (
            "set k 5 60 3\r\nabc\r\n",
            "Set key=k flags=5 exptime=60 value=abc",
        ),
        ("set k 0 0 0\r\n\r\n", "Set key=k value="),
        (
            "set k 0 0 4\r\n\r\n\r\n\r\n",
            "Set key=k value=\\r\\n\\r\\n",
        ),
        (
            "set k 0 0 3 noreply\r\nabc\r\n",
            "Set key=k value=abc noreply",
        ),
        ("add k 0 -1 1\r\nx\r\n", "Add key=k exptime=-1 value=x"),
        (
            "replace k 4294967295 0 1\r\nx\r\n",
            "Replace key=k flags=4294967295 value=x",
        ),
        ("append k 0 0 1\r\nx\r\n", "Append key=k value=x"),
        (
            "prepend k 0 0 1 noreply\r\nx\r\n",
            "Prepend key=k value=x noreply",
        ),
        ("cas k 0 0 1 12\r\nx\r\n", "Set key=k cas=12 value=x"),
        (
            "cas k 0 0 1 18446744073709551615 noreply\r\nx\r\n",
            "Set key=k cas=18446744073709551615 value=x noreply",
        ),
        // python-memcached: double and trailing spaces.
        ("set a 16 0 1 \r\n1\r\n", "Set key=a flags=16 value=1"),
        (
            "set a 16 0 1  noreply\r\n1\r\n",
            "Set key=a flags=16 value=1 noreply",
        ),
        // A line may end without a carriage return, a value may not.
        ("set k 0 0 1\nx\r\n", "Set key=k value=x"),
        // A last token that is not `noreply` is ignored, as in memcached.
        ("set k 0 0 1 please\r\nx\r\n", "Set key=k value=x"),
        // A value is not looked into.
        ("set k 0 0 8\r\nversion\n\r\n", "Set key=k value=version\\n"),
    ]);
}

#[test]
fn malformed_stores() {
    const FORMAT: &str = "invalid CLIENT_ERROR bad command line format\\r\\n";
    check(&[
        ("set\r\n", FORMAT),
        ("set k 0 0\r\n", FORMAT),
        // The value of a line with too few or too many tokens was taken for a command.
        ("set k 0 0 1 noreply x\r\n", &format!("{FORMAT} swallow=3")),
        ("cas k 0 0 1\r\n", &format!("{FORMAT} swallow=3")),
        (
            "cas k 0 0 1 2 noreply x\r\n",
            &format!("{FORMAT} swallow=3"),
        ),
        // No length, so nothing can be swallowed.
        ("set k 0 0 x\r\n", FORMAT),
        ("set k 0 0 -1\r\n", FORMAT),
        ("set k 0 0 1x\r\n", FORMAT),
        ("set k 0 0 2147483646\r\n", FORMAT),
        ("set k 0 0 18446744073709551616\r\n", FORMAT),
        ("set k 0 0 x noreply\r\n", "invalid "),
        // A length: its value is swallowed.
        ("set k x 0 1\r\n", &format!("{FORMAT} swallow=3")),
        ("set k -1 0 1\r\n", &format!("{FORMAT} swallow=3")),
        ("set k 4294967296 0 1\r\n", &format!("{FORMAT} swallow=3")),
        ("set k 0 x 0\r\n", &format!("{FORMAT} swallow=2")),
        ("cas k 0 0 1 x\r\n", &format!("{FORMAT} swallow=3")),
        ("cas k 0 0 1 -1\r\n", &format!("{FORMAT} swallow=3")),
        ("cas k 0 0 1 noreply\r\n", &format!("{FORMAT} swallow=3")),
        ("set k\u{7f} 0 0 1\r\n", &format!("{FORMAT} swallow=3")),
        ("set k x 0 1 noreply\r\n", "invalid  swallow=3"),
    ]);
}

#[test]
fn bad_data_chunks() {
    const BAD: &str = "invalid CLIENT_ERROR bad data chunk\\r\\n";
    check(&[
        ("set foo 0 0 4\r\n12345\r", BAD),
        ("set foo 0 0 4\r\n12345\r\n", &format!("21: {BAD}")),
        ("set foo 0 0 4\r\n123\r\nv", BAD),
        ("set foo 0 0 1\r\nx\n\n", BAD),
        ("set foo 0 0 4 noreply\r\n12345\r", "invalid "),
        ("ms foo 1\r\nxy\r", BAD),
        ("ms foo 1 q\r\nxy\r", BAD),
    ]);
}

#[test]
fn too_large_values_are_skipped() {
    let fits = ["set k 0 0 1000\r\n", &"x".repeat(1000), "\r\n"].concat();
    assert!(parsed(fits.as_bytes()).starts_with("Set key=k value=x"));
    check(&[
        (
            "set k 0 0 1001\r\n",
            "invalid SERVER_ERROR object too large for cache\\r\\n swallow=1003",
        ),
        (
            "append k 0 0 2147483645\r\n",
            "invalid SERVER_ERROR object too large for cache\\r\\n swallow=2147483647",
        ),
        ("set k 0 0 1001 noreply\r\n", "invalid  swallow=1003"),
        (
            "ms k 1001 q\r\n",
            "invalid SERVER_ERROR object too large for cache\\r\\n swallow=1003",
        ),
    ]);
}

#[test]
fn text_keys_have_at_most_250_bytes() {
    const FORMAT: &str = "invalid CLIENT_ERROR bad command line format\\r\\n";
    let (fits, long) = ("k".repeat(250), "k".repeat(251));
    for (before, after) in [
        ("get ", ""),
        ("get a ", " b"),
        ("gat 0 ", ""),
        ("delete ", ""),
        ("incr ", " 1"),
        ("touch ", " 1"),
        ("mg ", " v"),
        ("md ", ""),
        ("ma ", ""),
        ("me ", ""),
    ] {
        let line = |key: &str| parsed(format!("{before}{key}{after}\r\n").as_bytes());
        assert!(!line(&fits).starts_with("invalid"), "{before}");
        assert_eq!(line(&long), FORMAT, "{before}");
    }
    for (before, after) in [("set ", " 0 0 1"), ("cas ", " 0 0 1 1"), ("ms ", " 1")] {
        let line = |key: &str| parsed(format!("{before}{key}{after}\r\nx\r\n").as_bytes());
        assert!(line(&fits).contains(" value=x"), "{before}");
        assert!(
            line(&long).ends_with(&format!("{FORMAT} swallow=3")),
            "{before}"
        );
    }
}

#[test]
fn deletions() {
    const USAGE: &str = "invalid CLIENT_ERROR bad command line format.  \
                         Usage: delete <key> [noreply]\\r\\n";
    check(&[
        ("delete k\r\n", "delete key=k"),
        ("delete k noreply\r\n", "delete key=k noreply"),
        ("delete k 0\r\n", "delete key=k"),
        ("delete k 0 noreply\r\n", "delete key=k noreply"),
        ("delete k 5\r\n", USAGE),
        ("delete k x\r\n", USAGE),
        ("delete k 0 0\r\n", USAGE),
        ("delete k 5 noreply\r\n", "invalid "),
        (
            "delete\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "delete a b c d e\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
    ]);
}

#[test]
fn arithmetic_and_touch() {
    const DELTA: &str = "invalid CLIENT_ERROR invalid numeric delta argument\\r\\n";
    const EXPTIME: &str = "invalid CLIENT_ERROR invalid exptime argument\\r\\n";
    check(&[
        ("incr k 1\r\n", "incr key=k delta=1"),
        ("incr k +1\r\n", "incr key=k delta=1"),
        (
            "decr k 18446744073709551615 noreply\r\n",
            "decr key=k delta=18446744073709551615 noreply",
        ),
        ("incr k 18446744073709551616\r\n", DELTA),
        ("incr k -1\r\n", DELTA),
        ("decr k x\r\n", DELTA),
        ("decr k x noreply\r\n", "invalid "),
        (
            "incr k\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "incr k 1 noreply x\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        ("touch k 60\r\n", "touch key=k exptime=60"),
        ("touch k -1 noreply\r\n", "touch key=k exptime=-1 noreply"),
        ("touch k x\r\n", EXPTIME),
        ("touch k 1.5\r\n", EXPTIME),
        ("touch k x noreply\r\n", "invalid "),
        (
            "touch k\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
    ]);
}

#[test]
fn the_rest() {
    const EXPTIME: &str = "invalid CLIENT_ERROR invalid exptime argument\\r\\n";
    check(&[
        ("flush_all\r\n", "flush_all"),
        ("flush_all noreply\r\n", "flush_all noreply"),
        ("flush_all 10\r\n", "flush_all delay=10"),
        ("flush_all 0 noreply\r\n", "flush_all noreply"),
        ("flush_all -1\r\n", "flush_all delay=-1"),
        ("flush_all x\r\n", EXPTIME),
        ("flush_all x noreply\r\n", "invalid "),
        ("flush_all 1 2 3\r\n", "invalid ERROR\\r\\n"),
        ("stats\r\n", "stats args="),
        ("stats  settings \r\n", "stats args=settings"),
        ("stats detail on\r\n", "stats args=detail on"),
        ("stats noreply\r\n", "stats args=noreply"),
        ("verbosity 1\r\n", "verbosity level=1"),
        ("verbosity 0 noreply\r\n", "verbosity noreply"),
        ("verbosity noreply\r\n", "invalid "),
        ("verbosity\r\n", "invalid ERROR\\r\\n"),
        ("verbosity foo bar my\r\n", "invalid ERROR\\r\\n"),
        (
            "verbosity x\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        ("version\r\n", "version"),
        ("version foo bar\r\n", "version"),
        ("quit\r\n", "quit"),
        ("quit noreply\r\n", "quit"),
        (
            "shutdown\r\n",
            "invalid SERVER_ERROR: shutdown not enabled\\r\\n",
        ),
        (
            "shutdown graceful\r\n",
            "invalid SERVER_ERROR: shutdown not enabled\\r\\n",
        ),
        // No commands.
        ("\r\n", "invalid CLIENT_ERROR bad command line format\\r\\n"),
        ("\n", "invalid CLIENT_ERROR bad command line format\\r\\n"),
        ("   \r\n", "invalid ERROR\\r\\n"),
        ("GET a\r\n", "invalid ERROR\\r\\n"),
        ("getx a\r\n", "invalid ERROR\\r\\n"),
        ("watch\r\n", "invalid ERROR\\r\\n"),
        ("lru_crawler metadump all\r\n", "invalid ERROR\\r\\n"),
        ("slabs automove 1\r\n", "invalid ERROR\\r\\n"),
        ("GET / HTTP/1.1\r\n", "invalid  close"),
        ("POST /x HTTP/1.0\r\n", "invalid  close"),
        ("get HTTP/1.1\r\n", "retrieve HTTP/1.1"),
    ]);
}

#[test]
fn retrieval_line_holds_a_thousand_of_the_longest_keys() {
    // A `get` of 1,000 keys of 250 bytes was a line of 251 KB, which closed the connection: the limit was 64 KiB.
    let keys: Vec<String> = (0..1_000).map(|at| format!("{at:0>250}")).collect();
    let line = format!("get {}\r\n", keys.join(" "));
    let parsed = kedge_protocol::text::parse(line.as_bytes(), &TextLimits::default());
    let Parsed::Command {
        command: TextCommand::Retrieve(retrieve),
        consumed,
    } = parsed
    else {
        panic!("{parsed:?}");
    };
    assert_eq!((retrieve.keys.count(), consumed), (1_000, line.len()));
}

#[test]
fn text_exptime_has_31_bits() {
    // An exptime of 2^31 and more was taken for a moment after the year 2038; memcached refuses it, and so a client that
    // miscounts hears of it.
    const FORMAT: &str = "invalid CLIENT_ERROR bad command line format\\r\\n";
    const EXPTIME: &str = "invalid CLIENT_ERROR invalid exptime argument\\r\\n";
    const TOKEN: &str = "invalid CLIENT_ERROR bad token in command line format\\r\\n";
    check(&[
        ("touch k 2147483647\r\n", "touch key=k exptime=2147483647"),
        ("touch k 2147483648\r\n", EXPTIME),
        ("touch k -2147483649\r\n", EXPTIME),
        ("gat 2147483648 k\r\n", EXPTIME),
        ("flush_all 4294967295\r\n", EXPTIME),
        ("set k 0 2147483648 1\r\n", &format!("{FORMAT} swallow=3")),
        ("mg k T2147483648\r\n", TOKEN),
        ("mg k N4294967295\r\n", TOKEN),
    ]);
}

#[test]
fn text_lines_have_a_length_limit() {
    let line = |start: &str, len: usize| {
        let mut line = start.to_owned();
        while line.len() < len - 2 {
            line.push_str(if line.len().is_multiple_of(100) {
                " "
            } else {
                "k"
            });
        }
        line + "\r\n"
    };
    const LONG: &str = "invalid CLIENT_ERROR line too long\\r\\n close";
    for (start, max) in [
        ("get ", 4096),
        (" gets ", 4096),
        ("gat 0 ", 4096),
        ("gats 0 ", 4096),
        ("stats ", 512),
        ("getx ", 512),
        ("xget ", 512),
    ] {
        let fits = line(start, max);
        assert_eq!(fits.len(), max);
        assert!(!parsed(fits.as_bytes()).contains("too long"), "{start}");
        let long = line(start, max + 1);
        assert!(parsed(long.as_bytes()).ends_with(LONG), "{start}");
        // The same without its end: no more bytes are waited for than a line may have.
        assert_eq!(
            parsed(&fits.as_bytes()[..max - 1]),
            format!("incomplete {max}")
        );
        assert!(parsed(&long.as_bytes()[..max]).ends_with(LONG), "{start}");
    }
}

#[test]
fn incomplete_text_commands_return_the_needed_length() {
    check(&[
        ("", "incomplete 1"),
        ("g", "incomplete 2"),
        ("get a\r", "incomplete 7"),
        ("set k 0 0 3\r\n", "incomplete 18"),
        ("set k 0 0 3\r\nabc\r", "incomplete 18"),
        ("ms k 3\r\na", "incomplete 13"),
    ]);
}
