//! Files of the server are for the user alone who runs it. They were world-readable: password hashes, documents and the log.
//! Nor are secrets in core dumps, or on command lines if they come from a file.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kedge_types::DurabilityLevel;
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::faults::limited;
use crate::process::{Server, connect_to, kedge, run, serve};

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
