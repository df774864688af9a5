//! Sub-document commands: flags, operations, and the requirements of each operation.
//!
//! Source: Couchbase `docs/SubDocument.md` (single and multi layouts, flags) and the statuses 0xc0 to 0xd8. A
//! compressed value contains path and value, so it must be inflated first ([`crate::binary::Request::with_inflated`]).

mod multi;
mod single;

pub use multi::{
    LookupResult, MutationResult, SubdocMulti, SubdocSpecs, decode_lookup_results,
    decode_mutation_results, push_lookup_result, push_mutation_failure, push_mutation_result,
};
pub use single::SubdocSingle;

use crate::binary::flags::flag_set;
use kedge_types::limits::XATTR_NAME_BYTES_MAX;
use kedge_types::{Status, check_xattr_name};

/// Longest path, in bytes.
pub const SUBDOC_PATH_BYTES_MAX: usize = 1024;
/// The largest number of specs of one multi lookup or mutation.
pub const SUBDOC_SPECS_MAX: usize = 16;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        flag_set!($name);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self($bit);)*

            /// Returns the flags with these bits, or `None` if a bit is undefined.
            #[must_use]
            pub const fn from_bits(bits: u8) -> Option<Self> {
                if bits & !(0 $(| $bit)*) == 0 { Some(Self(bits)) } else { None }
            }

            /// Returns the bits.
            #[must_use]
            pub const fn bits(self) -> u8 {
                self.0
            }
        }
    };
}

flags! {
    /// Flags of one path.
    PathFlags {
        /// Creates the dictionaries that lead to the path.
        MKDIR_P = 0x01,
        /// The path is in an extended attribute.
        XATTR = 0x04,
        /// The value is a macro to expand; only with [`Self::XATTR`].
        EXPAND_MACROS = 0x10,
        /// The attribute's value is binary; only with [`Self::XATTR`].
        BINARY_VALUE = 0x20,
    }
}

flags! {
    /// Flags of the document.
    DocFlags {
        /// Creates the document if it is absent.
        MKDOC = 0x01,
        /// Fails if the document exists; not with [`Self::MKDOC`].
        ADD = 0x02,
        /// Accepts a tombstone too.
        ACCESS_DELETED = 0x04,
        /// Creates a new document as a tombstone; needs [`Self::MKDOC`], [`Self::ADD`] or a CAS.
        CREATE_AS_DELETED = 0x08,
        /// Revives a tombstone; needs [`Self::ACCESS_DELETED`].
        REVIVE = 0x10,
        /// Reads from a replica.
        REPLICA_READ = 0x20,
    }
}

/// The requirements of an operation.
struct Traits {
    path_flags: PathFlags,
    doc_flags: DocFlags,
    mutation: bool,
    whole_doc: bool,
    needs_value: bool,
    empty_path: bool,
    returns_value: bool,
}

const XATTR: PathFlags = PathFlags::XATTR;
const BINARY: PathFlags = XATTR.union(PathFlags::BINARY_VALUE);
const MACRO: PathFlags = XATTR.union(PathFlags::EXPAND_MACROS);
const MKDIR: PathFlags = XATTR.union(PathFlags::MKDIR_P);

const READ: DocFlags = DocFlags::ACCESS_DELETED.union(DocFlags::REPLICA_READ);
const CHANGE: DocFlags = DocFlags::ACCESS_DELETED.union(DocFlags::REVIVE);
const INSERT: DocFlags = CHANGE
    .union(DocFlags::ADD)
    .union(DocFlags::CREATE_AS_DELETED);
const CREATE: DocFlags = INSERT.union(DocFlags::MKDOC);

impl Traits {
    const fn lookup(path_flags: PathFlags) -> Self {
        Self {
            path_flags,
            doc_flags: READ,
            mutation: false,
            whole_doc: false,
            needs_value: false,
            empty_path: false,
            returns_value: true,
        }
    }

    const fn mutation(path_flags: PathFlags, doc_flags: DocFlags) -> Self {
        Self {
            path_flags,
            doc_flags,
            mutation: true,
            whole_doc: false,
            needs_value: true,
            empty_path: false,
            returns_value: false,
        }
    }

    const fn valueless(self) -> Self {
        Self {
            needs_value: false,
            ..self
        }
    }

    /// Allows an empty path: the root of the document.
    const fn at_root(self) -> Self {
        Self {
            empty_path: true,
            ..self
        }
    }

