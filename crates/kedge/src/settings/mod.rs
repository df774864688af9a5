//! Settings of the server from defaults, a file, the environment and flags; later sources take precedence.

mod document;
mod table;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, value_parser};
use kedge_auth::{HASH_PASSES_MAX, HASH_PASSES_MIN};
use kedge_frontend::limits::REQUEST_MEMORY_MIN;

pub(crate) use document::{markdown, text};
use kedge_types::limits::VALUE_BYTES_MAX;
use kedge_types::setting::{SettingValue, nearest};
pub(crate) use table::{DEFAULT_PASSWORD, Settings};
use table::{Setting, TABLE};
use value::SecretText;
pub(crate) use value::{
    ClientCertMode, ClusterEncryption, LogLevel, MaybeMasterKey, MaybePort, Recover, TlsMode,
    TlsVersion,
};

use crate::password;

/// The flag with the path of the configuration file; it is not a setting.
const CONFIG: &str = "config";

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(String),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(variable) => f.write_str(variable),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The reason why the settings are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SettingsError {
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    // Without the line itself, which may have a password.
    #[error("{}: line {line}: {why}", path.display())]
    Syntax {
        path: PathBuf,
        line: usize,
        why: String,
    },
    #[error("{}: unknown setting \"{key}\"; did you mean \"{nearest}\"?", path.display())]
    Unknown {
        path: PathBuf,
        key: String,
        nearest: &'static str,
    },
    #[error("{origin}: {name}: {why}, not \"{text}\"")]
    Value {
        origin: SettingSource,
        name: &'static str,
        why: String,
        text: String,
    },
    #[error("{name}: {why}")]
    Refused { name: &'static str, why: String },
}

/// The settings, with the source of each value.
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    origins: Origins,
}

impl fmt::Debug for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effective")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Effective {
    /// Combines the defaults, the file, the environment and the flags.
    ///
    /// `variable` returns an environment variable.
    pub(crate) fn new(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingsError> {
        let mut origins = BTreeMap::new();
        for row in TABLE.iter() {
            origins.insert(row.name, (row.default.clone(), SettingSource::Default));
        }
        let file = matches.get_one::<PathBuf>(CONFIG).cloned();
        let file = file.or_else(|| variable(&variable_name(CONFIG)).map(PathBuf::from));
        if let Some(path) = file {
            read_file(&path, &mut origins)?;
        }
        for row in TABLE.iter() {
            let name = variable_name(row.name);
            if let Some(text) = variable(&name) {
                let text = text.to_string_lossy().into_owned();
                set(&mut origins, row, text, SettingSource::Environment(name))?;
            }
            if matches.value_source(row.name) == Some(ValueSource::CommandLine)
                && let Some(text) = matches.get_one::<String>(row.name)
            {
                let flag = format!("--{}", flag_name(row.name));
                set(&mut origins, row, text.clone(), SettingSource::Flag(flag))?;
            }
        }
        let settings = Settings::build(|name| origins.get(name).map_or("", |(text, _)| text));
        let mut settings = settings.map_err(|(name, why)| SettingsError::Refused { name, why })?;
        take_password_file(&mut settings, &mut origins)?;
        check(&settings)?;
        Ok(Self { settings, origins })
    }

    /// Returns whether the value was given explicitly, even if it equals the default.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.origins
            .get(name)
            .is_some_and(|(_, source)| *source != SettingSource::Default)
    }
}

/// Adds the arguments of a command that takes settings.
pub(crate) fn arguments(command: Command) -> Command {
    let file = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Configuration file in TOML; its keys are the names of these flags with underscores")
        .long_help(
            "Configuration file in TOML; its keys are the names of these flags with underscores. \
             Flags are stronger than environment variables (KEDGE_ and the name in capitals), and \
             these are stronger than the file.",
        );
    // The last of several wins, so that a script can append its own.
    command
        .args_override_self(true)
        .arg(file)
        .args(TABLE.iter().map(argument))
}

