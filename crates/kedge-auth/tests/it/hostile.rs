//! Clients and servers that do not play by the rules.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_auth::{
    AuthError, ClientSession, ClientStep, LoginFailure, MESSAGE_BYTES_MAX, Mechanism,
    ServerSession, ServerStep,
};
use proptest::prelude::*;

use crate::{SCRAM, cases, golden, half_way, nonce};

#[test]
fn scram_rejects_any_flipped_bit_of_the_final_message() {
    let store = golden();
    for mechanism in SCRAM {
        let good = half_way(&store, mechanism, "user", "pencil").proof;
        let first = b"n,,n=user,r=client nonce";
        for index in 0..good.len() {
            let mut message = good.clone();
            message[index] ^= 1;
            let (mut server, _) =
                ServerSession::start(&store, mechanism, first, nonce("server-nonce"));
            assert_eq!(
                server.step(&message),
                ServerStep::Failed,
                "{}",
                message.escape_ascii()
            );
        }
        let (mut server, _) = ServerSession::start(&store, mechanism, first, nonce("server-nonce"));
        assert!(
            matches!(server.step(&good), ServerStep::Done { .. }),
            "the unchanged message is good"
        );
    }
}

#[test]
fn scram_rejects_truncated_messages() {
    let store = golden();
    for mechanism in SCRAM {
        let good = half_way(&store, mechanism, "user", "pencil").proof;
        for len in 0..good.len() {
            let first = b"n,,n=user,r=client nonce";
            let (mut server, _) =
                ServerSession::start(&store, mechanism, first, nonce("server-nonce"));
            assert_eq!(server.step(&good[..len]), ServerStep::Failed, "{len}");
        }
        let first = b"n,,n=user,r=c";
        for len in 0..first.len() {
            let (_, step) = ServerSession::start(&store, mechanism, &first[..len], nonce("s"));
            assert_eq!(step, ServerStep::Failed, "{len}");
        }
    }
    let plain = b"\0user\0pencil";
    for len in 0..plain.len() {
        let (_, step) = ServerSession::start(&store, Mechanism::Plain, &plain[..len], nonce("s"));
        assert_eq!(step, ServerStep::Failed, "{len}");
    }
}

