//! Composition of replies of the binary protocol.

use std::borrow::Cow;

use kedge_bucket::{DocumentRef, Item, Mutated, ValueParts};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::{GetReply, MutationToken};
use kedge_protocol::binary::{ConnectionKind, Feature, Features, Opcode, Response};
use kedge_types::{Cas, Datatype, Status};

use crate::limits::COPY_VALUE_BYTES_MAX;

/// The properties of a request and its client that the reply needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Composer {
    /// Number of the opcode, which may be unknown.
    pub(crate) number: u8,
    pub(crate) opaque: u32,
    /// `None` for an unknown number.
    pub(crate) opcode: Option<Opcode>,
    pub(crate) kind: ConnectionKind,
    pub(crate) features: Features,
}

/// Returns true if sending a document to a client with these features needs a long copy of its value.
#[inline]
pub(crate) fn copies_long(features: Features, item: &Item) -> bool {
    let is_compressed = item.datatype().contains(Datatype::SNAPPY);
    let is_inflated = is_compressed && !features.datatypes().contains(Datatype::SNAPPY);
    (item.has_xattrs() || is_inflated) && item.is_long()
}

impl Composer {
    /// Returns true if a quiet command leaves out a reply with this status.
    #[inline]
    pub(crate) fn is_quiet_about(&self, status: Status) -> bool {
        self.opcode.is_some_and(|opcode| opcode.suppresses(status))
    }

