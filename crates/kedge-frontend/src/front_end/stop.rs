//! The shutdown: connections finish their commands, DCP connections last.

use super::{FrontEnd, Shutdown};
use crate::connection::FrontEndConnection;
use crate::session::SessionTurn;

impl FrontEnd {
    pub(super) fn stop(&mut self) {
        if self.shutdown == Shutdown::Running {
            self.shutdown = Shutdown::Draining;
        }
        self.drain(|connection| !connection.session.dcp.is_dcp())
            .into_iter()
            .for_each(|slot| self.serve_after_messages(slot));
    }

    /// Lets connections finish. Returns their slots.
    fn drain(&mut self, which: impl Fn(&FrontEndConnection) -> bool) -> Vec<usize> {
        let mut slots = Vec::new();
        for (slot, connection) in self.connections.iter_mut() {
            if which(connection) {
                connection.drain();
                slots.push(slot);
            }
        }
        slots
    }

    /// Ends DCP connections when no other connection is left: clients wait for the acknowledgements of replicas.
    pub(super) fn drain_streams(&mut self, turn: &mut SessionTurn<'_>) {
        let shared = turn.shared;
        let open = shared
            .metrics
            .open
            .load(std::sync::atomic::Ordering::Relaxed);
        if open > shared.dcp.len() as u64 {
            // Connections of other threads send no event, so check again soon.
            return self.sweep_at(Some(turn.last_ns), turn.last_ns);
        }
        for slot in self.drain(|connection| connection.session.dcp.is_dcp()) {
            self.serve(slot, turn);
        }
    }
}
