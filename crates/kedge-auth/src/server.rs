//! The server's side of a login.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::Choice;
use thiserror::Error;

use crate::credential::Credential;
use crate::error::AuthError;
use crate::hash::Hash;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::mechanism::Mechanism;
use crate::message;
use crate::store::UserStore;

/// The reply to a client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerStep {
    /// Send this and wait for the next message ("authentication continues").
    Continue(Vec<u8>),
    /// The client is authenticated. The user may have been removed from the store since the login began: look up its
    /// roles.
    Done {
        /// The user's name.
        user: String,
        /// The payload of the success reply: the server's signature for SCRAM, empty for PLAIN.
        payload: Vec<u8>,
    },
    /// The login failed; send an error without any detail. [`ServerSession::failure`] returns the reason, for the log.
    Failed,
}

/// The reason why a login failed. For the log, not for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoginFailure {
    /// A message violates the grammar or the limits, or does not continue the one before.
    #[error("malformed SASL message")]
    Malformed,
    /// The client demands channel binding, which is not offered.
    #[error("channel binding is not supported")]
    ChannelBinding,
    /// The client wants to act as another user than the one that logs in.
    #[error("acting as another user is not supported")]
    OtherIdentity,
    /// The user does not exist or the password is wrong. The two are deliberately not distinguished.
    #[error("unknown user or wrong password")]
    BadCredentials,
    /// A directory accepted an external user who has no role.
    #[error("the external user has no role")]
    NoRoles,
    /// The token of an external user is not valid.
    #[error("the token is not valid")]
    BadToken,
    /// The authority of an external user cannot be asked at present. It says nothing about the credentials.
    #[error("the authority of external users does not answer")]
    Unavailable,
    /// A message came after the login had ended.
    #[error("SASL message out of turn")]
    OutOfTurn,
    /// The nonce source failed, or returned a nonce that is empty or contains a comma.
    #[error("no nonce")]
    NoNonce,
}

/// One login, from the client's first message to its end. Owns all its data.
pub struct ServerSession {
    mechanism: Mechanism,
    user: Option<String>,
    failure: Option<LoginFailure>,
    pending: Option<Box<PendingProof>>,
}

/// The state of a SCRAM login while the client computes its proof.
struct PendingProof {
    user: String,
    user_known: Choice,
    credential: Credential,
    channel_binding: String,
    client_first_bare: Vec<u8>,
    server_first: Vec<u8>,
    nonce: Vec<u8>,
}

impl ServerSession {
    /// Begins a login with the client's first message.
    ///
    /// `nonce_source` returns the server's part of the nonce: printable text without `,`; outside of tests it is
    /// [`random_nonce`](crate::random_nonce). PLAIN does not call it.
    ///
    /// A SCRAM mechanism returns [`ServerStep::Continue`], or fails on a malformed message; before the proof it does not
    /// depend on the store's users. PLAIN ends at once; it takes one argon2id, which is tens of milliseconds, unless this
    /// password was verified recently.
    pub fn start(
        store: &UserStore,
        mechanism: Mechanism,
        client_first: &[u8],
        nonce_source: impl FnOnce() -> Result<String, AuthError>,
    ) -> (Self, ServerStep) {
        let mut session = Self {
            mechanism,
            user: None,
            failure: None,
            pending: None,
        };
        let result = if client_first.len() > MESSAGE_BYTES_MAX {
            Err(LoginFailure::Malformed)
        } else if let Some(hash) = mechanism.hash() {
            session.start_scram(store, hash, client_first, nonce_source)
        } else if mechanism == Mechanism::Plain {
            session.start_plain(store, client_first)
        } else {
            // Tokens are checked elsewhere.
            Err(LoginFailure::Malformed)
        };
        let step = session.settle(result);
        (session, step)
    }

