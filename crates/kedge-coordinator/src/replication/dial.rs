//! Connecting to a peer: name, socket, TLS, features, login, bucket.
//!
//! All of this blocks, so each attempt has a thread of its own, which ends with it. There is at most one per link.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use kedge_auth::{ClientSession, ClientStep, Mechanism, random_nonce};
use kedge_node::coordination::PeerAddress;
use kedge_protocol::binary::commands::{Hello, SaslStart, SelectBucket};
use kedge_protocol::binary::{
    Feature, Features, Opcode, ParseReply, RequestWriter, parse_response,
};
use kedge_tls::{ClientStream, ServerTls};
use kedge_types::Status;

use super::NodeIdentity;

/// The timeout of connecting to one address, and of one reply.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest reply before the streams begin, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The features that a replica needs to receive documents unchanged.
const FEATURES: Features = Features::of(&[
    Feature::TcpNodelay,
    Feature::MutationSeqno,
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::SyncReplication,
    Feature::Collections,
]);

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DialError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer's address cannot be found")]
    NoAddress,
    /// Either the peer has no port of TLS in the map, or only such ports.
    #[error(
        "the peer has no such port: all nodes of a cluster need the same cluster_encryption, or both ports"
    )]
    NoPort,
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer's answer cannot be read: {0}")]
    Malformed(String),
    #[error("the login failed: {0}")]
    Login(kedge_auth::AuthError),
    #[error("the peer answered {opcode} with {status}")]
    Refused {
        opcode: &'static str,
        status: String,
    },
    #[error("the peer does not know features that replication needs: it granted {0:?}")]
    Features(Features),
}

/// Connects to a peer: logged in, with the bucket selected and all features negotiated.
///
/// # Errors
/// The first step that failed.
pub(crate) fn dial(
    peer: &PeerAddress,
    bucket: &str,
    identity: &NodeIdentity,
) -> Result<ClientStream, DialError> {
    Dialog::begin(peer, bucket, identity)?.into_stream()
}