/// Returns the given flags without those of `without`, to pass them on to another process.
pub(crate) fn given_flags(matches: &ArgMatches, without: &[&str]) -> Vec<String> {
    let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let mut flags = Vec::new();
    if let Some(path) = matches.get_one::<PathBuf>(CONFIG).filter(|_| given(CONFIG)) {
        flags.push(format!("--{CONFIG}={}", path.display()));
    }
    for row in TABLE.iter().filter(|row| !without.contains(&row.name)) {
        if let Some(text) = matches
            .get_one::<String>(row.name)
            .filter(|_| given(row.name))
        {
            flags.push(format!("--{}={text}", flag_name(row.name)));
        }
    }
    flags
}

fn argument(row: &'static Setting) -> Arg {
    let default = match row.default_note {
        Some(note) => note.to_owned(),
        None => row.default.clone(),
    };
    let arg = Arg::new(row.name)
        .long(flag_name(row.name))
        .value_name(row.name.to_uppercase())
        .help(format!("{} [default: {default}]", row.doc))
        .help_heading(row.group);
    if row.kind == bool::KIND {
        return arg.num_args(0..=1).default_missing_value("true");
    }
    arg
}

fn flag_name(name: &str) -> String {
    name.replace('_', "-")
}

fn variable_name(name: &str) -> String {
    format!("KEDGE_{}", name.to_uppercase())
}

type Origins = BTreeMap<&'static str, (String, SettingSource)>;

fn set(
    origins: &mut Origins,
    row: &'static Setting,
    text: String,
    origin: SettingSource,
) -> Result<(), SettingsError> {
    match (row.check)(&text) {
        Ok(shown) => {
            origins.insert(row.name, (shown, origin));
            Ok(())
        }
        Err(why) => {
            let text = if row.secret { "***".to_owned() } else { text };
            Err(SettingsError::Value {
                origin,
                name: row.name,
                why,
                text,
            })
        }
    }
}

/// Takes the password from the file that `password_file` names, if it names one.
fn take_password_file(settings: &mut Settings, origins: &mut Origins) -> Result<(), SettingsError> {
    if settings.password_file.is_empty() {
        return Ok(());
    }
    let path = PathBuf::from(&settings.password_file);
    let prompt = format!("Password of {}: ", settings.user);
    let password =
        password::of_file_or_prompt(&path, &prompt).map_err(|source| SettingsError::Read {
            path: path.clone(),
            source,
        })?;
    settings.password = SecretText::new(&password);
    origins.insert("password", ("***".to_owned(), SettingSource::File(path)));
    Ok(())
}

fn read_file(path: &Path, origins: &mut Origins) -> Result<(), SettingsError> {
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let file = text.parse::<toml::Table>();
    let file = file.map_err(|source| SettingsError::Syntax {
        path: path.to_owned(),
        line: line_of(&text, source.span().map_or(0, |span| span.start)),
        why: source.message().to_owned(),
    })?;
    for (key, value) in file {
        let Some(row) = TABLE.iter().find(|row| row.name == key) else {
            let nearest = nearest(&key, TABLE.iter().map(|row| row.name)).unwrap_or_default();
            return Err(SettingsError::Unknown {
                path: path.to_owned(),
                key,
                nearest,
            });
        };
        let text = match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        set(origins, row, text, SettingSource::File(path.to_owned()))?;
    }
    Ok(())
}

/// Returns the number of the line, from 1, that has a byte of a text.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}

/// Checks conditions between several values.
fn check(settings: &Settings) -> Result<(), SettingsError> {
    let refused = |name, why: &str| {
        Err(SettingsError::Refused {
            name,
            why: why.to_owned(),
        })
    };
    if settings.vbuckets == 0 {
        return refused("vbuckets", "a bucket has at least 1 vBucket");
    }
    if !(1..=VALUE_BYTES_MAX as u64).contains(&settings.memcached_item_max.0) {
        return refused("memcached_item_max", "expected 1 to 20MiB");
    }
    if settings.request_memory_max.0 < REQUEST_MEMORY_MIN as u64 {
        return refused("request_memory_max", "it is at least 128MiB");
    }
    if settings.password.is_empty() {
        return refused("password", "it is empty");
    }
    if !(1 << 20..=1 << 30).contains(&settings.password_hash_memory.0) {
        return refused("password_hash_memory", "expected 1MiB to 1GiB");
    }
    if !(HASH_PASSES_MIN..=HASH_PASSES_MAX).contains(&settings.password_hash_passes) {
        return refused("password_hash_passes", "expected 1 to 64");
    }
    check_tls(settings)
}

