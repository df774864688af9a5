//! Servers that speak KMIP, over TLS with a certificate of the client.

mod message;
mod source;
mod ttlv;

use std::sync::Arc;

use kedge_encryption::{LocalMasterKey, MasterKeyDetail, MasterKeyError, Secret};
use kedge_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::net::Connection;
use crate::options::TIMEOUT;
use crate::remote::{Patience, Requests};
use crate::service::{KeyService, ServiceError, Wrapped};

use message::WrappedKey;
use ttlv::message_bytes;

pub use source::KmipSource;

/// Largest reply, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// A key in a server that encrypts with it.
pub(crate) struct KmipServer {
    source: KmipSource,
}

/// Gets the key itself, which then wraps keyrings in this process.
pub(crate) fn get(
    source: &KmipSource,
    patience: Patience,
) -> Result<LocalMasterKey, MasterKeyError> {
    let server = KmipServer::new(source.clone());
    let requests = Requests::new(server.place(), patience);
    let request = message::get(source.key());
    let key = requests.run(|| message::symmetric_key(&server.exchange(&request)?))?;
    Ok(LocalMasterKey::new(key).described(requests.describe(&server)))
}

impl KmipServer {
    pub(crate) fn new(source: KmipSource) -> Self {
        Self { source }
    }

    /// Sends a request on a connection of its own, and returns the reply.
    fn exchange(&self, request: &[u8]) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
        // The certificates may have changed since the last request.
        let tls: Arc<ClientConfig> = self.source.tls().map_err(ServiceError::refused)?;
        let address = self.source.address();
        let mut connection = Connection::open(address, Some(&tls), self.source.timeout())?;
        connection.send(request)?;
        // With its capacity from the start, it leaves no copies of secrets.
        let mut reply = Zeroizing::new(Vec::with_capacity(REPLY_BYTES_MAX));
        loop {
            let goes_on = connection.receive(&mut reply, REPLY_BYTES_MAX)?;
            match message_bytes(&reply) {
                Some(bytes) if bytes <= reply.len() => return Ok(reply),
                _ if !goes_on => {
                    let error = std::io::ErrorKind::UnexpectedEof.into();
                    return Err(connection.broke(&error));
                }
                _ => {}
            }
        }
    }
}

impl KeyService for KmipServer {
    fn place(&self) -> String {
        self.source.place()
    }

    fn known_name(&self) -> Option<String> {
        Some(format!("kmip:{}", self.source.key()))
    }

    fn wrap(&self, key: &Secret) -> Result<Wrapped, ServiceError> {
        let reply = self.exchange(&message::encrypt(self.source.key(), key))?;
        Ok(Wrapped {
            bytes: message::encrypted(&reply)?,
            name: format!("kmip:{}", self.source.key()),
        })
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, ServiceError> {
        let wrapped = WrappedKey::read(wrapped);
        let wrapped = wrapped.ok_or_else(|| ServiceError::refused("the wrapped key is damaged"))?;
        let reply = self.exchange(&message::decrypt(self.source.key(), &wrapped))?;
        message::decrypted(&reply)
    }

    fn kind(&self) -> &'static str {
        "kmip-aes-key-256"
    }

    fn details(&self) -> Vec<(&'static str, MasterKeyDetail)> {
        let (host, port) = self.source.address();
        let ms = u64::try_from(self.source.timeout().as_millis()).unwrap_or(u64::MAX);
        let mut details = vec![
            ("host", MasterKeyDetail::Text(host.to_owned())),
            ("port", MasterKeyDetail::Number(port.into())),
            (
                "kmipId",
                MasterKeyDetail::Text(self.source.key().to_owned()),
            ),
            (TIMEOUT, MasterKeyDetail::Number(ms)),
        ];
        details.extend(self.source.texts());
        details
    }
}
