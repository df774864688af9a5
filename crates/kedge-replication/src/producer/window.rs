//! Flow control: how much a consumer was sent that it has not acknowledged.

/// The window of a connection. Whole frames count, and the last may reach over the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// The consumer's buffer, in bytes; 0: it wants no flow control.
    pub(super) size: u32,
    pub(super) unacknowledged: u64,
    /// Since when it is full.
    full_since_ns: Option<u64>,
}

impl Window {
    pub(super) fn is_full(&self) -> bool {
        self.size > 0 && self.unacknowledged >= u64::from(self.size)
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        if self.size > 0 {
            self.unacknowledged += bytes as u64;
        }
    }

    /// There was something to send, and no room.
    pub(super) fn note_full(&mut self, now_ns: u64) {
        self.full_since_ns.get_or_insert(now_ns);
    }

    /// What is acknowledged twice does no harm: it does not make the window larger than it is.
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
