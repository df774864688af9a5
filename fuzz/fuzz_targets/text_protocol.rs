//! Any bytes as a text connection's stream: no command reads behind itself, what is asked for is missing, replies can be
//! composed, and the stream gives the same commands a byte at a time.
#![no_main]

use kedge_protocol::text::meta::{MetaItem, MetaKey, MetaReturns, MetaStatus, write_meta};
use kedge_protocol::text::{Parsed, TextCommand, TextLimits, parse};
use libfuzzer_sys::fuzz_target;

const LIMITS: TextLimits = TextLimits {
    line_bytes_max: 512,
    retrieval_line_bytes_max: 2048,
    value_bytes_max: 1024,
};

fuzz_target!(|stream: &[u8]| {
    let mut rest = stream;
    loop {
        match parse(rest, &LIMITS) {
            Parsed::Incomplete { need } => {
                assert!(need > rest.len());
                return;
            }
            Parsed::Command { command, consumed } => {
                let (own, behind) = rest.split_at(consumed);
                assert_eq!(parse(own, &LIMITS), Parsed::Command { command, consumed });
                for shorter in 0..consumed {
                    let cut = parse(&own[..shorter], &LIMITS);
                    assert!(matches!(cut, Parsed::Incomplete { .. }), "{cut:?}");
                }
                execute(&command);
                rest = behind;
            }
            Parsed::Invalid {
                reply,
                consumed,
                swallow,
                close,
            } => {
                assert!(consumed > 0);
                assert!(reply.is_empty() || reply.ends_with(b"\r\n"));
                if close {
                    return;
                }
                let skipped =
                    usize::try_from(swallow).map_or(rest.len(), |swallow| consumed + swallow);
                rest = rest.get(skipped..).unwrap_or_default();
            }
        }
    }
});

/// Uses all that a server would use of a command.
fn execute(command: &TextCommand<'_>) {
    match command {
        TextCommand::Retrieve(c) => {
            assert!(c.keys.count() > 0);
            assert!({ c.keys }.all(|key| (1..=250).contains(&key.len())));
        }
        TextCommand::MetaGet(c) => answer(&c.key, &c.returns),
        TextCommand::MetaSet(c) => answer(&c.key, &c.returns),
        TextCommand::MetaDelete(c) => answer(&c.key, &c.returns),
        TextCommand::MetaArithmetic(c) => answer(&c.key, &c.returns),
        _ => {}
    }
}

fn answer(key: &MetaKey<'_>, returns: &MetaReturns<'_>) {
    assert!(!key.bytes(&mut [0; 250]).is_empty());
    let mut out = Vec::new();
    write_meta(&mut out, MetaStatus::Miss, returns, &MetaItem::default());
    assert!(out.starts_with(b"EN") && out.ends_with(b"\r\n"));
    assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
}
