//! The meta commands of the memcached text protocol.

use crate::text::{LIMITS, parsed};
use kedge_protocol::text::meta::{
    MetaDebugItem, MetaItem, MetaReturns, MetaStatus, MetaTtl, write_meta, write_meta_debug,
    write_meta_value,
};
use kedge_protocol::text::{Parsed, TextCommand, parse};

#[track_caller]
fn check(table: &[(&str, &str)]) {
    for (bytes, expected) in table {
        assert_eq!(parsed(bytes.as_bytes()), *expected, "{bytes:?}");
    }
}

#[test]
fn requests() {
    check(&[
        ("mn\r\n", "mn"),
        ("mn x\r\n", "mn"),
        ("mg foo\r\n", "mg key=foo"),
        ("mg foo t f v\r\n", "mg key=foo f t value"),
        (
            "mg foo s t c f l h k O1 v q u\r\n",
            "mg key=foo opaque=1 c f h k l s t value no_bump quiet",
        ),
        (
            "mg foo N30 R10 T90 C7 E8\r\n",
            "mg key=foo touch=90 vivify=30 recache=10 compare_cas=7 new_cas=8",
        ),
        ("mg foo T-1\r\n", "mg key=foo touch=-1"),
        ("mg foo Ppath/ Lhint v\r\n", "mg key=foo value"),
        ("mg Zm9v b k v\r\n", "mg key=foo base64 k value"),
        ("mg  foo   v \r\n", "mg key=foo value"),
        ("mg foo O\r\n", "mg key=foo opaque="),
        // The argument of a flag that takes none is ignored, as in memcached.
        ("mg foo vx c1\r\n", "mg key=foo c value"),
        (
            "ms foo 2 T90 F1\r\nhi\r\n",
            "ms key=foo Set value=hi flags=1 exptime=90",
        ),
        ("ms foo 0\r\n\r\n", "ms key=foo Set value="),
        ("ms foo 2 MS\r\nhi\r\n", "ms key=foo Set value=hi"),
        ("ms foo 2 ME\r\nhi\r\n", "ms key=foo Add value=hi"),
        ("ms foo 2 MR\r\nhi\r\n", "ms key=foo Replace value=hi"),
        (
            "ms foo 2 MA N60\r\nhi\r\n",
            "ms key=foo Append value=hi vivify=60",
        ),
        ("ms foo 2 MP\r\nhi\r\n", "ms key=foo Prepend value=hi"),
        (
            "ms Zm9v 2 b c k s O12 I C5 E6 q\r\nhi\r\n",
            "ms key=foo base64 opaque=12 c k s Set value=hi compare_cas=5 new_cas=6 invalidate quiet",
        ),
        ("md foo\r\n", "md key=foo"),
        (
            "md foo I T30 C5\r\n",
            "md key=foo compare_cas=5 invalidate exptime=30",
        ),
        (
            "md foo q k O9 x F3 E4\r\n",
            "md key=foo opaque=9 k new_cas=4 remove_value flags=3 quiet",
        ),
        ("ma foo\r\n", "ma key=foo incr delta=1"),
        ("ma foo MI\r\n", "ma key=foo incr delta=1"),
        ("ma foo M+ D0\r\n", "ma key=foo incr"),
        ("ma foo M- D5\r\n", "ma key=foo decr delta=5"),
        (
            "ma foo MD N60 J13 D2 T30 v t c q C9 E10\r\n",
            "ma key=foo c t decr delta=2 initial=13 vivify=60 exptime=30 compare_cas=9 new_cas=10 value quiet",
        ),
        ("ma foo C0\r\n", "ma key=foo incr delta=1"),
        ("me foo\r\n", "me key=foo"),
        ("me Zm9v b\r\n", "me key=foo base64"),
    ]);
}