/// A setting, whether its value does not fit the others, and why.
type SettingRule = (&'static str, bool, &'static str);

const NEEDS_TLS: &str = "it needs TLS: give --tls auto, or --tls-cert and --tls-key";

/// Checks that the settings of TLS fit each other, and that each protocol has a port.
fn check_tls(settings: &Settings) -> Result<(), SettingsError> {
    let has_files = !settings.tls_cert.is_empty();
    let is_on = settings.serves_tls();
    let is_off = |port| is_on && port == MaybePort::Off;
    let together = "tls_cert and tls_key go together";
    let is_own = "tls = auto makes a certificate of its own";
    let no_port = "the protocol has no other port";
    let is_kv_off = settings.kv_port == MaybePort::Off;
    let is_mgmt_off = settings.mgmt_port == MaybePort::Off;
    let mut rules: Vec<SettingRule> = vec![
        (
            "tls_key",
            has_files == settings.tls_key.is_empty(),
            together,
        ),
        (
            "tls_cert",
            has_files && settings.tls == TlsMode::Auto,
            is_own,
        ),
        (
            "client_certs",
            !is_on && settings.client_certs != ClientCertMode::Off,
            NEEDS_TLS,
        ),
    ];
    rules.extend(rules_of_cluster(settings));
    let has_master_key = settings.encryption_master_key.0.is_some();
    rules.push((
        "audit_log_encryption",
        settings.audit_log_encryption && !has_master_key,
        "it needs the master key of encryption_master_key",
    ));
    rules.extend([
        ("kv_port", is_kv_off && !is_on, NEEDS_TLS),
        ("mgmt_port", is_mgmt_off && !is_on, NEEDS_TLS),
        (
            "kv_port",
            is_kv_off && is_off(settings.kv_tls_port),
            no_port,
        ),
        (
            "mgmt_port",
            is_mgmt_off && is_off(settings.mgmt_tls_port),
            no_port,
        ),
    ]);
    match rules.into_iter().find(|(_, is_wrong, _)| *is_wrong) {
        None => Ok(()),
        Some((name, _, why)) => {
            let why = why.to_owned();
            Err(SettingsError::Refused { name, why })
        }
    }
}

