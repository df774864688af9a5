//! Headers that tell browsers to do nothing with a reply but what the client asked for.
//!
//! Management serves documents for programs, and no pages: a browser that shows a reply must not run, embed, guess the type of or keep
//! anything of it. `Strict-Transport-Security` is of no use without TLS, where browsers ignore it (RFC 6797 section 8.1).

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

/// The headers of every reply.
pub(crate) const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    // Every document is for the user who logged in, and many are about users.
    (header::CACHE_CONTROL, "no-store"),
];

/// Passes a request on, and adds the headers to the reply.
pub(crate) async fn add(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
