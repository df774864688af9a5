//! Tests of the delays after wrong passwords, over all ports.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_auth::Mechanism;
use kedge_frontend::MemcachedRules;
use kedge_node::password_checks::LoginDelays;
use kedge_types::Status;

use crate::client::SDK_FEATURES;
use crate::collections::stats;
use crate::server::{Kedge, PASSWORD, Setup, USER};

/// Longer than the test, from the first one on.
const HOUR: LoginDelays = LoginDelays {
    first: Duration::from_secs(3_600),
    max: Duration::from_secs(3_600),
};
/// One more than the failures that cost nothing.
const FAILURES: usize = 6;

fn start(login_delays: LoginDelays) -> Kedge {
    Kedge::with(Setup {
        login_delays,
        memcached: MemcachedRules {
            login: true,
            ..MemcachedRules::default()
        },
        ..Setup::default()
    })
}

fn log_in(kedge: &Kedge, mechanism: Mechanism, user: &str, password: &str) -> Status {
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.sasl(mechanism, user, password)
}

/// The head of the reply of management to a user.
fn whoami(kedge: &Kedge, user: &str, password: &str) -> String {
    let mut client = TcpStream::connect(kedge.server().mgmt_addr().unwrap()).unwrap();
    let login = STANDARD.encode(format!("{user}:{password}"));
    let request = format!(
        "GET /whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    reply
}

fn expect_text_login(kedge: &Kedge, user: &str, password: &str, expected: &str) {
    let value = format!("{user} {password}");
    let login = format!("set login 0 0 {}\r\n{value}\r\n", value.len());
    kedge.text().expect(&login, expected);
}

fn delayed(kedge: &Kedge) -> u64 {
    let stats = stats(&mut kedge.client(), "").unwrap();
    stats["auth_delayed"].parse().unwrap()
}

#[test]
fn wrong_passwords_of_any_port_delay_the_user_on_all() {
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        let kedge = start(HOUR);
        let verified = log_in(&kedge, Mechanism::Plain, "reader", PASSWORD);
        assert_eq!(verified, Status::Success);
        for _ in 0..FAILURES {
            assert_eq!(
                log_in(&kedge, mechanism, "reader", "wrong"),
                Status::AuthError
            );
        }
        for mechanism in Mechanism::ALL {
            // The right one was verified before, which counts for PLAIN.
            let password = if mechanism == Mechanism::Plain {
                "other"
            } else {
                PASSWORD
            };
            let status = log_in(&kedge, mechanism, "reader", password);
            assert_eq!(status, Status::TemporaryFailure, "{mechanism}");
        }
        let reply = whoami(&kedge, "reader", "other");
        assert!(reply.starts_with("HTTP/1.1 429 "), "{reply}");
        assert!(
            reply.to_lowercase().contains("retry-after: 3600\r\n"),
            "{reply}"
        );
        let refused = "SERVER_ERROR temporary failure\r\n";
        expect_text_login(&kedge, "reader", "other", refused);
        // Who was verified is not refused, nor is another user of this address.
        assert_eq!(
            log_in(&kedge, Mechanism::Plain, "reader", PASSWORD),
            Status::Success
        );
        assert_eq!(
            log_in(&kedge, Mechanism::ScramSha1, USER, PASSWORD),
            Status::Success
        );
        assert_eq!(delayed(&kedge), 6);
    }
}

#[test]
fn wrong_passwords_of_management_delay_logins() {
    let kedge = start(HOUR);
    for _ in 0..FAILURES {
        let reply = whoami(&kedge, "writer", "wrong");
        assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    }
    assert_eq!(
        log_in(&kedge, Mechanism::ScramSha512, "writer", PASSWORD),
        Status::TemporaryFailure
    );
}

/// The status line of the reply of management to a login by the form of the console.
fn log_in_to_console(kedge: &Kedge, user: &str, password: &str) -> String {
    let mut client = TcpStream::connect(kedge.server().mgmt_addr().unwrap()).unwrap();
    let form = format!("user={user}&password={password}");
    let request = format!(
        "POST /uilogin HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
        form.len()
    );
    client.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    reply.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn wrong_passwords_of_the_console_delay_logins() {
    let kedge = start(HOUR);
    for _ in 0..FAILURES {
        let status = log_in_to_console(&kedge, "writer", "wrong");
        assert!(status.starts_with("HTTP/1.1 401"), "{status}");
    }
    let status = log_in_to_console(&kedge, "writer", "other");
    assert!(status.starts_with("HTTP/1.1 429"), "{status}");
    assert_eq!(
        log_in(&kedge, Mechanism::ScramSha512, "writer", PASSWORD),
        Status::TemporaryFailure
    );
}

#[test]
fn exchanges_that_began_together_are_one_guess() {
    let kedge = start(HOUR);
    let first = Mechanism::ScramSha1;
    let begun = (0..FAILURES + 2).map(|_| {
        let mut client = kedge.connect();
        let proof = client.begin_sasl(first, "reader", "wrong");
        (client, proof)
    });
    let begun: Vec<_> = begun.collect();
    let ends = begun.into_iter();
    let statuses: Vec<Status> = ends
        .map(|(mut client, proof)| client.end_sasl(first, &proof))
        .collect();
    let (checked, refused) = statuses.split_at(FAILURES);
    assert!(
        checked.iter().all(|it| *it == Status::AuthError),
        "{statuses:?}"
    );
    assert!(
        refused.iter().all(|it| *it == Status::TemporaryFailure),
        "{statuses:?}"
    );
}

#[test]
fn success_ends_the_count_of_wrong_passwords() {
    let kedge = start(HOUR);
    for _ in 0..3 {
        for _ in 0..FAILURES - 1 {
            assert_eq!(
                log_in(&kedge, Mechanism::ScramSha1, "reader", "wrong"),
                Status::AuthError
            );
        }
        assert_eq!(
            log_in(&kedge, Mechanism::ScramSha1, "reader", PASSWORD),
            Status::Success
        );
    }
    assert_eq!(delayed(&kedge), 0);
}

#[test]
fn delays_can_be_turned_off() {
    let kedge = start(LoginDelays::up_to(Duration::ZERO));
    for _ in 0..4 * FAILURES {
        assert_eq!(
            log_in(&kedge, Mechanism::ScramSha1, "reader", "wrong"),
            Status::AuthError
        );
    }
}