fn connect(peer: &PeerAddress) -> Result<TcpStream, DialError> {
    let mut last = DialError::NoAddress;
    for address in (peer.host.as_str(), peer.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, STEP_TIMEOUT) {
            Ok(stream) if is_itself(&stream, address) => last = DialError::Closed,
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Returns whether a socket is connected to itself, which can happen with an unused port of its own machine.
fn is_itself(stream: &TcpStream, address: SocketAddr) -> bool {
    stream.local_addr().is_ok_and(|local| local == address)
}

/// A connection with one request and reply at a time.
pub(super) struct Dialog {
    stream: ClientStream,
    received: Vec<u8>,
}

/// The reply to a request.
pub(super) struct DialAnswer {
    status: Status,
    pub(super) extras: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Dialog {
    /// Opens a connection: logged in, with the bucket selected and all features negotiated.
    ///
    /// # Errors
    /// The first step that failed.
    pub(super) fn begin(
        peer: &PeerAddress,
        bucket: &str,
        identity: &NodeIdentity,
    ) -> Result<Self, DialError> {
        let mut dialog = Self::open(peer, identity)?;
        dialog.hello(identity)?;
        dialog.login(identity)?;
        let name = bucket.as_bytes();
        let select = SelectBucket { name };
        dialog.send(|out| select.encode(&RequestWriter::new(Opcode::SelectBucket), out))?;
        dialog.answer(Opcode::SelectBucket)?;
        Ok(dialog)
    }

    fn open(peer: &PeerAddress, identity: &NodeIdentity) -> Result<Self, DialError> {
        if peer.port == 0 {
            return Err(DialError::NoPort);
        }
        let stream = connect(peer)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        stream.set_write_timeout(Some(STEP_TIMEOUT))?;
        let config = identity.tls.as_ref().and_then(ServerTls::node_config);
        Ok(Self {
            stream: ClientStream::open(stream, config.as_ref(), &peer.host)?,
            received: Vec::new(),
        })
    }

    pub(super) fn send(&mut self, compose: impl FnOnce(&mut Vec<u8>)) -> Result<(), DialError> {
        let mut out = Vec::new();
        compose(&mut out);
        self.stream.write_all(&out)?;
        Ok(self.stream.flush()?)
    }

    fn receive(&mut self, opcode: Opcode) -> Result<DialAnswer, DialError> {
        loop {
            let consumed = match parse_response(&self.received, ANSWER_BYTES_MAX) {
                ParseReply::Incomplete { need } => {
                    self.read(need)?;
                    continue;
                }
                ParseReply::Fatal(error) => return Err(DialError::Malformed(error.to_string())),
                // An unrequested notification of a cluster map.
                ParseReply::ServerRequest { consumed, .. } => consumed,
                ParseReply::Reply { reply, consumed } => {
                    if reply.opcode != opcode.wire() {
                        let what = format!("it is one to opcode {:#04x}", reply.opcode);
                        return Err(DialError::Malformed(what));
                    }
                    let status = reply.status().ok_or_else(|| DialError::Refused {
                        opcode: opcode.name(),
                        status: format!("{:#06x}", reply.status_code),
                    })?;
                    let answer = DialAnswer {
                        status,
                        extras: reply.extras.to_vec(),
                        value: reply.value.to_vec(),
                    };
                    self.received.drain(..consumed);
                    return Ok(answer);
                }
            };
            self.received.drain(..consumed);
        }
    }

    /// Reads until so many bytes were received, or once if that is not known.
    fn read(&mut self, need: usize) -> Result<(), DialError> {
        let missing = need.saturating_sub(self.received.len()).max(4 << 10);
        let begin = self.received.len();
        self.received.resize(begin + missing, 0);
        let read = self.stream.read(&mut self.received[begin..]);
        self.received.truncate(begin + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(DialError::Closed),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, opcode: Opcode) -> Result<Vec<u8>, DialError> {
        Ok(self.whole_answer(opcode)?.value)
    }

    /// Waits for the reply to a request.
    ///
    /// # Errors
    /// `Refused` for a reply without success; errors of the connection.
    pub(super) fn whole_answer(&mut self, opcode: Opcode) -> Result<DialAnswer, DialError> {
        let answer = self.receive(opcode)?;
        match answer.status {
            Status::Success | Status::AuthContinue => Ok(answer),
            status => Err(DialError::Refused {
                opcode: opcode.name(),
                status: status.name().to_owned(),
            }),
        }
    }

    fn hello(&mut self, identity: &NodeIdentity) -> Result<(), DialError> {
        let agent = format!(
            "kedge-replication/{} {}",
            env!("CARGO_PKG_VERSION"),
            identity.node
        );
        let hello = Hello {
            agent: agent.as_bytes(),
            features: FEATURES,
        };
        self.send(|out| hello.encode(&RequestWriter::new(Opcode::Hello), out))?;
        let granted = self.answer(Opcode::Hello)?;
        let granted = Features::parse(&granted)
            .map_err(|status| DialError::Malformed(status.name().to_owned()))?;
        if granted.intersection(FEATURES) == FEATURES {
            Ok(())
        } else {
            Err(DialError::Features(granted))
        }
    }

    fn login(&mut self, identity: &NodeIdentity) -> Result<(), DialError> {
        let mechanism = Mechanism::ScramSha512;
        let (user, password) = (&identity.user, &identity.password);
        let started = ClientSession::start(mechanism, user, password, random_nonce);
        let (mut session, mut message) = started.map_err(DialError::Login)?;
        let mut opcode = Opcode::SaslAuth;
        loop {
            let start = SaslStart {
                mechanism: mechanism.name().as_bytes(),
                message: &message,
            };
            self.send(|out| start.encode(&RequestWriter::new(opcode), out))?;
            let answer = self.answer(opcode)?;
            match session.step(&answer).map_err(DialError::Login)? {
                ClientStep::Send(next) => message = next,
                ClientStep::Done => return Ok(()),
            }
            opcode = Opcode::SaslStep;
        }
    }

    fn into_stream(self) -> Result<ClientStream, DialError> {
        if !self.received.is_empty() {
            let what = format!("{} bytes that nobody asked for", self.received.len());
            return Err(DialError::Malformed(what));
        }
        self.stream.socket().set_nonblocking(true)?;
        Ok(self.stream)
    }
}
