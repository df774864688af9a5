//! Acknowledgements of consumed bytes.

use kedge_protocol::binary::commands::dcp::BufferAck;

/// The fraction of the buffer, one in so many, after which consumed bytes are acknowledged.
const DUE_PART: u64 = 5;
/// The longest delay of an acknowledgement, in nanoseconds.
const WAIT_NS_MAX: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct BufferAcks {
    due_bytes: u64,
    pending: u64,
    since_ns: Option<u64>,
}

impl BufferAcks {
    pub(super) fn new(buffer_bytes: u32) -> Self {
        Self {
            due_bytes: (u64::from(buffer_bytes) / DUE_PART).max(1),
            pending: 0,
            since_ns: None,
        }
    }

    pub(super) fn consumed(&mut self, now_ns: u64, bytes: usize) -> Option<BufferAck> {
        if bytes == 0 {
            return None;
        }
        self.pending += bytes as u64;
        self.since_ns.get_or_insert(now_ns);
        (self.pending >= self.due_bytes).then(|| self.take())
    }

    pub(super) fn on_time(&mut self, now_ns: u64) -> Option<BufferAck> {
        let is_due = self
            .deadline_ns()
            .is_some_and(|deadline| now_ns >= deadline);
        is_due.then(|| self.take())
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.since_ns.map(|since| since + WAIT_NS_MAX)
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending
    }

    fn take(&mut self) -> BufferAck {
        // A frame has at most 30 MiB, and a fifth of the buffer is due. The next acknowledgement covers any excess.
        let bytes = u32::try_from(self.pending).unwrap_or(u32::MAX);
        self.pending -= u64::from(bytes);
        if self.pending == 0 {
            self.since_ns = None;
        }
        BufferAck { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_ack_is_sent_at_a_fifth_of_the_buffer_or_after_five_seconds() {
        let mut acks = BufferAcks::new(1_000);
        let second = 1_000_000_000;
        assert_eq!(acks.consumed(0, 199), None);
        assert_eq!(acks.consumed(second, 1), Some(BufferAck { bytes: 200 }));
        assert_eq!((acks.deadline_ns(), acks.pending()), (None, 0));
        assert_eq!(acks.consumed(2 * second, 0), None);
        assert_eq!(acks.deadline_ns(), None);
        assert_eq!(acks.consumed(3 * second, 50), None);
        assert_eq!(acks.consumed(4 * second, 50), None);
        assert_eq!(acks.deadline_ns(), Some(8 * second), "from the first on");
        assert_eq!(acks.on_time(8 * second - 1), None);
        assert_eq!(acks.on_time(8 * second), Some(BufferAck { bytes: 100 }));
        assert_eq!(acks.on_time(100 * second), None);
    }
}
