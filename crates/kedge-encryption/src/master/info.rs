//! The description of a master key for operators.

/// The place of a master key, and the requests that were sent there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterKeyInfo {
    /// The type of the key, in the original's words where it has one.
    pub kind: &'static str,
    /// The place, without secrets.
    pub source: String,
    /// The settings of the place, by the original's names, without secrets.
    pub details: Vec<(&'static str, MasterKeyDetail)>,
    /// The number of requests to a key management service.
    pub requests: u64,
    /// The number of requests that failed.
    pub failures: u64,
    /// The error of the last request, if it failed.
    pub error: Option<String>,
}

/// The value of a setting of a master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeyDetail {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// A switch.
    Flag(bool),
}

impl MasterKeyInfo {
    /// The type of a key in the memory of this process.
    pub const LOCAL: &'static str = "kedge-master-key";

    /// Creates the description of a key in the memory of this process.
    #[must_use]
    pub fn local(source: &str) -> Self {
        Self {
            kind: Self::LOCAL,
            source: source.to_owned(),
            ..Self::default()
        }
    }
}
