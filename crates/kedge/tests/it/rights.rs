//! Every role, and nobody, against every command and every path of a running server.
//!
//! The pages `command-rights.md` and `rights.md` of the reference say which role may do what; tests of the crates compare them with the code.
//! Here the binary is compared with the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge::client::{ClientConnection, LoginCredentials, ManagementClient};
use kedge_auth::{Mechanism, roles_catalogue};
use kedge_protocol::binary::{
    ConnectionKind, Feature, Opcode, ParseReply, RequestWriter, parse_response,
};
use kedge_types::{Cas, Datatype, Status, VbId};

use crate::process::{PASSWORD, PATIENCE, Server, USER};

const COMMANDS: &str = include_str!("../../../../docs/reference/command-rights.md");
const PATHS: &str = include_str!("../../../../docs/reference/rights.md");
/// The password of all users of this test.
const WORD: &str = "christmas";

/// The rows of a table with two columns.
fn rows(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        Some((cells.next()?, cells.next()?))
    })
}

/// A server with a user for each role, called as the role is, and the user `none` without any.
fn start() -> (tempfile::TempDir, Server, Vec<&'static str>) {
    let dir = tempfile::tempdir().expect("a directory");
    let cheap = ["--password-hash-memory=1MiB", "--password-hash-passes=1"];
    let server = Server::start(dir.path(), &cheap);
    let host = server.mgmt.ip().to_string();
    let admin = ManagementClient::new(&host, server.mgmt.port(), USER, PASSWORD);
    let mut names = Vec::new();
    for role in roles_catalogue() {
        let text = match role.bucket_name {
            Some(_) => format!("{}[default]", role.role),
            None => role.role.to_owned(),
        };
        let path = format!("/settings/rbac/users/local/{}", role.role);
        let form = [("password", WORD), ("roles", text.as_str())];
        admin.expect("PUT", &path, &form).expect("a user");
        names.push(role.role);
    }
    let form = [("password", WORD), ("roles", "")];
    let path = "/settings/rbac/users/local/none";
    admin.expect("PUT", path, &form).expect("a user");
    (dir, server, names)
}

/// A connection of a user, in the bucket if the user may select it.
fn connect(server: &Server, user: Option<&str>) -> ClientConnection {
    let host = server.kv.ip().to_string();
    let opened = ClientConnection::open(&host, server.kv.port(), PATIENCE);
    let mut connection = opened.expect("it listens");
    let features = [Feature::Xattr, Feature::SnappyEverywhere];
    connection.hello(&features).expect("features");
    if let Some(user) = user {
        let login = LoginCredentials {
            user: user.to_owned(),
            password: WORD.to_owned(),
            // Verified once, and then quick.
            mechanism: Mechanism::Plain,
        };
        connection.login(&login).expect("the password");
        let _ = connection.select_bucket("default");
    }
    connection
}

/// The parts of a valid request: extras, key and value.
type Parts = (Vec<u8>, &'static [u8], Vec<u8>);

/// A valid request of a command that checks the privileges for what it names.
fn parts(opcode: Opcode) -> Parts {
    use Opcode as O;
    let none = Vec::new;
    match opcode {
        O::Set | O::Setq | O::Add | O::Addq | O::Replace | O::Replaceq => {
            (vec![0; 8], b"k", none())
        }
        O::Increment | O::Incrementq | O::Decrement | O::Decrementq => (vec![0; 20], b"k", none()),
        O::Touch | O::Gat | O::Gatq => (vec![0; 4], b"k", none()),
        O::Observe => (none(), b"", vec![0, 0, 0, 1, b'k']),
        O::ObserveSeqno => (none(), b"", vec![0; 8]),
        O::SeqnoPersistence => (vec![0; 8], b"", none()),
        O::SubdocGet | O::SubdocExists | O::SubdocGetCount | O::SubdocDelete => {
            (vec![0, 1, 0], b"k", b"a".to_vec())
        }
        O::SubdocMultiLookup => (none(), b"k", vec![O::SubdocGet.wire(), 0, 0, 1, b'a']),
        O::SubdocMultiMutation => {
            let spec = [O::SubdocDictUpsert.wire(), 0, 0, 1, 0, 0, 0, 1, b'a', b'1'];
            (none(), b"k", spec.to_vec())
        }
        O::SubdocArrayInsert => (vec![0, 3, 0], b"k", b"[0]1".to_vec()),
        O::SubdocDictAdd
        | O::SubdocDictUpsert
        | O::SubdocReplace
        | O::SubdocArrayPushLast
        | O::SubdocArrayPushFirst
        | O::SubdocArrayAddUnique
        | O::SubdocCounter => (vec![0, 1, 0], b"k", b"a1".to_vec()),
        O::SetWithMeta
        | O::SetqWithMeta
        | O::AddWithMeta
        | O::AddqWithMeta
        | O::DelWithMeta
        | O::DelqWithMeta => {
            let (rev, cas) = (1_u64.to_be_bytes(), (1_u64 << 16).to_be_bytes());
            ([&[0; 8], &rev[..], &cas[..]].concat(), b"k", none())
        }
        O::MutateWithMeta => {
            let meta = br#"{"command":"set","cas":"0x10000"}"#;
            (vec![0, 0, 0, meta.len() as u8], b"k", meta.to_vec())
        }
        O::ReturnMeta => (vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], b"k", none()),
        O::DcpOpen => (vec![0, 0, 0, 0, 0, 0, 0, 1], b"k", none()),
        O::SetVbucket => (vec![1], b"", none()),
        O::CompactDb => (vec![0; 24], b"", none()),
        O::RangeScanCreate => {
            let scan = br#"{"sampling":{"seed":1,"samples":1}}"#;
            (none(), b"", scan.to_vec())
        }
        O::CollectionsGetId => (none(), b"", b"_default._default".to_vec()),
        O::CollectionsGetScopeId => (none(), b"", b"_default".to_vec()),
        O::GetRandomKey
        | O::CollectionsGetManifest
        | O::GetAllVbSeqnos
        | O::GetFailoverLog
        | O::GetVbucket
        | O::DelVbucket
        | O::Flush
        | O::Flushq => (none(), b"", none()),
        _ => (none(), b"k", none()),
    }
}