    const fn of_whole_doc(self) -> Self {
        Self {
            path_flags: PathFlags::NONE,
            whole_doc: true,
            empty_path: true,
            ..self
        }
    }
}

/// An operation on a path or, inside a multi request, on the whole document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SubdocOp {
    /// Reads the whole document.
    GetDoc = 0x00,
    /// Stores the whole document.
    SetDoc = 0x01,
    /// Stores the whole document, which must not exist.
    AddDoc = 0x02,
    /// Stores the whole document, which must exist.
    ReplaceDoc = 0x03,
    /// Deletes the document.
    DeleteDoc = 0x04,
    /// Reads a path.
    Get = 0xc5,
    /// Checks that a path exists.
    Exists = 0xc6,
    /// Adds a dictionary entry.
    DictAdd = 0xc7,
    /// Adds or replaces a dictionary entry.
    DictUpsert = 0xc8,
    /// Removes a path.
    Delete = 0xc9,
    /// Replaces the value at a path.
    Replace = 0xca,
    /// Appends to an array.
    ArrayPushLast = 0xcb,
    /// Prepends to an array.
    ArrayPushFirst = 0xcc,
    /// Inserts into an array.
    ArrayInsert = 0xcd,
    /// Adds a primitive to an array if it is absent.
    ArrayAddUnique = 0xce,
    /// Adds to a number.
    Counter = 0xcf,
    /// Counts elements.
    GetCount = 0xd2,
    /// Replaces the body with the value of an extended attribute.
    ReplaceBodyWithXattr = 0xd3,
}

impl SubdocOp {
    /// Every operation.
    pub const ALL: &'static [Self] = &[
        Self::GetDoc,
        Self::SetDoc,
        Self::AddDoc,
        Self::ReplaceDoc,
        Self::DeleteDoc,
        Self::Get,
        Self::Exists,
        Self::DictAdd,
        Self::DictUpsert,
        Self::Delete,
        Self::Replace,
        Self::ArrayPushLast,
        Self::ArrayPushFirst,
        Self::ArrayInsert,
        Self::ArrayAddUnique,
        Self::Counter,
        Self::GetCount,
        Self::ReplaceBodyWithXattr,
    ];

    /// Returns the operation with this number in a spec. Operations on paths have the numbers of the single-path
    /// opcodes.
    #[must_use]
    pub fn from_wire(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|operation| operation.wire() == number)
    }

    /// Returns the number on the wire.
    #[must_use]
    pub const fn wire(self) -> u8 {
        self as u8
    }

    const fn traits(self) -> Traits {
        use PathFlags as P;
        match self {
            Self::GetDoc => Traits::lookup(P::NONE).of_whole_doc(),
            Self::SetDoc | Self::AddDoc | Self::ReplaceDoc => {
                Traits::mutation(P::NONE, CREATE).of_whole_doc()
            }
            Self::DeleteDoc => Traits::mutation(P::NONE, CHANGE).valueless().of_whole_doc(),
            Self::Get => Traits::lookup(BINARY),
            Self::Exists => Traits {
                returns_value: false,
                ..Traits::lookup(XATTR)
            },
            Self::GetCount => Traits::lookup(XATTR).at_root(),
            Self::DictAdd | Self::DictUpsert => {
                Traits::mutation(MKDIR.union(MACRO).union(BINARY), CREATE)
            }
            Self::Delete => Traits::mutation(XATTR, CHANGE).valueless(),
            Self::Replace => Traits::mutation(MACRO.union(BINARY), CHANGE.union(DocFlags::ADD)),
            Self::ArrayPushLast | Self::ArrayPushFirst => {
                Traits::mutation(MKDIR.union(MACRO), CREATE).at_root()
            }
            Self::ArrayInsert => Traits::mutation(MACRO, INSERT),
            Self::ArrayAddUnique => Traits::mutation(MKDIR, CREATE).at_root(),
            Self::Counter => Traits {
                returns_value: true,
                ..Traits::mutation(MKDIR, CREATE)
            },
            Self::ReplaceBodyWithXattr => Traits::mutation(BINARY, CHANGE).valueless(),
        }
    }

    /// Returns whether the operation changes the document.
    #[must_use]
    pub const fn is_mutation(self) -> bool {
        self.traits().mutation
    }

    /// Returns whether the operation works on the whole document (with an empty path).
    #[must_use]
    pub const fn is_whole_doc(self) -> bool {
        self.traits().whole_doc
    }

    /// Returns whether a successful reply carries a value.
    #[must_use]
    pub const fn returns_value(self) -> bool {
        self.traits().returns_value
    }
}

