//! Proofs of the cluster's secret in HTTP requests between nodes. The secret itself is not sent.
//!
//! A server gives out nonces, which it recognises without storing them. A request has the header
//! `Authorization: Kedge-HMAC-SHA256 NONCE:DIGEST:PROOF`, all of it in hexadecimal: DIGEST is the SHA-256 of the body, and
//! PROOF the HMAC-SHA-256, keyed by the secret, of these lines: the text `kedge request 1`, the method, the name of the
//! node that is asked, the path with its query, the content type, NONCE, DIGEST.
//!
//! Invariants:
//! * A nonce is good for one request to the process that made it, and for [`NONCE_LIFE`].
//! * A caller without the secret makes the server store nothing: only nonces with a right proof are recorded.
//! * A proof for one node is none for another node, so that nobody can pass it on.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::error::AuthError;
use crate::hash::{Hash, Secret};
use crate::random::random_bytes;

/// The scheme of the header `Authorization`.
pub const PROOF_SCHEME: &str = "Kedge-HMAC-SHA256";
/// The header of a response with a nonce for the next request.
pub const NONCE_HEADER: &str = "kedge-nonce";
/// The time for which a nonce is good.
pub const NONCE_LIFE: Duration = Duration::from_secs(60);

/// The first line of what is proven.
const CONTEXT: &str = "kedge request 1";
/// The bytes of a nonce by which it is recorded: the time of its issue, and random ones.
const ID_BYTES: usize = 8 + 16;
/// The bytes of a nonce by which its maker recognises it.
const TAG_BYTES: usize = 16;

/// A nonce without its tag. The order is that of the issues.
type NonceId = [u8; ID_BYTES];

/// The reason why a proof is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// There is no nonce, or it is too old, used, or of another process. The caller asks again with a new one.
    #[error("the nonce is not valid any more")]
    Nonce,
    /// The header does not have the form of a proof.
    #[error("the proof is malformed")]
    Malformed,
    /// The secret, or a part of the request, is another one.
    #[error("the proof is wrong")]
    Wrong,
}

/// The parts of a request that a proof covers, beside the body and the node that is asked.
#[derive(Clone, Copy, Debug)]
pub struct ProvenRequest<'r> {
    /// The method.
    pub method: &'r str,
    /// The path with its query.
    pub path: &'r str,
    /// The type of the body.
    pub content_type: &'r str,
}

impl ProvenRequest<'_> {
    /// Returns the value of the header `Authorization` for a request to `node`.
    #[must_use]
    pub fn authorization(&self, secret: &str, node: &str, nonce: &str, body: &[u8]) -> String {
        let digest = hex(&Hash::Sha256.digest(body));
        let proof = hex(&self.proof(secret, node, nonce, &digest));
        format!("{PROOF_SCHEME} {nonce}:{digest}:{proof}")
    }

    fn proof(&self, secret: &str, node: &str, nonce: &str, digest: &str) -> Secret {
        // No part has a line end, so the lines cannot be taken for others.
        let lines = [
            CONTEXT,
            self.method,
            node,
            self.path,
            self.content_type,
            nonce,
            digest,
        ];
        Hash::Sha256.hmac(secret.as_bytes(), &[lines.join("\n").as_bytes()])
    }
}

/// The SHA-256 that the body of a proven request has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyDigest(Vec<u8>);

impl BodyDigest {
    /// Returns whether a body is the proven one.
    #[must_use]
    pub fn fits(&self, body: &[u8]) -> bool {
        *self.0 == **Hash::Sha256.digest(body)
    }
}

/// The nonces of a process, and the check of proofs with them. Times are those of a clock that begins with the process.
pub struct NodeProofs {
    node: String,
    secret: Zeroizing<String>,
    key: Zeroizing<[u8; 32]>,
    used: BTreeSet<NonceId>,
}

impl fmt::Debug for NodeProofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeProofs")
            .field("node", &self.node)
            .field("used", &self.used.len())
            .finish_non_exhaustive()
    }
}

