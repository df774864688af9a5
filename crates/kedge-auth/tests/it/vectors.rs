//! The examples of RFC 5802 section 5 and RFC 7677 section 3, both sides. The third, for SHA-512,
//! was computed with Python's hashlib and hmac from the messages of the second.

use kedge_auth::{ClientSession, ClientStep, Mechanism, ServerSession, ServerStep, UserStore};

use crate::{golden, nonce};

struct Vector {
    mechanism: Mechanism,
    client_nonce: &'static str,
    server_nonce: &'static str,
    messages: [&'static str; 4],
}

const VECTORS: [Vector; 3] = [
    Vector {
        mechanism: Mechanism::ScramSha1,
        client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
        server_nonce: "3rfcNHYJY1ZVvWVs7j",
        messages: [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ],
    },
    Vector {
        mechanism: Mechanism::ScramSha256,
        client_nonce: "rOprNGfwEbeRWgbNEkqO",
        server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        messages: [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ],
    },
    Vector {
        mechanism: Mechanism::ScramSha512,
        client_nonce: "rOprNGfwEbeRWgbNEkqO",
        server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        messages: [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             s=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==,\
             i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=Y8OXALXSerlMqp8zkLu4qx6XBl/k9p77/R66kGlHAXkMr99Thoul1ESVI8VFn2BfaiTiyvnBUxmhC/1Vd6iTUg==",
            "v=5ED4yTobwNkjGrEyhzoyGlFqKbY233SEhxrs4FH22jvh0NX6qsl3ih0yAZXIWeGSOzsesj9YHx5dAQvpHjEzQQ==",
        ],
    },
];

#[test]
fn server_matches_the_rfc_examples() {
    let store = golden();
    for Vector {
        mechanism,
        server_nonce,
        messages: [first, challenge, last, signature],
        ..
    } in VECTORS
    {
        let (mut server, step) =
            ServerSession::start(&store, mechanism, first.as_bytes(), nonce(server_nonce));
        assert_eq!(step, ServerStep::Continue(challenge.into()), "{mechanism}");
        assert_eq!(
            (server.mechanism(), server.claimed_user()),
            (mechanism, Some("user"))
        );
        let done = ServerStep::Done {
            user: "user".to_owned(),
            payload: signature.into(),
        };
        assert_eq!(server.step(last.as_bytes()), done, "{mechanism}");
        assert_eq!(server.failure(), None);
    }
}

#[test]
fn client_matches_the_rfc_examples() {
    for Vector {
        mechanism,
        client_nonce,
        messages: [first, challenge, last, signature],
        ..
    } in VECTORS
    {
        let (mut client, message) =
            ClientSession::start(mechanism, "user", "pencil", nonce(client_nonce)).unwrap();
        assert_eq!(message, first.as_bytes());
        let step = client.step(challenge.as_bytes()).unwrap();
        assert_eq!(step, ClientStep::Send(last.into()), "{mechanism}");
        assert_eq!(
            client.step(signature.as_bytes()),
            Ok(ClientStep::Done),
            "{mechanism}"
        );
    }
}

/// The fake salt is part of what must survive a restart and an upgrade: were it to change, asking
/// before and after would tell which users are real. Values from Python's hmac.
#[test]
fn fake_salt_depends_only_on_the_stored_key() {
    let store = UserStore::from_json(&golden().to_json()).unwrap();
    for (mechanism, salt) in [
        (Mechanism::ScramSha512, "M9utLDNVjrVeUNMeMPSpbA=="),
        (Mechanism::ScramSha256, "NKp9jH2ri0Xkv0X2mVEbNQ=="),
        (Mechanism::ScramSha1, "oAwlKRtwsulSfrKNALammA=="),
    ] {
        let (_, step) = ServerSession::start(&store, mechanism, b"n,,n=nobody,r=abc", nonce("def"));
        assert_eq!(
            step,
            ServerStep::Continue(format!("r=abcdef,s={salt},i=4096").into())
        );
    }
}
