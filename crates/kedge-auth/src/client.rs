//! The client's side of a login, for our own tools.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::credential::{Keys, xor};
use crate::error::{Error, PasswordProblem};
use crate::hash::{Hash, Secret};
use crate::limits::{
    ITERATIONS_MAX, ITERATIONS_MIN, MESSAGE_BYTES_MAX, PASSWORD_BYTES_MAX, SALT_BYTES_MAX,
    SALT_BYTES_MIN,
};
use crate::mechanism::Mechanism;
use crate::message;

/// The GS2 header of a client without channel binding.
const GS2_HEADER: &[u8] = b"n,,";

/// What a client does after a message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientStep {
    /// Send this as the next message.
    Send(Vec<u8>),
    /// The login is complete, and with SCRAM the server has proven that it knows the user's key.
    Done,
}

/// One login to a server.
///
/// Whoever drives it hands *every* answer of the server to [`step`](Self::step), the one that comes
/// with the success status too, and trusts the login only when that returned [`ClientStep::Done`]:
/// an impostor can say "success" without knowing anything.
pub struct ClientSession {
    mechanism: Mechanism,
    state: State,
}

enum State {
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
    /// Begins a login and gives the first message.
    ///
    /// `nonce_source` gives the client's part of the nonce: text without `,`; outside of tests it is
    /// [`random_nonce`](crate::random_nonce). PLAIN does not call it.
    ///
    /// # Errors
    /// [`Error::BadPassword`] if the password is empty, too long or holds a NUL; what
    /// `nonce_source` returns; [`Error::NoRandomness`] if its nonce is empty or holds a comma.
    pub fn start(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        nonce_source: impl FnOnce() -> Result<String, Error>,
    ) -> Result<(Self, Vec<u8>), Error> {
        check_password(password)?;
        let Some(hash) = mechanism.hash() else {
            let message = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
            return Ok((
                Self {
                    mechanism,
                    state: State::Plain,
                },
                message,
            ));
        };
        let nonce = nonce_source()?;
        if nonce.is_empty() || nonce.contains(',') {
            return Err(Error::NoRandomness);
        }
        let bare = format!("n={},r={nonce}", message::escape(user)).into_bytes();
        let first = [GS2_HEADER, &bare].concat();
        let password = Zeroizing::new(password.as_bytes().to_vec());
        Ok((
            Self {
                mechanism,
                state: State::Challenge {
                    hash,
                    password,
                    bare,
                    nonce,
                },
            },
            first,
        ))
    }

    /// Goes on with what the server answered. With SCRAM the first call costs one PBKDF2 with the
    /// server's iteration count.
    ///
    /// # Errors
    /// [`Error::BadServerMessage`], [`Error::ServerRefused`], [`Error::BadServerSignature`], or
    /// [`Error::BadIterations`] if the server asks for too little or too much work. After an error
    /// the login is over.
    pub fn step(&mut self, server_message: &[u8]) -> Result<ClientStep, Error> {
        if server_message.len() > MESSAGE_BYTES_MAX {
            self.state = State::Ended;
            return Err(Error::BadServerMessage);
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            // RFC 4616 knows no answer beyond the verdict; what a server adds means nothing.
            State::Plain => Ok(ClientStep::Done),
            State::Challenge {
                hash,
                password,
                bare,
                nonce,
            } => {
                let (answer, signature) = prove(hash, &password, &bare, &nonce, server_message)?;
                self.state = State::Verify { signature };
                Ok(ClientStep::Send(answer))
            }
            State::Verify { signature } => verify(&signature, server_message),
            State::Ended => Err(Error::BadServerMessage),
        }
    }

    /// The mechanism of this login.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }
}

/// The client's final message, and the signature that the server will have to show.
fn prove(
    hash: Hash,
    password: &[u8],
    bare: &[u8],
    client_nonce: &str,
    server_first: &[u8],
) -> Result<(Vec<u8>, Secret), Error> {
    refusal(server_first)?;
    let challenge =
        message::parse_server_first(server_first).map_err(|_| Error::BadServerMessage)?;
    let fresh = challenge.nonce.strip_prefix(client_nonce.as_bytes());
    if fresh.is_none_or(<[u8]>::is_empty)
        || !(SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&challenge.salt.len())
    {
        return Err(Error::BadServerMessage);
    }
    // Few iterations would make the proof cheap to attack for whoever plays the server.
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&challenge.iterations) {
        return Err(Error::BadIterations(challenge.iterations));
    }
    let salted = hash.salted_password(password, &challenge.salt, challenge.iterations);
    let keys = Keys::of(hash, &salted);
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
fn verify(signature: &[u8], server_final: &[u8]) -> Result<ClientStep, Error> {
    refusal(server_final)?;
    let attribute = server_final
        .split(|&b| b == b',')
        .next()
        .unwrap_or_default();
    let shown = attribute
        .strip_prefix(b"v=")
        .ok_or(Error::BadServerMessage)?;
    let shown = STANDARD
        .decode(shown)
        .map_err(|_| Error::BadServerMessage)?;
    if bool::from(shown.ct_eq(signature)) {
        Ok(ClientStep::Done)
    } else {
        Err(Error::BadServerSignature)
    }
}

/// Turns a server's `e=` into an error.
fn refusal(message: &[u8]) -> Result<(), Error> {
    match message.strip_prefix(b"e=") {
        None => Ok(()),
        Some(reason) => Err(Error::ServerRefused(
            String::from_utf8_lossy(reason).into_owned(),
        )),
    }
}

/// What a password must be, here and in the store.
pub(crate) fn check_password(password: &str) -> Result<(), Error> {
    let problem = if password.is_empty() {
        PasswordProblem::Empty
    } else if password.len() > PASSWORD_BYTES_MAX {
        PasswordProblem::TooLong
    } else if password.contains('\0') {
        PasswordProblem::HoldsNul
    } else {
        return Ok(());
    };
    Err(Error::BadPassword(problem))
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession")
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}
