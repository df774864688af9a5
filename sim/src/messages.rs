//! Requests of nodes to each other, besides their streams. They are late, and lost or later still where the network is cut.

use kedge_coordination::lease::PromiseRequest;
use kedge_disk::Rng;

/// The usual delay of a message, and the largest one.
const DELAY_NS: u64 = 2_000_000;
const DELAY_NS_MAX: u64 = 400_000_000;
/// The pause before a message that was not delivered is sent again.
const RETRY_NS: u64 = 50_000_000;

/// A request, or its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// Asks for a promise in a round.
    AskPromise { round: u64, request: PromiseRequest },
    /// The promise.
    Promised { round: u64 },
}

#[derive(Debug)]
struct Mail {
    from: usize,
    to: usize,
    at_ns: u64,
    message: Message,
}

/// All messages under way.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    under_way: Vec<Mail>,
    rounds: u64,
}

impl Messages {
    /// Returns a number for a round of requests that no other has.
    pub(crate) fn next_round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    /// Sends a message.
    pub(crate) fn send(
        &mut self,
        now_ns: u64,
        (from, to): (usize, usize),
        message: Message,
        rng: &mut Rng,
    ) {
        let most = [DELAY_NS, DELAY_NS, DELAY_NS, DELAY_NS_MAX][rng.below(4) as usize];
        self.under_way.push(Mail {
            from,
            to,
            at_ns: now_ns + rng.below(most),
            message,
        });
    }

    /// Returns the messages that have arrived at a node, with their senders.
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        to: usize,
        is_cut: impl Fn(usize) -> bool,
        rng: &mut Rng,
    ) -> Vec<(usize, Message)> {
        let is_due = |mail: &mut Mail| mail.to == to && mail.at_ns <= now_ns;
        let due: Vec<Mail> = self.under_way.extract_if(.., is_due).collect();
        let mut arrived = Vec::new();
        for mut mail in due {
            if !is_cut(mail.from) {
                arrived.push((mail.from, mail.message));
            } else if rng.below(3) != 0 {
                mail.at_ns = now_ns + RETRY_NS;
                self.under_way.push(mail);
            }
        }
        arrived
    }

    /// Drops what is on its way to a process that has died.
    pub(crate) fn kill(&mut self, node: usize) {
        self.under_way.retain(|mail| mail.to != node);
    }
}
