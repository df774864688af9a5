//! Files of the server are for the user alone who runs it. They were world-readable: password hashes, documents and the log.
//! Nor are secrets in core dumps, or on command lines if they come from a file.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge::client::{ClientConnection, LoginCredentials};
use kedge_auth::Mechanism;
use kedge_types::DurabilityLevel;
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::faults::limited;
use crate::process::{PATIENCE, Server, USER, connect_to, kedge, run, serve};

/// All that is below a directory and the directory itself, with their modes. Sockets and links there are none.
fn modes(dir: &Path) -> Vec<(PathBuf, bool, u32)> {
    let mut found = vec![(dir.to_owned(), true, mode_of(dir))];
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        // Segments and temporary files of a running server may go meanwhile.
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        if about.is_dir() {
            found.extend(modes(&path));
        } else {
            found.push((path, false, about.permissions().mode() & 0o7777));
        }
    }
    found
}

fn mode_of(path: &Path) -> u32 {
    let about = fs::metadata(path).expect("it is there");
    about.permissions().mode() & 0o7777
}

/// Stops a server cleanly. Returns what it wrote to standard error.
fn stop(server: Server) -> String {
    server.signal(Signal::TERM);
    let (status, stderr) = server.wait();
    assert!(status.success(), "{status:?}: {stderr}");
    stderr
}

fn assert_private(dir: &Path, files_at_least: usize) {
    let found = modes(dir);
    for (path, is_dir, mode) in &found {
        let expected = if *is_dir { 0o700 } else { 0o600 };
        assert_eq!(*mode, expected, "{} is {mode:04o}", path.display());
    }
    let files = found.iter().filter(|(_, is_dir, _)| !is_dir).count();
    assert!(files >= files_at_least, "only {files} files: {found:?}");
}

#[test]
fn files_are_private_regardless_of_the_umask() {
    for umask in ["umask 0", "umask 027"] {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        // Files of vBuckets, the audit log and users, beside the log and its like.
        let command = serve(&data, &["--audit-log", "--apply-max-lag=100ms"]);
        let server = Server::spawn(limited(umask, &command)).expect("a server");
        server
            .connect()
            .set(
                b"secret",
                b"of the user",
                Some(DurabilityLevel::PersistToMajority),
            )
            .expect("a write");
        stop(server);
        assert_private(&data, 6);
    }
}

#[test]
fn nodes_of_a_cluster_on_one_machine_have_private_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("cluster");
    let cluster = Cluster::start(&data, &[]);
    assert_private(&data, 6);
    drop(cluster);
}

#[test]
fn open_data_directory_is_made_private() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    fs::create_dir(&data).expect("a directory");
    fs::set_permissions(&data, Permissions::from_mode(0o755)).expect("its mode");
    let server = Server::start(&data, &[]);
    assert_eq!(mode_of(&data), 0o700);
    let stderr = stop(server);
    assert!(stderr.contains("its mode is 0700 now"), "{stderr}");
    assert!(stderr.contains("0755"), "{stderr}");
}

#[test]
fn server_has_no_core_dumps_unless_they_are_allowed() {
    let limits_of = |process: &str| {
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
        let mut lines = limits.lines();
        let line = lines.find_map(|line| line.strip_prefix("Max core file size"));
        line.expect("the limit").trim().to_owned()
    };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    let limits = limits_of(&server.pid().to_string());
    let soft = limits.split_whitespace().next().expect("a limit");
    // 0 if the test itself may have none.
    assert!(["0", "1"].contains(&soft), "{limits}");
    server.kill();
    let server = Server::start(dir.path(), &["--core-dumps"]);
    assert_eq!(limits_of(&server.pid().to_string()), limits_of("self"));
}

#[test]
fn password_of_a_file_is_on_no_command_line() {
    const WORD: &str = "word of the file";
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    fs::write(&file, format!("{WORD}\n")).expect("a file");
    let mut command = kedge(&[
        "serve",
        "--kv-port=0",
        "--mgmt-port=0",
        "--memcached-port=0",
    ]);
    command
        .args(["--vbuckets=64", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg("--password-file")
        .arg(&file);
    let server = Server::spawn(command).expect("a server");
    connect_to(server.kv, WORD).expect("the password of the file");
    let words = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("it runs");
    assert!(!String::from_utf8_lossy(&words).contains(WORD));

    let tool = |path: &Path| {
        let mut command = kedge(&["user", "list", "-U"]);
        command.arg(format!("couchbase://{}", server.kv));
        command.arg("--password-file").arg(path);
        command
    };
    let works = |command: &mut Command| {
        let (code, stdout, stderr) = run(command);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stdout.contains("Administrator"), "{stdout}");
    };
    works(&mut tool(&file));
    works(tool(Path::new("-")).stdin(File::open(&file).expect("the file")));
    let (code, _, stderr) = run(&mut tool(&dir.path().join("missing")));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("missing: No such file"), "{stderr}");
}

