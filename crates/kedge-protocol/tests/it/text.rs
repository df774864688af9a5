//! Helpers for the tests of the text protocol: commands as one line of text, for readable tables.

use kedge_protocol::text::meta::{MetaKey, MetaReturns};
use kedge_protocol::text::{CountDirection, Exptime, Parsed, TextCommand, TextLimits, parse};
use std::fmt::Write as _;

/// Limits that tests can reach.
pub(crate) const LIMITS: TextLimits = TextLimits {
    line_bytes_max: 512,
    retrieval_line_bytes_max: 4096,
    value_bytes_max: 1000,
};

/// Returns the command at the front of `bytes`, as [`show`] formats it, with `consumed` in front if that is not all of
/// them.
pub(crate) fn parsed(bytes: &[u8]) -> String {
    let (shown, consumed) = match parse(bytes, &LIMITS) {
        Parsed::Incomplete { need } => return format!("incomplete {need}"),
        Parsed::Command { command, consumed } => (show(&command), consumed),
        Parsed::Invalid {
            reply,
            consumed,
            swallow,
            close,
        } => {
            let mut shown = format!("invalid {}", reply.escape_ascii());
            if swallow != 0 {
                write!(shown, " swallow={swallow}").unwrap();
            }
            if close {
                shown.push_str(" close");
            }
            (shown, consumed)
        }
    };
    if consumed == bytes.len() {
        shown
    } else {
        format!("{consumed}: {shown}")
    }
}

/// A command as text: its fields in the order in which they are declared, those that say nothing left out.
pub(crate) fn show(command: &TextCommand<'_>) -> String {
    let mut line = Shown::default();
    match command {
        TextCommand::Retrieve(c) => {
            line.word("retrieve");
            for key in c.keys {
                line.word(&key.escape_ascii().to_string());
            }
            line.flag("cas", c.with_cas)
                .some("touch", c.touch.map(Exptime::get));
        }
        TextCommand::Store(c) => {
            line.word(&format!("{:?}", c.mode))
                .bytes("key", c.key)
                .number("flags", c.client_flags)
                .number("exptime", c.exptime.get())
                .some("cas", c.cas)
                .bytes("value", c.value)
                .flag("noreply", c.noreply);
        }
        TextCommand::Delete(c) => {
            line.word("delete")
                .bytes("key", c.key)
                .flag("noreply", c.noreply);
        }
        TextCommand::Arithmetic(c) => {
            line.direction(c.direction)
                .bytes("key", c.key)
                .number("delta", c.delta)
                .flag("noreply", c.noreply);
        }
        TextCommand::Touch(c) => {
            line.word("touch")
                .bytes("key", c.key)
                .number("exptime", c.exptime.get())
                .flag("noreply", c.noreply);
        }
        TextCommand::FlushAll(c) => {
            line.word("flush_all")
                .number("delay", c.delay.get())
                .flag("noreply", c.noreply);
        }
        TextCommand::Stats(c) => {
            line.word("stats").bytes("args", c.args);
        }
        TextCommand::Verbosity(c) => {
            line.word("verbosity")
                .number("level", c.level)
                .flag("noreply", c.noreply);
        }
        TextCommand::Version => {
            line.word("version");
        }
        TextCommand::Quit => {
            line.word("quit");
        }
        TextCommand::MetaNoop => {
            line.word("mn");
        }
        TextCommand::MetaGet(_)
        | TextCommand::MetaSet(_)
        | TextCommand::MetaDelete(_)
        | TextCommand::MetaArithmetic(_)
        | TextCommand::MetaDebug(_) => show_meta(command, &mut line),
    }
    line.0
}

fn show_meta(command: &TextCommand<'_>, line: &mut Shown) {
    match command {
        TextCommand::MetaGet(c) => {
            line.word("mg")
                .meta(&c.key, &c.returns)
                .flag("value", c.value)
                .flag("no_bump", c.no_bump)
                .some("touch", c.touch.map(Exptime::get))
                .some("vivify", c.vivify.map(Exptime::get))
                .some("recache", c.recache.map(Exptime::get))
                .some("compare_cas", c.compare_cas)
                .some("new_cas", c.new_cas)
                .flag("quiet", c.quiet);
        }
        TextCommand::MetaSet(c) => {
            line.word("ms")
                .meta(&c.key, &c.returns)
                .word(&format!("{:?}", c.mode))
                .bytes("value", c.value)
                .number("flags", c.client_flags)
                .number("exptime", c.exptime.get())
                .some("vivify", c.vivify.map(Exptime::get))
                .some("compare_cas", c.compare_cas)
                .some("new_cas", c.new_cas)
                .flag("invalidate", c.invalidate)
                .flag("quiet", c.quiet);
        }
        TextCommand::MetaDelete(c) => {
            line.word("md")
                .meta(&c.key, &c.returns)
                .some("compare_cas", c.compare_cas)
                .some("new_cas", c.new_cas)
                .flag("invalidate", c.invalidate)
                .flag("remove_value", c.remove_value)
                .some("exptime", c.exptime.map(Exptime::get))
                .number("flags", c.client_flags)
                .flag("quiet", c.quiet);
        }
        TextCommand::MetaArithmetic(c) => {
            line.word("ma")
                .meta(&c.key, &c.returns)
                .direction(c.direction)
                .number("delta", c.delta)
                .number("initial", c.initial)
                .some("vivify", c.vivify.map(Exptime::get))
                .some("exptime", c.exptime.map(Exptime::get))
                .some("compare_cas", c.compare_cas)
                .some("new_cas", c.new_cas)
                .flag("value", c.value)
                .flag("quiet", c.quiet);
        }
        TextCommand::MetaDebug(c) => {
            line.word("me").key(&c.key);
        }
        _ => unreachable!("show() gives only meta commands"),
    }
}

#[derive(Default)]
struct Shown(String);

impl Shown {
    fn word(&mut self, word: &str) -> &mut Self {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(word);
        self
    }

    fn direction(&mut self, direction: CountDirection) -> &mut Self {
        self.word(match direction {
            CountDirection::Increment => "incr",
            CountDirection::Decrement => "decr",
        })
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        self.word(&format!("{name}={}", bytes.escape_ascii()))
    }

    fn number(&mut self, name: &str, number: impl Into<i128>) -> &mut Self {
        match number.into() {
            0 => self,
            number => self.word(&format!("{name}={number}")),
        }
    }

    fn some(&mut self, name: &str, number: Option<impl Into<i128>>) -> &mut Self {
        match number {
            None => self,
            Some(number) => self.word(&format!("{name}={}", number.into())),
        }
    }

    fn flag(&mut self, name: &str, is_set: bool) -> &mut Self {
        if is_set { self.word(name) } else { self }
    }

    fn key(&mut self, key: &MetaKey<'_>) -> &mut Self {
        let mut scratch = [0; 250];
        self.bytes("key", key.bytes(&mut scratch))
            .flag("base64", key.is_base64())
    }

    fn meta(&mut self, key: &MetaKey<'_>, returns: &MetaReturns<'_>) -> &mut Self {
        self.key(key);
        if let Some(opaque) = returns.opaque() {
            self.bytes("opaque", opaque);
        }
        for flag in b"cfhklst" {
            self.flag(&char::from(*flag).to_string(), returns.wants(*flag));
        }
        self
    }
}