impl NodeProofs {
    /// Begins without nonces, for the node of that name.
    ///
    /// # Errors
    /// [`AuthError::NoRandomness`].
    pub fn new(node: &str, secret: &str) -> Result<Self, AuthError> {
        Ok(Self {
            node: node.to_owned(),
            secret: secret.to_owned().into(),
            key: Zeroizing::new(random_bytes()?),
            used: BTreeSet::new(),
        })
    }

    /// Returns a new nonce.
    ///
    /// # Errors
    /// [`AuthError::NoRandomness`].
    pub fn nonce(&self, now: Duration) -> Result<String, AuthError> {
        let mut id = [0; ID_BYTES];
        id[..8].copy_from_slice(&millis(now).to_be_bytes());
        id[8..].copy_from_slice(&random_bytes::<16>()?);
        Ok(hex(&id) + &hex(&self.tag(&id)))
    }

    fn tag(&self, id: &NonceId) -> Secret {
        let mut tag = Hash::Sha256.hmac(&*self.key, &[id.as_slice()]);
        tag.truncate(TAG_BYTES);
        tag
    }

    /// Checks what follows the scheme in the header `Authorization`, and uses the nonce up. Returns the digest that the body
    /// has to have.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn check(
        &mut self,
        credentials: &str,
        request: &ProvenRequest<'_>,
        now: Duration,
    ) -> Result<BodyDigest, ProofError> {
        if credentials.is_empty() {
            return Err(ProofError::Nonce);
        }
        let mut parts = credentials.split(':');
        let (Some(nonce), Some(digest), Some(proof), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ProofError::Malformed);
        };
        let body = unhex(digest).filter(|bytes| bytes.len() == Hash::Sha256.len());
        let (Some(body), Some(given)) = (body, unhex(proof)) else {
            return Err(ProofError::Malformed);
        };
        let id = self.recognise(nonce, now)?;
        let right = request.proof(&self.secret, &self.node, nonce, digest);
        if !bool::from(right.ct_eq(&given)) {
            return Err(ProofError::Wrong);
        }
        self.forget_before(now);
        self.used.insert(id);
        Ok(BodyDigest(body))
    }

    /// Returns a nonce of this process that is neither too old nor used.
    fn recognise(&self, nonce: &str, now: Duration) -> Result<NonceId, ProofError> {
        let bytes = unhex(nonce).ok_or(ProofError::Malformed)?;
        let (id, tag) = bytes
            .split_first_chunk::<ID_BYTES>()
            .ok_or(ProofError::Malformed)?;
        let is_own = bool::from(self.tag(id).ct_eq(tag));
        let is_fresh = *id >= oldest(now);
        match is_own && is_fresh && !self.used.contains(id) {
            true => Ok(*id),
            false => Err(ProofError::Nonce),
        }
    }

    /// Forgets used nonces that are too old anyway.
    fn forget_before(&mut self, now: Duration) {
        self.used = self.used.split_off(&oldest(now));
    }
}

