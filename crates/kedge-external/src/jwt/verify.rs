//! Verification of a token with known keys. It reads no clock and opens no socket.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, Validation};
use kedge_auth::{
    ClaimProblem, ExternalGrants, JWT_BYTES_MAX, JwtAlgorithm, JwtIssuer, JwtSettings,
    login_of_claims,
};
use serde_json::{Map, Value};
use thiserror::Error;

use super::provider;

/// The reason why a token is no login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenProblem {
    /// It is no token, is too long, or has an extension that must be understood.
    #[error("the token is malformed")]
    Malformed,
    /// No issuer of the settings has made it.
    #[error("the issuer of the token is unknown")]
    Issuer,
    /// The issuer may not use this algorithm.
    #[error("the algorithm of the token is not allowed")]
    Algorithm,
    /// The issuer has no such key.
    #[error("the key of the token is unknown")]
    Key,
    /// The signature is wrong.
    #[error("the signature of the token is wrong")]
    Signature,
    /// A claim is wrong.
    #[error(transparent)]
    Claim(#[from] ClaimProblem),
}

/// A token whose signature was not checked yet.
pub struct UnverifiedToken<'t> {
    text: &'t str,
    header: Header,
    algorithm: JwtAlgorithm,
    issuer: String,
}

fn allowed(algorithm: Algorithm) -> Option<JwtAlgorithm> {
    Some(match algorithm {
        Algorithm::RS256 => JwtAlgorithm::RS256,
        Algorithm::RS384 => JwtAlgorithm::RS384,
        Algorithm::RS512 => JwtAlgorithm::RS512,
        Algorithm::PS256 => JwtAlgorithm::PS256,
        Algorithm::PS384 => JwtAlgorithm::PS384,
        Algorithm::PS512 => JwtAlgorithm::PS512,
        Algorithm::ES256 => JwtAlgorithm::ES256,
        Algorithm::ES384 => JwtAlgorithm::ES384,
        Algorithm::EdDSA => JwtAlgorithm::EdDSA,
        _ => return None,
    })
}

impl<'t> UnverifiedToken<'t> {
    /// Reads a token in the compact form (RFC 7515 section 3.1).
    ///
    /// # Errors
    /// `Malformed`; `Algorithm` if no issuer can have used it.
    pub fn read(text: &'t str) -> Result<Self, TokenProblem> {
        if text.len() > JWT_BYTES_MAX {
            return Err(TokenProblem::Malformed);
        }
        let data = jsonwebtoken::dangerous::insecure_decode::<Map<String, Value>>(text);
        let data = data.map_err(|_| TokenProblem::Malformed)?;
        // An extension that has to be understood is not (RFC 7515 section 4.1.11).
        if data.header.crit.is_some() {
            return Err(TokenProblem::Malformed);
        }
        let issuer = data.claims.get("iss").and_then(Value::as_str);
        Ok(Self {
            text,
            algorithm: allowed(data.header.alg).ok_or(TokenProblem::Algorithm)?,
            issuer: issuer.ok_or(TokenProblem::Issuer)?.to_owned(),
            header: data.header,
        })
    }

    /// Returns the issuer that the token names.
    ///
    /// # Errors
    /// `Issuer` if it is none of the settings; `Algorithm` if it may not use that of the token.
    pub fn issuer<'s>(&self, settings: &'s JwtSettings) -> Result<&'s JwtIssuer, TokenProblem> {
        let issuer = settings.issuer(&self.issuer).ok_or(TokenProblem::Issuer)?;
        match issuer.algorithms.contains(&self.algorithm) {
            true => Ok(issuer),
            false => Err(TokenProblem::Algorithm),
        }
    }

    /// Returns the key that has signed the token, as far as its header says.
    #[must_use]
    pub fn key<'k>(&self, keys: &'k JwkSet) -> Option<&'k Jwk> {
        let mut fitting = keys.keys.iter().filter(|key| self.fits(key));
        match &self.header.kid {
            Some(kid) => fitting.find(|key| key.common.key_id.as_ref() == Some(kid)),
            // Without a name there must be no choice.
            None => {
                let only = fitting.next();
                only.filter(|_| fitting.next().is_none())
            }
        }
    }

    /// Returns whether a key is one for signatures by the algorithm of the token.
    fn fits(&self, key: &Jwk) -> bool {
        let is_for_signatures = match &key.common.public_key_use {
            None | Some(PublicKeyUse::Signature) => true,
            Some(_) => false,
        };
        let named = key.common.key_algorithm.as_ref();
        let is_named = named.is_none_or(|named| {
            let named = serde_json::to_value(named).ok();
            named == serde_json::to_value(self.algorithm).ok()
        });
        let family = self.header.alg.family();
        let fits = match &key.algorithm {
            AlgorithmParameters::RSA(_) => family == AlgorithmFamily::Rsa,
            AlgorithmParameters::EllipticCurve(key) => match &key.curve {
                EllipticCurve::P256 => self.algorithm == JwtAlgorithm::ES256,
                EllipticCurve::P384 => self.algorithm == JwtAlgorithm::ES384,
                _ => false,
            },
            AlgorithmParameters::OctetKeyPair(key) => {
                key.curve == EllipticCurve::Ed25519 && self.algorithm == JwtAlgorithm::EdDSA
            }
            _ => false,
        };
        is_for_signatures && is_named && fits
    }

    /// Checks signature and claims with the keys of the issuer.
    ///
    /// # Errors
    /// `Key`, `Signature`, `Claim`.
    pub fn verify(
        &self,
        issuer: &JwtIssuer,
        keys: &JwkSet,
        now_s: u64,
    ) -> Result<(String, ExternalGrants), TokenProblem> {
        provider::install();
        let key = self.key(keys).ok_or(TokenProblem::Key)?;
        let key = DecodingKey::from_jwk(key).map_err(|_| TokenProblem::Key)?;
        let mut validation = Validation::new(self.header.alg);
        // The claims are checked below, by rules that are the issuer's.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        let token = jsonwebtoken::decode::<Map<String, Value>>(self.text, &key, &validation);
        let token = token.map_err(|_| TokenProblem::Signature)?;
        Ok(login_of_claims(issuer, &token.claims, now_s)?)
    }
}

/// Reads keys (RFC 7517). Those of unknown kinds are left out.
///
/// # Errors
/// The text is no set of keys.
pub fn read_keys(text: &[u8]) -> Result<JwkSet, serde_json::Error> {
    serde_json::from_slice(text)
}
