//! The protocol of a connection: its dialect, and what HELLO negotiated.

use kedge_bucket::Item;
use kedge_cluster::ConfigDocument;
use kedge_protocol::binary::{ConnectionKind, Feature, Features, Magic, Opcode};
use kedge_types::{CollectionId, Datatype, DocKey, KeyBuffer, KeyError, Status};

use super::{CommandFailure, Composer, copies_long};
use crate::histogram::HistogramFormat;
use crate::inbox::Port;

/// The dialect of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// Binary, with Couchbase's extensions, on the KV port.
    Couchbase,
    /// The memcached port, before its first byte.
    Undecided,
    /// Binary on the memcached port.
    MemcachedBinary,
    /// Text on the memcached port.
    MemcachedText,
}

/// The dialect, the features and the format of histograms that a client uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NegotiatedProtocol {
    dialect: Dialect,
    pub(crate) features: Features,
    /// The format of histograms in answers to STAT, which depends on the client's name in HELLO.
    pub(crate) histograms: HistogramFormat,
}

impl NegotiatedProtocol {
    /// The protocol of a new connection to `port`.
    pub(crate) fn new(port: Port) -> Self {
        Self {
            dialect: match port {
                Port::Kv => Dialect::Couchbase,
                Port::Memcached => Dialect::Undecided,
            },
            features: Features::NONE,
            histograms: HistogramFormat::Json,
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> ConnectionKind {
        match self.dialect {
            Dialect::Couchbase => ConnectionKind::Couchbase,
            _ => ConnectionKind::Memcached,
        }
    }

    /// The port of the connection.
    pub(crate) fn port(&self) -> Port {
        match self.dialect {
            Dialect::Couchbase => Port::Kv,
            _ => Port::Memcached,
        }
    }

    /// Decides the dialect by the first byte of the connection, if it is not known. Returns false while there is no byte.
    #[inline]
    pub(crate) fn detect(&mut self, bytes: &[u8]) -> bool {
        if self.dialect == Dialect::Undecided {
            self.dialect = match bytes.first() {
                None => return false,
                Some(&first) if first == Magic::ClientRequest.wire() => Dialect::MemcachedBinary,
                Some(_) => Dialect::MemcachedText,
            };
        }
        true
    }

    #[inline]
    pub(crate) fn is_text(&self) -> bool {
        self.dialect == Dialect::MemcachedText
    }

    /// Returns true if UnorderedExecution was negotiated.
    #[inline]
    pub(crate) fn is_unordered(&self) -> bool {
        self.features.contains(Feature::UnorderedExecution)
    }

    /// The composer of replies to a request with this number of an opcode.
    #[inline]
    pub(crate) fn composer(&self, number: u8, opaque: u32) -> Composer {
        self.composer_of(number, opaque, Opcode::from_wire(number, self.kind()))
    }

    /// As [`Self::composer`], of an opcode that is known.
    #[inline]
    pub(crate) fn composer_of(&self, number: u8, opaque: u32, opcode: Option<Opcode>) -> Composer {
        Composer {
            number,
            opaque,
            opcode,
            kind: self.kind(),
            features: self.features,
        }
    }

    /// Decodes a key of a request into `buffer`.
    ///
    /// # Errors
    /// `Invalid` for a malformed key.
    #[inline]
    pub(crate) fn document_key<'b>(
        &self,
        wire: &[u8],
        buffer: &'b mut KeyBuffer,
    ) -> Result<&'b DocKey, CommandFailure> {
        let invalid = |error| {
            let context = match error {
                KeyError::Empty => "the key is empty",
                KeyError::TooLong => "the key is too long",
                _ => "the collection id in front of the key is malformed",
            };
            CommandFailure::new(Status::Invalid, context)
        };
        if !self.features.contains(Feature::Collections) {
            return buffer.put(CollectionId::DEFAULT, wire).map_err(invalid);
        }
        buffer.put_prefixed(wire).map_err(invalid)
    }

    /// Returns true if sending a document to this client needs a long copy of its value.
    pub(crate) fn copies_long(&self, item: &Item) -> bool {
        copies_long(self.features, item)
    }

    /// The bytes of a cluster map in the encoding that the client negotiated, and their datatype.
    pub(crate) fn cluster_map_bytes<'c>(&self, config: &'c ConfigDocument) -> (&'c [u8], Datatype) {
        let json = self.features.contains(Feature::Json);
        let datatype = if json { Datatype::JSON } else { Datatype::RAW };
        if self.features.contains(Feature::SnappyEverywhere) {
            (&config.snappy, datatype.union(Datatype::SNAPPY))
        } else {
            (&config.json, datatype)
        }
    }
}
