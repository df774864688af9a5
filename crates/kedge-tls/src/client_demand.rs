//! The demand for client certificates that management sets while the server runs. It is kept in a file, which is stronger
//! than the settings.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::client_auth::{ClientAuth, ClientCerts};
use crate::error::TlsError;
use crate::files;
use crate::names::{NameRule, NameRules};

/// The demand and the rules of user names, in the form of `/settings/clientCertAuth`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientDemand {
    /// The demand.
    state: ClientCerts,
    /// The rules; none if clients are not asked.
    prefixes: Vec<NameRule>,
}

impl ClientDemand {
    /// Parses a document.
    ///
    /// # Errors
    /// The reason why it is not one.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let demand: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if demand.state != ClientCerts::Off || !demand.prefixes.is_empty() {
            NameRules::new(demand.prefixes.clone())?;
        }
        Ok(demand)
    }

    /// Returns the demand of settings.
    pub(crate) fn of(auth: &ClientAuth) -> Self {
        Self {
            state: auth.mode,
            prefixes: match auth.mode {
                ClientCerts::Off => Vec::new(),
                _ => auth.names.list().to_vec(),
            },
        }
    }

    /// Reads the file of the last demand; `None` if there is none.
    pub(crate) fn of_file(path: &Path) -> Result<Option<Self>, TlsError> {
        if !path.exists() {
            return Ok(None);
        }
        let parsed = Self::parse(&files::read(path)?);
        parsed.map(Some).map_err(|why| TlsError::ClientDemand {
            path: path.to_owned(),
            why,
        })
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), TlsError> {
        let text = serde_json::to_string(self).map_err(|error| TlsError::ClientDemand {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        files::write_private(path, &text)
    }

    /// Returns the settings with this demand.
    pub(crate) fn applied_to(&self, auth: &ClientAuth) -> ClientAuth {
        let mut auth = auth.clone();
        auth.mode = self.state;
        if let Ok(names) = NameRules::new(self.prefixes.clone()) {
            auth.names = names;
        }
        auth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_a_state_and_rules() {
        for right in [
            r#"{"state":"disable","prefixes":[]}"#,
            r#"{"state":"enable","prefixes":[{"path":"subject.cn","prefix":"","delimiter":""}]}"#,
            r#"{"state":"mandatory","prefixes":[{"path":"san.uri","prefix":"urn:","delimiter":"@"}]}"#,
        ] {
            let demand = ClientDemand::parse(right.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&demand).unwrap(), right);
        }
        let rule = r#"{"path":"subject.cn","prefix":"","delimiter":""}"#;
        let eleven = [rule; 11].join(",");
        for wrong in [
            "",
            r#"{"state":"enable"}"#,
            r#"{"state":"enable","prefixes":[]}"#,
            r#"{"state":"hybrid","prefixes":[]}"#,
            r#"{"state":"disable","prefixes":[],"more":1}"#,
            &format!(r#"{{"state":"enable","prefixes":[{eleven}]}}"#),
        ] {
            ClientDemand::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }
}