#[test]
fn malformed_requests() {
    check(&[
        (
            "mg\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "ms\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "md\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "ma\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        ("mx foo\r\n", "invalid ERROR\\r\\n"),
        (
            "me\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "ms foo\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "ms foo x\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "ms foo S2\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        (
            "ms foo -1\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n",
        ),
        ("mg foo S\r\n", "invalid CLIENT_ERROR invalid flag\\r\\n"),
        ("mg foo =\r\n", "invalid CLIENT_ERROR invalid flag\\r\\n"),
        (
            "mg foo \u{e9}\r\n",
            "invalid CLIENT_ERROR invalid flag\\r\\n",
        ),
        (
            "mg foo v v\r\n",
            "invalid CLIENT_ERROR duplicate flag\\r\\n",
        ),
        (
            "md foo O1 O2\r\n",
            "invalid CLIENT_ERROR duplicate flag\\r\\n",
        ),
        ("ma foo y\r\n", "invalid CLIENT_ERROR invalid flag\\r\\n"),
        (
            "mg foo b\r\n",
            "invalid CLIENT_ERROR error decoding key\\r\\n",
        ),
        (
            "mg foo T\r\n",
            "invalid CLIENT_ERROR bad token in command line format\\r\\n",
        ),
        (
            "mg foo Tx\r\n",
            "invalid CLIENT_ERROR bad token in command line format\\r\\n",
        ),
        (
            "mg foo N\r\n",
            "invalid CLIENT_ERROR bad token in command line format\\r\\n",
        ),
        (
            "mg foo R1x\r\n",
            "invalid CLIENT_ERROR bad token in command line format\\r\\n",
        ),
        (
            "md foo C-1\r\n",
            "invalid CLIENT_ERROR bad token in command line format\\r\\n",
        ),
        (
            "md foo E\r\n",
            "invalid CLIENT_ERROR bad token in command line format\\r\\n",
        ),
        (
            "ma foo Dx\r\n",
            "invalid CLIENT_ERROR invalid numeric delta value\\r\\n",
        ),
        (
            "ma foo J-1\r\n",
            "invalid CLIENT_ERROR invalid numeric initial value\\r\\n",
        ),
        (
            "ma foo MX\r\n",
            "invalid CLIENT_ERROR invalid mode for ma M token\\r\\n",
        ),
        (
            "ma foo M\r\n",
            "invalid CLIENT_ERROR incorrect length for M token\\r\\n",
        ),
        // The value that follows is swallowed.
        (
            "ms foo 2 MX\r\n",
            "invalid CLIENT_ERROR invalid mode for ms M token\\r\\n swallow=4",
        ),
        (
            "ms foo 2 MSS\r\n",
            "invalid CLIENT_ERROR incorrect length for M token\\r\\n swallow=4",
        ),
        (
            "ms foo 2 Fx\r\n",
            "invalid CLIENT_ERROR bad command line format\\r\\n swallow=4",
        ),
        (
            "ms foo 2 q q\r\n",
            "invalid CLIENT_ERROR duplicate flag\\r\\n swallow=4",
        ),
    ]);
}

#[test]
fn meta_opaque_tokens_have_at_most_32_bytes() {
    let line = |len: usize| parsed(format!("mg foo O{}\r\n", "o".repeat(len)).as_bytes());
    assert_eq!(line(32), format!("mg key=foo opaque={}", "o".repeat(32)));
    assert_eq!(line(33), "invalid CLIENT_ERROR opaque token too long\\r\\n");
}

/// Returns the flags that the reply to `line` returns.
fn returns(line: &str) -> MetaReturns<'_> {
    match parse(line.as_bytes(), &LIMITS) {
        Parsed::Command { command, .. } => match command {
            TextCommand::MetaGet(c) => c.returns,
            TextCommand::MetaSet(c) => c.returns,
            TextCommand::MetaDelete(c) => c.returns,
            TextCommand::MetaArithmetic(c) => c.returns,
            other => panic!("{line:?} is {other:?}"),
        },
        other => panic!("{line:?} is {other:?}"),
    }
}

/// Replies of memcached 1.6.18 to these requests, and of protocol.txt.
#[test]
fn replies() {
    use MetaStatus::{Done, Exists, Miss, NotFound, NotStored};
    let found = MetaItem {
        cas: Some(5),
        client_flags: Some(7),
        size: Some(2),
        ttl: Some(MetaTtl::Unlimited),
        last_access_secs: Some(3),
        hit_before: Some(true),
        ..MetaItem::default()
    };
    let unknown = MetaItem::default();
    for (request, status, item, expected) in [
        (
            "ms Zm9v 2 b k O1 c\r\nhi\r\n",
            Some(Done),
            found,
            "HD kZm9v b O1 c5\r\n",
        ),
        (
            "mg Zm9v b k O1 v c s t f\r\n",
            None,
            found,
            "VA 2 kZm9v b O1 c5 s2 t-1 f7\r\nhi\r\n",
        ),
        (
            "mg Zm8= k b O1 v\r\n",
            Some(Miss),
            unknown,
            "EN kZm8= b O1\r\n",
        ),
        ("mg foo v q k\r\n", None, found, "VA 2 kfoo\r\nhi\r\n"),
        ("mg foo\r\n", Some(Done), found, "HD\r\n"),
        (
            "mg foo f c t h l\r\n",
            Some(Done),
            found,
            "HD f7 c5 t-1 h1 l3\r\n",
        ),
        // What is not known is left out.
        ("mg foo l h s t\r\n", Some(Done), unknown, "HD\r\n"),
        (
            "ma n t c v N0 J13 O5 k\r\n",
            None,
            found,
            "VA 2 t-1 c5 O5 kn\r\nhi\r\n",
        ),
        ("ma z O1\r\n", Some(NotFound), unknown, "NF O1\r\n"),
        ("md z q k\r\n", Some(NotFound), unknown, "NF kz\r\n"),
        ("md z O\r\n", Some(Exists), unknown, "EX O\r\n"),
        ("ms k 2 ME s\r\nhi\r\n", Some(NotStored), found, "NS s2\r\n"),
        (
            "mg foo N30 t\r\n",
            Some(Done),
            MetaItem {
                won: true,
                ttl: Some(MetaTtl::Secs(30)),
                ..unknown
            },
            "HD t30 W\r\n",
        ),
        (
            "mg foo R30 v\r\n",
            None,
            MetaItem {
                stale: true,
                token_sent: true,
                ..unknown
            },
            "VA 2 Z X\r\nhi\r\n",
        ),
        (
            "mg foo\r\n",
            Some(Done),
            MetaItem {
                stale: true,
                won: true,
                ..unknown
            },
            "HD X W\r\n",
        ),
    ] {
        let mut out = b"before".to_vec();
        match status {
            Some(status) => write_meta(&mut out, status, &returns(request), &item),
            None => write_meta_value(&mut out, b"hi", &returns(request), &item),
        }
        let expected = format!("before{expected}");
        assert_eq!(
            out.escape_ascii().to_string(),
            expected.escape_default().to_string(),
            "{request:?}"
        );
    }
}

#[test]
fn meta_quiet_flag_suppresses_only_expected_replies() {
    use MetaStatus::{Done, Exists, Miss, NotFound, NotStored};
    let all = [Done, Miss, NotFound, NotStored, Exists];
    let silent = |line: &str| -> Vec<MetaStatus> {
        let Parsed::Command { command, .. } = parse(line.as_bytes(), &LIMITS) else {
            panic!("{line:?} is no command");
        };
        let is_silent = |status: &MetaStatus| match &command {
            TextCommand::MetaGet(c) => c.is_silent(*status),
            TextCommand::MetaSet(c) => c.is_silent(*status),
            TextCommand::MetaDelete(c) => c.is_silent(*status),
            TextCommand::MetaArithmetic(c) => c.is_silent(*status),
            other => panic!("{line:?} is {other:?}"),
        };
        all.into_iter().filter(is_silent).collect()
    };
    assert_eq!(silent("mg k q\r\n"), [Miss]);
    assert_eq!(silent("ms k 0 q\r\n\r\n"), [Done]);
    assert_eq!(silent("md k q\r\n"), [Done]);
    assert_eq!(silent("ma k q\r\n"), [Done]);
    for line in ["mg k\r\n", "ms k 0\r\n\r\n", "md k\r\n", "ma k\r\n"] {
        assert_eq!(silent(line), []);
    }
}

#[test]
fn debug_replies() {
    let item = MetaDebugItem {
        ttl: MetaTtl::Unlimited,
        last_access_secs: Some(1),
        cas: 6,
        fetched: Some(false),
        size: 64,
    };
    let less = MetaDebugItem {
        ttl: MetaTtl::Secs(20),
        last_access_secs: None,
        fetched: None,
        ..item
    };
    for (line, item, expected) in [
        (
            "me foo\r\n",
            Some(item),
            "ME foo exp=-1 la=1 cas=6 fetch=no size=64\r\n",
        ),
        (
            "me Zm9v b\r\n",
            Some(less),
            "ME Zm9v exp=20 cas=6 size=64\r\n",
        ),
        ("me foo\r\n", None, "EN\r\n"),
    ] {
        let Parsed::Command {
            command: TextCommand::MetaDebug(debug),
            ..
        } = parse(line.as_bytes(), &LIMITS)
        else {
            panic!("{line:?} is not me");
        };
        let mut out = Vec::new();
        write_meta_debug(&mut out, &debug.key, item.as_ref());
        assert_eq!(out, expected.as_bytes());
    }
}
