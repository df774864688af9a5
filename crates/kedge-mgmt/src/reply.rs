//! Replies, in the shapes that SDKs match on.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

/// A refusal, or any reply that ends a handler early.
#[derive(Debug)]
pub(crate) struct EarlyReply(Box<Response>);

impl EarlyReply {
    pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let body = Body::from(text.into());
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(document).expect("documents of text and numbers serialise");
        Self::new(status, "application/json", Body::from(bytes))
    }

    fn new(status: StatusCode, content_type: &'static str, body: Body) -> Self {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let content_type = HeaderValue::from_static(content_type);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        Self(Box::new(response))
    }

    /// Returns `{"errors":{FIELD:TEXT}}`; a field of `_` means the request as a whole.
    pub(crate) fn field_error(status: StatusCode, field: &str, text: impl Into<String>) -> Self {
        Self::json(status, &json!({ "errors": { field: text.into() } }))
    }

    /// Returns 404 for a bucket.
    pub(crate) fn no_such_resource() -> Self {
        Self::text(StatusCode::NOT_FOUND, "Requested resource not found.")
    }

    /// Returns 403 with the missing privilege.
    pub(crate) fn forbidden(permission: &str) -> Self {
        let message = "Forbidden. User needs the following permissions";
        Self::json(
            StatusCode::FORBIDDEN,
            &json!({ "message": message, "permissions": [permission] }),
        )
    }

    /// Returns 401, which asks for a password.
    pub(crate) fn unauthorized() -> Self {
        let mut reply = Self::text(StatusCode::UNAUTHORIZED, "Authentication is required.");
        let challenge = HeaderValue::from_static("Basic realm=\"Kedge\", charset=\"UTF-8\"");
        reply
            .0
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
        reply
    }

    /// Returns 401 without a challenge, for the console, which has a form for logins.
    pub(crate) fn without_session() -> Self {
        Self::text(StatusCode::UNAUTHORIZED, "A login is required.")
    }

    /// Returns 403 for a change in a session that another site may have caused.
    pub(crate) fn not_of_console() -> Self {
        let text = "A change in a session needs the header \"ns-server-ui: yes\".";
        Self::text(StatusCode::FORBIDDEN, text)
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().insert(name, value);
        self
    }

    /// Returns 503, for a retry in a second; on another connection if this one ends.
    pub(crate) fn busy(text: &str, ends: bool) -> Self {
        let mut reply = Self::text(StatusCode::SERVICE_UNAVAILABLE, text);
        let headers = reply.0.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        if ends {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }

    /// Returns 429 for a request that comes too soon after wrong passwords.
    pub(crate) fn too_soon(wait: Duration) -> Self {
        let text = "Too many wrong passwords; try again later.";
        let mut reply = Self::text(StatusCode::TOO_MANY_REQUESTS, text);
        let secs = wait.as_millis().div_ceil(1_000).max(1).to_string();
        let secs = HeaderValue::from_str(&secs).expect("digits are a header");
        reply.0.headers_mut().insert(header::RETRY_AFTER, secs);
        reply
    }

    /// Returns 500; the reason is logged here, since no caller sees it.
    pub(crate) fn failed(what: &str, why: &dyn std::fmt::Display) -> Self {
        tracing::error!("management: cannot {what}: {why}");
        Self::field_error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "_",
            format!("cannot {what}: {why}"),
        )
    }
}

impl IntoResponse for EarlyReply {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// The result of every handler; the reply of an error is sent like any other.
pub(crate) type Handled = Result<EarlyReply, EarlyReply>;

/// Returns 200 with a document.
pub(crate) fn ok(document: &impl Serialize) -> Handled {
    Ok(EarlyReply::json(StatusCode::OK, document))
}

/// Returns 200 with a document that is JSON already.
pub(crate) fn ok_bytes(json: axum::body::Bytes) -> Handled {
    Ok(EarlyReply::new(
        StatusCode::OK,
        "application/json",
        Body::from(json),
    ))
}

/// Returns 200 with a streaming body.
pub(crate) fn ok_stream(body: Body) -> Handled {
    Ok(EarlyReply::new(StatusCode::OK, "application/json", body))
}

/// Returns 200 with plain text of a given content type.
pub(crate) fn ok_typed(content_type: &'static str, text: String) -> Handled {
    Ok(EarlyReply::new(
        StatusCode::OK,
        content_type,
        Body::from(text),
    ))
}

/// Returns 200 without a document, for calls that change something.
pub(crate) fn done() -> Handled {
    Ok(EarlyReply::new(
        StatusCode::OK,
        "application/json",
        Body::empty(),
    ))
}

/// Returns 200 with `""`, the reply of user management.
pub(crate) fn done_text() -> Handled {
    ok(&Value::String(String::new()))
}
