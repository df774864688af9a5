//! Messages of KMIP: Get, Encrypt and Decrypt (KMIP 1.4, sections 4 and 7).

use kedge_encryption::Secret;
use zeroize::Zeroizing;

use super::ttlv::{Item, Writer};
use crate::service::{ServiceError, secret_of};

mod tag {
    pub(super) const BATCH_COUNT: u32 = 0x42_000d;
    pub(super) const BATCH_ITEM: u32 = 0x42_000f;
    pub(super) const BLOCK_CIPHER_MODE: u32 = 0x42_0011;
    pub(super) const CRYPTOGRAPHIC_ALGORITHM: u32 = 0x42_0028;
    pub(super) const CRYPTOGRAPHIC_PARAMETERS: u32 = 0x42_002b;
    pub(super) const IV_COUNTER_NONCE: u32 = 0x42_003d;
    pub(super) const KEY_FORMAT_TYPE: u32 = 0x42_0042;
    pub(super) const KEY_MATERIAL: u32 = 0x42_0043;
    pub(super) const OPERATION: u32 = 0x42_005c;
    pub(super) const PROTOCOL_VERSION: u32 = 0x42_0069;
    pub(super) const PROTOCOL_VERSION_MAJOR: u32 = 0x42_006a;
    pub(super) const PROTOCOL_VERSION_MINOR: u32 = 0x42_006b;
    pub(super) const REQUEST_HEADER: u32 = 0x42_0077;
    pub(super) const REQUEST_MESSAGE: u32 = 0x42_0078;
    pub(super) const REQUEST_PAYLOAD: u32 = 0x42_0079;
    pub(super) const RESPONSE_MESSAGE: u32 = 0x42_007b;
    pub(super) const RESULT_MESSAGE: u32 = 0x42_007d;
    pub(super) const RESULT_REASON: u32 = 0x42_007e;
    pub(super) const RESULT_STATUS: u32 = 0x42_007f;
    pub(super) const SYMMETRIC_KEY: u32 = 0x42_008f;
    pub(super) const UNIQUE_IDENTIFIER: u32 = 0x42_0094;
    pub(super) const DATA: u32 = 0x42_00c2;
    pub(super) const RANDOM_IV: u32 = 0x42_00c5;
    pub(super) const TAG_LENGTH: u32 = 0x42_00ce;
    pub(super) const AUTHENTICATED_ENCRYPTION_TAG: u32 = 0x42_00ff;
}

const AES: u32 = 3;
const GCM: u32 = 9;
/// The key format Raw.
const RAW: u32 = 1;
const TAG_BYTES: i32 = 16;
/// Longest request: that of a decryption with the longest id.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Longest field of a wrapped key.
const FIELD_BYTES_MAX: usize = 255;
/// The form of a wrapped key.
const FORM: u8 = 1;

/// An operation, and the version of KMIP that has it.
#[derive(Clone, Copy)]
enum Operation {
    Get = 0x0a,
    Encrypt = 0x1f,
    Decrypt = 0x20,
}

impl Operation {
    /// Returns the minor version. The tag of GCM came with 1.4; Get is older, and 1.2 is what all servers speak.
    fn minor_version(self) -> i32 {
        match self {
            Self::Get => 2,
            Self::Encrypt | Self::Decrypt => 4,
        }
    }
}

/// Returns the request for a key itself.
pub(super) fn get(id: &str) -> Zeroizing<Vec<u8>> {
    request(Operation::Get, id, |payload| {
        payload.enumeration(tag::KEY_FORMAT_TYPE, RAW);
    })
}

/// Returns the request to encrypt a key. The server chooses the nonce.
pub(super) fn encrypt(id: &str, key: &Secret) -> Zeroizing<Vec<u8>> {
    request(Operation::Encrypt, id, |payload| {
        parameters(payload, true);
        payload.bytes(tag::DATA, &**key);
    })
}

/// Returns the request to decrypt a key.
pub(super) fn decrypt(id: &str, wrapped: &WrappedKey<'_>) -> Zeroizing<Vec<u8>> {
    request(Operation::Decrypt, id, |payload| {
        parameters(payload, false);
        payload.bytes(tag::DATA, wrapped.data);
        payload.bytes(tag::IV_COUNTER_NONCE, wrapped.nonce);
        payload.bytes(tag::AUTHENTICATED_ENCRYPTION_TAG, wrapped.tag);
    })
}

fn parameters(payload: &mut Writer, is_random: bool) {
    payload.structure(tag::CRYPTOGRAPHIC_PARAMETERS, |it| {
        it.enumeration(tag::BLOCK_CIPHER_MODE, GCM);
        it.enumeration(tag::CRYPTOGRAPHIC_ALGORITHM, AES);
        if is_random {
            it.boolean(tag::RANDOM_IV, true);
        }
        it.integer(tag::TAG_LENGTH, TAG_BYTES);
    });
}

