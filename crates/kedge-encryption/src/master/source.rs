//! The sources of a master key in this process.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::form::from_bytes;
use super::{LocalMasterKey, MasterKeyError, MasterKeyInfo};

/// Largest number of bytes that a source may give.
const SOURCE_BYTES_MAX: u64 = 4096;
/// Longest time that a command may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);

/// The place that a master key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterKeySource {
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// The standard output of a command of the shell, which ends with success.
    Command(String),
}

impl FromStr for MasterKeySource {
    type Err = String;

    /// Reads `file:PATH`, `env:NAME` or `command:COMMAND`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or_default();
        let rest = || rest.to_owned();
        match kind {
            _ if text.ends_with(':') => {}
            "file" => return Ok(Self::File(rest().into())),
            "env" => return Ok(Self::Environment(rest())),
            "command" => return Ok(Self::Command(rest())),
            _ => {}
        }
        Err("expected file:PATH, env:NAME or command:COMMAND".to_owned())
    }
}

impl fmt::Display for MasterKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Environment(name) => write!(f, "env:{name}"),
            Self::Command(command) => write!(f, "command:{command}"),
        }
    }
}

impl MasterKeySource {
    /// Gets the key.
    ///
    /// # Errors
    /// [`MasterKeyError`].
    pub fn load(&self) -> Result<LocalMasterKey, MasterKeyError> {
        let bytes = match self {
            Self::File(path) => {
                let bytes = File::open(path).and_then(read_limited);
                bytes.map_err(|source| MasterKeyError::File {
                    file: path.clone(),
                    source,
                })?
            }
            Self::Environment(name) => {
                let text = std::env::var_os(name);
                let text = text.ok_or_else(|| MasterKeyError::Variable(name.clone()))?;
                Zeroizing::new(text.into_encoded_bytes())
            }
            Self::Command(command) => {
                output(command, COMMAND_TIME_MAX).map_err(|why| MasterKeyError::Command {
                    command: command.clone(),
                    why,
                })?
            }
        };
        let secret = from_bytes(&bytes).map_err(|source| MasterKeyError::Form {
            from: self.to_string(),
            source,
        })?;
        let info = MasterKeyInfo::local(&self.place());
        Ok(LocalMasterKey::new(secret).described(info))
    }

    /// Returns the place for statuses. A command may contain secrets.
    fn place(&self) -> String {
        match self {
            Self::Command(_) => "command".to_owned(),
            other => other.to_string(),
        }
    }
}

fn read_limited(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // With its capacity from the start, it leaves no copies.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SOURCE_BYTES_MAX as usize + 1));
    from.take(SOURCE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Runs a command and returns its standard output, or the fault of it.
fn output(command: &str, time_max: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("could not be run: {error}"))?;
    let stdout = child.stdout.take().expect("it is a pipe");
    let (done, read) = mpsc::channel();
    // The receiver is gone if it took too long. The thread ends with the command's end of the pipe.
    let reader = std::thread::Builder::new().name("kedge-master-key".to_owned());
    let reader = reader.spawn(move || drop(done.send(read_limited(stdout))));
    let bytes = match (reader, read.recv_timeout(time_max)) {
        (Err(error), _) => Err(format!("could not be read: {error}")),
        (Ok(_), Err(_)) => Err(format!("took longer than {} s", time_max.as_secs())),
        (Ok(_), Ok(bytes)) => bytes.map_err(|error| format!("could not be read: {error}")),
    };
    let bytes = bytes.inspect_err(|_| end(&mut child))?;
    let status = child
        .wait()
        .map_err(|error| format!("could not be run: {error}"))?;
    match status.success() {
        true => Ok(bytes),
        false => Err(format!("failed: {status}")),
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MasterKey;

    const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn source(text: &str) -> MasterKeySource {
        text.parse().expect("a source")
    }

    fn error(text: &str) -> String {
        source(text).load().expect_err("no key").to_string()
    }

    #[test]
    fn texts_of_sources_are_read_and_shown() {
        for text in [
            "file:/etc/key",
            "env:KEDGE_KEY",
            "command:vault read -field=key x:y",
        ] {
            assert_eq!(source(text).to_string(), text);
        }
        for wrong in ["", "file:", "/etc/key", "aws:x", "FILE:/x"] {
            assert!(wrong.parse::<MasterKeySource>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn file_and_command_give_the_same_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        std::fs::write(&path, format!("{HEX}\n")).expect("written");
        let from_file = source(&format!("file:{}", path.display()))
            .load()
            .expect("a key");
        let from_command = source(&format!("command:echo {HEX}"))
            .load()
            .expect("a key");
        assert_eq!(from_file.name(), from_command.name());
        let place = format!("file:{}", path.display());
        assert_eq!(from_file.info().source, place);
        assert_eq!(from_command.info().source, "command");
    }

    #[test]
    fn errors_name_the_source_and_never_the_key() {
        assert!(error("file:/missing/key").contains("/missing/key"));
        assert!(error("env:KEDGE_NO_SUCH_VARIABLE").contains("KEDGE_NO_SUCH_VARIABLE"));
        let failed = error(&format!("command:echo {HEX}; exit 3"));
        assert!(failed.contains("failed: exit status: 3"), "{failed}");
        let wrong = error("command:printf secret");
        assert!(wrong.contains("expected 32 bytes"), "{wrong}");
        assert!(wrong.ends_with("found 6 bytes of text"), "{wrong}");
    }

    #[test]
    fn command_that_takes_too_long_is_ended() {
        let slow = output("exec sleep 600", Duration::from_millis(50));
        assert_eq!(slow.map(|_| ()), Err("took longer than 0 s".to_owned()));
    }

    #[test]
    fn large_output_is_cut() {
        let large = error("command:head -c 100000 /dev/zero");
        assert!(
            large.contains("failed") || large.contains("found 4096 bytes"),
            "{large}"
        );
    }
}
