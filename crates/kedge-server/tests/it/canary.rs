//! A canary: a client with short commands, whose waits show the effect of long commands of others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kedge_frontend::MetricsSnapshot;
use kedge_protocol::binary::Opcode;
use kedge_types::{Status, VbId};

use crate::client::{Client, Frame};
use crate::server::Kedge;

/// Returns true if documents and nodes are to have their largest size, as in `make test-long`.
pub(crate) fn is_full() -> bool {
    std::env::var("KEDGE_LONG_COMMANDS").is_ok_and(|size| size == "full")
}

/// Longest turn of a front-end thread that passes with documents and nodes of the largest size. The limit of a turn is
/// 10 ms, but a machine that is busy with something else makes any turn longer, so only a stall fails, and only in
/// `make test-long`: in `make test`, time decides nothing.
const TURN_US_MAX: u64 = 1_000_000;

/// Prints the longest turn so far. With the largest size, fails if that was a stall.
#[expect(clippy::print_stdout, reason = "a test prints what it measures")]
pub(crate) fn check_turns(kedge: &Kedge, canary: &Canary, what: &str) {
    let MetricsSnapshot {
        long_turns,
        longest_turn_us,
        ..
    } = kedge.server().metrics().snapshot();
    println!(
        "{what:<48} others waited {:?}, turns over 10 ms so far: {long_turns}, the longest {longest_turn_us} us",
        canary.waited(),
    );
    assert!(
        !is_full() || longest_turn_us <= TURN_US_MAX,
        "{what}: a turn of {longest_turn_us} us"
    );
}

/// A client that shares a front-end thread, and a vBucket, with the others.
#[derive(Default)]
pub(crate) struct Canary {
    over: AtomicBool,
    longest_us: AtomicU64,
    /// The bucket is flushed, so the document may be missing.
    is_flushed: AtomicBool,
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
            let reply = client.call(&Frame {
                vb: vb.get(),
                ..frame
            });
            let is_flushed = self.is_flushed.load(Ordering::SeqCst);
            assert!(
                reply.status == Status::Success
                    || is_flushed && reply.status == Status::KeyNotFound,
                "{reply:?}"
            );
            let took = u64::try_from(began.elapsed().as_micros()).unwrap();
            self.longest_us.fetch_max(took, Ordering::Relaxed);
        }
    }

    /// The document may be missing from now on.
    pub(crate) fn expect_flush(&self) {
        self.is_flushed.store(true, Ordering::SeqCst);
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
