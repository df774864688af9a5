//! Encryption keys on the command line. No message repeats one.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_couchstore::EncryptionKey;

/// The reason why a text is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EncryptionKeyError {
    #[error("an encryption key has the form NAME=KEY, with a name of 1 to 255 bytes")]
    Form,
    #[error("the encryption key {0:?} is not 32 bytes in hex (64 digits) or base64")]
    Bytes(String),
    #[error("the encryption key {0:?} cannot be read from its file: {1}")]
    File(String, #[source] io::Error),
}

pub(super) fn parse_all(texts: &[String]) -> Result<Vec<EncryptionKey>, EncryptionKeyError> {
    texts.iter().map(|text| parse(text)).collect()
}

fn parse(text: &str) -> Result<EncryptionKey, EncryptionKeyError> {
    let (name, key) = text.split_once('=').ok_or(EncryptionKeyError::Form)?;
    if !(1..=255).contains(&name.len()) {
        return Err(EncryptionKeyError::Form);
    }
    let secret = match key.strip_prefix('@') {
        None => secret(key.as_bytes()),
        Some(path) => {
            let bytes = std::fs::read(Path::new(path));
            let bytes = bytes.map_err(|error| EncryptionKeyError::File(name.to_owned(), error))?;
            // Raw, or as text, which editors end with a new line.
            let plain = <[u8; 32]>::try_from(&*bytes).ok();
            plain.or_else(|| secret(bytes.trim_ascii_end()))
        }
    };
    let secret = secret.ok_or_else(|| EncryptionKeyError::Bytes(name.to_owned()))?;
    Ok(EncryptionKey::new(name, secret))
}

fn secret(text: &[u8]) -> Option<[u8; 32]> {
    let bytes = match text.len() {
        64 => super::text::from_hex(str::from_utf8(text).ok()?)?,
        _ => STANDARD.decode(text).ok()?,
    };
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_keys_are_hex_base64_or_in_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("a file");
            format!("=@{}", path.display())
        };
        let (hex, base64) = ("07".repeat(32), STANDARD.encode([7; 32]));
        for key in [
            format!("={hex}"),
            format!("={base64}"),
            file("hex", format!("{hex}\n").as_bytes()),
            file("base64", base64.as_bytes()),
            file("plain", &[7; 32]),
        ] {
            let parsed = parse(&format!("a key{key}")).expect("a key");
            assert_eq!(parsed.id(), "a key");
        }
    }

    #[test]
    fn invalid_encryption_key_is_not_repeated_in_the_error() {
        let short = format!("k={}", "07".repeat(31));
        let odd = format!("k={}g", "07".repeat(31) + "0");
        let long_name = format!("{}={}", "n".repeat(256), "07".repeat(32));
        for text in ["", "k", "=00", "k=@/no/such/file", &short, &odd, &long_name] {
            let message = parse(text).expect_err("no key").to_string();
            assert!(!message.contains("0707"), "{message}");
        }
    }
}
