//! Logins, good and bad, of well-behaved clients.

use kedge_auth::{
    AuthError, ClientSession, LoginFailure, Mechanism, PasswordProblem, Roles, ServerSession,
    ServerStep, UserStore, random_nonce,
};

use crate::{SCRAM, golden, half_way, login, logs_in, nonce};

#[test]
fn every_mechanism_accepts_right_and_rejects_wrong_passwords() {
    let store = golden();
    for (user, password, expected) in [
        ("user", "pencil", true),
        ("Administrator", "password", true),
        ("user", "pencil ", false),
        ("user", "Pencil", false),
        ("user", "password", false),
        ("User", "pencil", false),
        ("nobody", "pencil", false),
        ("nobody,=", "pencil", false),
    ] {
        assert_eq!(
            logs_in(&store, user, password),
            expected,
            "{user} {password}"
        );
    }
}

#[test]
fn login_with_names_and_passwords_of_any_script() {
    let mut store = UserStore::new().unwrap();
    let password = "p\u{e4}ss,w=ord \u{1f511}";
    store
        .add("r\u{e9}n\u{e9}e o'hara", password, Roles::default(), 0)
        .unwrap();
    assert!(logs_in(&store, "r\u{e9}n\u{e9}e o'hara", password));
    // The same text in another Unicode form is another password: there is no SASLprep.
    assert!(!logs_in(
        &store,
        "r\u{e9}n\u{e9}e o'hara",
        "pa\u{308}ss,w=ord \u{1f511}"
    ));
    let long = "x".repeat(kedge_auth::PASSWORD_BYTES_MAX);
    store
        .set_password("r\u{e9}n\u{e9}e o'hara", &long, 0)
        .unwrap();
    assert!(logs_in(&store, "r\u{e9}n\u{e9}e o'hara", &long));
}

#[test]
fn unknown_user_and_wrong_password_are_indistinguishable() {
    let mut store = UserStore::new().unwrap();
    store.add("alice", "right", Roles::admin(), 0).unwrap();
    let salt = |challenge: &[u8]| {
        let text = String::from_utf8(challenge.to_vec()).unwrap();
        text.split(',')
            .find_map(|a| a.strip_prefix("s=").map(str::to_owned))
            .unwrap()
    };
    for mechanism in SCRAM {
        let mut known = half_way(&store, mechanism, "alice", "wrong");
        let mut unknown = half_way(&store, mechanism, "mallo", "wrong");
        assert_eq!(
            known.challenge.len(),
            unknown.challenge.len(),
            "{mechanism}"
        );
        assert_eq!(known.proof.len(), unknown.proof.len(), "{mechanism}");
        assert_eq!(known.server.step(&known.proof), ServerStep::Failed);
        assert_eq!(unknown.server.step(&unknown.proof), ServerStep::Failed);
        assert_eq!(known.server.failure(), Some(LoginFailure::BadCredentials));
        assert_eq!(unknown.server.failure(), Some(LoginFailure::BadCredentials));

        // Asked again, also after a restart: both salts stay, and no two are the same.
        let restarted = UserStore::from_json(&store.to_json()).unwrap();
        for again in [&store, &restarted] {
            assert_eq!(
                half_way(again, mechanism, "alice", "x").challenge,
                known.challenge
            );
            assert_eq!(
                half_way(again, mechanism, "mallo", "x").challenge,
                unknown.challenge
            );
        }
        let other = half_way(&store, mechanism, "mallp", "wrong");
        assert_ne!(salt(&other.challenge), salt(&unknown.challenge));
        assert_ne!(salt(&known.challenge), salt(&unknown.challenge));
    }
    let salts = SCRAM.map(|m| salt(&half_way(&store, m, "mallo", "x").challenge));
    assert!(
        salts[0] != salts[1] && salts[1] != salts[2] && salts[0] != salts[2],
        "{salts:?}"
    );
    // Another server has other fake salts.
    let elsewhere = UserStore::new().unwrap();
    assert_ne!(
        salt(&half_way(&elsewhere, SCRAM[0], "mallo", "x").challenge),
        salts[0]
    );

    for (user, password) in [("alice", "wrong"), ("mallo", "wrong")] {
        let message = format!("\0{user}\0{password}");
        let (session, step) =
            ServerSession::start(&store, Mechanism::Plain, message.as_bytes(), random_nonce);
        assert_eq!(
            (step, session.failure()),
            (ServerStep::Failed, Some(LoginFailure::BadCredentials))
        );
    }
}

