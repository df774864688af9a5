//! Encryption of the audit log: nothing in plain text, and `kedge audit show`.

use std::path::Path;

use serde_json::Value;

use crate::encryption::{Place, stop};
use crate::process::{PASSWORD, Server, USER, kedge, run};

const AUDIT: &str = "--audit-log=true";
const ENCRYPTED: &str = "--audit-log-encryption=true";

/// Starts a server, and has it record the name of an unknown user.
fn record(place: &Place, user: &str, more: &[&str]) {
    let server = Server::start(&place.data(), &[&[AUDIT], more].concat());
    let url = format!("http://{}", server.mgmt);
    let mut list = kedge(&["user", "list", "-U", &url, "-u", user, "-P", "wrong"]);
    let (code, _, _) = run(&mut list);
    assert_eq!(code, Some(1));
    stop(server);
}

/// `kedge audit show` of the data directory: exit code, users, standard error.
fn show(place: &Place, more: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let mut command = kedge(&["audit", "show", "--data-dir"]);
    let (code, stdout, stderr) = run(command.arg(place.data()).args(more));
    let user = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        line["real_userid"]["user"].as_str().map(str::to_owned)
    };
    let users = stdout.lines().filter_map(user);
    (
        code,
        users.filter(|user| user.contains("marker")).collect(),
        stderr,
    )
}

fn contains(path: &Path, marker: &str) -> bool {
    let bytes = std::fs::read(path).expect("a file");
    memchr::memmem::find(&bytes, marker.as_bytes()).is_some()
}

#[test]
fn audit_log_is_encrypted_and_shown_with_the_master_key() {
    let place = Place::new();
    let first = place.key("master-key", "first");
    record(&place, "marker-1", &[]);
    let log = place.data().join("audit.log");
    assert!(contains(&log, "marker-1"), "the search finds plain text");
    assert_eq!(show(&place, &[]).1, ["marker-1"]);

    record(&place, "marker-2", &[&first, ENCRYPTED]);
    record(&place, "marker-3", &[&first, ENCRYPTED]);
    for hidden in ["marker-2", "marker-3", "timestamp", "login failure"] {
        assert!(!contains(&log, hidden), "{hidden}");
    }
    let older = place.data().join("audit.log.1");
    assert!(
        contains(&older, "marker-1"),
        "the file before stays as it is"
    );
    assert!(!place.data().join("audit.log.2").exists());
    let all = ["marker-1", "marker-2", "marker-3"];
    let (code, users, stderr) = show(&place, &[&first]);
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert_eq!(users, all);

    // Without the key the lines before are shown, and what is missing is said.
    let (code, users, stderr) = show(&place, &[]);
    assert_eq!((code, users), (Some(1), vec![all[0].to_owned()]));
    assert!(
        stderr.contains("is encrypted with the data key"),
        "{stderr}"
    );
    assert!(stderr.contains("with --encryption-master-key"), "{stderr}");
    let (code, _, stderr) = show(&place, &[&place.key("master-key", "second")]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is wrapped by the master key"), "{stderr}");

    // A new master key, which also wraps the keyring of the audit log again.
    let second = place.key("master-key", "second");
    let previous = place.key("previous-master-key", "first");
    record(&place, "marker-4", &[&second, &previous, ENCRYPTED]);
    assert_eq!(show(&place, &[&second]).1.len(), 4);
    assert_eq!(show(&place, &[&first]).0, Some(1));

    // Switched off, the older files stay encrypted.
    record(&place, "marker-5", &[&second]);
    assert!(contains(&log, "marker-5"));
    assert_eq!(show(&place, &[&second]).1.len(), 5);
}

#[test]
fn encrypted_audit_log_needs_a_master_key() {
    let place = Place::new();
    let why = Server::spawn(crate::process::serve(&place.data(), &[AUDIT, ENCRYPTED]))
        .expect_err("it does not start");
    assert!(why.contains("audit_log_encryption"), "{why}");
    assert!(why.contains("encryption_master_key"), "{why}");
}

#[test]
fn new_data_keys_of_the_audit_log_are_asked_for_over_rest() {
    let place = Place::new();
    let first = place.key("master-key", "first");
    let settings = [AUDIT, ENCRYPTED, &first];
    let server = Server::start(&place.data(), &settings);
    let client = kedge::client::ManagementClient::new(
        &server.mgmt.ip().to_string(),
        server.mgmt.port(),
        USER,
        PASSWORD,
    );
    let at = "/settings/security/encryptionAtRest";
    let audit = || client.json(at).expect("settings")["audit"].clone();
    assert_eq!(audit()["encryptionMethod"], "encryptionKey");
    assert_eq!(audit()["info"]["dekNumber"], 1);
    let rotate = client.send("POST", "/controller/dropEncryptionAtRestDeks/audit", &[]);
    assert_eq!(rotate.expect("an answer").code, 200);
    assert_eq!(audit()["info"]["dekNumber"], 2);
    for part in ["log", "config"] {
        let path = format!("/controller/dropEncryptionAtRestDeks/{part}");
        let refused = client.send("POST", &path, &[]).expect("an answer");
        assert_eq!(refused.code, 400, "{part}");
    }
    let form = [("audit.encryptionMethod", "disabled")];
    let refused = client.send("POST", at, &form).expect("an answer");
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert_eq!(refused.code, 400, "{text}");
    assert!(text.contains("audit_log_encryption"), "{text}");
    let same = [("audit.encryptionMethod", "encryptionKey")];
    assert_eq!(client.send("POST", at, &same).expect("an answer").code, 200);

    // There is one master key, and it is a setting.
    let keys = client.json("/settings/encryptionKeys").expect("keys");
    let key = client.json("/settings/encryptionKeys/1").expect("a key");
    assert_eq!(keys[0], key);
    for (method, path, code) in [
        ("POST", "/settings/encryptionKeys", 400),
        ("PUT", "/settings/encryptionKeys/1", 400),
        ("DELETE", "/settings/encryptionKeys/1", 400),
        ("DELETE", "/settings/encryptionKeys/2", 404),
        ("GET", "/settings/encryptionKeys/2", 404),
        ("POST", "/controller/rotateEncryptionKey/1", 200),
        ("POST", "/controller/rotateEncryptionKey/2", 404),
        ("POST", "/settings/encryptionKeys/1/test", 200),
        ("POST", "/controller/forceEncryptionAtRest/audit", 400),
        ("POST", "/controller/forceEncryptionAtRest/bucket/none", 404),
    ] {
        let reply = client.send(method, path, &[]).expect("an answer");
        assert_eq!(reply.code, code, "{method} {path}");
    }
}
