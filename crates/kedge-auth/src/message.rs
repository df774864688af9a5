//! The messages of SCRAM (RFC 5802 section 7), as bytes, and of PLAIN (RFC 4616 section 2).
//!
//! Two rules are wider than the grammar, because clients in the field need it: a nonce may contain any byte but `,`
//! (one official client puts spaces into it), and names and passwords are not prepared with SASLprep.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::server::LoginFailure;

/// A client's first message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFirst<'a> {
    /// The GS2 header with its last comma, which the client repeats in its final message.
    pub(crate) gs2_header: &'a [u8],
    /// The part after the header: the first part of the AuthMessage.
    pub(crate) bare: &'a [u8],
    /// The user's name, unescaped.
    pub(crate) user: String,
    /// The client's part of the nonce.
    pub(crate) nonce: &'a [u8],
}

/// A client's final message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFinal<'a> {
    /// Everything but the proof: the last part of the AuthMessage.
    pub(crate) without_proof: &'a [u8],
    /// Base64 of the GS2 header.
    pub(crate) channel_binding: &'a [u8],
    /// Both parts of the nonce.
    pub(crate) nonce: &'a [u8],
    /// The proof, decoded.
    pub(crate) proof: Vec<u8>,
}

/// A server's first message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerFirst<'a> {
    pub(crate) nonce: &'a [u8],
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
}

pub(crate) fn parse_client_first(message: &[u8]) -> Result<ClientFirst<'_>, LoginFailure> {
    let (flag, rest) = split_once(message, b',').ok_or(LoginFailure::Malformed)?;
    match flag {
        // `y` means "I could bind, but you do not offer it", which is true.
        b"n" | b"y" => {}
        _ if flag.starts_with(b"p=") => return Err(LoginFailure::ChannelBinding),
        _ => return Err(LoginFailure::Malformed),
    }
    let (authzid, bare) = split_once(rest, b',').ok_or(LoginFailure::Malformed)?;
    let gs2_header = &message[..message.len() - bare.len()];

    let mut attributes = bare.split(|&b| b == b',');
    let user = unescape(value(attributes.next(), b"n=")?)?;
    let nonce = value(attributes.next(), b"r=")?;
    if user.is_empty() || nonce.is_empty() {
        return Err(LoginFailure::Malformed);
    }
    refuse_mandatory_extensions(attributes)?;
    // Nobody may act as another user.
    if !authzid.is_empty() && unescape(value(Some(authzid), b"a=")?)? != user {
        return Err(LoginFailure::OtherIdentity);
    }
    Ok(ClientFirst {
        gs2_header,
        bare,
        user,
        nonce,
    })
}

pub(crate) fn parse_client_final(message: &[u8]) -> Result<ClientFinal<'_>, LoginFailure> {
    // The proof is the last attribute, and base64 contains no comma.
    let comma = message
        .iter()
        .rposition(|&b| b == b',')
        .ok_or(LoginFailure::Malformed)?;
    let (without_proof, proof) = (&message[..comma], &message[comma + 1..]);
    let proof = STANDARD
        .decode(value(Some(proof), b"p=")?)
        .map_err(|_| LoginFailure::Malformed)?;

    let mut attributes = without_proof.split(|&b| b == b',');
    let channel_binding = value(attributes.next(), b"c=")?;
    let nonce = value(attributes.next(), b"r=")?;
    refuse_mandatory_extensions(attributes)?;
    Ok(ClientFinal {
        without_proof,
        channel_binding,
        nonce,
        proof,
    })
}

pub(crate) fn parse_server_first(message: &[u8]) -> Result<ServerFirst<'_>, LoginFailure> {
    let mut attributes = message.split(|&b| b == b',');
    let nonce = value(attributes.next(), b"r=")?;
    let salt = value(attributes.next(), b"s=")?;
    let iterations = value(attributes.next(), b"i=")?;
    refuse_mandatory_extensions(attributes)?;
    if !iterations.iter().all(u8::is_ascii_digit) {
        return Err(LoginFailure::Malformed);
    }
    let iterations = std::str::from_utf8(iterations)
        .ok()
        .and_then(|text| text.parse().ok());
    Ok(ServerFirst {
        nonce,
        salt: STANDARD.decode(salt).map_err(|_| LoginFailure::Malformed)?,
        iterations: iterations.ok_or(LoginFailure::Malformed)?,
    })
}

