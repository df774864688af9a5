//! Flow control: bytes that were sent to a consumer and are not acknowledged.

/// The window of a connection. Whole frames count, and the last one may exceed the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowControlWindow {
    /// The size of the consumer's buffer in bytes; 0 without flow control.
    pub(super) size: u32,
    pub(super) unacknowledged: u64,
    /// The time since which the window is full.
    full_since_ns: Option<u64>,
}

impl FlowControlWindow {
    pub(super) fn is_full(&self) -> bool {
        self.size > 0 && self.unacknowledged >= u64::from(self.size)
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        if self.size > 0 {
            self.unacknowledged += bytes as u64;
        }
    }

    /// Notes that there was data to send, and no room.
    pub(super) fn note_full(&mut self, now_ns: u64) {
        self.full_since_ns.get_or_insert(now_ns);
    }

    /// Subtracts acknowledged bytes. Bytes that are acknowledged twice do not make the window larger than its size.
    pub(super) fn acknowledge(&mut self, bytes: u32) {
        self.unacknowledged = self.unacknowledged.saturating_sub(u64::from(bytes));
        self.full_since_ns = None;
    }

    pub(super) fn resize(&mut self, size: u32) {
        self.size = size;
        self.full_since_ns = None;
        if size == 0 {
            self.unacknowledged = 0;
        }
    }

    pub(super) fn full_since_ns(&self) -> Option<u64> {
        self.full_since_ns
    }
}
