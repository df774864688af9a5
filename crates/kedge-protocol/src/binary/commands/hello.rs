//! HELLO. Each one replaces the features of the connection.

use crate::binary::fields::{PartRule, RequestShape};
use crate::binary::{Features, Request, RequestWriter};
use kedge_types::{Status, limits};

const SHAPE: RequestShape = RequestShape {
    extras: &[0],
    key: PartRule::Optional,
    value: PartRule::Optional,
    cas: PartRule::Forbidden,
    datatype: kedge_types::Datatype::RAW,
};

/// A request for features, with the name of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The agent: free text, or JSON with members `a` (agent) and `i` (connection id). See [`Agent::parse`].
    pub agent: &'a [u8],
    /// The requested features. The reply's value lists those granted.
    pub features: Features,
}

impl<'a> Hello<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a CAS or a datatype, the agent is longer than
    /// [`limits::AGENT_BYTES_MAX`], or [`Features::parse`] rejects the features.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check(request)?;
        if request.key.len() > limits::AGENT_BYTES_MAX {
            return Err(Status::Invalid);
        }
        Ok(Self {
            agent: request.key,
            features: Features::parse(request.value)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut list = Vec::new();
        self.features.encode(&mut list);
        writer.write(&[], self.agent, &list, out);
    }
}

/// The identity of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Name and version of the client.
    pub name: String,
    /// The client's own id of this connection, which matches its log with the server's.
    pub connection_id: Option<String>,
}

impl Agent {
    /// Reads the agent of a HELLO. Text that is not such JSON is a name; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn parse(agent: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct AgentJson {
            #[serde(rename = "a")]
            name: Option<String>,
            #[serde(rename = "i")]
            connection_id: Option<String>,
        }
        match serde_json::from_slice::<AgentJson>(agent) {
            Ok(json) => Self {
                name: json.name.unwrap_or_default(),
                connection_id: json.connection_id,
            },
            Err(_) => Self {
                name: String::from_utf8_lossy(agent).into_owned(),
                connection_id: None,
            },
        }
    }
}
