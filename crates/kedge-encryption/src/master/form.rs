//! The forms in which a master key is given: 32 bytes, or a text of 64 hexadecimal digits or of Base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::key::{KEY_BYTES, Secret};

/// The reason why bytes or a text are no master key. It never quotes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected 32 bytes, or a text of 64 hexadecimal digits or of 32 bytes in Base64, and found {found} bytes{}",
    if *is_text { " of text" } else { "" }
)]
pub struct SecretFormError {
    found: usize,
    is_text: bool,
}

/// Reads a key from a file or the output of a command. 32 bytes are the key itself, unless they are a text: a password is no
/// key.
pub(super) fn from_bytes(bytes: &[u8]) -> Result<Secret, SecretFormError> {
    let is_text = bytes
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'));
    match <[u8; KEY_BYTES]>::try_from(bytes) {
        Ok(bytes) if !is_text => Ok(Secret::new(bytes)),
        _ => from_text(bytes.trim_ascii()).ok_or(SecretFormError {
            found: bytes.len(),
            is_text,
        }),
    }
}

fn from_text(text: &[u8]) -> Option<Secret> {
    if text.len() == 2 * KEY_BYTES {
        return from_hex(text);
    }
    let decoded = Zeroizing::new(STANDARD.decode(text).ok()?);
    decoded.as_slice().try_into().ok().map(Secret::new)
}

fn from_hex(text: &[u8]) -> Option<Secret> {
    let mut secret = Secret::new([0; KEY_BYTES]);
    for (byte, digits) in secret.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = u8::try_from((digit(0)? << 4) | digit(1)?).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; KEY_BYTES] = {
        let mut secret = [0; KEY_BYTES];
        let mut n = 0;
        while n < KEY_BYTES {
            secret[n] = 0xd0 + n as u8;
            n += 1;
        }
        secret
    };

    #[test]
    fn raw_bytes_hexadecimal_digits_and_base64_are_read() {
        let hex: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
        let base64 = STANDARD.encode(SECRET);
        for form in [
            SECRET.to_vec(),
            hex.clone().into_bytes(),
            hex.to_uppercase().into_bytes(),
            format!("{hex}\n").into_bytes(),
            base64.clone().into_bytes(),
            format!(" {base64}\r\n").into_bytes(),
        ] {
            let read = from_bytes(&form).map(|secret| *secret);
            assert_eq!(read, Ok(SECRET), "{}", form.escape_ascii());
        }
    }

    #[test]
    fn other_lengths_and_passwords_are_refused_without_quoting_them() {
        for wrong in [
            &b""[..],
            b"secret",
            b"a password of thirty-two letters",
            &[0xff; 31],
            &[0xff; 33],
            &[b'g'; 64],
            &[b'a'; 63],
        ] {
            let error = from_bytes(wrong).expect_err("no key");
            assert_eq!(error.found, wrong.len());
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
