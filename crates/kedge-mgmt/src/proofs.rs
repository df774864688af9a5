//! The proofs of the cluster's secret in requests of other nodes, which do not send it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use kedge_auth::{
    AuthError, BodyDigest, NONCE_HEADER, NodeProofs, PROOF_SCHEME, ProofError, ProvenRequest,
};
use kedge_sync::{RankedMutex, ranks::UsedNonces};

/// The check of the proofs, and its counters.
pub struct ProofChecks {
    proofs: RankedMutex<UsedNonces, NodeProofs>,
    began: Instant,
    accepted: AtomicU64,
    stale: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Debug for ProofChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofChecks").finish_non_exhaustive()
    }
}

impl ProofChecks {
    /// Begins to check proofs for the node of that name.
    ///
    /// # Errors
    /// `NoRandomness`.
    pub fn new(node: &str, secret: &str) -> Result<Self, AuthError> {
        Ok(Self {
            proofs: RankedMutex::new(NodeProofs::new(node, secret)?),
            began: Instant::now(),
            accepted: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    pub(super) fn check(
        &self,
        credentials: &str,
        request: &ProvenRequest<'_>,
    ) -> Result<BodyDigest, ProofError> {
        let now = self.began.elapsed();
        let checked = self.proofs.lock().check(credentials, request, now);
        let counter = match checked {
            Ok(_) => &self.accepted,
            Err(ProofError::Nonce) => &self.stale,
            Err(_) => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        checked
    }

    /// Adds the nonce of the next request to a response.
    pub(super) fn with_nonce(&self, mut response: Response) -> Response {
        let nonce = self.proofs.lock().nonce(self.began.elapsed());
        // Without randomness the caller gets none, and fails.
        let nonce = nonce.ok().and_then(|it| HeaderValue::from_str(&it).ok());
        if let Some(nonce) = nonce {
            response.headers_mut().insert(NONCE_HEADER, nonce);
        }
        response
    }

    /// Returns the number of proofs by their result: accepted, by a nonce that is not valid any more, refused.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("accepted", of(&self.accepted)),
            ("stale", of(&self.stale)),
            ("refused", of(&self.refused)),
        ]
    }
}

/// Returns what follows the scheme of proofs in the Authorization header, if it has that scheme.
pub(super) fn credentials(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
    let is_proof = scheme.eq_ignore_ascii_case(PROOF_SCHEME);
    is_proof.then(|| rest.trim().to_owned())
}
