//! `kedge cert`: certificates for development and for small installations.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use kedge_tls::{CertificateInfo, Issued, Request, TlsError, Usage, issue, new_authority};

use crate::output;

/// The name of the files of a CA.
const CA: &str = "ca";

/// Make a CA and certificates of nodes and clients, and show certificates
#[derive(Args, Clone, Debug)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    command: CertCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum CertCommand {
    /// Make a CA: ca.pem, which clients trust, and ca-key.pem, which signs
    Ca {
        /// Common name
        #[arg(long, default_value = "Kedge CA")]
        name: String,
        #[command(flatten)]
        place: Place,
        /// Days until it expires
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make the certificate of a node, signed by the CA: NAME.pem, which ends with the CA, and NAME-key.pem
    Node {
        /// Name of the node, and of the files
        name: String,
        /// Host names and addresses at which clients reach the node
        #[arg(
            long = "host",
            value_delimiter = ',',
            default_value = "localhost,127.0.0.1,::1"
        )]
        hosts: Vec<String>,
        #[command(flatten)]
        signed: Signed,
    },
    /// Make the certificate of a client, signed by the CA: USER.pem and USER-key.pem
    Client {
        /// Name of the user, which is the common name of the certificate, and the name of the files
        user: String,
        /// Alternative names: mail addresses, URIs or DNS names
        #[arg(long = "san", value_delimiter = ',')]
        names: Vec<String>,
        #[command(flatten)]
        signed: Signed,
    },
    /// Show the certificates of a PEM file
    Show {
        /// The file
        file: PathBuf,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Clone, Debug)]
struct Place {
    /// Directory of the files
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

#[derive(Args, Clone, Debug)]
struct Signed {
    #[command(flatten)]
    place: Place,
    /// Certificate of the CA [default: ca.pem of the directory]
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Private key of the CA [default: ca-key.pem of the directory]
    #[arg(long)]
    ca_key: Option<PathBuf>,
    /// Days until it expires
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

/// The reason why a certificate is not made or shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CertError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{} exists; give --force to replace it, or another --dir", path.display())]
    Exists { path: PathBuf },
    #[error("\"{0}\" cannot be the name of a file")]
    Name(String),
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0}")]
    Output(#[from] std::io::Error),
}

pub(crate) fn run(args: &CertArgs) -> Result<(), CertError> {
    let now = SystemTime::now();
    match &args.command {
        CertCommand::Ca { name, place, days } => {
            check_free(place, CA)?;
            write(&new_authority(name, *days, now)?, &place.dir, CA)
        }
        CertCommand::Node {
            name,
            hosts,
            signed,
        } => make(name, hosts, Usage::Node, signed, now),
        CertCommand::Client {
            user,
            names,
            signed,
        } => make(user, names, Usage::Client, signed, now),
        CertCommand::Show { file, json } => show(file, *json, now),
    }
}

fn make(
    name: &str,
    names: &[String],
    usage: Usage,
    signed: &Signed,
    now: SystemTime,
) -> Result<(), CertError> {
    let dir = &signed.place.dir;
    check_free(&signed.place, name)?;
    let ca = signed.ca.clone().unwrap_or_else(|| dir.join("ca.pem"));
    let key = signed.ca_key.clone();
    let key = key.unwrap_or_else(|| dir.join("ca-key.pem"));
    let request = Request {
        usage,
        common_name: name.to_owned(),
        names: names.to_vec(),
        days: signed.days,
    };
    let ca = read(&ca)?;
    let issued = issue((&ca, &read(&key)?), &request, now)?;
    let issued = match usage {
        // Nodes trust the CA that ends their chain.
        Usage::Node => issued.with_authority(&ca),
        Usage::Client => issued,
    };
    write(&issued, dir, name)
}

fn read(path: &Path) -> Result<String, CertError> {
    std::fs::read_to_string(path).map_err(|source| CertError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Checks that the files of a name can be made.
fn check_free(place: &Place, name: &str) -> Result<(), CertError> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(CertError::Name(name.to_owned()));
    }
    for path in [format!("{name}.pem"), format!("{name}-key.pem")] {
        let path = place.dir.join(path);
        if path.exists() && !place.force {
            return Err(CertError::Exists { path });
        }
    }
    Ok(())
}

fn write(issued: &Issued, dir: &Path, name: &str) -> Result<(), CertError> {
    let (certificate, key) = issued.write(dir, name)?;
    let made = CertificateInfo::of_file(&certificate)?;
    let fingerprint = made.first().map_or("", |it| &it.fingerprint);
    let (certificate, key) = (certificate.display(), key.display());
    output::print(&format!(
        "certificate {certificate}\nkey         {key}\nSHA-256     {fingerprint}\n"
    ))?;
    Ok(())
}

fn show(file: &Path, json: bool, now: SystemTime) -> Result<(), CertError> {
    let found = CertificateInfo::of_file(file)?;
    if json {
        let text = serde_json::to_string_pretty(&found).unwrap_or_default();
        return Ok(output::print(&(text + "\n"))?);
    }
    let mut text = String::new();
    for (at, certificate) in found.iter().enumerate() {
        let (not_before, not_after) = certificate.validity_text();
        let left = certificate.expires_in(now);
        let left = match left {
            ..0 => "expired".to_owned(),
            _ => format!("{} days left", left / 86_400),
        };
        let rows = [
            ("subject", certificate.subject.clone()),
            ("issuer", certificate.issuer.clone()),
            ("names", certificate.names.join(", ")),
            (
                "CA",
                if certificate.is_ca { "yes" } else { "no" }.to_owned(),
            ),
            ("valid from", not_before),
            ("valid until", format!("{not_after} ({left})")),
            ("SHA-256", certificate.fingerprint.clone()),
        ];
        if at > 0 {
            text.push('\n');
        }
        for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
            text += &format!("{name:<12}{value}\n");
        }
    }
    Ok(output::print(&text)?)
}