#[test]
fn scram_final_message_belongs_to_its_first_message() {
    let store = golden();
    let mechanism = Mechanism::ScramSha256;
    let replace = |proof: &[u8], from: &str, to: &str| {
        let text = String::from_utf8(proof.to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        text.replace(from, to).into_bytes()
    };
    for (from, to, failure) in [
        ("server-nonce", "other--nonce", LoginFailure::Malformed),
        ("client nonce", "other  nonce", LoginFailure::Malformed),
        ("nonceserver", "nonce", LoginFailure::Malformed),
        // `y,,` instead of `n,,`, as a man in the middle would leave it.
        ("c=biws", "c=eSws", LoginFailure::Malformed),
        ("c=biws", "c=", LoginFailure::Malformed),
        // Under the signature, so the proof no longer fits.
        (",p=", ",x=extra,p=", LoginFailure::BadCredentials),
    ] {
        let mut half = half_way(&store, mechanism, "user", "pencil");
        let message = replace(&half.proof, from, to);
        assert_eq!(
            half.server.step(&message),
            ServerStep::Failed,
            "{from} -> {to}"
        );
        assert_eq!(half.server.failure(), Some(failure), "{from} -> {to}");
    }

    // A recorded proof is worth nothing at the next login.
    let recorded = half_way(&store, mechanism, "user", "pencil").proof;
    let first = b"n,,n=user,r=client nonce";
    let (mut server, _) = ServerSession::start(&store, mechanism, first, nonce("new-nonce"));
    assert_eq!(server.step(&recorded), ServerStep::Failed);
}

#[test]
fn scram_rejects_a_proof_of_wrong_length() {
    let store = golden();
    for len in [0, 1, 19, 21, 32, 64, 65] {
        let mut half = half_way(&store, Mechanism::ScramSha1, "user", "pencil");
        let proof = STANDARD.encode(vec![0; len]);
        let message = format!("c=biws,r=client nonceserver-nonce,p={proof}");
        assert_eq!(half.server.step(message.as_bytes()), ServerStep::Failed);
        assert_eq!(
            half.server.failure(),
            Some(LoginFailure::BadCredentials),
            "{len}"
        );
    }
}

#[test]
fn scram_rejects_invalid_first_messages() {
    let store = golden();
    let huge = [b"n,,n=user,r=", "x".repeat(MESSAGE_BYTES_MAX).as_bytes()].concat();
    let rows: [(Mechanism, &[u8], LoginFailure); 7] = [
        (
            Mechanism::ScramSha512,
            b"p=tls-exporter,,n=user,r=abc",
            LoginFailure::ChannelBinding,
        ),
        (
            Mechanism::ScramSha512,
            b"n,a=root,n=user,r=abc",
            LoginFailure::OtherIdentity,
        ),
        (
            Mechanism::ScramSha512,
            b"\0user\0pencil",
            LoginFailure::Malformed,
        ),
        (Mechanism::ScramSha512, &huge, LoginFailure::Malformed),
        (
            Mechanism::Plain,
            b"root\0user\0pencil",
            LoginFailure::OtherIdentity,
        ),
        (
            Mechanism::Plain,
            b"n,,n=user,r=abc",
            LoginFailure::Malformed,
        ),
        (Mechanism::Plain, &huge, LoginFailure::Malformed),
    ];
    for (mechanism, message, failure) in rows {
        let (session, step) = ServerSession::start(&store, mechanism, message, nonce("s"));
        assert_eq!(
            (step, session.failure()),
            (ServerStep::Failed, Some(failure))
        );
    }
}

#[test]
fn scram_login_covers_the_gs2_flag_and_identity() {
    let store = golden();
    for header in ["n,,", "y,,", "n,a=user,"] {
        let first = format!("{header}n=user,r=abc");
        let (mut server, step) =
            ServerSession::start(&store, Mechanism::ScramSha1, first.as_bytes(), nonce("def"));
        assert!(matches!(step, ServerStep::Continue(_)), "{header}");
        // Right binding, wrong proof: fails at the proof. Any other binding fails before.
        let proof = STANDARD.encode([0; 20]);
        let message = format!("c={},r=abcdef,p={proof}", STANDARD.encode(header));
        assert_eq!(server.step(message.as_bytes()), ServerStep::Failed);
        assert_eq!(
            server.failure(),
            Some(LoginFailure::BadCredentials),
            "{header}"
        );
    }
}

#[test]
fn client_rejects_a_server_that_does_not_know_the_key() {
    let store = golden();
    for mechanism in SCRAM {
        let done = |mut half: crate::HalfWay| {
            let ServerStep::Done { payload, .. } = half.server.step(&half.proof) else {
                panic!()
            };
            (half.client, payload)
        };
        let (_, good) = done(half_way(&store, mechanism, "user", "pencil"));
        for index in 0..good.len() {
            let (mut client, mut payload) = done(half_way(&store, mechanism, "user", "pencil"));
            payload[index] ^= 1;
            let error = client.step(&payload).expect_err("a changed signature");
            assert!(
                matches!(
                    error,
                    AuthError::BadServerSignature | AuthError::BadServerMessage
                ),
                "{error:?}"
            );
            assert_eq!(
                client.step(&good),
                Err(AuthError::BadServerMessage),
                "no second try"
            );
        }
        for payload in [&b""[..], b"v=", b"success"] {
            let (mut client, _) = done(half_way(&store, mechanism, "user", "pencil"));
            assert!(client.step(payload).is_err(), "{}", payload.escape_ascii());
        }
        let (mut client, _) = done(half_way(&store, mechanism, "user", "pencil"));
        let refused = Err(AuthError::ServerRefused("other-error".to_owned()));
        assert_eq!(client.step(b"e=other-error"), refused);
    }
}

#[test]
fn client_checks_the_server_challenge() {
    let salt = STANDARD.encode([7; 16]);
    let rows = [
        (
            format!("r=abc,s={salt},i=4096"),
            AuthError::BadServerMessage,
        ),
        (
            format!("r=xbcdef,s={salt},i=4096"),
            AuthError::BadServerMessage,
        ),
        ("r=abcdef,s=,i=4096".to_owned(), AuthError::BadServerMessage),
        (
            "r=abcdef,s=!!!!,i=4096".to_owned(),
            AuthError::BadServerMessage,
        ),
        (
            format!("r=abcdef,s={salt},i=x"),
            AuthError::BadServerMessage,
        ),
        (
            format!("m=new,r=abcdef,s={salt},i=4096"),
            AuthError::BadServerMessage,
        ),
        (
            format!("r=abcdef,s={salt},i=1"),
            AuthError::BadIterations(1),
        ),
        (
            format!("r=abcdef,s={salt},i=4294967295"),
            AuthError::BadIterations(u32::MAX),
        ),
        ("v=AAAA".to_owned(), AuthError::BadServerMessage),
        (
            "e=unknown-user".to_owned(),
            AuthError::ServerRefused("unknown-user".to_owned()),
        ),
        (
            "x".repeat(MESSAGE_BYTES_MAX + 1),
            AuthError::BadServerMessage,
        ),
        (String::new(), AuthError::BadServerMessage),
    ];
    for (message, error) in rows {
        let (mut client, _) =
            ClientSession::start(Mechanism::ScramSha256, "u", "p", nonce("abc")).unwrap();
        assert_eq!(client.step(message.as_bytes()), Err(error), "{message}");
        assert_eq!(
            client.step(message.as_bytes()),
            Err(AuthError::BadServerMessage)
        );
    }
    let (mut client, _) =
        ClientSession::start(Mechanism::ScramSha256, "u", "p", nonce("abc")).unwrap();
    let good = format!("r=abcdef,s={salt},i=4096");
    assert!(matches!(
        client.step(good.as_bytes()),
        Ok(ClientStep::Send(_))
    ));
}

/// Bytes that look like the protocol now and then.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        proptest::sample::select(vec![
            "n,,",
            "y,,",
            "p=x,,",
            "n=user",
            "n=",
            ",r=abc",
            "r=abcdef",
            ",",
            "=",
            "=2C",
            "=3D",
            "c=biws",
            ",p=",
            "p=AAAA",
            ",s=AAAAAAAAAAAAAAAA",
            ",i=4096",
            ",m=",
            "v=AAAA",
            "e=",
            "\0",
            "user",
            "pencil",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn scram_server_survives_any_bytes(first in noise(), last in noise(), which in 0..3_usize) {
        let store = golden();
        let (mut server, step) = ServerSession::start(&store, SCRAM[which], &first, nonce("def"));
        prop_assert!(!matches!(step, ServerStep::Done { .. }), "done at once");
        prop_assert_eq!(server.step(&last), ServerStep::Failed);

        let good_first = b"n,,n=user,r=abc";
        let (mut server, _) = ServerSession::start(&store, SCRAM[which], good_first, nonce("def"));
        prop_assert_eq!(server.step(&last), ServerStep::Failed);
    }

    #[test]
    fn client_never_trusts_random_server_messages(challenge in noise(), last in noise(), which in 0..3_usize) {
        let (mut client, _) = ClientSession::start(SCRAM[which], "u", "p", nonce("abc")).unwrap();
        prop_assert!(!matches!(client.step(&challenge), Ok(ClientStep::Done)));
        prop_assert!(!matches!(client.step(&last), Ok(ClientStep::Done)));
    }
}

proptest! {
    // Each of these that parses costs a PBKDF2.
    #![proptest_config(cases(100))]

    #[test]
    fn plain_server_survives_any_bytes(message in noise()) {
        let store = golden();
        let (_, step) = ServerSession::start(&store, Mechanism::Plain, &message, nonce("def"));
        let right = [&b"\0user\0pencil"[..], b"user\0user\0pencil"].contains(&&*message);
        prop_assert_eq!(matches!(step, ServerStep::Done { .. }), right);
    }
}
