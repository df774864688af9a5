//! Bodies: form-encoded, of bounded size and duration.

use std::fmt;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body::Body as _;
use zeroize::Zeroizing;

use super::reply::EarlyReply;
use super::state::{BODY_BYTES_MAX, BODY_TIMEOUT};

/// The fields of a form. Of duplicate fields the last counts. Some are passwords: texts are overwritten when they are dropped.
#[derive(Default)]
pub(crate) struct FormFields(Vec<(String, Zeroizing<String>)>);

impl fmt::Debug for FormFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl FormFields {
    /// Reads `application/x-www-form-urlencoded` text; any text is a form.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let fields = form_urlencoded::parse(bytes).into_owned();
        Self(fields.map(|(name, text)| (name, text.into())).collect())
    }

    /// Returns a field's text, without blanks around it; `None` if it was not given.
    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.raw(field).map(str::trim)
    }

    /// Iterates over all fields, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0.iter();
        fields.map(|(name, text)| (name.as_str(), text.trim()))
    }

    /// Returns a field's text unchanged.
    pub(crate) fn raw(&self, field: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(name, _)| name == field)?;
        Some(found.1.as_str())
    }
}

/// Reads a whole body. A slow or a large one is refused.
pub(crate) async fn read(body: Body) -> Result<Bytes, EarlyReply> {
    read_within(body, BODY_BYTES_MAX).await
}

/// Reads a body as [`read`] does, with another limit in bytes.
pub(crate) async fn read_within(body: Body, max: usize) -> Result<Bytes, EarlyReply> {
    let too_large = || {
        let text = format!("The body could not be read, or is larger than {max} bytes.");
        EarlyReply::text(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    // An announced length need not be awaited.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let read = axum::body::to_bytes(body, max);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(EarlyReply::text(
            StatusCode::REQUEST_TIMEOUT,
            "The body did not arrive in time.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_of_a_form_has_no_values() {
        let form = FormFields::parse(b"name=ada&password=a%20b");
        assert_eq!(form.raw("password"), Some("a b"));
        assert_eq!(format!("{form:?}"), r#"["name", "password"]"#);
    }
}