#[test]
fn password_on_a_command_line_gives_a_warning() {
    const WARNING: &str = "other users of this machine see the password";
    let dir = tempfile::tempdir().expect("a directory");
    // The password of the tests comes by a flag.
    let server = Server::start(&dir.path().join("data"), &[]);
    let tool = |words: &[&str], password: &[&str]| {
        let mut command = kedge(&[words, password].concat());
        command.arg("-U").arg(format!("couchbase://{}", server.kv));
        command
    };
    let word = crate::process::PASSWORD;
    let flag = format!("--password={word}");
    let list = ["user", "list"];
    for (mut command, is_warned) in [
        (tool(&list, &[&flag]), true),
        (tool(&list, &["-P", word]), true),
        (tool(&list, &["--new-password=x"][..0]), false),
    ] {
        if !is_warned {
            command.env("KEDGE_PASSWORD", word);
        }
        let (code, _, stderr) = run(&mut command);
        assert_eq!(code, Some(0), "{stderr}");
        let warnings = stderr.matches(WARNING).count();
        assert_eq!(warnings, usize::from(is_warned), "{command:?}: {stderr}");
        assert!(!stderr.contains(word), "{stderr}");
    }
    let add = ["user", "add", "ada"];
    let (code, _, stderr) =
        run(tool(&add, &["--new-password=of-a-flag"]).env("KEDGE_PASSWORD", word));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("the password of --new-password"),
        "{stderr}"
    );
    let file = dir.path().join("password");
    fs::write(&file, "of-a-file\n").expect("a file");
    let file = format!("--new-password-file={}", file.display());
    let passwd = ["user", "passwd", "ada"];
    let (code, _, stderr) = run(tool(&passwd, &[&file]).env("KEDGE_PASSWORD", word));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    log_in(&server, "ada", "of-a-file", Mechanism::Plain).expect("the password of the file");
    let stderr = stop(server);
    assert!(
        stderr.contains(WARNING) && !stderr.contains(word),
        "{stderr}"
    );
}

fn log_in(
    server: &Server,
    user: &str,
    password: &str,
    mechanism: Mechanism,
) -> Result<ClientConnection, String> {
    let host = server.kv.ip().to_string();
    let connection = ClientConnection::open(&host, server.kv.port(), PATIENCE);
    let mut connection = connection.map_err(|error| error.to_string())?;
    let login = LoginCredentials {
        user: user.to_owned(),
        password: password.to_owned(),
        mechanism,
    };
    let done = connection.login(&login).map_err(|error| error.to_string());
    done.map(|()| connection)
}

/// Sends a request and returns the whole reply.
fn ask(server: &Server, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.mgmt).expect("it listens");
    let length = body.len();
    let request = format!(
        "{head}Host: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("it answers");
    String::from_utf8_lossy(&reply).into_owned()
}

/// Reads all files below a directory.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = modes(dir).into_iter().filter(|(_, is_dir, _)| !is_dir);
    files
        .map(|(path, ..)| {
            let bytes = fs::read(&path).expect("a file");
            (path, bytes)
        })
        .collect()
}

/// Words that are used as passwords: that of the administrator, the first and the second of a user, and a wrong one.
const WORDS: [&str; 4] = ["Wolframite1", "Gadolinite2", "Spodumene3", "Cassiterite4"];

fn call(server: &Server, (user, password): (&str, &str), request: &str, body: &str) -> String {
    let login = STANDARD.encode(format!("{user}:{password}"));
    let head = format!("{request} HTTP/1.1\r\nAuthorization: Basic {login}\r\n");
    ask(server, &head, body)
}

