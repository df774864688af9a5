//! The open DCP connections: their names and figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use kedge_replication::ProducerFigures;
use kedge_sync::{
    RankedMutex,
    ranks::{DcpConnectionFigures, DcpConnectionsOpen},
};

use crate::cookie::ConnectionId;
use crate::inbox::{FrontEndMessage, FrontEnds};

/// Bucket and name of a connection.
type ConnectionKey = (String, String);

/// All DCP connections of the server.
pub(crate) struct DcpConnections {
    front_ends: Arc<FrontEnds>,
    open: RankedMutex<DcpConnectionsOpen, BTreeMap<ConnectionKey, ConnectionEntry>>,
}

struct ConnectionEntry {
    id: ConnectionId,
    figures: Arc<RankedMutex<DcpConnectionFigures, ProducerFigures>>,
}

/// The figures of a connection.
#[derive(Clone, Debug)]
pub(crate) struct DcpFigures {
    pub(crate) name: String,
    pub(crate) producer: ProducerFigures,
}

/// The entry of a connection, removed when it is dropped.
pub(crate) struct DcpRegistration {
    all: Arc<DcpConnections>,
    name: ConnectionKey,
    id: ConnectionId,
    figures: Arc<RankedMutex<DcpConnectionFigures, ProducerFigures>>,
}

impl DcpConnections {
    pub(crate) fn new(front_ends: Arc<FrontEnds>) -> Self {
        Self {
            front_ends,
            open: RankedMutex::default(),
        }
    }

    /// Registers a connection to a bucket. Another connection of this name is closed.
    pub(crate) fn register(
        self: &Arc<Self>,
        bucket: &str,
        name: &str,
        id: ConnectionId,
    ) -> DcpRegistration {
        let name = (bucket.to_owned(), name.to_owned());
        let figures = Arc::<RankedMutex<DcpConnectionFigures, ProducerFigures>>::default();
        let known = ConnectionEntry {
            id,
            figures: figures.clone(),
        };
        let before = self.open.lock().insert(name.clone(), known);
        if let Some(before) = before.filter(|before| before.id != id) {
            tracing::info!(
                bucket,
                name = name.1,
                "a DCP connection is closed: another one was opened under its name"
            );
            self.front_ends
                .send(before.id.thread, FrontEndMessage::End(before.id));
        }
        DcpRegistration {
            all: self.clone(),
            name,
            id,
            figures,
        }
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// Calls `each` with the name and value of each sum over the connections.
    pub(crate) fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let open = self.open.lock();
        let figures: Vec<ProducerFigures> =
            open.values().map(|known| *known.figures.lock()).collect();
        drop(open);
        let sum = |of: fn(&ProducerFigures) -> u64| figures.iter().map(of).sum::<u64>();
        for (name, value) in [
            ("dcp_connections", figures.len() as u64),
            ("dcp_streams", sum(|figures| figures.streams as u64)),
            ("dcp_unacked_bytes", sum(|figures| figures.unacknowledged)),
        ] {
            each(name, &value.to_string());
        }
    }

    /// The connections to a bucket, by name.
    pub(crate) fn of(&self, bucket: &str) -> Vec<DcpFigures> {
        let open = self.open.lock();
        let of_bucket = open.iter().filter(|((of, _), _)| of == bucket);
        let figures = of_bucket.map(|((_, name), known)| DcpFigures {
            name: name.clone(),
            producer: *known.figures.lock(),
        });
        figures.collect()
    }
}

impl DcpRegistration {
    pub(crate) fn name(&self) -> &str {
        &self.name.1
    }

    pub(crate) fn note(&self, figures: ProducerFigures) {
        *self.figures.lock() = figures;
    }
}

impl Drop for DcpRegistration {
    fn drop(&mut self) {
        let mut open = self.all.open.lock();
        if open
            .get(&self.name)
            .is_some_and(|known| known.id == self.id)
        {
            open.remove(&self.name);
        }
    }
}
