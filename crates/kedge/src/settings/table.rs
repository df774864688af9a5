//! The table of settings: the only place that names them, except those of a bucket, which have a table of their own.
//!
//! It defines the struct [`Settings`], the flags of `kedge serve`, the environment variables, the keys of a
//! configuration file, the output of `kedge config`, and `docs/config.md`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use kedge_auth::{HASH_MEMORY_KIB_DEFAULT, HASH_PASSES_DEFAULT};
use kedge_bucket::{BucketChange, BucketConfig, BucketSetting};
use kedge_executor::ThreadCount;
use kedge_frontend::FrontendLimits;
use kedge_types::limits::VALUE_BYTES_MAX;
use kedge_types::setting::{Bytes, SettingValue};

use super::value::{
    CertNames, ClientCertMode, ClusterEncryption, Hosts, LogLevel, MaybeMasterKey, MaybePort,
    PoolThreads, Recover, SecretText, TlsMode, TlsVersion, Words,
};
use crate::target::{KV_PORT, KV_TLS_PORT, MEMCACHED_PORT, MGMT_PORT, MGMT_TLS_PORT};

/// Checks the text of a value and returns it in display form.
type ValueCheck = dyn Fn(&str) -> Result<String, String> + Send + Sync;

/// A row of the table.
pub(crate) struct Setting {
    /// Name in a configuration file; the flag has dashes instead of underscores, the environment
    /// variable is in capitals after `KEDGE_`.
    pub(crate) name: &'static str,
    /// The heading of its group.
    pub(crate) group: &'static str,
    /// The form of its values.
    pub(crate) kind: String,
    /// Effect of the setting.
    pub(crate) doc: String,
    /// A text that replaces the default in documentation if it depends on the machine.
    pub(crate) default_note: Option<&'static str>,
    /// True if the value must not be shown.
    pub(crate) secret: bool,
    /// Checks a value and returns it in display form.
    pub(crate) check: Box<ValueCheck>,
    /// The default, in display form.
    pub(crate) default: String,
}

/// Returns the settings of a bucket that `kedge serve` has in this group.
fn bucket_settings(group: &str) -> impl Iterator<Item = Setting> {
    let rows = BucketConfig::table().filter(move |row| row.group == Some(group));
    rows.map(bucket_setting)
}

fn bucket_setting(row: &'static BucketSetting) -> Setting {
    let doc = row.doc.trim();
    let (first, rest) = doc.split_at(1);
    Setting {
        name: row.name,
        group: row.group.unwrap_or_default(),
        kind: (row.kind)(),
        doc: format!("Of `bucket`: {}{rest}", first.to_lowercase()),
        default_note: row.default_note,
        secret: false,
        check: Box::new(|text| {
            let mut change = BucketChange::default();
            (row.read)(text, &mut change)?;
            Ok((row.show)(&change.apply(&BucketConfig::default())))
        }),
        // The bucket of a first start has more settings than others.
        default: match row.name {
            "bucket_quota" => Bytes(half_of_memory()).show(),
            "flush_enabled" => true.show(),
            _ => (row.show)(&BucketConfig::default()),
        },
    }
}

