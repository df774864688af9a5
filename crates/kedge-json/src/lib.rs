//! JSON text: validation, and reads and edits of parts of a document by path.
//!
//! The server decides once whether a document is JSON, when the document is written, so [`is_json`] runs on every
//! write. It reads each byte once (strings with bytes beyond ASCII twice) and strings in blocks, and neither allocates
//! nor recurses.
//!
//! [`get`], [`exists`], [`count`], [`lookup_all`] and [`edit`] take a document that was found to be JSON. They read it
//! once, from the start to the value that the path names and no further, and an edit copies the text around it
//! unchanged. Only the result is allocated. For a text that is not JSON they return an error or a wrong result.
//!
//! # Example
//!
//! ```
//! use kedge_json::{Edit, Path, count, edit, get, is_json};
//!
//! let order = br#"{"id": 17, "items": ["tea", "milk"]}"#;
//! assert!(is_json(order));
//!
//! let last = Path::parse(b"items[-1]")?;
//! assert_eq!(get(order, &last)?, br#""milk""#);
//! assert_eq!(count(order, &Path::parse(b"items")?)?, 2);
//!
//! let paid = edit(order, &Path::parse(b"paid")?, Edit::DictUpsert(b"true"), false)?;
//! assert_eq!(paid.document, br#"{"id": 17, "items": ["tea", "milk"],"paid":true}"#);
//! # Ok::<(), kedge_json::SubdocError>(())
//! ```

mod edit;
mod error;
mod from_end;
mod key;
mod lookup;
mod many;
mod path;
mod scan;
mod splice;
mod validate;
mod walk;

pub use edit::{Edit, EditedDocument, edit, parse_delta};
pub use error::{JsonError, JsonErrorKind, SubdocError};
pub use lookup::{count, exists, get};
pub use many::{Lookup, LookupValue, lookup_all};
pub use path::{PATH_BYTES_MAX, PATH_COMPONENTS_MAX, Path};
pub use validate::{MAX_DEPTH, is_json, validate};
pub use walk::SUBDOC_DEPTH_MAX;
