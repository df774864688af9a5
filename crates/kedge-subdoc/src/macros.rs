//! Macros: values that are known only when a mutation runs.

use crate::virtual_xattrs::{DOCUMENT_FIELDS, DocumentProperties, VbucketContext, hex32, hex64};
use kedge_types::{Cas, Seqno, Status};

/// The value for which a macro stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro<'v> {
    /// The new CAS of the document, its bytes in reverse.
    Cas,
    /// The new seqno of the document; that of the prepare, for a SyncWrite.
    Seqno,
    /// The checksum of the new body.
    Crc32c,
    /// All of `$document`, before the mutation.
    Document,
    /// A field of `$document`.
    Field(&'v str),
}

/// The values to which macros expand.
pub(crate) struct Expansions<'a> {
    pub(crate) cas: Cas,
    pub(crate) seqno: Seqno,
    /// The checksum of the new body.
    pub(crate) crc32c: u32,
    /// The old document.
    pub(crate) before: &'a DocumentProperties<'a>,
    pub(crate) around: &'a VbucketContext,
}

impl<'v> Macro<'v> {
    /// Parses a value.
    ///
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

    /// Returns the JSON that replaces the macro.
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
