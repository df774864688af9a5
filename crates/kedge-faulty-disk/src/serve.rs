//! Serves the requests of the kernel.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;

use crate::faults::{Call, Faults};
use crate::files::Files;
use crate::replies::{Reply, WRITE_BYTES_MAX, message};
use crate::requests::{Request, op};

/// The bytes of a write's request beyond its data, and more.
const REQUEST_BYTES: usize = 4_096;

/// A file system, and the device by which the kernel asks it.
#[derive(Debug)]
pub(crate) struct FileSystem {
    pub(crate) faults: Faults,
    files: Files,
    device: File,
}

impl FileSystem {
    pub(crate) fn new(below: &Path, device: File) -> Self {
        Self {
            faults: Faults::default(),
            files: Files::new(below.to_owned()),
            device,
        }
    }

    /// Returns the call that a request is to the faults, with the path of its file.
    fn call(&self, request: &Request) -> Option<(Call, PathBuf)> {
        let call = match request.op {
            op::READ => Call::Read,
            op::WRITE => Call::Write,
            op::FSYNC | op::FSYNCDIR => Call::Sync,
            _ => return None,
        };
        // A removed file has no path.
        Some((call, self.files.path(request.node).unwrap_or_default()))
    }

    fn reply(&self, request: &Request, reply: Result<Reply, Errno>) {
        if !request.is_silent() {
            // The kernel may not wait for it any more.
            let _ = (&self.device).write(&message(request.unique, reply));
        }
    }

    /// Makes a call that has a fault, on a thread of its own.
    fn serve_faulty(self: &Arc<Self>, request: Request, fault: crate::faults::CallFault) {
        let files = self.clone();
        let calls = thread::Builder::new().name("faulty-call".to_owned());
        let called = calls.spawn(move || {
            let done = files.faults.wait(&fault);
            let done = done.and_then(|()| files.files.execute(&request));
            files.reply(&request, done);
        });
        let _ = called.expect("a thread");
    }
}

/// Serves requests until the file system is unmounted.
pub(crate) fn run(files: &Arc<FileSystem>) {
    let mut buffer = vec![0; WRITE_BYTES_MAX as usize + REQUEST_BYTES];
    loop {
        let len = match (&files.device).read(&mut buffer) {
            Ok(len) => len,
            // Nobody waits for the request any more.
            Err(error) if is_passing(&error) => continue,
            Err(_) => return,
        };
        let Some(request) = Request::parse(&buffer[..len]) else {
            continue;
        };
        let call = files.call(&request);
        match call.and_then(|(call, path)| files.faults.of_call(call, &path)) {
            Some(fault) => files.serve_faulty(request, fault),
            None => {
                let done = files.files.execute(&request);
                files.reply(&request, done);
            }
        }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Interrupted)
}
