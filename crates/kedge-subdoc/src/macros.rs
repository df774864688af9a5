//! Values that stand for what is only known when a mutation runs.

use crate::virtual_xattrs::{DOCUMENT_FIELDS, Facts, Surroundings, hex32, hex64};
use kedge_types::{Cas, Seqno, Status};

/// What a value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro<'v> {
    /// The version that the document gets, its bytes in reverse.
    Cas,
    /// The seqno that the document gets; of the prepare, for a SyncWrite.
    Seqno,
    /// The checksum of the body that the document gets.
    Crc32c,
    /// All of `$document`, before the mutation.
    Document,
    /// A field of it.
    Field(&'v str),
}

/// What macros expand to.
pub(crate) struct Expansions<'a> {
    pub(crate) cas: Cas,
    pub(crate) seqno: Seqno,
    /// The checksum of the body that the mutation makes.
    pub(crate) crc32c: u32,
    /// The document as it was.
    pub(crate) before: &'a Facts<'a>,
    pub(crate) around: &'a Surroundings,
}

impl<'v> Macro<'v> {
    /// # Errors
    /// `SubdocXattrUnknownMacro`, `SubdocXattrUnknownVattrMacro`.
    pub(crate) fn parse(value: &'v [u8]) -> Result<Self, Status> {
        let text = std::str::from_utf8(value).map_err(|_| Status::SubdocXattrUnknownMacro)?;
        match text {
            "\"${Mutation.CAS}\"" => return Ok(Self::Cas),
            "\"${Mutation.seqno}\"" => return Ok(Self::Seqno),
            "\"${Mutation.value_crc32c}\"" => return Ok(Self::Crc32c),
            "\"${$document}\"" => return Ok(Self::Document),
            _ => {}
        }
        let rest = text.strip_prefix("\"${$document");
        let name = rest.and_then(|rest| rest.strip_suffix("}\""));
        let name = name.ok_or(Status::SubdocXattrUnknownMacro)?;
        let field = name
            .strip_prefix('.')
            .filter(|field| DOCUMENT_FIELDS.contains(field));
        let field = field.ok_or(Status::SubdocXattrUnknownVattrMacro)?;
        Ok(Self::Field(field))
    }

    /// The JSON that stands in its place.
    pub(crate) fn expand(self, to: &Expansions<'_>) -> String {
        match self {
            Self::Cas => hex64(to.cas.get().swap_bytes()),
            Self::Seqno => hex64(to.seqno.get()),
            Self::Crc32c => hex32(to.crc32c),
            Self::Document => to.before.document(to.around),
            Self::Field(name) => to.before.field(name, to.around).unwrap_or_default(),
        }
    }
}