/// Sets, changes, uses and guesses passwords in all ways. Returns the replies, and the token of a session.
fn use_passwords(server: &Server) -> (Vec<String>, String) {
    let [first, new, other, wrong] = WORDS;
    let admin = (USER, first);
    let mut shown = Vec::new();
    let put = "PUT /settings/rbac/users/local/ada";
    for (login, form) in [
        (admin, format!("password={new}&roles=admin")),
        (admin, format!("password={new}&roles=no_such_role")),
        (("ada", wrong), format!("password={wrong}")),
    ] {
        shown.push(call(server, login, put, &form));
    }
    let own = "POST /controller/changePassword";
    let form = format!("password={other}");
    shown.push(call(server, ("ada", new), own, &form));
    let form = |password: &str| format!("user=ada&password={password}");
    let login = "POST /uilogin HTTP/1.1\r\n";
    let session = ask(server, login, &form(other));
    let cookie = session.split("ui-auth-").nth(1).expect("a cookie");
    let token = cookie.split(['=', ';']).nth(1).expect("a token");
    shown.push(ask(server, login, &form(wrong)));
    let node = format!("hostname=127.0.0.1&user=ada&password={other}");
    shown.push(call(server, admin, "POST /controller/addNode", &node));
    for mechanism in Mechanism::ALL {
        log_in(server, "ada", other, mechanism).expect("the password");
        let refused = log_in(server, "ada", wrong, mechanism).map(drop);
        shown.push(refused.expect_err("a wrong password"));
    }
    (shown, token.to_owned())
}

/// Asks for everything that can be seen.
fn see_everything(server: &Server) -> Vec<String> {
    let mut shown = Vec::new();
    let admin = (USER, WORDS[0]);
    for path in [
        "/metrics",
        "/kedge/stats",
        "/kedge/tls",
        "/kedge/roles",
        "/kedge/timings/default",
        "/kedge/buckets/unserved",
        "/whoami",
        "/pools",
        "/pools/default",
        "/pools/default/buckets",
        "/pools/default/tasks",
        "/settings/audit",
        "/settings/passwordPolicy",
        "/settings/autoFailover",
        "/settings/rbac/users",
        "/settings/rbac/users/admin",
        "/settings/rbac/groups",
        "/pools/default/settings/memcached/global",
    ] {
        shown.push(call(server, admin, &format!("GET {path}"), ""));
    }
    let connection = log_in(server, USER, WORDS[0], Mechanism::ScramSha512);
    let mut connection = connection.expect("a login");
    connection.hello(&[]).expect("features");
    connection.select_bucket("default").expect("the bucket");
    for group in [
        "",
        "settings",
        "connections",
        "client_connection_details",
        "config",
        "audit",
        "tasks",
    ] {
        if let Ok(stats) = connection.stat(group) {
            shown.push(format!("{stats:?}"));
        }
    }
    let command_line = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("it runs");
    shown.push(String::from_utf8_lossy(&command_line).into_owned());
    shown
}

#[test]
fn secrets_are_in_no_log_statistic_reply_or_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut command = kedge(&["serve", "--data-dir"]);
    command.arg(&data).args([
        "--kv-port=0",
        "--mgmt-port=0",
        "--memcached-port=0",
        "--vbuckets=64",
        "--audit-log",
        "--user",
        USER,
    ]);
    command
        .env("KEDGE_PASSWORD", WORDS[0])
        .env("RUST_LOG", "trace");
    let server = Server::spawn(command).expect("a server");
    let (mut shown, token) = use_passwords(&server);
    shown.extend(see_everything(&server));
    let stderr = stop(server);
    assert!(
        stderr.contains("TRACE") || stderr.contains("DEBUG"),
        "{stderr}"
    );
    shown.push(stderr);
    let audit = fs::read_to_string(data.join("audit.log")).expect("the audit log");
    for event in [
        "set user",
        "user credentials change",
        "login success",
        "login failure",
    ] {
        assert!(audit.contains(event), "{event}: {audit}");
    }
    let files = contents(&data).into_iter();
    let files = files.map(|(path, bytes)| (path.display().to_string(), bytes));
    let shown = shown
        .into_iter()
        .map(|text| (text.clone(), text.into_bytes()));
    for (name, bytes) in files.chain(shown) {
        for word in WORDS.into_iter().chain([token.as_str()]) {
            let found = bytes.windows(word.len()).any(|it| it == word.as_bytes());
            assert!(!found, "{word} is in {name}");
        }
    }
}
