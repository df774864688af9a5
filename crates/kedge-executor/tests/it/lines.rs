//! The log lines of the executor. The tests of `kedge-bucket` use this module, too.

use std::io;
use std::sync::Arc;

/// Returns the log lines that `work` writes on this thread, up to the capacity of a pipe (hundreds of lines).
pub(crate) fn lines_of(work: impl FnOnce()) -> Vec<String> {
    let (written, log) = io::pipe().unwrap();
    let log = tracing_subscriber::fmt()
        .with_writer(Arc::new(log))
        .finish();
    tracing::subscriber::with_default(log, work);
    io::read_to_string(written)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}
