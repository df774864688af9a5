//! The memcached text protocol: classic and meta commands (memcached doc/protocol.txt).
//!
//! [`parse`] finds the command at the front of a receive buffer and gives it types; [`reply`] and [`meta`] append
//! replies. Neither uses sockets or buckets. Where protocol.txt is silent, the replies are those of memcached 1.6, with
//! these differences. Each of them either keeps bytes of a value from being parsed as commands, or keeps a promise of
//! protocol.txt that memcached does not keep:
//! * a value of known length is skipped whenever its command is refused, not only when it is too large;
//! * keys with control characters are refused;
//! * the limit of a line does not depend on how the network splits it.
//!
//! Architecture Invariant: parsing borrows from the buffer and never allocates, and keeps no state between two calls:
//! the same bytes give the same commands however they arrive.

mod arithmetic;
mod delete;
mod exptime;
pub mod limits;
mod line;
pub mod meta;
mod oneliners;
pub mod reply;
mod retrieve;
mod store;
mod touch;
mod words;

pub use arithmetic::{CountDirection, TextArithmetic};
pub use delete::TextDelete;
pub use exptime::Exptime;
pub use limits::TextLimits;
pub use oneliners::{FlushAll, Stats, TextVerbosity};
pub use retrieve::{Retrieve, RetrieveKeys};
pub use store::{TextStore, TextStoreMode};
pub use touch::TextTouch;

use line::{CommandError, Line, ParseStop, Tokens, ValueReader, find_line};
use meta::{MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet};

/// The result of parsing the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The command is incomplete.
    Incomplete {
        /// The length of the whole command in bytes, from the start of the buffer, if its line is complete; otherwise
        /// one more than the length of the buffer.
        need: usize,
    },
    /// A command.
    Command {
        /// The command.
        command: TextCommand<'a>,
        /// The number of bytes consumed, value included.
        consumed: usize,
    },
    /// The command is refused.
    Invalid {
        /// The reply, line end included; empty if the client wants no reply.
        reply: &'static [u8],
        /// The number of bytes consumed from the buffer.
        consumed: usize,
        /// The number of bytes after those, in the buffer or still to come, that belong to its value and have to be
        /// skipped.
        swallow: u64,
        /// True if the connection must be closed after the reply, because the following bytes cannot be trusted.
        close: bool,
    },
}

/// A command of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextCommand<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Retrieve(Retrieve<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(TextStore<'a>),
    /// `delete`.
    Delete(TextDelete<'a>),
    /// `incr`, `decr`.
    Arithmetic(TextArithmetic<'a>),
    /// `touch`.
    Touch(TextTouch<'a>),
    /// `flush_all`.
    FlushAll(FlushAll),
    /// `stats`.
    Stats(Stats<'a>),
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity(TextVerbosity),
    /// `quit`: close without a reply, after the replies to earlier commands.
    Quit,
    /// `mn`: answer [`reply::META_NOOP`].
    MetaNoop,
    /// `mg`.
    MetaGet(MetaGet<'a>),
    /// `ms`.
    MetaSet(MetaSet<'a>),
    /// `md`.
    MetaDelete(MetaDelete<'a>),
    /// `ma`.
    MetaArithmetic(MetaArithmetic<'a>),
    /// `me`.
    MetaDebug(MetaDebug<'a>),
}

/// Shortest line of a command, line end included. A shorter one is malformed rather than unknown, as in memcached.
const COMMAND_BYTES_MIN: usize = 4;

/// Parses the command at the front of `buf`, and reads nothing behind it.
#[must_use]
pub fn parse<'a>(buf: &'a [u8], limits: &TextLimits) -> Parsed<'a> {
    let Line { text, end } = match find_line(buf, limits) {
        Ok(line) => line,
        Err(ParseStop::Incomplete { need }) => return Parsed::Incomplete { need },
        Err(ParseStop::Error(error)) => return invalid(error, buf.len()),
    };
    if end < COMMAND_BYTES_MIN {
        return invalid(CommandError::new(reply::BAD_FORMAT), end);
    }
    let mut tokens = Tokens::new(text);
    let name = tokens.next().unwrap_or_default();
    let mut body = ValueReader::new(buf, end, limits);
    match dispatch(name, tokens, &mut body) {
        Ok(command) => Parsed::Command {
            command,
            consumed: body.consumed(),
        },
        Err(ParseStop::Incomplete { need }) => Parsed::Incomplete { need },
        Err(ParseStop::Error(error)) => invalid(error, body.consumed()),
    }
}

fn invalid(error: CommandError, consumed: usize) -> Parsed<'static> {
    Parsed::Invalid {
        reply: error.reply,
        consumed,
        swallow: error.swallow,
        close: error.close,
    }
}

/// Parses the command with this name.
fn dispatch<'a>(
    name: &[u8],
    tokens: Tokens<'a>,
    body: &mut ValueReader<'a>,
) -> Result<TextCommand<'a>, ParseStop> {
    use TextCommand as C;
    Ok(match name {
        b"get" => C::Retrieve(retrieve::parse(tokens, false, false)?),
        b"gets" => C::Retrieve(retrieve::parse(tokens, true, false)?),
        b"gat" => C::Retrieve(retrieve::parse(tokens, false, true)?),
        b"gats" => C::Retrieve(retrieve::parse(tokens, true, true)?),
        b"set" => C::Store(store::parse(tokens, body, TextStoreMode::Set)?),
        b"add" => C::Store(store::parse(tokens, body, TextStoreMode::Add)?),
        b"replace" => C::Store(store::parse(tokens, body, TextStoreMode::Replace)?),
        b"append" => C::Store(store::parse(tokens, body, TextStoreMode::Append)?),
        b"prepend" => C::Store(store::parse(tokens, body, TextStoreMode::Prepend)?),
        b"cas" => C::Store(store::parse_cas(tokens, body)?),
        b"delete" => C::Delete(delete::parse(tokens)?),
        b"incr" => C::Arithmetic(arithmetic::parse(tokens, CountDirection::Increment)?),
        b"decr" => C::Arithmetic(arithmetic::parse(tokens, CountDirection::Decrement)?),
        b"touch" => C::Touch(touch::parse(tokens)?),
        b"flush_all" => C::FlushAll(oneliners::parse_flush_all(tokens)?),
        b"stats" => C::Stats(oneliners::parse_stats(tokens)),
        b"verbosity" => C::Verbosity(oneliners::parse_verbosity(tokens)?),
        // Arguments of these three are ignored; libmemcached's memcapable sends some and expects that.
        b"version" => C::Version,
        b"quit" => C::Quit,
        b"mn" => C::MetaNoop,
        b"mg" => C::MetaGet(meta::parse_get(tokens)?),
        b"ms" => C::MetaSet(meta::parse_set(tokens, body)?),
        b"md" => C::MetaDelete(meta::parse_delete(tokens)?),
        b"ma" => C::MetaArithmetic(meta::parse_arithmetic(tokens)?),
        b"me" => C::MetaDebug(meta::parse_debug(tokens)?),
        b"shutdown" => return Err(CommandError::new(reply::SHUTDOWN_REFUSED).into()),
        _ => return Err(unknown(tokens).into()),
    })
}

/// Refuses an unknown command. A browser that was tricked into connecting to this port is cut off before the part of
/// its request that a web page controls.
fn unknown(tokens: Tokens<'_>) -> CommandError {
    let is_http = tokens.last().is_some_and(|last| last.starts_with(b"HTTP/"));
    if is_http {
        CommandError::new(b"").and_close()
    } else {
        CommandError::new(reply::ERROR)
    }
}
