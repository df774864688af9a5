//! JSON text: validation, and reading and changing parts of a document by their paths.
//!
//! Whether a document is JSON is decided once, when it is written, so [`is_json`] runs on every write: it looks at each
//! byte once (strings with bytes beyond ASCII twice), strings by blocks, and neither allocates nor recurses.
//!
//! [`get`], [`exists`], [`count`], [`ask_all`] and [`edit`] take a document that was found to be JSON. They go through it once, from
//! the start to what the path names and no further, and an edit copies the text around it as it is. Nothing but the
//! result is allocated. A text that is not JSON gives an error or a wrong answer.
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

pub use edit::{Edit, Edited, edit, parse_delta};
pub use error::{JsonError, JsonErrorKind, SubdocError};
pub use lookup::{count, exists, get};
pub use many::{Answer, Ask, ask_all};
pub use path::{PATH_BYTES_MAX, PATH_COMPONENTS_MAX, Path};
pub use validate::{MAX_DEPTH, is_json, validate};
pub use walk::SUBDOC_DEPTH_MAX;
