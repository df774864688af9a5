//! Standard output: only results go there; logs and errors go to standard error.

use std::io::{self, Write};

/// Prints and flushes. A reader that is gone (`| head`) is no error.
///
/// # Errors
/// The error of writing to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error, and ignores errors: `eprintln!` would panic.
pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