/// One operation with its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubdocSpec<'a> {
    /// The operation.
    pub op: SubdocOp,
    /// Flags of the path.
    pub flags: PathFlags,
    /// The path, empty for the whole document or its root.
    pub path: &'a [u8],
    /// The fragment to store; empty for lookups and removals.
    pub value: &'a [u8],
}

impl SubdocSpec<'_> {
    /// Returns whether the spec is about an extended attribute. The connection must have negotiated Xattr then.
    #[must_use]
    pub const fn is_xattr(&self) -> bool {
        self.flags.contains(PathFlags::XATTR)
    }

    /// Checks the spec by itself and against the flags of its document.
    fn check(&self, doc_flags: DocFlags) -> Result<(), Status> {
        let traits = self.op.traits();
        let forced_xattr = matches!(self.op, SubdocOp::ReplaceBodyWithXattr);
        if !traits.path_flags.contains(self.flags)
            || !traits.doc_flags.contains(doc_flags)
            || (traits.whole_doc && !self.path.is_empty())
            || (forced_xattr && !self.is_xattr())
        {
            return Err(Status::Invalid);
        }
        if self.path.len() > SUBDOC_PATH_BYTES_MAX {
            return Err(Status::SubdocPathE2big);
        }
        self.check_xattr(traits.mutation)?;
        let root_ok = traits.empty_path || self.is_xattr();
        if (self.path.is_empty() && !root_ok) || self.value.is_empty() == traits.needs_value {
            return Err(Status::Invalid);
        }
        Ok(())
    }

    fn check_xattr(&self, mutation: bool) -> Result<(), Status> {
        if !self.is_xattr() {
            let lonely = self.flags.contains(PathFlags::EXPAND_MACROS)
                || self.flags.contains(PathFlags::BINARY_VALUE);
            return if lonely {
                Err(Status::SubdocXattrInvalidFlagCombo)
            } else {
                Ok(())
            };
        }
        let key = xattr_key(self.path)?;
        if mutation && key.starts_with(b"$") && self.op != SubdocOp::ReplaceBodyWithXattr {
            return Err(Status::SubdocXattrCantModifyVattr);
        }
        if self.flags.contains(PathFlags::EXPAND_MACROS) && !is_macro(self.value) {
            return Err(Status::SubdocXattrUnknownMacro);
        }
        Ok(())
    }
}

/// Returns the name of the extended attribute of a path: the part before the first dot or bracket. Names that begin
/// with `$` are virtual.
///
/// # Errors
/// [`Status::XattrInvalid`] when the name is invalid, see [`check_xattr_name`].
pub fn xattr_key(path: &[u8]) -> Result<&[u8], Status> {
    let end = path.iter().position(|byte| matches!(byte, b'.' | b'['));
    let key = &path[..end.unwrap_or(path.len())];
    let is_virtual = key.len() <= XATTR_NAME_BYTES_MAX;
    match key.strip_prefix(b"$").filter(|_| is_virtual) {
        Some(name) => check_xattr_name(name)?,
        None => check_xattr_name(key)?,
    }
    Ok(key)
}

/// Returns whether a value is a macro, as a JSON string: one of three about the mutation, or a field of `$document`.
fn is_macro(value: &[u8]) -> bool {
    matches!(
        value,
        b"\"${Mutation.CAS}\"" | b"\"${Mutation.seqno}\"" | b"\"${Mutation.value_crc32c}\""
    ) || (value.starts_with(b"\"${$document") && value.ends_with(b"}\""))
}

/// Checks the flags of a document against each other and against its CAS.
fn check_doc_flags(flags: DocFlags, has_cas: bool) -> Result<(), Status> {
    let has = |flag| flags.contains(flag);
    let creates = has(DocFlags::MKDOC) || has(DocFlags::ADD);
    let wrong = (has(DocFlags::ADD) && has_cas)
        || (has(DocFlags::ADD) && has(DocFlags::MKDOC))
        // With a CAS, nothing is created: SDKs set the flag for a tombstone in which they stage an insert.
        || (has(DocFlags::CREATE_AS_DELETED) && !creates && !has_cas)
        || (has(DocFlags::REVIVE) && !has(DocFlags::ACCESS_DELETED))
        || (has(DocFlags::REVIVE) && has(DocFlags::CREATE_AS_DELETED));
    if wrong { Err(Status::Invalid) } else { Ok(()) }
}