/// Returns the lower end of the nonces that are not too old.
fn oldest(now: Duration) -> NonceId {
    let mut id = [0; ID_BYTES];
    id[..8].copy_from_slice(&millis(now.saturating_sub(NONCE_LIFE)).to_be_bytes());
    id
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    bytes.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";
    const NOW: Duration = Duration::from_secs(1_000);
    const PUT: ProvenRequest<'_> = ProvenRequest {
        method: "PUT",
        path: "/kedge/cluster/map?wait_ms=5",
        content_type: "application/json",
    };

    fn proofs() -> NodeProofs {
        NodeProofs::new("n_1", SECRET).unwrap()
    }

    /// Returns the part of a header behind the scheme.
    fn credentials(header: &str) -> &str {
        header.split_once(' ').unwrap().1
    }

    #[test]
    fn proof_is_that_of_the_documentation() {
        let header = PUT.authorization(SECRET, "n_1", "00ff", b"{}");
        let expected = "Kedge-HMAC-SHA256 00ff:\
                        44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a:\
                        200b266a30860d49b807621b9f78d7fcd96de9cdc7b16052c1f56ecd9d61f364";
        assert_eq!(header, expected);
        assert!(!header.contains(SECRET));
    }

    #[test]
    fn nonce_is_good_for_one_request() {
        let mut proofs = proofs();
        let nonce = proofs.nonce(NOW).unwrap();
        let header = PUT.authorization(SECRET, "n_1", &nonce, b"map");
        let body = proofs.check(credentials(&header), &PUT, NOW).unwrap();
        assert!(body.fits(b"map") && !body.fits(b"mop"));
        let replayed = proofs.check(credentials(&header), &PUT, NOW);
        assert_eq!(replayed, Err(ProofError::Nonce));
        assert_eq!(proofs.check("", &PUT, NOW), Err(ProofError::Nonce));
    }

    #[test]
    fn nonce_is_good_for_its_process_and_time() {
        let mut proofs = proofs();
        let nonce = proofs.nonce(NOW).unwrap();
        let header = PUT.authorization(SECRET, "n_1", &nonce, b"");
        let late = NOW + NONCE_LIFE + Duration::from_millis(1);
        let late = proofs.check(credentials(&header), &PUT, late);
        assert_eq!(late, Err(ProofError::Nonce));
        let mut restarted = self::proofs();
        let other = restarted.check(credentials(&header), &PUT, NOW);
        assert_eq!(other, Err(ProofError::Nonce));
        let last = proofs.check(credentials(&header), &PUT, NOW + NONCE_LIFE);
        last.unwrap();
    }

    #[test]
    fn proof_covers_every_part_of_the_request() {
        let mut proofs = proofs();
        let nonce = proofs.nonce(NOW).unwrap();
        let get = ProvenRequest {
            method: "GET",
            ..PUT
        };
        let other_path = ProvenRequest {
            path: "/kedge/cluster/map",
            ..PUT
        };
        let form = ProvenRequest {
            content_type: "application/x-www-form-urlencoded",
            ..PUT
        };
        let other_secret = SECRET.replace('0', "1");
        for header in [
            get.authorization(SECRET, "n_1", &nonce, b""),
            other_path.authorization(SECRET, "n_1", &nonce, b""),
            form.authorization(SECRET, "n_1", &nonce, b""),
            PUT.authorization(SECRET, "n_2", &nonce, b""),
            PUT.authorization(&other_secret, "n_1", &nonce, b""),
        ] {
            let checked = proofs.check(credentials(&header), &PUT, NOW);
            assert_eq!(checked, Err(ProofError::Wrong), "{header}");
        }
        // The digest of the body is covered, too.
        let header = PUT.authorization(SECRET, "n_1", &nonce, b"");
        let other = hex(&Hash::Sha256.digest(b"other"));
        let changed = header.replace(&hex(&Hash::Sha256.digest(b"")), &other);
        let checked = proofs.check(credentials(&changed), &PUT, NOW);
        assert_eq!(checked, Err(ProofError::Wrong));
        // None of them has used the nonce up.
        proofs.check(credentials(&header), &PUT, NOW).unwrap();
    }

    #[test]
    fn malformed_proofs_are_refused() {
        let mut proofs = proofs();
        let nonce = proofs.nonce(NOW).unwrap();
        let digest = hex(&Hash::Sha256.digest(b""));
        for wrong in [
            "x".to_owned(),
            "::".to_owned(),
            format!("{nonce}:{digest}"),
            format!("{nonce}:{digest}:zz"),
            format!("{nonce}:{digest}:abc"),
            format!("{nonce}:ab:ab"),
            format!("{nonce}:{digest}:ab:ab"),
            format!("ab:{digest}:ab"),
            format!("é:{digest}:ab"),
        ] {
            let checked = proofs.check(&wrong, &PUT, NOW);
            assert_eq!(checked, Err(ProofError::Malformed), "{wrong}");
        }
    }

    #[test]
    fn used_nonces_are_forgotten_when_they_are_too_old() {
        let mut proofs = proofs();
        for second in 0..200 {
            let now = Duration::from_secs(second);
            let nonce = proofs.nonce(now).unwrap();
            let header = PUT.authorization(SECRET, "n_1", &nonce, b"");
            proofs.check(credentials(&header), &PUT, now).unwrap();
        }
        assert_eq!(proofs.used.len(), 61);
    }
}
