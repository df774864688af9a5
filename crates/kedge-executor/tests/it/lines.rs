//! What is said in the log. The tests of `kedge-bucket` use it, too.

use std::io;
use std::sync::Arc;

/// The lines that `work` leads to on this thread; as many as a pipe holds, which is hundreds.
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
