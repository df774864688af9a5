//! Bodies: form-encoded, of bounded size and duration.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body::Body as _;

use super::reply::Reply;
use super::state::{BODY_BYTES_MAX, BODY_TIMEOUT};

/// The fields of a form. Where one is given twice, the last counts.
#[derive(Debug, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `application/x-www-form-urlencoded` text; any text is a form.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// A field's text, without blanks around it; `None` when it was not given.
    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.raw(field).map(str::trim)
    }

    /// All fields, in their order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0.iter();
        fields.map(|(name, text)| (name.as_str(), text.trim()))
    }

    /// A field's text as it was given.
    pub(crate) fn raw(&self, field: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(name, _)| name == field)?;
        Some(&found.1)
    }
}

/// Takes a whole body. A slow or a large one is refused.
pub(crate) async fn read(body: Body) -> Result<Bytes, Reply> {
    read_within(body, BODY_BYTES_MAX).await
}

/// [`read`] with another limit in bytes.
pub(crate) async fn read_within(body: Body, max: usize) -> Result<Bytes, Reply> {
    let too_large = || {
        let text = format!("The body could not be read, or is larger than {max} bytes.");
        Reply::text(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    // A length that was announced need not be waited for.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let read = axum::body::to_bytes(body, max);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(Reply::text(
            StatusCode::REQUEST_TIMEOUT,
            "The body did not arrive in time.",
        )),
    }
}