fn request(
    operation: Operation,
    id: &str,
    payload: impl FnOnce(&mut Writer),
) -> Zeroizing<Vec<u8>> {
    let mut writer = Writer::new(REQUEST_BYTES_MAX);
    writer.structure(tag::REQUEST_MESSAGE, |it| {
        it.structure(tag::REQUEST_HEADER, |it| {
            it.structure(tag::PROTOCOL_VERSION, |it| {
                it.integer(tag::PROTOCOL_VERSION_MAJOR, 1);
                it.integer(tag::PROTOCOL_VERSION_MINOR, operation.minor_version());
            });
            it.integer(tag::BATCH_COUNT, 1);
        });
        it.structure(tag::BATCH_ITEM, |it| {
            it.enumeration(tag::OPERATION, operation as u32);
            it.structure(tag::REQUEST_PAYLOAD, |it| {
                it.text(tag::UNIQUE_IDENTIFIER, id);
                payload(it);
            });
        });
    });
    writer.into_bytes()
}

/// A key that a server has encrypted, as it is in a keyring: the form, and nonce, tag and data, each with its length before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrappedKey<'w> {
    nonce: &'w [u8],
    tag: &'w [u8],
    data: &'w [u8],
}

impl<'w> WrappedKey<'w> {
    pub(super) fn read(bytes: &'w [u8]) -> Option<Self> {
        let (form, rest) = bytes.split_first()?;
        let field = |rest: &'w [u8]| {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length))
        };
        let (nonce, rest) = field(rest)?;
        let (tag, rest) = field(rest)?;
        let (data, rest) = field(rest)?;
        (*form == FORM && rest.is_empty()).then_some(Self { nonce, tag, data })
    }

    fn write(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![FORM];
        for field in [self.nonce, self.tag, self.data] {
            let length = u8::try_from(field.len()).ok();
            bytes.push(length.filter(|length| *length > 0)?);
            bytes.extend_from_slice(field);
        }
        Some(bytes)
    }
}

/// Returns the encrypted key in a reply, in the form of a keyring.
pub(super) fn encrypted(reply: &[u8]) -> Result<Vec<u8>, ServiceError> {
    let message = success(reply)?;
    let field = |tag| message.find(tag).and_then(Item::as_bytes);
    let data = field(tag::DATA).unwrap_or_default();
    // Some servers append the tag to the data.
    let (data, appended) = match (
        field(tag::AUTHENTICATED_ENCRYPTION_TAG),
        data.len().checked_sub(TAG_BYTES as usize),
    ) {
        (Some(tag), _) => (data, tag),
        (None, Some(at)) => data.split_at(at),
        (None, None) => (data, &[][..]),
    };
    let wrapped = WrappedKey {
        nonce: field(tag::IV_COUNTER_NONCE).unwrap_or_default(),
        tag: appended,
        data,
    };
    wrapped.write().ok_or_else(|| {
        ServiceError::refused(format!(
            "the server returned no ciphertext, nonce and tag of 1 to {FIELD_BYTES_MAX} bytes each"
        ))
    })
}

/// Returns the decrypted key in a reply.
pub(super) fn decrypted(reply: &[u8]) -> Result<Secret, ServiceError> {
    let data = success(reply)?.find(tag::DATA).and_then(Item::as_bytes);
    secret_of(data.unwrap_or_default())
}

/// Returns the key itself in a reply.
pub(super) fn symmetric_key(reply: &[u8]) -> Result<Secret, ServiceError> {
    let key = success(reply)?.find(tag::SYMMETRIC_KEY);
    let key = key.ok_or_else(|| ServiceError::refused("the object is no symmetric key"))?;
    let material = key.find(tag::KEY_MATERIAL).and_then(Item::as_bytes);
    let algorithm = key
        .find(tag::CRYPTOGRAPHIC_ALGORITHM)
        .and_then(Item::as_number);
    if algorithm.is_some_and(|algorithm| algorithm != AES) {
        return Err(ServiceError::refused("the key is none of AES"));
    }
    secret_of(material.unwrap_or_default())
}

/// Returns the message of a success.
fn success(reply: &[u8]) -> Result<Item<'_>, ServiceError> {
    let malformed = || ServiceError::unavailable("the reply is not KMIP");
    let (message, _) = Item::read(reply).ok_or_else(malformed)?;
    if message.tag() != tag::RESPONSE_MESSAGE {
        return Err(malformed());
    }
    let number = |tag| message.find(tag).and_then(Item::as_number);
    match number(tag::RESULT_STATUS) {
        Some(0) => Ok(message),
        None => Err(malformed()),
        Some(_) => {
            let text = message.find(tag::RESULT_MESSAGE).and_then(Item::as_text);
            let reason = number(tag::RESULT_REASON).unwrap_or_default();
            Err(ServiceError::Refused(format!(
                "{}: {}",
                reason_name(reason),
                text.unwrap_or("no message").escape_debug()
            )))
        }
    }
}

