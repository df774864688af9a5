//! SASL_AUTH and SASL_STEP. SASL_LIST_MECHS is [`super::HeaderOnly`].

use crate::binary::fields::{PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Datatype, Status};

const SHAPE: RequestShape = RequestShape {
    extras: &[0],
    key: PartRule::Required,
    value: PartRule::Optional,
    cas: PartRule::Forbidden,
    datatype: Datatype::RAW,
};

/// One message of a client in an authentication exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SaslStart<'a> {
    /// Name of the mechanism.
    pub mechanism: &'a [u8],
    /// The message. It may contain a password.
    pub message: &'a [u8],
}

// Implemented by hand, so that no log shows a password.
impl std::fmt::Debug for SaslStart<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SaslStart")
            .field("mechanism", &self.mechanism.escape_ascii().to_string())
            .field("message_bytes", &self.message.len())
            .finish()
    }
}

impl<'a> SaslStart<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it has extras, a CAS or a datatype, or no mechanism.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check(request)?;
        Ok(Self {
            mechanism: request.key,
            message: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&[], self.mechanism, self.message, out);
    }
}
