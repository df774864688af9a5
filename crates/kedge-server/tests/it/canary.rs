//! A canary: a client with short commands, whose waits show the effect of long commands of others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kedge_protocol::binary::Opcode;
use kedge_types::VbId;

use crate::client::{Client, Frame};

/// Returns true if documents and nodes are to have their largest size, as in `make test-long`.
pub(crate) fn is_full() -> bool {
    std::env::var("KEDGE_LONG_COMMANDS").is_ok_and(|size| size == "full")
}

/// A client that shares a front-end thread, and a vBucket, with the others.
#[derive(Default)]
pub(crate) struct Canary {
    over: AtomicBool,
    longest_us: AtomicU64,
}

impl Canary {
    /// Reads a document in a loop.
    pub(crate) fn run(&self, client: Client, key: &str) {
        self.run_in(client, VbId::of_key(key.as_bytes(), 16), key);
    }

    /// Reads a document of this vBucket in a loop.
    pub(crate) fn run_in(&self, mut client: Client, vb: VbId, key: &str) {
        while !self.over.load(Ordering::Relaxed) {
            let frame = client.request(Opcode::Get).key(key);
            let began = Instant::now();
            client
                .call(&Frame {
                    vb: vb.get(),
                    ..frame
                })
                .ok();
            let took = u64::try_from(began.elapsed().as_micros()).unwrap();
            self.longest_us.fetch_max(took, Ordering::Relaxed);
        }
    }

    /// Ends the loop when the returned guard is dropped, also if the test fails.
    pub(crate) fn ends(&self) -> impl Drop + '_ {
        Ends(self)
    }

    /// The longest wait since the last call.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::Relaxed))
    }
}

struct Ends<'a>(&'a Canary);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}