/// Returns the name of a Result Reason.
fn reason_name(reason: u32) -> String {
    let name = match reason {
        0x01 => "Item Not Found",
        0x03 => "Authentication Not Successful",
        0x04 => "Invalid Message",
        0x05 => "Operation Not Supported",
        0x06 => "Missing Data",
        0x07 => "Invalid Field",
        0x08 => "Feature Not Supported",
        0x0a => "Cryptographic Failure",
        0x0b => "Illegal Operation",
        0x0c => "Permission Denied",
        0x0d => "Object Archived",
        0x10 => "Key Format Type Not Supported",
        0x16 => "Sensitive",
        0x17 => "Not Extractable",
        0x100 => "General Failure",
        other => return format!("result reason {other:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_encryption::KEY_BYTES;

    fn reply(status: u32, write: impl FnOnce(&mut Writer)) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::new(4_096);
        writer.structure(tag::RESPONSE_MESSAGE, |it| {
            it.structure(tag::BATCH_ITEM, |it| {
                it.enumeration(tag::RESULT_STATUS, status);
                write(it);
            });
        });
        writer.into_bytes()
    }

    #[test]
    fn encrypted_key_is_decrypted_with_its_nonce_and_tag() {
        for has_tag in [true, false] {
            let encrypted = encrypted(&reply(0, |it| {
                it.bytes(tag::IV_COUNTER_NONCE, &[1; 12]);
                match has_tag {
                    true => {
                        it.bytes(tag::DATA, &[2; 32]);
                        it.bytes(tag::AUTHENTICATED_ENCRYPTION_TAG, &[3; 16]);
                    }
                    false => it.bytes(tag::DATA, &[&[2; 32][..], &[3; 16]].concat()),
                }
            }))
            .expect("a wrapped key");
            let wrapped = WrappedKey::read(&encrypted).expect("its own form");
            let expected = WrappedKey {
                nonce: &[1; 12],
                tag: &[3; 16],
                data: &[2; 32],
            };
            assert_eq!(wrapped, expected);
            for cut in 0..encrypted.len() {
                assert_eq!(WrappedKey::read(&encrypted[..cut]), None, "{cut}");
            }
            let request = decrypt("7", &wrapped);
            let (message, _) = Item::read(&request).expect("a message");
            let field = |tag| message.find(tag).and_then(Item::as_bytes);
            assert_eq!(field(tag::DATA), Some(&[2; 32][..]));
            assert_eq!(field(tag::IV_COUNTER_NONCE), Some(&[1; 12][..]));
        }
    }

    #[test]
    fn incomplete_replies_are_errors() {
        let without_nonce = reply(0, |it| it.bytes(tag::DATA, &[2; 48]));
        assert!(matches!(
            encrypted(&without_nonce),
            Err(ServiceError::Refused(_))
        ));
        let short = reply(0, |it| it.bytes(tag::DATA, &[2; 31]));
        assert!(matches!(decrypted(&short), Err(ServiceError::Refused(_))));
        assert!(symmetric_key(&short).is_err());
        assert!(matches!(
            decrypted(b"HTTP/1.1 400"),
            Err(ServiceError::Unavailable(_))
        ));
        assert!(matches!(decrypted(&[]), Err(ServiceError::Unavailable(_))));
    }

    #[test]
    fn refusals_have_the_reason_and_the_text_of_the_server() {
        let refused = reply(1, |it| {
            it.enumeration(tag::RESULT_REASON, 0x0c);
            it.text(tag::RESULT_MESSAGE, "not\nactive");
        });
        assert_eq!(
            decrypted(&refused),
            Err(ServiceError::Refused(
                "Permission Denied: not\\nactive".to_owned()
            ))
        );
    }

    #[test]
    fn symmetric_key_is_read_if_it_is_one_of_aes() {
        let with = |algorithm, bytes: usize| {
            symmetric_key(&reply(0, |it| {
                it.structure(tag::SYMMETRIC_KEY, |it| {
                    it.bytes(tag::KEY_MATERIAL, &vec![9; bytes]);
                    it.enumeration(tag::CRYPTOGRAPHIC_ALGORITHM, algorithm);
                });
            }))
        };
        assert_eq!(with(AES, KEY_BYTES), Ok(Secret::new([9; KEY_BYTES])));
        assert!(with(AES, 16).is_err());
        assert!(with(1, KEY_BYTES).is_err());
    }
}