    /// Returns the login of a user whose credentials another authority has checked, at its end.
    pub fn checked_elsewhere(
        mechanism: Mechanism,
        claimed_user: &str,
        outcome: Result<String, LoginFailure>,
    ) -> (Self, ServerStep) {
        let mut session = Self {
            mechanism,
            user: Some(claimed_user.to_owned()),
            failure: None,
            pending: None,
        };
        let payload = Vec::new();
        let step = session.settle(outcome.map(|user| ServerStep::Done { user, payload }));
        (session, step)
    }

    /// Continues with the client's next message. After [`ServerStep::Done`] or [`ServerStep::Failed`] there is none, and this
    /// fails.
    pub fn step(&mut self, client_final: &[u8]) -> ServerStep {
        let result = match self.pending.take() {
            None => Err(LoginFailure::OutOfTurn),
            Some(_) if client_final.len() > MESSAGE_BYTES_MAX => Err(LoginFailure::Malformed),
            Some(pending) => pending.finish(client_final),
        };
        self.settle(result)
    }

    /// Returns the mechanism of the login.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Returns the user that the client claims to be, if known; proven only after [`ServerStep::Done`].
    #[must_use]
    pub fn claimed_user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the reason why the login failed, if it did.
    #[must_use]
    pub const fn failure(&self) -> Option<LoginFailure> {
        self.failure
    }

    fn settle(&mut self, result: Result<ServerStep, LoginFailure>) -> ServerStep {
        result.unwrap_or_else(|failure| {
            self.pending = None;
            self.failure = Some(failure);
            ServerStep::Failed
        })
    }

    fn start_plain(
        &mut self,
        store: &UserStore,
        message: &[u8],
    ) -> Result<ServerStep, LoginFailure> {
        let (user, password) = message::parse_plain(message)?;
        self.user = Some(user.to_owned());
        if !store.verify_password(user, password) {
            return Err(LoginFailure::BadCredentials);
        }
        Ok(ServerStep::Done {
            user: user.to_owned(),
            payload: Vec::new(),
        })
    }

    fn start_scram(
        &mut self,
        store: &UserStore,
        hash: Hash,
        message: &[u8],
        nonce_source: impl FnOnce() -> Result<String, AuthError>,
    ) -> Result<ServerStep, LoginFailure> {
        let first = message::parse_client_first(message)?;
        self.user = Some(first.user.clone());

        let server_nonce = nonce_source().map_err(|_| LoginFailure::NoNonce)?;
        if server_nonce.is_empty() || server_nonce.contains(',') {
            return Err(LoginFailure::NoNonce);
        }
        let nonce = [first.nonce, server_nonce.as_bytes()].concat();

        let (user_known, credential) = store.credential_or_fallback(&first.user, hash);
        let server_first = message::server_first(&nonce, &credential.salt, credential.iterations);
        self.pending = Some(Box::new(PendingProof {
            user: first.user,
            user_known,
            credential,
            channel_binding: STANDARD.encode(first.gs2_header),
            client_first_bare: first.bare.to_vec(),
            server_first: server_first.clone(),
            nonce,
        }));
        Ok(ServerStep::Continue(server_first))
    }
}

impl PendingProof {
    fn finish(self, message: &[u8]) -> Result<ServerStep, LoginFailure> {
        let last = message::parse_client_final(message)?;
        if last.channel_binding != self.channel_binding.as_bytes() || last.nonce != self.nonce {
            return Err(LoginFailure::Malformed);
        }
        let auth_message = message::auth_message(
            &self.client_first_bare,
            &self.server_first,
            last.without_proof,
        );
        let fits = self.credential.fits_proof(&last.proof, &auth_message);
        // Signed before the verdict, so that the work does not depend on it.
        let signature = self.credential.server_signature(&auth_message);
        if !bool::from(fits & self.user_known) {
            return Err(LoginFailure::BadCredentials);
        }
        let payload = format!("v={}", STANDARD.encode(&*signature)).into_bytes();
        Ok(ServerStep::Done {
            user: self.user,
            payload,
        })
    }
}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
