//! The collections manifest. There is only the default collection so far, so both documents are constant.

/// The uid of a manifest that was never changed.
pub const DEFAULT_MANIFEST_UID: u64 = 0;

/// The manifest as GET_COLLECTIONS_MANIFEST returns it. A collection without `maxTTL` inherits the bucket's.
pub const DEFAULT_MANIFEST_JSON: &str = r#"{"uid":"0","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]}]}"#;

/// The manifest as the REST interface returns it, where `maxTTL` and `history` are always there.
pub const DEFAULT_MANIFEST_REST_JSON: &str = r#"{"uid":"0","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0","maxTTL":0,"history":false}]}]}"#;
