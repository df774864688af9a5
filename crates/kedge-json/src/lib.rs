//! JSON text: validation now, sub-document paths later.
//!
//! Whether a document is JSON is decided once, when it is written, so [`is_json`] runs on every write: it looks at each
//! byte once (strings with bytes beyond ASCII twice), strings by blocks, and neither allocates nor recurses.

mod error;
mod scan;
mod validate;

pub use error::{JsonError, JsonErrorKind};
pub use validate::{MAX_DEPTH, is_json, validate};
