//! One connection of the binary protocol.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use kedge_auth::{ClientSession, ClientStep, Mechanism, random_nonce};
use kedge_protocol::binary::{
    Feature, Features, FrameInfos, HEADER_BYTES, Opcode, ParseReply, RequestWriter, parse_response,
};
use kedge_tls::ClientStream;
use kedge_tls::rustls::ClientConfig;
use kedge_types::limits::FRAME_BODY_BYTES_MAX;
use kedge_types::{Cas, Datatype, Durability, DurabilityLevel, Seqno, Status, VbId, VbUuid};

use super::error::{ClientError, status_text};
use super::topology::BucketTopology;

/// The name of this client in the server's log.
const AGENT: &str = concat!("kedge-tools/", env!("CARGO_PKG_VERSION"));
/// The number of bytes of one read from the socket.
const READ_BYTES: usize = 64 << 10;
/// The longest wait for one reply: the default timeout of a SyncWrite, and more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);

/// The credentials of a login.
#[derive(Clone)]
pub struct LoginCredentials {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// SASL mechanism.
    pub mechanism: Mechanism,
}

impl std::fmt::Debug for LoginCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginCredentials")
            .field("user", &self.user)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientReply {
    /// The status code as received.
    pub code: u16,
    /// CAS.
    pub cas: Cas,
    /// Datatype bits.
    pub datatype: u8,
    /// Extras.
    pub extras: Vec<u8>,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// A document as returned by GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    /// CAS.
    pub cas: Cas,
    /// Flags.
    pub flags: u32,
    /// Value.
    pub value: Vec<u8>,
}

/// The outcome of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredMutation {
    /// CAS of the document, or of the tombstone.
    pub cas: Cas,
    /// The branch of history of the seqno.
    pub uuid: VbUuid,
    /// Seqno of the mutation.
    pub seqno: Seqno,
}

/// A connection to a key-value port.
#[derive(Debug)]
pub struct ClientConnection {
    stream: ClientStream,
    address: String,
    received: Vec<u8>,
    out: Vec<u8>,
    opaque: u32,
    vbuckets: u16,
    durability_timeout_ms: Option<u16>,
}