/// Writes `r=<nonces>,s=<salt>,i=<iterations>`.
pub(crate) fn server_first(nonce: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
    let tail = format!(",s={},i={iterations}", STANDARD.encode(salt));
    [b"r=", nonce, tail.as_bytes()].concat()
}

/// Writes `c=<base64 of the header>,r=<nonces>`.
pub(crate) fn client_final_without_proof(gs2_header: &[u8], nonce: &[u8]) -> Vec<u8> {
    [b"c=", STANDARD.encode(gs2_header).as_bytes(), b",r=", nonce].concat()
}

/// Returns the text that both sides sign: the three messages without headers and proof.
pub(crate) fn auth_message(bare: &[u8], server_first: &[u8], without_proof: &[u8]) -> Vec<u8> {
    [bare, server_first, without_proof].join(&b',')
}

/// Escapes a name: `=` becomes `=3D`, `,` becomes `=2C`.
pub(crate) fn escape(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// Reverses [`escape`]; any other use of `=` is refused, as RFC 5802 section 5.1 demands.
fn unescape(name: &[u8]) -> Result<String, LoginFailure> {
    let name = std::str::from_utf8(name).map_err(|_| LoginFailure::Malformed)?;
    let mut pieces = name.split('=');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (character, rest) = match (piece.strip_prefix("2C"), piece.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(LoginFailure::Malformed),
        };
        plain.push(character);
        plain.push_str(rest);
    }
    Ok(plain)
}

/// Returns user and password of a message of SASL PLAIN, if it is well-formed.
#[must_use]
pub fn plain_credentials(message: &[u8]) -> Option<(&str, &[u8])> {
    parse_plain(message).ok()
}

/// Returns the token of an OAUTHBEARER message (RFC 7628 section 3.1).
#[must_use]
pub fn bearer_token(message: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(message).ok()?;
    let (header, pairs) = text.split_once('\x01')?;
    // A GS2 header without channel binding. The user in it, if any, is that of the token or wrong.
    let is_header = header.starts_with("n,") || header.starts_with("y,");
    if !is_header || !header.ends_with(',') || !pairs.ends_with("\x01\x01") {
        return None;
    }
    let mut pairs = pairs.split('\x01');
    let auth = pairs.find_map(|pair| pair.strip_prefix("auth="))?;
    let (scheme, token) = auth.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Parses a PLAIN message into user and password.
pub(crate) fn parse_plain(message: &[u8]) -> Result<(&str, &[u8]), LoginFailure> {
    let (authzid, rest) = split_once(message, 0).ok_or(LoginFailure::Malformed)?;
    let (user, password) = split_once(rest, 0).ok_or(LoginFailure::Malformed)?;
    if user.is_empty() || password.is_empty() || password.contains(&0) {
        return Err(LoginFailure::Malformed);
    }
    if !authzid.is_empty() && authzid != user {
        return Err(LoginFailure::OtherIdentity);
    }
    Ok((
        std::str::from_utf8(user).map_err(|_| LoginFailure::Malformed)?,
        password,
    ))
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = bytes.iter().position(|&b| b == at)?;
    Some((&bytes[..index], &bytes[index + 1..]))
}

fn value<'a>(attribute: Option<&'a [u8]>, prefix: &[u8; 2]) -> Result<&'a [u8], LoginFailure> {
    attribute
        .and_then(|a| a.strip_prefix(prefix))
        .ok_or(LoginFailure::Malformed)
}