/// A connection on which the test writes and reads frames.
struct Raw {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Raw {
    fn open(server: &Server, user: Option<&str>) -> Self {
        let stream = connect(server, user).into_stream().expect("no TLS");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends a request, and returns its status; success for a quiet command that says nothing. A NOOP follows, whose reply comes in any
    /// case.
    fn ask(&mut self, opcode: Opcode) -> Status {
        let (extras, key, value) = parts(opcode);
        let mut bytes = Vec::new();
        RequestWriter {
            opaque: 1,
            datatype: match opcode {
                Opcode::RangeScanCreate => Datatype::JSON,
                _ => Datatype::RAW,
            },
            cas: Cas(u64::from(opcode == Opcode::UnlockKey)),
            vb: match key.is_empty() {
                true => VbId(0),
                false => VbId::of_key(key, 64),
            },
            ..RequestWriter::new(opcode)
        }
        .write(&extras, key, &value, &mut bytes);
        RequestWriter {
            opaque: 2,
            ..RequestWriter::new(Opcode::Noop)
        }
        .write(&[], &[], &[], &mut bytes);
        self.stream.write_all(&bytes).expect("it reads");
        let mut found = Status::Success;
        loop {
            match parse_response(&self.received, 20 << 20) {
                ParseReply::Reply { reply, consumed } => {
                    let (opaque, status) = (reply.opaque, reply.status());
                    self.received.drain(..consumed);
                    match opaque {
                        1 => found = status.expect("a known status"),
                        _ => return found,
                    }
                }
                ParseReply::ServerRequest { consumed, .. } => {
                    self.received.drain(..consumed);
                }
                ParseReply::Incomplete { .. } => {
                    let mut bytes = [0; 4_096];
                    let read = self.stream.read(&mut bytes).expect("a reply");
                    assert!(read > 0, "{} ended the connection", opcode.name());
                    self.received.extend_from_slice(&bytes[..read]);
                }
                ParseReply::Fatal(error) => panic!("{}: {error}", opcode.name()),
            }
        }
    }
}

fn opcode(name: &str) -> Opcode {
    let found = Opcode::ALL.iter().find(|it| it.name() == name);
    *found.unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn commands_are_refused_as_documented_for_every_role_and_without_login() {
    let (_dir, server, roles) = start();
    let mut expected: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut needs_login = Vec::new();
    for (allowed, commands) in rows(COMMANDS).filter(|(roles, _)| *roles != "roles") {
        let allowed: BTreeSet<&str> = allowed.split(", ").collect();
        for command in commands.split(", ") {
            if !opcode(command).is_supported(ConnectionKind::Couchbase) {
                continue;
            }
            match allowed.first() {
                Some(&"no login is needed" | &"---") => {}
                Some(&"every user" | &"by its argument") => needs_login.push(command),
                // Other messages of DCP are refused to everybody before that.
                _ if command.starts_with("DCP_") && command != "DCP_OPEN" => {
                    needs_login.push(command);
                }
                _ => {
                    needs_login.push(command);
                    expected.insert(command, allowed.clone());
                }
            }
        }
    }
    let mut admin = Raw::open(&server, Some("admin"));
    expected.retain(|command, _| {
        let status = admin.ask(opcode(command));
        if *command == "DCP_OPEN" {
            admin = Raw::open(&server, Some("admin"));
        }
        // The request of this test is no valid one.
        status != Status::Invalid
    });
    assert!(
        expected.len() > 60 && roles.len() > 50,
        "{}",
        expected.len()
    );
    let mut nobody = Raw::open(&server, None);
    for command in needs_login {
        let status = nobody.ask(opcode(command));
        assert_eq!(status, Status::AccessDenied, "{command} without login");
    }
    for user in roles.iter().copied().chain(["none"]) {
        let mut connection = Raw::open(&server, Some(user));
        for (command, allowed) in &expected {
            let status = connection.ask(opcode(command));
            // A user who may not select the bucket has none.
            let is_refused = matches!(status, Status::AccessDenied | Status::NoBucket);
            assert_eq!(
                !is_refused,
                allowed.contains(user),
                "{command} as {user}: {status:?}"
            );
            if *command == "DCP_OPEN" {
                connection = Raw::open(&server, Some(user));
            }
        }
    }
}

/// Sends a request without a body, and returns the status.
fn request(server: &Server, user: Option<&str>, method: &str, path: &str) -> u16 {
    let login = user.map_or(String::new(), |user| {
        let login = STANDARD.encode(format!("{user}:{WORD}"));
        format!("Authorization: Basic {login}\r\n")
    });
    let mut stream = TcpStream::connect(server.mgmt).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{login}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    // Some replies are streams, which do not end.
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).expect("a status line");
    let text = String::from_utf8_lossy(&reply).into_owned();
    let code = text
        .strip_prefix("HTTP/1.1 ")
        .and_then(|it| it.parse().ok());
    code.unwrap_or_else(|| panic!("{method} {path}: {text}"))
}

/// Creates the bucket again, if a request has dropped it.
fn restore(server: &Server, admin: &ManagementClient) {
    let path = "/pools/default/buckets";
    let bucket = format!("{path}/default");
    if admin.expect("GET", &bucket, &[]).is_ok() {
        return;
    }
    let form = [
        ("name", "default"),
        ("ramQuotaMB", "100"),
        ("replicaNumber", "0"),
    ];
    let deadline = Instant::now() + PATIENCE;
    while admin.expect("POST", path, &form).is_err() || admin.expect("GET", &bucket, &[]).is_err() {
        assert!(Instant::now() < deadline, "{}", server.mgmt);
        std::thread::yield_now();
    }
}

/// Replaces the parameters of a path by names.
fn filled(path: &str) -> String {
    let mut filled = path.to_owned();
    for (parameter, name) in [
        ("{bucket}", "default"),
        ("{scope}", "_default"),
        ("{collection}", "_default"),
        ("{domain}", "local"),
        ("{user}", "nobody"),
        ("{group}", "nobody"),
        ("{role}", "nobody"),
        ("{node}", "127.0.0.1:1"),
        ("{name}", "get"),
        ("{uid}", "0"),
        ("{id}", "0"),
        ("{trial}", "connectivity"),
        ("{part}", "audit"),
    ] {
        filled = filled.replace(parameter, name);
    }
    assert!(!filled.contains('{'), "{path}: give its parameter a name");
    filled
}

#[test]
fn paths_are_refused_as_documented_for_every_role_and_without_login() {
    let (_dir, server, roles) = start();
    let host = server.mgmt.ip().to_string();
    let admin = ManagementClient::new(&host, server.mgmt.port(), USER, PASSWORD);
    let mut count = 0;
    for (request_of, allowed) in rows(PATHS) {
        let Some((method, path)) = request_of.split_once(" `") else {
            continue;
        };
        let path = filled(path.trim_end_matches('`'));
        let allowed: BTreeSet<&str> = allowed.split(", ").collect();
        let is_open = allowed.contains("no login is needed");
        let is_login = path == "/uilogin";
        let status = request(&server, None, method, &path);
        assert_eq!(
            status == 401,
            !is_open || is_login,
            "{method} {path}: {status}"
        );
        for user in roles.iter().copied().chain(["none"]).filter(|_| !is_login) {
            let status = request(&server, Some(user), method, &path);
            let is_allowed = is_open || allowed.contains("every user") || allowed.contains(user);
            assert_eq!(
                status != 403,
                is_allowed,
                "{method} {path} as {user}: {status}"
            );
            assert_ne!(status, 401, "{method} {path} as {user}");
            if method == "DELETE" && path.ends_with("/buckets/default") {
                restore(&server, &admin);
            }
        }
        count += 1;
    }
    assert!(count > 100, "{count}");
}
