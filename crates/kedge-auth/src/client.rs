//! The client's side of a login, for Kedge's own tools.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::credential::{ScramKeys, xor};
use crate::error::{AuthError, PasswordProblem};
use crate::hash::{Hash, Secret};
use crate::limits::{
    ITERATIONS_MAX, ITERATIONS_MIN, MESSAGE_BYTES_MAX, PASSWORD_BYTES_MAX, SALT_BYTES_MAX,
    SALT_BYTES_MIN,
};
use crate::mechanism::Mechanism;
use crate::message;

/// The GS2 header of a client without channel binding.
const GS2_HEADER: &[u8] = b"n,,";

/// The client's next action after a message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientStep {
    /// Send this message.
    Send(Vec<u8>),
    /// The login is complete, and with SCRAM the server has proven that it knows the user's key.
    Done,
}

/// One login to a server.
///
/// The caller passes *every* reply of the server to [`step`](Self::step), also that with the success status, and trusts
/// the login only after that returned [`ClientStep::Done`]: an impostor can report success without knowing anything.
pub struct ClientSession {
    mechanism: Mechanism,
    state: ClientState,
}

enum ClientState {
    Plain,
    Challenge {
        hash: Hash,
        password: Zeroizing<Vec<u8>>,
        bare: Vec<u8>,
        nonce: String,
    },
    Verify {
        signature: Secret,
    },
    Ended,
}

impl ClientSession {
    /// Begins a login and returns the first message.
    ///
    /// `nonce_source` returns the client's part of the nonce: text without `,`; outside of tests it is
    /// [`random_nonce`](crate::random_nonce). PLAIN does not call it.
    ///
    /// # Errors
    /// [`AuthError::BadPassword`] if the password is empty, too long or contains a NUL; the error of `nonce_source`;
    /// [`AuthError::NoRandomness`] if its nonce is empty or contains a comma; [`AuthError::UnknownMechanism`] for tokens.
    pub fn start(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        nonce_source: impl FnOnce() -> Result<String, AuthError>,
    ) -> Result<(Self, Vec<u8>), AuthError> {
        check_password(password)?;
        if mechanism == Mechanism::OauthBearer {
            return Err(AuthError::UnknownMechanism(mechanism.name().to_owned()));
        }
        let Some(hash) = mechanism.hash() else {
            let message = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
            return Ok((
                Self {
                    mechanism,
                    state: ClientState::Plain,
                },
                message,
            ));
        };
        let nonce = nonce_source()?;
        if nonce.is_empty() || nonce.contains(',') {
            return Err(AuthError::NoRandomness);
        }
        let bare = format!("n={},r={nonce}", message::escape(user)).into_bytes();
        let first = [GS2_HEADER, &bare].concat();
        let password = Zeroizing::new(password.as_bytes().to_vec());
        Ok((
            Self {
                mechanism,
                state: ClientState::Challenge {
                    hash,
                    password,
                    bare,
                    nonce,
                },
            },
            first,
        ))
    }

    /// Continues with the server's reply. With SCRAM the first call costs one PBKDF2 with the server's iteration count.
    ///
    /// # Errors
    /// [`AuthError::BadServerMessage`], [`AuthError::ServerRefused`], [`AuthError::BadServerSignature`], or
    /// [`AuthError::BadIterations`] if the server asks for too little or too much work. After an error
    /// the login is over.
    pub fn step(&mut self, server_message: &[u8]) -> Result<ClientStep, AuthError> {
        if server_message.len() > MESSAGE_BYTES_MAX {
            self.state = ClientState::Ended;
            return Err(AuthError::BadServerMessage);
        }
        match std::mem::replace(&mut self.state, ClientState::Ended) {
            // RFC 4616 has no reply beyond the verdict; anything that a server adds is ignored.
            ClientState::Plain => Ok(ClientStep::Done),
            ClientState::Challenge {
                hash,
                password,
                bare,
                nonce,
            } => {
                let (answer, signature) = prove(hash, &password, &bare, &nonce, server_message)?;
                self.state = ClientState::Verify { signature };
                Ok(ClientStep::Send(answer))
            }
            ClientState::Verify { signature } => verify(&signature, server_message),
            ClientState::Ended => Err(AuthError::BadServerMessage),
        }
    }

    /// Returns the mechanism of this login.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }
}

/// Returns the client's final message, and the signature that the server has to return.
fn prove(
    hash: Hash,
    password: &[u8],
    bare: &[u8],
    client_nonce: &str,
    server_first: &[u8],
) -> Result<(Vec<u8>, Secret), AuthError> {
    refusal(server_first)?;
    let challenge =
        message::parse_server_first(server_first).map_err(|_| AuthError::BadServerMessage)?;
    let fresh = challenge.nonce.strip_prefix(client_nonce.as_bytes());
    if fresh.is_none_or(<[u8]>::is_empty)
        || !(SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&challenge.salt.len())
    {
        return Err(AuthError::BadServerMessage);
    }
    // With few iterations, a false server could attack the proof cheaply.
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&challenge.iterations) {
        return Err(AuthError::BadIterations(challenge.iterations));
    }
    let salted = hash.salted_password(password, &challenge.salt, challenge.iterations);
    let keys = ScramKeys::of(hash, &salted);
    let without_proof = message::client_final_without_proof(GS2_HEADER, challenge.nonce);
    let auth_message = message::auth_message(bare, server_first, &without_proof);

    let mut proof = hash.hmac(&keys.stored, &[&auth_message]);
    xor(&mut proof, &keys.client);
    let answer = [
        &without_proof,
        &b",p="[..],
        STANDARD.encode(&*proof).as_bytes(),
    ]
    .concat();
    Ok((answer, hash.hmac(&keys.server, &[&auth_message])))
}

/// Checks the server's final message.
fn verify(signature: &[u8], server_final: &[u8]) -> Result<ClientStep, AuthError> {
    refusal(server_final)?;
    let attribute = server_final
        .split(|&b| b == b',')
        .next()
        .unwrap_or_default();
    let shown = attribute
        .strip_prefix(b"v=")
        .ok_or(AuthError::BadServerMessage)?;
    let shown = STANDARD
        .decode(shown)
        .map_err(|_| AuthError::BadServerMessage)?;
    if bool::from(shown.ct_eq(signature)) {
        Ok(ClientStep::Done)
    } else {
        Err(AuthError::BadServerSignature)
    }
}

/// Turns a server's `e=` into an error.
fn refusal(message: &[u8]) -> Result<(), AuthError> {
    match message.strip_prefix(b"e=") {
        None => Ok(()),
        Some(reason) => Err(AuthError::ServerRefused(
            String::from_utf8_lossy(reason).into_owned(),
        )),
    }
}

/// Checks the rules for passwords, which are the same here and in the store.
pub(crate) fn check_password(password: &str) -> Result<(), AuthError> {
    let problem = if password.is_empty() {
        PasswordProblem::Empty
    } else if password.len() > PASSWORD_BYTES_MAX {
        PasswordProblem::TooLong
    } else if password.contains('\0') {
        PasswordProblem::HoldsNul
    } else {
        return Ok(());
    };
    Err(AuthError::BadPassword(problem))
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession")
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}