impl ClientConnection {
    /// Connects. Each address of the host is tried for up to `timeout`.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn open(host: &str, port: u16, timeout: Duration) -> Result<Self, ClientError> {
        Self::open_with(host, port, timeout, None)
    }

    /// Connects as [`ClientConnection::open`] does, over TLS if there is a configuration.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn open_with(
        host: &str,
        port: u16,
        timeout: Duration,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, ClientError> {
        let address = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        let failed = |source| ClientError::Connect {
            address: address.clone(),
            source,
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in (host, port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&candidate, timeout) {
                Err(error) => last = error,
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    stream
                        .set_read_timeout(Some(ANSWER_TIMEOUT))
                        .map_err(failed)?;
                    stream
                        .set_write_timeout(Some(ANSWER_TIMEOUT))
                        .map_err(failed)?;
                    return Ok(Self {
                        stream: ClientStream::open(stream, tls, host).map_err(failed)?,
                        address,
                        received: Vec::new(),
                        out: Vec::new(),
                        opaque: 0,
                        vbuckets: 0,
                        durability_timeout_ms: None,
                    });
                }
            }
        }
        Err(failed(last))
    }

    /// Connects, negotiates features, logs in and selects a bucket: the connection is ready for documents.
    ///
    /// # Errors
    /// The error of the failed step.
    pub fn ready(
        host: &str,
        port: u16,
        login: &LoginCredentials,
        bucket: &str,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        Self::open(host, port, timeout)?.prepared(login, bucket)
    }

    /// Prepares an open connection as [`ClientConnection::ready`] does.
    ///
    /// # Errors
    /// The error of the failed step.
    pub fn prepared(self, login: &LoginCredentials, bucket: &str) -> Result<Self, ClientError> {
        self.prepared_by(Some(login), bucket)
    }

    /// Prepares an open connection as [`ClientConnection::ready`] does. Without a login, the certificate of its TLS has
    /// logged in.
    ///
    /// # Errors
    /// The error of the failed step.
    pub fn prepared_by(
        self,
        login: Option<&LoginCredentials>,
        bucket: &str,
    ) -> Result<Self, ClientError> {
        let mut connection = self;
        connection.hello(&[])?;
        if let Some(login) = login {
            connection.login(login)?;
        }
        connection.select_bucket(bucket)?;
        let topology = connection.topology()?;
        connection.vbuckets = topology.vbuckets.ok_or_else(|| {
            connection.unexpected("the configuration of a bucket without vBuckets".to_owned())
        })?;
        Ok(connection)
    }

    /// Returns the `HOST:PORT` of the command line.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the number of vBuckets of the selected bucket; 0 before [`ClientConnection::ready`].
    #[must_use]
    pub const fn vbuckets(&self) -> u16 {
        self.vbuckets
    }

    /// Limits the wait for each reply from now on.
    ///
    /// # Errors
    /// [`ClientError::Io`].
    pub fn set_answer_timeout(&mut self, timeout: Duration) -> Result<(), ClientError> {
        let socket = self.stream.socket();
        let set = socket.set_read_timeout(Some(timeout));
        set.and_then(|()| socket.set_write_timeout(Some(timeout)))
            .map_err(|source| self.broke(source))
    }

    /// Sets the durability timeout of later writes in milliseconds; `None` is the server's default.
    pub fn set_durability_timeout(&mut self, timeout_ms: Option<u16>) {
        self.durability_timeout_ms = timeout_ms;
    }

    /// Returns the stream, for a caller that continues by itself.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] if the server sent unrequested data.
    pub fn into_client_stream(self) -> Result<ClientStream, ClientError> {
        if self.received.is_empty() {
            Ok(self.stream)
        } else {
            Err(self.unexpected(format!("{} bytes unasked", self.received.len())))
        }
    }

    /// Returns the socket of a connection without TLS, for a caller that continues by itself.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] if the server sent unrequested data, or the connection uses TLS.
    pub fn into_stream(self) -> Result<TcpStream, ClientError> {
        let address = self.address.clone();
        match self.into_client_stream()? {
            ClientStream::Plain(socket) => Ok(socket),
            ClientStream::Tls(_) => Err(ClientError::Unexpected {
                address,
                what: "a connection with TLS".to_owned(),
            }),
        }
    }

    /// Negotiates the features that these tools need, and `extra`. Returns the granted features.
    ///
    /// # Errors
    /// Transport errors, or the server's refusal.
    pub fn hello(&mut self, extra: &[Feature]) -> Result<Features, ClientError> {
        let mut features = Features::of(&[
            Feature::MutationSeqno,
            Feature::Xerror,
            Feature::SelectBucket,
            Feature::Json,
            Feature::AltRequestSupport,
            Feature::SyncReplication,
        ]);
        for feature in extra {
            features = features.with(*feature);
        }
        let mut list = Vec::new();
        features.encode(&mut list);
        let reply = self.expect(
            &RequestWriter::new(Opcode::Hello),
            &[],
            AGENT.as_bytes(),
            &list,
        )?;
        Features::parse(&reply.value)
            .map_err(|status| self.unexpected(format!("features: {}", status.name())))
    }

    /// Logs in.
    ///
    /// # Errors
    /// [`ClientError::Login`] when user or password is wrong, [`ClientError::Sasl`] when the server
    /// could not prove that it knows the password, transport errors.
    pub fn login(&mut self, login: &LoginCredentials) -> Result<(), ClientError> {
        let name = login.mechanism.name();
        let (mut session, mut message) =
            ClientSession::start(login.mechanism, &login.user, &login.password, random_nonce)?;
        let mut opcode = Opcode::SaslAuth;
        loop {
            let reply = self.call(&RequestWriter::new(opcode), &[], name.as_bytes(), &message)?;
            match Status::from_wire(reply.code) {
                Some(Status::Success | Status::AuthContinue) => {}
                Some(Status::AuthError) => {
                    return Err(ClientError::Login {
                        user: login.user.clone(),
                    });
                }
                _ => return Err(refused(opcode, &reply)),
            }
            match session.step(&reply.value)? {
                ClientStep::Send(next) => message = next,
                ClientStep::Done => return Ok(()),
            }
            opcode = Opcode::SaslStep;
        }
    }

    /// Selects a bucket.
    ///
    /// # Errors
    /// The server's refusal (`AccessDenied` for a bucket that does not exist), transport errors.
    pub fn select_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        let writer = RequestWriter::new(Opcode::SelectBucket);
        self.expect(&writer, &[], bucket.as_bytes(), &[]).map(drop)
    }

    /// Returns the configuration of the selected bucket, or of the cluster if none is selected.
    ///
    /// # Errors
    /// The server's refusal, transport errors, [`ClientError::Unexpected`] when it cannot be read.
    pub fn topology(&mut self) -> Result<BucketTopology, ClientError> {
        let reply = self.expect(&RequestWriter::new(Opcode::GetClusterConfig), &[], &[], &[])?;
        BucketTopology::parse(&reply.value)
            .map_err(|what| self.unexpected(format!("its configuration: {what}")))
    }

    /// Returns a group of statistics, in the server's order.
    ///
    /// # Errors
    /// The server's refusal (`KeyNotFound` for an unknown group), transport errors.
    pub fn stat(&mut self, group: &str) -> Result<Vec<(String, String)>, ClientError> {
        let mut rows = Vec::new();
        let mut reply = self.expect(
            &RequestWriter::new(Opcode::Stat),
            &[],
            group.as_bytes(),
            &[],
        )?;
        while !reply.key.is_empty() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            rows.push((text(&reply.key), text(&reply.value)));
            reply = self.receive(Opcode::Stat)?;
            if reply.code != Status::Success as u16 {
                return Err(refused(Opcode::Stat, &reply));
            }
        }
        Ok(rows)
    }

    /// Reads a document; `None` if there is none.
    ///
    /// # Errors
    /// The server's refusal, transport errors.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<FetchedDocument>, ClientError> {
        let reply = self.call(&self.document(Opcode::Get, key), &[], key, &[])?;
        match Status::from_wire(reply.code) {
            Some(Status::KeyNotFound) => Ok(None),
            Some(Status::Success) => {
                let flags = reply
                    .extras
                    .first_chunk()
                    .map(|bytes| u32::from_be_bytes(*bytes));
                let flags = flags.ok_or_else(|| self.unexpected("GET without flags".to_owned()))?;
                Ok(Some(FetchedDocument {
                    cas: reply.cas,
                    flags,
                    value: reply.value,
                }))
            }
            _ => Err(refused(Opcode::Get, &reply)),
        }
    }

    /// Stores a document without expiry, unconditionally.
    ///
    /// # Errors
    /// The server's refusal, transport errors. After one that [is fatal](ClientError::is_fatal), the outcome of the
    /// write is unknown.
    pub fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        durability: Option<DurabilityLevel>,
    ) -> Result<StoredMutation, ClientError> {
        self.mutate(Opcode::Set, &[0; 8], key, value, durability)
    }

    /// Removes a document.
    ///
    /// # Errors
    /// The same as for [`ClientConnection::set`]; `KeyNotFound` if there is no document.
    pub fn delete(
        &mut self,
        key: &[u8],
        durability: Option<DurabilityLevel>,
    ) -> Result<StoredMutation, ClientError> {
        self.mutate(Opcode::Delete, &[], key, &[], durability)
    }

    /// Sends a mutation of one document.
    ///
    /// # Errors
    /// The same as for [`ClientConnection::set`].
    pub fn mutate(
        &mut self,
        opcode: Opcode,
        extras: &[u8],
        key: &[u8],
        value: &[u8],
        durability: Option<DurabilityLevel>,
    ) -> Result<StoredMutation, ClientError> {
        let mut writer = self.document(opcode, key);
        writer.infos = FrameInfos {
            durability: durability.map(|level| Durability {
                level,
                timeout_ms: self.durability_timeout_ms,
            }),
            ..FrameInfos::default()
        };
        let reply = self.expect(&writer, extras, key, value)?;
        let (Some(uuid), Some(seqno)) = (
            reply.extras.first_chunk::<8>(),
            reply.extras.last_chunk::<8>(),
        ) else {
            return Err(self.unexpected("a mutation without its token".to_owned()));
        };
        Ok(StoredMutation {
            cas: reply.cas,
            uuid: VbUuid(u64::from_be_bytes(*uuid)),
            seqno: Seqno(u64::from_be_bytes(*seqno)),
        })
    }

    /// Returns the writer of a request about a document of the default collection.
    #[must_use]
    pub fn document(&self, opcode: Opcode, key: &[u8]) -> RequestWriter<'static> {
        let mut writer = RequestWriter::new(opcode);
        if self.vbuckets > 0 {
            writer.vb = VbId::of_key(key, self.vbuckets);
        }
        writer
    }

    /// Sends a request and waits for its reply, which must be success.
    ///
    /// # Errors
    /// [`ClientError::Refused`] for any other status, transport errors.
    pub fn expect(
        &mut self,
        writer: &RequestWriter<'_>,
        extras: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<ClientReply, ClientError> {
        let reply = self.call(writer, extras, key, value)?;
        if reply.code == Status::Success as u16 {
            Ok(reply)
        } else {
            Err(refused(writer.opcode, &reply))
        }
    }

    /// Sends a request and waits for its reply of any status. The opaque is chosen here.
    ///
    /// # Errors
    /// Transport errors.
    pub fn call(
        &mut self,
        writer: &RequestWriter<'_>,
        extras: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<ClientReply, ClientError> {
        self.opaque = self.opaque.wrapping_add(1);
        let request = RequestWriter {
            opaque: self.opaque,
            ..*writer
        };
        self.out.clear();
        request.write(extras, key, value, &mut self.out);
        self.stream
            .write_all(&self.out)
            .map_err(|source| ClientError::Io {
                address: self.address.clone(),
                source,
            })?;
        self.receive(writer.opcode)
    }

    /// Waits for the next reply to the last request. Requests of the server are ignored.
    fn receive(&mut self, opcode: Opcode) -> Result<ClientReply, ClientError> {
        loop {
            let consumed = match parse_response(&self.received, FRAME_BODY_BYTES_MAX) {
                ParseReply::Incomplete { need } => {
                    self.fill(need)?;
                    continue;
                }
                ParseReply::Fatal(source) => {
                    return Err(ClientError::Protocol {
                        address: self.address.clone(),
                        source,
                    });
                }
                ParseReply::ServerRequest { consumed, .. } => consumed,
                ParseReply::Reply { reply, consumed } => {
                    if reply.opaque != self.opaque || reply.opcode != opcode.wire() {
                        let what = format!(
                            "opcode 0x{:02x}, opaque {} instead of 0x{:02x}, {}",
                            reply.opcode,
                            reply.opaque,
                            opcode.wire(),
                            self.opaque,
                        );
                        return Err(self.unexpected(what));
                    }
                    let owned = ClientReply {
                        code: reply.status_code,
                        cas: reply.cas,
                        datatype: reply.datatype,
                        extras: reply.extras.to_vec(),
                        key: reply.key.to_vec(),
                        value: reply.value.to_vec(),
                    };
                    self.received.drain(..consumed);
                    return Ok(owned);
                }
            };
            self.received.drain(..consumed);
        }
    }

    /// Reads until at least `need` bytes are in the buffer.
    fn fill(&mut self, need: usize) -> Result<(), ClientError> {
        let need = need.max(HEADER_BYTES);
        while self.received.len() < need {
            let have = self.received.len();
            self.received.resize(have + READ_BYTES.max(need - have), 0);
            let read = self.stream.read(&mut self.received[have..]);
            self.received.truncate(have + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => {
                    return Err(ClientError::Closed {
                        address: self.address.clone(),
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.broke(source)),
            }
        }
        Ok(())
    }

    fn broke(&self, source: io::Error) -> ClientError {
        ClientError::Io {
            address: self.address.clone(),
            source,
        }
    }

    fn unexpected(&self, what: String) -> ClientError {
        ClientError::Unexpected {
            address: self.address.clone(),
            what,
        }
    }
}

/// Returns the error of a status, with the server's error message if it sent one.
fn refused(opcode: Opcode, reply: &ClientReply) -> ClientError {
    let json = reply.datatype & Datatype::JSON.bits() != 0;
    let body: Option<serde_json::Value> = json
        .then(|| serde_json::from_slice(&reply.value).ok())
        .flatten();
    let context = body.and_then(|body| Some(body.get("error")?.get("context")?.as_str()?.into()));
    ClientError::Refused {
        command: opcode.name(),
        code: reply.code,
        context: context.unwrap_or_default(),
    }
}

impl ClientReply {
    /// Returns the status as text, for reports.
    #[must_use]
    pub fn status_text(&self) -> String {
        status_text(self.code)
    }
}
