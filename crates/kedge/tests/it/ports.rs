//! Ports that are free, given or off, and the `ready` lines that name them.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};

use kedge::client::ManagementClient;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{PASSWORD, PATIENCE, USER, connect_to, kedge, run, serve, wait_for};

/// A started command. Dropping it stops it, and waits for its end.
struct Started {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Started {
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the command starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        Self {
            child,
            lines: BufReader::new(stdout).lines(),
        }
    }

    /// Returns the next line of standard output.
    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("it is text")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        wait_for(&mut self.child);
    }
}

/// Returns the value of a field of a `ready` line.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let mut words = line.split(' ');
    let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {line:?}"))
}

fn address(line: &str, name: &str) -> SocketAddr {
    field(line, name).parse().expect("an address")
}

/// Returns the ports on which a process listens.
fn listening(pid: u32) -> BTreeSet<u16> {
    let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    let sockets: BTreeSet<String> = sockets
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else {
            continue;
        };
        for row in text.lines().skip(1) {
            let cells: Vec<&str> = row.split_whitespace().collect();
            // The local address, the state, and the inode: proc(5).
            if cells[3] == "0A" && sockets.contains(cells[9]) {
                let (_, port) = cells[1].rsplit_once(':').expect("an address");
                ports.insert(u16::from_str_radix(port, 16).expect("a port"));
            }
        }
    }
    ports
}

fn check_memcached(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.write_all(b"mn\r\nquit\r\n").expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert_eq!(reply, "MN\r\n");
}

/// `kedge serve` without ports.
fn serve_without_ports(dir: &Path) -> Command {
    let mut command = kedge(&["serve", "--vbuckets=16", "--data-dir"]);
    command
        .arg(dir)
        .args(["--user", USER, "--password", PASSWORD]);
    command
}

#[test]
fn ports_without_tls_are_off_on_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let mut command = serve_without_ports(&data);
    for flag in ["kv-port=off", "mgmt-port=off", "memcached-port=off"] {
        command.arg(format!("--{flag}"));
    }
    command.args(["--tls=auto", "--kv-tls-port=0", "--mgmt-tls-port=0"]);
    let mut server = Started::new(command);
    let line = server.line();
    for off in ["kv", "mgmt", "memcached"] {
        assert_eq!(field(&line, off), "off", "{line}");
    }
    let named = ["kvs", "mgmts"].map(|name| address(&line, name));
    let ports = BTreeSet::from(named.map(|address| address.port()));
    assert_eq!(listening(server.child.id()), ports, "{line}");
    // Management is found by the configuration that the key-value port has.
    let ca = data.join("tls-auto-ca.pem").display().to_string();
    for words in [["stats"].as_slice(), &["bucket", "list"]] {
        let mut command = kedge(words);
        let url = format!("couchbases://{}/default", named[0]);
        command.args(["-U", &url, "-u", USER, "-P", PASSWORD, "--ca", &ca]);
        let (code, output, errors) = run(&mut command);
        assert_eq!(code, Some(0), "{words:?}: {errors}");
        assert!(!output.is_empty());
    }
}

#[test]
fn port_0_is_any_free_port_that_the_ready_line_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("kedge.toml");
    let text = "kv_port = 0\nmgmt_port = 0\nmemcached_port = 0\n";
    std::fs::write(&file, text).expect("a file");
    let data = dir.path().join("data");
    let from_file = {
        let mut command = serve_without_ports(&data);
        command.arg("--config").arg(&file);
        command
    };
    let from_environment = {
        let mut command = serve_without_ports(&data);
        for name in ["KV", "MGMT", "MEMCACHED"] {
            command.env(format!("KEDGE_{name}_PORT"), "0");
        }
        command
    };
    for command in [serve(&data, &[]), from_file, from_environment] {
        let mut server = Started::new(command);
        let line = server.line();
        let named = ["kv", "mgmt", "memcached"].map(|name| address(&line, name));
        let ports = BTreeSet::from(named.map(|address| address.port()));
        assert_eq!(ports.len(), 3, "{line}");
        assert_eq!(listening(server.child.id()), ports, "{line}");
        let [kv, mgmt, memcached] = named;
        let vbuckets = connect_to(kv, PASSWORD).expect("a login").vbuckets();
        assert!(vbuckets > 0);
        let http = ManagementClient::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD);
        // What clients are told is the port that was chosen.
        let nodes = http.json("/pools/default/nodeServices").expect("services");
        let services = &nodes["nodesExt"][0]["services"];
        assert_eq!(
            (&services["kv"], &services["mgmt"]),
            (&kv.port().into(), &mgmt.port().into())
        );
        check_memcached(memcached);
    }
}

#[test]
fn memcached_port_that_is_off_is_not_opened() {
    let dir = tempfile::tempdir().expect("a directory");
    let off = ["--memcached-port=off"];
    // The setting that turns it off holds beside a port.
    let disabled = ["--memcached-port=0", "--memcached-enabled=false"];
    for flags in [&off[..], &disabled] {
        let mut command = serve_without_ports(dir.path());
        command.args(["--kv-port=0", "--mgmt-port=0"]).args(flags);
        let mut server = Started::new(command);
        let line = server.line();
        assert_eq!(field(&line, "memcached"), "off", "{line}");
        let ports = ["kv", "mgmt"].map(|name| address(&line, name).port());
        assert_eq!(listening(server.child.id()), BTreeSet::from(ports));
    }
}

#[test]
fn ports_without_tls_are_not_off_without_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    for flag in ["--kv-port", "--mgmt-port"] {
        let mut command = serve_without_ports(&data);
        let (code, stdout, stderr) = run(command.arg(format!("{flag}=off")));
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{flag}=off");
        assert!(stderr.contains("_port: it needs TLS"), "{stderr}");
        for value in ["-1", "65536"] {
            let mut command = serve_without_ports(&data);
            let (code, stdout, stderr) = run(command.arg(format!("{flag}={value}")));
            assert_eq!((code, stdout.as_str()), (Some(1), ""), "{flag}={value}");
            assert!(
                stderr.contains(flag) && stderr.contains("a number from 0 to 65535"),
                "{stderr}"
            );
        }
    }
    let mut command = serve_without_ports(&data);
    let (code, _, stderr) = run(command.arg("--memcached-port=on"));
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("a number from 0 to 65535, or off"),
        "{stderr}"
    );
    assert!(!data.exists());
}

#[test]
fn nodes_of_a_cluster_open_a_memcached_port_on_request() {
    for (flag, is_open) in [(None, false), (Some("--memcached-port=0"), true)] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = kedge(&["cluster-run", "--nodes=2", "--vbuckets=16", "--data-dir"]);
        command
            .arg(dir.path())
            .args(["--kv-port=0", "--mgmt-port=0"])
            .args(["--user", USER, "--password", PASSWORD])
            .args(flag);
        let mut cluster = Started::new(command);
        let mut ports = BTreeSet::new();
        for _ in 0..2 {
            let line = cluster.line();
            let pid: u32 = field(&line, "pid").parse().expect("a number");
            let mut named: BTreeSet<u16> = ["kv", "mgmt"]
                .map(|name| address(&line, name).port())
                .into();
            if is_open {
                let memcached = address(&line, "memcached");
                check_memcached(memcached);
                named.insert(memcached.port());
            } else {
                assert_eq!(field(&line, "memcached"), "off", "{line}");
            }
            assert_eq!(listening(pid), named, "{line}");
            ports.extend(named);
        }
        assert_eq!(ports.len(), if is_open { 6 } else { 4 });
        assert!(cluster.line().starts_with("cluster ready "));
    }
}