const fn first(notes: &[&'static str]) -> Option<&'static str> {
    match notes {
        [note, ..] => Some(note),
        [] => None,
    }
}

macro_rules! settings {
    ($(
        [$group:literal]
        $($name:ident: $type:ty = $default:expr, $doc:literal $(, default_note = $note:literal)? $(, secret = $secret:literal)?;)*
    )*) => {
        /// All settings of a server.
        #[derive(Clone, Debug)]
        pub(crate) struct Settings {
            $($(#[doc = $doc] pub(crate) $name: $type,)*)*
            /// The settings of `bucket`.
            pub(crate) bucket_settings: BucketChange,
        }

        /// All rows, in the order of the documentation.
        pub(crate) static TABLE: LazyLock<Vec<Setting>> = LazyLock::new(|| {
            let mut rows = Vec::new();
            $(
                $(rows.push(Setting {
                    name: stringify!($name),
                    group: $group,
                    kind: <$type as SettingValue>::KIND.to_owned(),
                    doc: $doc.to_owned(),
                    default_note: first(&[$($note)?]),
                    secret: false $(|| $secret)?,
                    check: Box::new(|text| <$type as SettingValue>::read(text).map(|value| value.show())),
                    default: { let value: $type = $default; value.show() },
                });)*
                rows.extend(bucket_settings($group));
            )*
            rows
        });

        impl Settings {
            /// Builds the settings from the text of each; `text` is called for every name of the table.
            ///
            /// # Errors
            /// The name of the setting and the expected form.
            pub(super) fn build<'a>(
                text: impl Fn(&str) -> &'a str,
            ) -> Result<Self, (&'static str, String)> {
                let mut bucket_settings = BucketChange::default();
                for row in BucketConfig::table().filter(|row| row.group.is_some()) {
                    (row.read)(text(row.name), &mut bucket_settings).map_err(|why| (row.name, why))?;
                }
                Ok(Self {
                    $($($name: <$type as SettingValue>::read(text(stringify!($name)))
                        .map_err(|why| (stringify!($name), why))?,)*)*
                    bucket_settings,
                })
            }
        }
    };
}

/// The default memory of a password hash.
const HASH_MEMORY_BYTES_DEFAULT: u64 = (HASH_MEMORY_KIB_DEFAULT as u64) << 10;
/// The loopback address.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

settings! {
    ["Files and addresses"]
    data_dir: PathBuf = PathBuf::from("./data"),
        "Directory of all data of the server. Created if it does not exist. Only one process at a time can use it.";
    listen: IpAddr = LOOPBACK,
        "Address to which the key-value and management ports are bound. Anything but loopback is refused while the \
         administrator has the default password.";
    kv_port: MaybePort = MaybePort::At(KV_PORT),
        "Port of the key-value protocol, for Couchbase's SDKs. 0 is any free port. `off` serves it over TLS only; a node of a cluster needs `cluster_encryption` for that.";
    mgmt_port: MaybePort = MaybePort::At(MGMT_PORT),
        "Port of management over HTTP. 0 is any free port. `off` serves it over HTTPS only; a node of a cluster needs `cluster_encryption` for that.";
    http_allowed_hosts: Hosts = Hosts::default(),
        "Names that requests to management may use for this server in the header Host, separated by commas. A name that begins with a dot stands for all names with that end, `*` for any. Addresses, localhost, the machine's own name and the names of the cluster's nodes are always allowed. Other names, and pages of other origins, get 403, so that a page from elsewhere cannot use this server through a browser.", default_note = "none";
    memcached_port: MaybePort = MaybePort::At(MEMCACHED_PORT),
        "Port for plain memcached clients, binary and text. 0 is any free port. `off` does not serve such clients.";
    memcached_enabled: bool = true,
        "Serve plain memcached clients; `false` means `memcached_port = \"off\"`.";
    memcached_listen: IpAddr = LOOPBACK,
        "Address to which the memcached port is bound. Anything but loopback is refused unless clients have to log in (`memcached_login`, `memcached_auth_file`) or `memcached_open` is set.";
    memcached_login: bool = false,
        "Require a login from clients of the memcached port: with SASL in the binary protocol, in the text protocol with a first command `set KEY 0 0 LENGTH` whose value is `USER PASSWORD`. The users are those of the server, with their roles, and those of `memcached_auth_file`.";
    memcached_auth_file: String = String::new(),
        "File with a line `USER:PASSWORD` for each user of the memcached port, in the form of memcached's `-Y`. These users may read and write documents and read statistics of its bucket. With a file, clients have to log in. It is read at the start.", default_note = "none";
    memcached_open: bool = false,
        "Allow to bind the memcached port to a reachable address without a login: everyone who can connect can read and write all documents of its bucket.";
    memcached_flush_all: bool = false,
        "Allow clients of the memcached port to empty its bucket with `flush_all`, if the bucket allows it (`flush_enabled`).";
    memcached_item_max: Bytes = Bytes(VALUE_BYTES_MAX as u64),
        "Largest value, as sent, that clients of the memcached port may store, at most 20MiB. memcached's own limit is 1MiB.";
    memcached_bucket: String = String::new(),
        "Bucket of plain memcached clients. Empty: that of `bucket`.", default_note = "that of `bucket`";

    ["TLS"]
    tls: TlsMode = TlsMode::Off,
        "`auto`: serve TLS with a certificate of a CA that the server makes in the data directory, where clients get it: `tls-auto-ca.pem`. The certificate stays over restarts and is renewed a day before it expires. Its SHA-256 is logged at the start. `off`: serve TLS only if `tls_cert` is given.";
    tls_cert: String = String::new(),
        "PEM file with the certificate of this node and those of intermediate CAs. The files of TLS are loaded again when one of them changes, and after SIGHUP; open connections stay.", default_note = "none";
    tls_key: String = String::new(),
        "PEM file with the private key of `tls_cert`: PKCS#8, also encrypted, PKCS#1 or SEC1.", default_note = "none";
    tls_key_passphrase_file: String = String::new(),
        "File with the passphrase of `tls_key` in its first line. Without it, the environment variable `KEDGE_TLS_KEY_PASSPHRASE` has it.", default_note = "none";
    kv_tls_port: MaybePort = MaybePort::At(KV_TLS_PORT),
        "Port of the key-value protocol over TLS. 0 is any free port. `off` does not serve it.";
    mgmt_tls_port: MaybePort = MaybePort::At(MGMT_TLS_PORT),
        "Port of management over HTTPS. 0 is any free port. `off` does not serve it.";
    memcached_tls_port: MaybePort = MaybePort::Off,
        "Port of plain memcached clients over TLS, at `memcached_listen` beside `memcached_port`. 0 is any free port. `off` does not serve it.";
    tls_min_version: TlsVersion = TlsVersion::Tls12,
        "Lowest version of TLS that clients may use.";
    tls_cipher_suites: Words = Words::default(),
        "Names of the cipher suites of TLS that clients may use, separated by commas, the preferred ones first, such as TLS_AES_256_GCM_SHA384. Empty: all that the server has.", default_note = "all";
    tls_honor_cipher_order: bool = true,
        "Choose the first cipher suite of the server that the client has too, not the first one of the client.";
    client_certs: ClientCertMode = ClientCertMode::Off,
        "Certificates of clients. `optional`: a client may have one instead of a password. `mandatory`: a client without a valid one is refused. `/settings/clientCertAuth` of management is stronger.";
    client_ca: Words = Words::default(),
        "PEM files with the CAs that sign certificates of clients, separated by commas.", default_note = "none";
    client_crl: Words = Words::default(),
        "PEM files with lists of revoked certificates of clients, separated by commas. If there is one, each client certificate needs a list of its CA that is not out of date.", default_note = "none";
    client_cert_names: CertNames = CertNames::default(),
        "Place of the user name in the certificate of a client: `subject.cn`, `san.dnsname`, `san.uri`, `san.email`, or up to ten rules in the JSON form of `/settings/clientCertAuth`, such as [{\"path\":\"san.uri\",\"prefix\":\"urn:\",\"delimiter\":\"@\"}]. The first rule that matches wins.";

    ["Encryption at rest"]
    encryption_master_key: MaybeMasterKey = MaybeMasterKey::default(),
        "Source of the master key, which wraps the data keys of encrypted buckets: 32 bytes, or a text of 64 hexadecimal digits or of 32 bytes in Base64. `file:PATH`: a file outside of the data directory. `env:NAME`: an environment variable. `command:COMMAND`: the output of a command of the shell, such as one that asks a vault. `awskms:KEY` and `kmip:HOST/KEY`: a key that stays in AWS KMS or in a KMIP server, with options after `?` (docs/guides/encryption.md). It is read, or checked, at the start; without it, a server with an encrypted bucket does not start. Keep a copy of it in another place: without it the data is lost.", default_note = "none";
    encryption_previous_master_key: MaybeMasterKey = MaybeMasterKey::default(),
        "Source of the master key before. A start wraps the data keys that it wraps again with the current one; afterwards it is not needed any more.", default_note = "none";
    encryption_master_key_timeout: Duration = Duration::from_secs(30),
        "Time for which a start asks a key management service again that does not answer. The server does not start if it is over. A running server needs the service only for the first data key of a bucket, and to wrap data keys again.";
    audit_log_encryption: bool = false,
        "Encrypt the audit log, with data keys of this node that the master key wraps. `kedge audit show` prints it. Older files stay as they are until they are rotated away.";

    ["Cluster"]
    coordinator: String = String::new(),
        "The coordination store of the cluster, `etcd://HOST:PORT[,HOST:PORT...]/PREFIX[?OPTION=VALUE&...]` or `embedded:DIR` for nodes of one machine (docs/guides/cluster.md). A node of a cluster does not serve plain memcached clients unless `memcached_port` or `memcached_enabled` is given. Empty: a standalone server.", default_note = "none";
    node_name: String = String::new(),
        "Name of this node in the cluster.", default_note = "none";
    server_group: String = String::new(),
        "Server group of this node: nodes of one group may fail together. Empty: Group 1.", default_note = "Group 1";
    advertise: String = String::new(),
        "Host at which the other nodes and the clients reach this node of a cluster. Empty: the address that it listens on.", default_note = "the address of `listen`";
    external_host: String = String::new(),
        "Host of this node of a cluster for clients that ask for the network `external`.", default_note = "none";
    external_kv_port: u16 = 0,
        "Port of the key-value protocol at `external_host`. 0: that of the node.", default_note = "the node's";
    external_mgmt_port: u16 = 0,
        "Port of management at `external_host`. 0: that of the node.", default_note = "the node's";
    external_kv_tls_port: u16 = 0,
        "Port of the key-value protocol over TLS at `external_host`. 0: that of the node.", default_note = "the node's";
    external_mgmt_tls_port: u16 = 0,
        "Port of management over HTTPS at `external_host`. 0: that of the node.", default_note = "the node's";
    cluster_encryption: ClusterEncryption = ClusterEncryption::Off,
        "Encryption of the connections to other nodes of the cluster. `off`: they go to the ports without TLS. `tls`: they go to the ports of TLS, and the certificates of the other nodes have to be of `cluster_ca` and for their hosts. `mutual_tls`: as `tls`, and another node is accepted only with a certificate of `cluster_ca` whose extended key usage has serverAuth and clientAuth. All nodes need TLS before the first one gets `tls`, and `tls` before the first one gets `mutual_tls`. It is what clusterEncryptionLevel is to Couchbase.";
    cluster_ca: Words = Words::default(),
        "PEM files with the CAs that sign the certificates of the cluster's nodes, separated by commas. Empty: those of `client_ca`, or else the CA that ends the chain of `tls_cert`, if it signed itself.", default_note = "those of `client_ca`, or the CA in `tls_cert`";
    auto_failover_timeout: Duration = Duration::from_secs(5),
        "Time after which a node of a cluster counts as down, 1 s to 120 s. It is also the time of a node's lease: a node that cannot renew it for so long serves no clients. It holds until the settings of automatic failover are first changed, which are those of all nodes.";
    lease_tolerated_pause: Duration = Duration::ZERO,
        "Time by which a node stops serving before its lease ends, so that a short pause of the process has no effect. 0s: 500ms, or a quarter of a shorter `auto_failover_timeout`. It has to be less than 0.499 times the timeout, 2495ms for 5s (docs/explanation/failover.md): the start is refused otherwise. If the timeout is shortened later and the pause does not fit any more, the default is used instead, and the log has a warning.",
        default_note = "500ms, at most a quarter of `auto_failover_timeout`";
    lease_watchdog: bool = false,
        "End the process when it was paused beyond the end of its lease. Nodes with a coordination store in etcd always do.";
    core_dumps: bool = false,
        "Allow core dumps, as far as the system does. They have documents and secrets; without the setting the process has none.";
    stop_with_parent: bool = false,
        "Stop the server when the process that started it ends.";

    ["First start"]
    user: String = "Administrator".to_owned(),
        "Name of the administrator, who is created if missing.";
    password: SecretText = SecretText::new(DEFAULT_PASSWORD),
        "The administrator's password. Given on a later start, it replaces the stored one. Other users of the machine see flags: prefer `password_file` or the variable.", secret = true;
    password_file: String = String::new(),
        "File whose first line is the administrator's password; `-` is standard input. It is stronger than `password`, and read at the start.", default_note = "none";
    password_length_min: u16 = 6,
        "Least number of characters of new passwords, also of `password`.";
    password_hash_memory: Bytes = Bytes(HASH_MEMORY_BYTES_DEFAULT),
        "Memory of the argon2id hash of a password, 1MiB to 1GiB. A login that sends its password (SASL PLAIN, HTTP) needs it unless the password was verified since the start; one is computed for logins at a time. Other hashes are replaced when their users log in.";
    password_hash_passes: u32 = HASH_PASSES_DEFAULT,
        "Passes of this hash over its memory, 1 to 64: the time of a login grows with both.";
    bucket: String = "default".to_owned(),
        "Bucket that is created if it does not exist. Empty: none. The settings that begin with \"Of `bucket`\" are those of this bucket; given on a later start, they change it.";
    vbuckets: u16 = 1024,
        "Number of vBuckets of a new bucket, 1 to 65535. It cannot be changed later.";

    ["Durability"]
    recover: Recover = Recover::Strict,
        "Handling of damage in the middle of a log. A torn end, which a loss of power leaves, is always cut off.";

    ["Storage"]

    ["Memory"]

    ["Compaction"]

    ["Threads and log"]
    threads: u16 = 0,
        "Number of front-end threads. 0: one for each core.", default_note = "one for each core";
    front_end_reads: bool = true,
        "Let front-end threads themselves read documents that are only on disk, while they execute other commands: many reads are in flight at once (io_uring of Linux), and no other thread has to be woken. If the system has no such reads, or forbids them, the reader threads read, as with `false`.";
    front_end_spin_us: u16 = 200,
        "Longest time, in microseconds, for which a front-end thread that reads a document polls the disk before it sleeps. It polls as long as the mean latency is within half of that, and yields to other threads of its core: a fast disk responds sooner than a sleeping thread is woken. 0: no polling, which leaves the processors more idle, and serves more requests if a container's quota of processor time is used up, as polling counts.";
    num_reader_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for disk reads for which clients wait; none is needed while all documents are in memory. `balanced`: one for each core, 4 to 16; `disk_io_optimized`: two for each core, 4 to 128. This and the three settings below can be changed while the server runs, until its next start: `kedge config set num_reader_threads=8`.";
    num_writer_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for disk writes for which clients wait: the logs of all buckets. `balanced`: 4; `disk_io_optimized`: two for each core, 4 to 128.";
    num_auxio_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for long work on files: preallocation of log segments, replay of logs at the start. `balanced`: two for each core, 2 to 128.";
    num_nonio_threads: PoolThreads = PoolThreads(ThreadCount::Balanced),
        "Threads for work without I/O: timeouts, expiry, passwords. `balanced`: three for ten cores, 2 to 8.";
    log_level: LogLevel = LogLevel::Info,
        "Lowest level of messages that are logged to standard error. The variable `RUST_LOG` overrides it with more \
         detail.";

    ["Limits"]
    connections_max: u32 = FrontendLimits::default().connections_max,
        "Largest number of client connections. It is lowered if the limit of open files is too low. A connection above it is closed \
         at once, unless one on the key-value port has not logged in yet: then the oldest of these is closed, of the \
         address with most of them.";
    memcached_connections_max: u32 = FrontendLimits::default().memcached_connections_max,
        "Largest number of these on the memcached port, whose clients need not log in. A connection above it closes one \
         that has not logged in where that is required, else an idle one of the address with the most \
         (`memcached_evict_after`), else one of an address with too many (`memcached_connections_per_address`). If there is \
         none, it is closed at once. 0: half of `connections_max`.", default_note = "half of `connections_max`";
    memcached_connections_per_address: u32 = FrontendLimits::default().memcached_connections_per_address,
        "Number of connections of the memcached port that one address, of IPv6 one /64, keeps while they are in use. An \
         address may have more; when the port has `memcached_connections_max`, a new connection of another address \
         closes the least recently used one of these. 0: half of `memcached_connections_max`.",
        default_note = "half of `memcached_connections_max`";
    memcached_evict_after: Duration = FrontendLimits::default().memcached_evict_after,
        "Time without a request after which a connection of the memcached port is idle. When the port has \
         `memcached_connections_max`, a new connection closes the longest idle one of the address with the most; an \
         address with as many or fewer loses none to another. Otherwise idle connections stay (`idle_timeout`).";
    tls_handshakes_max: u32 = FrontendLimits::default().tls_handshakes_max,
        "Largest number of TLS handshakes at a time that are not complete, of the key-value and memcached ports. One above it ends the oldest of the address with the most; if that is its own address, it is refused. 0: no limit. Each has `unauthenticated_timeout` to complete.";
    unauthenticated_timeout: Duration = FrontendLimits::default().unauthenticated,
        "Time within which a client must log in, where a login is required.";
    login_delay_max: Duration = Duration::from_secs(5),
        "Longest time for which logins are refused after wrong passwords. It begins with 100 ms after five of a user at an address, or fifty of an address or a user, and doubles with each further one. Passwords that were verified since the start are not refused. 0s: none.";
    session_timeout: Duration = Duration::from_secs(600),
        "Time without a request after which a login to the console ends.";
    idle_timeout: Duration = FrontendLimits::default().idle,
        "Time without a request after which a connection is closed. 0s: never.";
    slow_sender_timeout: Duration = FrontendLimits::default().slow_sender,
        "Time that a request may stay incomplete.";
    send_timeout: Duration = FrontendLimits::default().send_stall,
        "Time that replies may wait for a client that does not read them.";
    dcp_idle_timeout: Duration = FrontendLimits::default().dcp_idle,
        "Time within which a consumer of DCP must answer a NOOP.";
    dcp_stuck_timeout: Duration = FrontendLimits::default().dcp_stuck,
        "Time that the buffer of a consumer of DCP may be full without an acknowledgement.";
    audit_log: bool = false,
        "Write logins, refused operations and changes of management as JSON lines to audit.log in the data directory. \
         `/settings/audit` overrides this and the next two, once it was set.";
    audit_log_interval: Duration = Duration::from_secs(86_400),
        "Time since its first line at which the audit log is rotated.";
    audit_log_bytes_max: Bytes = Bytes(20 << 20),
        "Size at which the audit log is rotated; the older files are audit.log.1 and so on.";
    audit_log_files: u32 = 10,
        "Number of older files of the audit log that are kept.";
    queued_bytes_max: Bytes = Bytes(FrontendLimits::default().queued_bytes_max as u64),
        "Bytes of queued replies of one connection above which its requests are not read.";
    request_memory_max: Bytes = Bytes(FrontendLimits::default().request_memory_max as u64),
        "Total memory of requests of all connections while they are received and executed, at least 128MiB; \
         clients that are not logged in may use a quarter of it. A connection whose request does not fit is not read until it \
         does.";
    shutdown_timeout: Duration = Duration::from_secs(3),
        "Time that requests in flight have to end after SIGTERM or SIGINT; then what is queued is synced.";
}

impl Settings {
    /// Returns whether there is a certificate for TLS.
    pub(crate) fn serves_tls(&self) -> bool {
        self.tls == TlsMode::Auto || !self.tls_cert.is_empty()
    }
}

/// The well-known default password.
pub(crate) const DEFAULT_PASSWORD: &str = "password";

/// Returns half of the memory of this machine, or of the control group of the process, in whole MiB.
fn half_of_memory() -> u64 {
    const MIB: u64 = 1 << 20;
    let info = rustix::system::sysinfo();
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit));
    // cgroup v2; "max" if there is no limit, and no such file outside of a group.
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max");
    let group = group
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u64::MAX);
    (machine.min(group) / 2 / MIB).max(1) * MIB
}
