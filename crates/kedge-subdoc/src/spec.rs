//! Specs that outlive their request, and checks of specs that need no document.

use crate::macros::Macro;
use crate::virtual_xattrs::VirtualXattr;
use kedge_protocol::binary::commands::subdoc::{PathFlags, SubdocOp, SubdocSpec, xattr_key};
use kedge_types::Status;

/// A spec with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedSpec {
    op: SubdocOp,
    flags: PathFlags,
    path: Box<[u8]>,
    value: Box<[u8]>,
}

impl From<SubdocSpec<'_>> for OwnedSpec {
    fn from(spec: SubdocSpec<'_>) -> Self {
        Self {
            op: spec.op,
            flags: spec.flags,
            path: spec.path.into(),
            value: spec.value.into(),
        }
    }
}

impl OwnedSpec {
    /// Returns the spec.
    #[must_use]
    pub fn get(&self) -> SubdocSpec<'_> {
        SubdocSpec {
            op: self.op,
            flags: self.flags,
            path: &self.path,
            value: &self.value,
        }
    }

    /// Returns the length of its path and value in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.path.len() + self.value.len()
    }
}

/// Checks names of virtual attributes and macros.
///
/// # Errors
/// `SubdocXattrUnknownVattr`, `SubdocXattrUnknownMacro`, `SubdocXattrUnknownVattrMacro`.
pub fn check<'s>(specs: impl IntoIterator<Item = SubdocSpec<'s>>) -> Result<(), Status> {
    for spec in specs {
        if !spec.is_xattr() {
            continue;
        }
        let key = xattr_key(spec.path)?;
        if key.starts_with(b"$") {
            VirtualXattr::named(key).ok_or(Status::SubdocXattrUnknownVattr)?;
        }
        if spec.flags.contains(PathFlags::EXPAND_MACROS) {
            Macro::parse(spec.value)?;
        }
    }
    Ok(())
}