    /// A reply with a header only and, if Tracing was negotiated, room for the server duration, which is filled in at
    /// the end of the command.
    #[inline]
    pub(crate) fn response(&self, status: Status) -> Response<'static> {
        let traced = self.features.contains(Feature::Tracing);
        Response {
            server_duration: traced.then_some(0),
            ..Response::new(self.number, self.opaque, status)
        }
    }

    /// Composes success without a body, unless a quiet command leaves it out.
    pub(crate) fn success(&self, out: &mut Output) {
        if !self.is_quiet_about(Status::Success) {
            self.response(Status::Success).write(out.buffer());
        }
    }

    /// Composes success with a value.
    pub(crate) fn value(&self, datatype: Datatype, value: &[u8], out: &mut Output) {
        let datatype = self.known(datatype);
        Response {
            datatype,
            value,
            ..self.response(Status::Success)
        }
        .write(out.buffer());
    }

    /// Composes the success of a mutation, with its value (of a counter) if it has one.
    #[inline]
    pub(crate) fn mutation(&self, mutated: &Mutated, value: &[u8], out: &mut Output) {
        if !self.is_quiet_about(Status::Success) {
            self.mutation_as(Status::Success, mutated, value, out);
        }
    }

    /// As [`Self::mutation`], with another status, for a command that is not quiet.
    #[inline]
    pub(crate) fn mutation_as(
        &self,
        status: Status,
        mutated: &Mutated,
        value: &[u8],
        out: &mut Output,
    ) {
        let response = Response {
            cas: self.cas_of(mutated),
            value,
            ..self.response(status)
        };
        if self.features.contains(Feature::MutationSeqno) {
            let token = MutationToken {
                vb_uuid: mutated.uuid,
                seqno: mutated.seqno,
            };
            Response {
                extras: &token.encode(),
                ..response
            }
            .write(out.buffer());
        } else {
            response.write(out.buffer());
        }
    }

    /// The CAS of the reply. That of a tombstone is for Couchbase clients only: memcached clients such as
    /// libmemcached's memcapable check that there is none.
    fn cas_of(&self, mutated: &Mutated) -> Cas {
        let deleted = matches!(self.opcode, Some(Opcode::Delete | Opcode::Deleteq));
        match self.kind {
            ConnectionKind::Memcached if deleted => Cas(0),
            _ => mutated.cas,
        }
    }

    /// Composes success with a CAS only.
    pub(crate) fn cas(&self, cas: Cas, out: &mut Output) {
        if !self.is_quiet_about(Status::Success) {
            Response {
                cas,
                ..self.response(Status::Success)
            }
            .write(out.buffer());
        }
    }

    /// Composes success with a document, in the datatypes that the client negotiated: compressed values are inflated
    /// for others. Extended attributes are cut off.
    ///
    /// # Errors
    /// `Internal` if the stored value cannot be inflated; nothing was composed then.
    #[inline]
    pub(crate) fn document(
        &self,
        item: &Item,
        cas: Cas,
        key: &[u8],
        out: &mut Output,
    ) -> Result<(), Status> {
        let extras = GetReply {
            flags: item.flags(),
        }
        .encode();
        let value = self.plain(item)?;
        let response = Response {
            cas,
            key,
            extras: &extras,
            datatype: self.datatype_of(item),
            ..self.response(Status::Success)
        };
        match value {
            Cow::Borrowed(_) if !item.has_xattrs() => Self::stored(item, &response, out),
            value => Response {
                value: &value,
                ..response
            }
            .write(out.buffer()),
        }
        Ok(())
    }

    /// As [`Self::document`], while its vBucket is locked. A document that needs a long copy is returned instead, to be
    /// composed without the lock.
    ///
    /// # Errors
    /// As [`Self::document`].
    #[inline]
    pub(crate) fn shown(
        &self,
        document: DocumentRef<'_>,
        key: &[u8],
        out: &mut Output,
    ) -> Result<Option<(Item, Cas)>, Status> {
        let DocumentRef { item, cas } = document;
        if copies_long(self.features, item) {
            return Ok(Some((item.clone(), cas)));
        }
        self.document(item, cas, key, out)?;
        Ok(None)
    }

    /// Composes success with a document as it is stored, its extended attributes in front of the body. For a client
    /// that negotiated every datatype.
    pub(crate) fn whole_document(&self, item: &Item, cas: Cas, key: &[u8], out: &mut Output) {
        let flags = item.flags();
        let response = Response {
            cas,
            key,
            extras: &GetReply { flags }.encode(),
            datatype: item.datatype(),
            ..self.response(Status::Success)
        };
        Self::stored(item, &response, out);
    }

    /// Composes a reply with the value of an item as it is stored. A large one is not copied.
    #[inline]
    fn stored(item: &Item, response: &Response<'_>, out: &mut Output) {
        let value = item.value();
        if value.len() > COPY_VALUE_BYTES_MAX {
            response.write_head(value.len(), out.buffer());
            out.push_value(item.clone());
        } else {
            Response { value, ..*response }.write(out.buffer());
        }
    }

    /// The value of a document in the datatypes that the client negotiated, and its datatype. Extended attributes are
    /// cut off, unless `with_xattrs` is set and the client negotiated them.
    ///
    /// # Errors
    /// `Internal` if the stored value cannot be inflated.
    pub(crate) fn plain_document<'a>(
        &self,
        item: &'a Item,
        with_xattrs: bool,
    ) -> Result<(Cow<'a, [u8]>, Datatype), Status> {
        if !with_xattrs || !item.has_xattrs() || !self.features.contains(Feature::Xattr) {
            return Ok((self.plain(item)?, self.datatype_of(item)));
        }
        let is_packed = item.datatype().contains(Datatype::SNAPPY);
        let value = if is_packed && !self.takes_snappy() {
            let parts = ValueParts::of(item).map_err(|_| Status::Internal)?;
            Cow::Owned([parts.section(), parts.body()].concat())
        } else {
            Cow::Borrowed(item.value())
        };
        Ok((value, self.known(item.datatype())))
    }

    fn plain<'a>(&self, item: &'a Item) -> Result<Cow<'a, [u8]>, Status> {
        if self.takes_snappy() && !item.has_xattrs() {
            Ok(Cow::Borrowed(item.value()))
        } else {
            inflated(item)
        }
    }

    /// The datatype of the value that [`Self::plain`] returns.
    fn datatype_of(&self, item: &Item) -> Datatype {
        let cut = Datatype::XATTR.union(Datatype::SNAPPY);
        match item.has_xattrs() {
            true => self.known(item.datatype().without(cut)),
            false => self.known(item.datatype()),
        }
    }

    fn takes_snappy(&self) -> bool {
        self.features.datatypes().contains(Datatype::SNAPPY)
    }

    /// The bits of `datatype` that the client negotiated.
    fn known(&self, datatype: Datatype) -> Datatype {
        datatype.intersection(self.features.datatypes())
    }
}

/// The uncompressed body of an item.
///
/// # Errors
/// `Internal` if the value does not match its datatype, which was checked when it was stored.
pub(crate) fn inflated(item: &Item) -> Result<Cow<'_, [u8]>, Status> {
    let parts = ValueParts::of(item).map_err(|_| Status::Internal)?;
    Ok(parts.into_body())
}