/// Ignores unknown attributes at the end, but refuses `m=`, which announces a mandatory one.
fn refuse_mandatory_extensions<'a>(
    mut attributes: impl Iterator<Item = &'a [u8]>,
) -> Result<(), LoginFailure> {
    if attributes.any(|a| a.starts_with(b"m=")) {
        Err(LoginFailure::Malformed)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};

    use super::*;

    #[test]
    fn client_first_messages() {
        /// Message, GS2 header, user, nonce.
        type Row = (&'static [u8], &'static [u8], &'static str, &'static [u8]);
        let good: [Row; 6] = [
            (b"n,,n=user,r=abc", b"n,,", "user", b"abc"),
            (b"y,,n=user,r=abc", b"y,,", "user", b"abc"),
            (b"n,a=user,n=user,r=abc", b"n,a=user,", "user", b"abc"),
            (
                b"n,a=a=2Cb,n=a=2Cb,r=abc,x=later",
                b"n,a=a=2Cb,",
                "a,b",
                b"abc",
            ),
            (
                b"n,,n=a=3D2Cb,r=0xffffffe0 0x21 =",
                b"n,,",
                "a=2Cb",
                b"0xffffffe0 0x21 =",
            ),
            (b"n,,n=\xc3\xa9,r=\xff\x00", b"n,,", "\u{e9}", b"\xff\x00"),
        ];
        for (message, header, user, nonce) in good {
            let parsed = parse_client_first(message).unwrap();
            assert_eq!(
                (parsed.gs2_header, &*parsed.user, parsed.nonce),
                (header, user, nonce)
            );
            assert_eq!([parsed.gs2_header, parsed.bare].concat(), message);
        }
        let bad: [(&[u8], LoginFailure); 17] = [
            (b"", LoginFailure::Malformed),
            (b"n", LoginFailure::Malformed),
            (b"n,", LoginFailure::Malformed),
            (b"n,,", LoginFailure::Malformed),
            (b"n,,n=user", LoginFailure::Malformed),
            (b"n,,n=user,r=", LoginFailure::Malformed),
            (b"n,,n=,r=abc", LoginFailure::Malformed),
            (b"n,,r=abc,n=user", LoginFailure::Malformed),
            (b"x,,n=user,r=abc", LoginFailure::Malformed),
            (b"n,user,n=user,r=abc", LoginFailure::Malformed),
            (b"n,,n=us=er,r=abc", LoginFailure::Malformed),
            (b"n,,n=us=2cer,r=abc", LoginFailure::Malformed),
            (b"n,,n=\xff,r=abc", LoginFailure::Malformed),
            (b"n,,m=x,n=user,r=abc", LoginFailure::Malformed),
            (b"n,,n=user,r=abc,m=x", LoginFailure::Malformed),
            (b"p=tls-unique,,n=user,r=abc", LoginFailure::ChannelBinding),
            (b"n,a=admin,n=user,r=abc", LoginFailure::OtherIdentity),
        ];
        for (message, failure) in bad {
            assert_eq!(
                parse_client_first(message),
                Err(failure),
                "{}",
                message.escape_ascii()
            );
        }
    }

    #[test]
    fn client_final_messages() {
        let parsed = parse_client_final(b"c=biws,r=a b,x=1,p=AAEC").unwrap();
        assert_eq!(parsed.without_proof, b"c=biws,r=a b,x=1");
        assert_eq!(
            (parsed.channel_binding, parsed.nonce),
            (&b"biws"[..], &b"a b"[..])
        );
        assert_eq!(parsed.proof, [0, 1, 2]);
        for bad in [
            "",
            "c=biws",
            "c=biws,r=ab",
            "c=biws,p=AAEC",
            "r=ab,c=biws,p=AAEC",
            "c=biws,r=ab,p=AAE",
            "c=biws,r=ab,p=AAEC,x=1",
            "c=biws,r=ab,m=1,p=AAEC",
            "p=AAEC",
        ] {
            assert_eq!(
                parse_client_final(bad.as_bytes()),
                Err(LoginFailure::Malformed),
                "{bad}"
            );
        }
    }

    #[test]
    fn server_first_messages() {
        let parsed = parse_server_first(b"r=ab,s=AAEC,i=4096,x=1").unwrap();
        assert_eq!(
            (parsed.nonce, &*parsed.salt, parsed.iterations),
            (&b"ab"[..], &[0, 1, 2][..], 4096)
        );
        for bad in [
            "",
            "r=ab",
            "r=ab,s=AAEC",
            "r=ab,s=AAEC,i=",
            "r=ab,s=AAEC,i=+1",
            "r=ab,s=A,i=1",
        ] {
            assert_eq!(
                parse_server_first(bad.as_bytes()),
                Err(LoginFailure::Malformed),
                "{bad}"
            );
        }
        assert!(parse_server_first(b"r=ab,s=AAEC,i=99999999999").is_err());
    }

    #[test]
    fn plain_messages() {
        assert_eq!(parse_plain(b"\0user\0pass"), Ok(("user", &b"pass"[..])));
        assert_eq!(
            parse_plain(b"user\0user\0pa\xffss"),
            Ok(("user", &b"pa\xffss"[..]))
        );
        assert_eq!(
            parse_plain(b"root\0user\0pass"),
            Err(LoginFailure::OtherIdentity)
        );
        let bad: [&[u8]; 8] = [
            b"",
            b"\0",
            b"\0user",
            b"\0user\0",
            b"\0\0pass",
            b"user\0pass",
            b"\0user\0pa\0ss",
            b"\0\xff\0pass",
        ];
        for message in bad {
            assert_eq!(
                parse_plain(message),
                Err(LoginFailure::Malformed),
                "{}",
                message.escape_ascii()
            );
        }
    }

    /// The same cases on each run, unless `PROPTEST_RNG_SEED` asks for others.
    fn cases() -> Config {
        let mut config = Config {
            failure_persistence: None,
            ..Config::default()
        };
        if config.rng_seed == RngSeed::Random {
            config.rng_seed = RngSeed::Fixed(1);
        }
        config
    }

    proptest! {
        #![proptest_config(cases())]

        #[test]
        fn names_survive_escaping(name in "\\PC{0,20}|[a=,2CD3]{0,20}") {
            let escaped = escape(&name);
            prop_assert!(!escaped.contains(','));
            prop_assert_eq!(unescape(escaped.as_bytes()), Ok(name));
        }

        #[test]
        fn composed_messages_parse(
            nonce in proptest::collection::vec(any::<u8>().prop_filter("comma", |b| *b != b','), 1..40),
            salt in proptest::collection::vec(any::<u8>(), 0..70),
            iterations: u32,
        ) {
            let message = server_first(&nonce, &salt, iterations);
            let parsed = parse_server_first(&message).unwrap();
            prop_assert_eq!(parsed, ServerFirst { nonce: &nonce, salt, iterations });
        }

        #[test]
        fn scram_parsers_survive_any_bytes(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_client_first(&message);
            let _ = parse_client_final(&message);
            let _ = parse_server_first(&message);
            let _ = parse_plain(&message);
        }
    }

    #[test]
    fn bearer_tokens() {
        for (message, token) in [
            // The example of RFC 7628 section 4.1, shortened.
            (
                "n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9d==\x01\x01",
                Some("vF9d=="),
            ),
            ("n,,\x01auth=Bearer a.b.c\x01\x01", Some("a.b.c")),
            ("y,,\x01auth=bearer a\x01\x01", Some("a")),
            ("n,,\x01auth=Bearer a.b.c\x01", None),
            ("p=tls-unique,,\x01auth=Bearer a\x01\x01", None),
            ("n,,\x01auth=Basic a\x01\x01", None),
            ("n,,\x01auth=Bearer \x01\x01", None),
            ("n,,\x01host=x\x01\x01", None),
            ("n,a=user\x01auth=Bearer a\x01\x01", None),
            ("\x01", None),
            ("", None),
        ] {
            assert_eq!(bearer_token(message.as_bytes()), token, "{message:?}");
        }
    }
}
