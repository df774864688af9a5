//! What goes to standard output, and nothing else does: logs and complaints go to standard error.

use std::io::{self, Write};

/// Prints and flushes. A reader that went away (`| head`) is no error.
///
/// # Errors
/// What writing to standard output gives.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error, if that takes it: `eprintln!` panics where it does not.
pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