/// Returns the rules of TLS between nodes.
fn rules_of_cluster(settings: &Settings) -> [SettingRule; 6] {
    let in_cluster = !settings.coordinator.is_empty();
    let encrypts = settings.cluster_encryption != ClusterEncryption::Off;
    let is_missing = |port| port == MaybePort::Off && in_cluster && !encrypts;
    let is_off = |port| port == MaybePort::Off && encrypts;
    let is_auto = settings.tls == TlsMode::Auto && in_cluster;
    let for_nodes = "the nodes of a cluster reach each other on it, unless cluster_encryption is tls or mutual_tls";
    let own_ca =
        "the nodes cannot verify certificates that sign themselves: give tls_cert and tls_key";
    let for_others = "the other nodes reach this one on it";
    [
        ("kv_port", is_missing(settings.kv_port), for_nodes),
        ("mgmt_port", is_missing(settings.mgmt_port), for_nodes),
        (
            "cluster_encryption",
            encrypts && !settings.serves_tls(),
            NEEDS_TLS,
        ),
        ("cluster_encryption", encrypts && is_auto, own_ca),
        ("kv_tls_port", is_off(settings.kv_tls_port), for_others),
        ("mgmt_tls_port", is_off(settings.mgmt_tls_port), for_others),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Loads settings from flags, environment and a file's text.
    fn load(
        flags: &[&str],
        environment: &[(&str, &str)],
        file: Option<&str>,
    ) -> Result<Effective, String> {
        let mut words: Vec<String> = std::iter::once("serve")
            .chain(flags.iter().copied())
            .map(str::to_owned)
            .collect();
        let mut handle = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        if let Some(text) = file {
            handle
                .write_all(text.as_bytes())
                .map_err(|error| error.to_string())?;
            words.push("--config".to_owned());
            words.push(handle.path().display().to_string());
        }
        let matches = arguments(Command::new("serve"))
            .try_get_matches_from(words)
            .map_err(|error| error.to_string())?;
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name)?;
            Some(OsString::from(found.1))
        };
        let path = handle.path().display().to_string();
        Effective::new(&matches, variable).map_err(|error| error.to_string().replace(&path, "FILE"))
    }

    #[test]
    fn password_of_a_file_is_stronger_and_in_no_debug_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "word of the file\n").unwrap();
        let path = file.path().display().to_string();
        let flags = ["--password=flagged", "--password-file", &path];
        let effective = load(&flags, &[], None).unwrap();
        assert_eq!(&*effective.settings.password, "word of the file");
        assert!(effective.is_given("password"));
        let debug = format!("{effective:?}");
        assert!(
            !debug.contains("word of") && !debug.contains("flagged"),
            "{debug}"
        );
        assert!(!text(&effective).contains("word of"));
        let missing = load(&["--password-file=/nowhere/else"], &[], None).unwrap_err();
        assert!(missing.starts_with("/nowhere/else: "), "{missing}");
        file.close().unwrap();
    }

    #[test]
    fn syntax_error_of_a_file_does_not_quote_the_line() {
        let error = load(&[], &[], Some("kv_port = 0\npassword = \"word of\n")).unwrap_err();
        assert!(error.starts_with("FILE: line 2: "), "{error}");
        assert!(!error.contains("word of"), "{error}");
    }

    #[test]
    fn request_memory_has_room_for_the_largest_request() {
        let load = |value| load(&["--request-memory-max", value], &[], None);
        let all = load("128MiB").expect("settings");
        assert_eq!(all.settings.request_memory_max.0, 128 << 20);
        let refused = load("127MiB").map(|_| ()).expect_err("it is too little");
        assert!(refused.contains("request_memory_max"), "{refused}");
    }

    #[test]
    fn later_setting_sources_take_precedence() {
        let file = "kv_port = 1\nmgmt_port = 2\nmemcached_port = 3\nflush_enabled = false\n\
                    bucket_quota = \"64MiB\"\n";
        let environment = [("KEDGE_MGMT_PORT", "20"), ("KEDGE_MEMCACHED_PORT", "30")];
        let flags = ["--memcached-port", "300", "--recover=salvage"];
        let all = load(&flags, &environment, Some(file)).expect("settings");
        let settings = &all.settings;
        assert_eq!(
            (
                settings.kv_port,
                settings.mgmt_port,
                settings.memcached_port
            ),
            (MaybePort::At(1), MaybePort::At(20), MaybePort::At(300))
        );
        assert_eq!(settings.bucket_settings.quota_bytes, Some(64 << 20));
        assert_eq!(settings.recover, Recover::Salvage);
        assert_eq!(settings.bucket_settings.flush_enabled, Some(false));
        assert!(settings.memcached_enabled);
        assert!(all.is_given("kv_port") && !all.is_given("bucket"));
        let source = |name| all.origins[name].1.to_string();
        assert_eq!(source("mgmt_port"), "KEDGE_MGMT_PORT");
        assert_eq!(source("memcached_port"), "--memcached-port");
        assert_eq!(source("listen"), "default");
    }

    #[test]
    fn settings_of_tls_have_to_fit_each_other() {
        let auto = &["--tls", "auto"][..];
        let with = |more: &[&'static str]| [auto, more].concat();
        let node = ["--coordinator", "embedded:x", "--node-name", "n"];
        let files = ["--tls-cert", "a", "--tls-key", "b"];
        let encrypted = ["--cluster-encryption", "tls"];
        let table: [(Vec<&str>, &str); 11] = [
            (encrypted.to_vec(), "cluster_encryption: it needs TLS"),
            (
                [auto, &node, &encrypted].concat(),
                "cluster_encryption: the nodes cannot verify",
            ),
            (
                with(&["--cluster-encryption=mutual_tls", "--kv-tls-port=off"]),
                "kv_tls_port: the other nodes reach",
            ),
            (
                vec!["--tls-cert", "a"],
                "tls_key: tls_cert and tls_key go together",
            ),
            (
                vec!["--tls-key", "a"],
                "tls_key: tls_cert and tls_key go together",
            ),
            (
                with(&["--tls-cert", "a", "--tls-key", "b"]),
                "tls_cert: tls = auto makes",
            ),
            (
                vec!["--client-certs", "optional"],
                "client_certs: it needs TLS",
            ),
            (vec!["--kv-port", "off"], "kv_port: it needs TLS"),
            (vec!["--mgmt-port", "off"], "mgmt_port: it needs TLS"),
            (
                with(&["--kv-port", "off", "--kv-tls-port", "off"]),
                "kv_port: the protocol has no",
            ),
            (
                with(&[
                    "--mgmt-port",
                    "off",
                    "--coordinator",
                    "embedded:x",
                    "--node-name",
                    "n",
                ]),
                "mgmt_port: the nodes of a cluster",
            ),
        ];
        for (flags, words) in table {
            let error = load(&flags, &[], None).map(|_| ()).expect_err(words);
            assert!(error.contains(words), "{flags:?}: {error}");
        }
        let off = ["--kv-port", "off", "--mgmt-port", "off"];
        load(&with(&off), &[], None).expect("there are ports of TLS");
        let nodes = [&files[..], &node, &encrypted, &off].concat();
        for ca in ["--cluster-ca=a", "--client-ca=a"] {
            let flags = [&nodes[..], &[ca]].concat();
            load(&flags, &[], None).expect("nodes use the ports of TLS");
        }
        load(&["--tls-min-version", "1.3"], &[], None).expect("a version");
        load(&[], &[], Some("tls_min_version = 1.3")).expect("a version");
    }

    #[test]
    fn boolean_flag_may_have_no_value() {
        let on = load(&["--flush-enabled", "--kv-port", "5"], &[], None).expect("settings");
        assert_eq!(on.settings.bucket_settings.flush_enabled, Some(true));
        let off = load(&["--flush-enabled", "false"], &[], None).expect("settings");
        assert_eq!(off.settings.bucket_settings.flush_enabled, Some(false));
    }

    #[test]
    fn invalid_settings_have_named_errors() {
        let table: [(&[&str], Option<&str>, &str); 10] = [
            (
                &[],
                Some("kv_prt = 1"),
                "FILE: unknown setting \"kv_prt\"; did you mean \"kv_port\"?",
            ),
            (&[], Some("vbucketz = 1"), "did you mean \"vbuckets\"?"),
            (
                &[],
                Some("kv_port = 70000"),
                "FILE: kv_port: expected a number from 0 to 65535",
            ),
            (&[], Some("kv_port = [1]"), "kv_port: expected a number"),
            (&[], Some("kv_port ="), "FILE: line 1: "),
            (
                &["--vbuckets", "0"],
                None,
                "vbuckets: a bucket has at least 1 vBucket",
            ),
            (
                &["--memcached-item-max", "0"],
                None,
                "memcached_item_max: expected 1 to 20MiB",
            ),
            (
                &[],
                Some("memcached_item_max = \"21MiB\""),
                "memcached_item_max: expected 1 to 20MiB",
            ),
            (
                &["--listen", "here"],
                None,
                "--listen: listen: expected an IP address, or localhost, not \"here\"",
            ),
            (
                &["--config", "/no/such/file"],
                None,
                "/no/such/file: No such file",
            ),
        ];
        for (flags, file, words) in table {
            let error = load(flags, &[], file).expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        let error = load(&[], &[("KEDGE_THREADS", "many")], None).expect_err("no number");
        assert!(
            error.starts_with("KEDGE_THREADS: threads: expected"),
            "{error}"
        );
    }

    #[test]
    fn every_setting_default_is_valid() {
        for row in TABLE.iter() {
            let default = row.default.clone();
            assert_eq!((row.check)(&default), Ok(default), "{}", row.name);
            assert!(row.doc.ends_with('.'), "{}", row.name);
        }
        load(&[], &[], None).expect("the defaults are settings");
    }
}