#[test]
fn unknown_user_fails_for_any_iteration_count() {
    let mut store = UserStore::new().unwrap();
    store.set_iterations(5_000).unwrap();
    store.add("alice", "right", Roles::admin(), 0).unwrap();
    for user in ["alice", "mallo"] {
        let half = half_way(&store, Mechanism::ScramSha256, user, "wrong");
        assert!(
            half.challenge.ends_with(b",i=5000"),
            "{}",
            half.challenge.escape_ascii()
        );
    }
    assert!(logs_in(&store, "alice", "right"));
}

#[test]
fn login_session_outlives_its_user_and_store() {
    for mechanism in SCRAM {
        let mut store = golden();
        let mut half = half_way(&store, mechanism, "user", "pencil");
        store.remove("user").unwrap();
        drop(store);
        assert!(matches!(
            half.server.step(&half.proof),
            ServerStep::Done { .. }
        ));
    }
}

#[test]
fn login_session_ends_once() {
    let store = golden();
    for mechanism in SCRAM {
        let mut half = half_way(&store, mechanism, "user", "pencil");
        assert!(matches!(
            half.server.step(&half.proof),
            ServerStep::Done { .. }
        ));
        assert_eq!(half.server.step(&half.proof), ServerStep::Failed);
        assert_eq!(half.server.failure(), Some(LoginFailure::OutOfTurn));

        // A failed attempt cannot be mended: each guess costs a whole login.
        let mut half = half_way(&store, mechanism, "user", "pencil");
        assert_eq!(half.server.step(b"nonsense"), ServerStep::Failed);
        assert_eq!(half.server.step(&half.proof), ServerStep::Failed);
    }
    let (mut session, step) =
        ServerSession::start(&store, Mechanism::Plain, b"\0user\0pencil", random_nonce);
    assert!(matches!(step, ServerStep::Done { ref payload, .. } if payload.is_empty()));
    assert_eq!(session.step(b"\0user\0pencil"), ServerStep::Failed);
}

#[test]
fn every_login_has_a_fresh_nonce() {
    let store = golden();
    let challenges: Vec<ServerStep> = (0..2)
        .map(|_| {
            let first = b"n,,n=user,r=0xffffffe0 0x21";
            ServerSession::start(&store, Mechanism::ScramSha512, first, random_nonce).1
        })
        .collect();
    assert_ne!(challenges[0], challenges[1]);
    let nonce = random_nonce().unwrap();
    assert!(nonce.len() == 32 && !nonce.contains([',', '=']), "{nonce}");
}

#[test]
fn failing_nonce_source_fails_the_login() {
    let store = golden();
    for source in [
        Err(AuthError::NoRandomness),
        Ok(String::new()),
        Ok("a,b".to_owned()),
    ] {
        let first = b"n,,n=user,r=abc";
        let (session, step) =
            ServerSession::start(&store, Mechanism::ScramSha512, first, || source.clone());
        assert_eq!(
            (step, session.failure()),
            (ServerStep::Failed, Some(LoginFailure::NoNonce))
        );
        assert_eq!(
            ClientSession::start(Mechanism::ScramSha512, "u", "p", || source.clone()).err(),
            Some(AuthError::NoRandomness)
        );
    }
}

#[test]
fn client_rejects_passwords_that_no_store_accepts() {
    let long = "x".repeat(kedge_auth::PASSWORD_BYTES_MAX + 1);
    for (password, problem) in [
        ("", PasswordProblem::Empty),
        ("a\0b", PasswordProblem::HoldsNul),
        (&long, PasswordProblem::TooLong),
    ] {
        for mechanism in Mechanism::ALL {
            let result = ClientSession::start(mechanism, "u", password, nonce("abc"));
            assert_eq!(result.err(), Some(AuthError::BadPassword(problem)));
        }
    }
}

#[test]
fn debug_output_contains_no_secret() {
    let store = golden();
    let half = half_way(&store, Mechanism::ScramSha1, "user", "pencil");
    let text = format!("{store:?} {:?} {:?}", half.server, half.client);
    assert!(text.contains("user"));
    assert!(!text.contains("pencil"));
    let fallback_key = "[0, 1, 2, 3, 4, 5";
    assert!(!text.contains(fallback_key), "{text}");
    assert!(matches!(
        login(&store, Mechanism::Plain, "user", "pencil"),
        ServerStep::Done { .. }
    ));
}
