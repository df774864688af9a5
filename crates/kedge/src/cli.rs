//! The command line.

use std::fmt::Display;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use kedge_cluster::Release;

use crate::tools::couchstore::{FileError, check, dump};
use crate::tools::{
    audit, bucket, cert, cluster, collection, compact, encryption, import, set, stats, timings,
    user, vbucket,
};
use crate::{cluster_run, load, output, permissions, serve, settings};

/// Exit codes besides 0; clap's own is 2 for an invalid command line.
mod exit {
    /// The command failed; standard error has the reason.
    pub(super) const FAILED: u8 = 1;
    /// `kedge load` ran, and some requests failed.
    pub(super) const REQUESTS_FAILED: u8 = 3;
}

/// The name of the argument with the password of a login.
const PASSWORD: &str = "password";

/// Memory-first, durable key-value server for JSON and binary documents.
#[derive(Parser)]
#[command(name = "kedge", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Tool,
}

/// Commands whose flags are declared beside them. The table of settings defines those of `serve`, `cluster-run` and
/// `config`.
#[derive(Subcommand)]
enum Tool {
    #[command(display_order = 1)]
    Load(Box<load::LoadArgs>),
    #[command(display_order = 2)]
    Stats(stats::StatsArgs),
    #[command(display_order = 3)]
    Timings(timings::TimingsArgs),
    #[command(display_order = 4)]
    User(user::UserArgs),
    #[command(display_order = 5)]
    Bucket(bucket::BucketArgs),
    #[command(display_order = 5)]
    Collection(collection::CollectionArgs),
    #[command(display_order = 6)]
    Compact(compact::CompactArgs),
    #[command(display_order = 7)]
    Dump(Box<dump::DumpArgs>),
    #[command(display_order = 8)]
    Check(check::CheckArgs),
    #[command(display_order = 9)]
    Import(Box<import::ImportArgs>),
    #[command(display_order = 11)]
    Vbucket(vbucket::VbucketArgs),
    #[command(display_order = 12)]
    Cluster(cluster::ClusterArgs),
    #[command(display_order = 12)]
    Cert(cert::CertArgs),
    #[command(display_order = 12)]
    Encryption(encryption::EncryptionArgs),
    #[command(display_order = 12)]
    Audit(audit::AuditArgs),
    /// Print the version
    #[command(display_order = 13)]
    Version,
}

#[derive(Args)]
struct ConfigArgs {
    /// Print docs/config.md instead: all settings and their meaning
    #[arg(long)]
    markdown: bool,
}

fn command() -> Command {
    let serve = Command::new("serve").about("Run the server");
    let config = Command::new("config")
        .about("Print the settings that serve would use, and where each comes from")
        .subcommand(set::SetArgs::augment_args(Command::new("set")))
        .display_order(10);
    Cli::command()
        .subcommand(settings::arguments(serve).display_order(0))
        .subcommand(cluster_run::command().display_order(0))
        .subcommand(ConfigArgs::augment_args(settings::arguments(config)))
}

/// Warns about a password on the command line. A flag cannot be hidden: the arguments of a process are readable by all users of the machine.
fn warn_of_visible_passwords(matches: &ArgMatches) {
    for (id, flag) in visible_passwords(matches) {
        let other = match id {
            PASSWORD => "--password-file, or the variable KEDGE_PASSWORD",
            _ => "--new-password-file, or the variable KEDGE_NEW_PASSWORD",
        };
        output::complain(format_args!(
            "warning: other users of this machine see the password of {flag}; use {other}"
        ));
    }
}

/// Returns the flags of a command line that are passwords, but for the well-known default.
fn visible_passwords(matches: &ArgMatches) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut level = Some(matches);
    while let Some(matches) = level {
        for (id, flag) in [(PASSWORD, "--password"), ("new_password", "--new-password")] {
            let is_there = matches!(matches.try_contains_id(id), Ok(true));
            if !is_there || matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let mut values = matches.get_raw(id).into_iter().flatten();
            // A subcommand has the flags of the command above it, too.
            let is_new = !found.contains(&(id, flag));
            if is_new && values.any(|value| value != settings::DEFAULT_PASSWORD) {
                found.push((id, flag));
            }
        }
        level = matches.subcommand().map(|(_, below)| below);
    }
    found
}

/// Parses the command line and runs the command, as that release.
#[must_use]
pub fn main(release: Release) -> ExitCode {
    permissions::keep_new_files_private();
    let matches = command().get_matches();
    warn_of_visible_passwords(&matches);
    match matches.subcommand() {
        Some(("serve", matches)) => return serve::run(matches, release),
        Some(("cluster-run", matches)) => return cluster_run::run(matches, release),
        Some(("config", matches)) => {
            if let Some(("set", matches)) = matches.subcommand() {
                return match set::SetArgs::from_arg_matches(matches) {
                    Ok(args) => finish("config set", set::run(&args)),
                    Err(error) => error.exit(),
                };
            }
            let markdown = matches.get_flag("markdown");
            let text = if markdown {
                Ok(settings::markdown())
            } else {
                config_text(matches)
            };
            return finish("config", text.map(|text| output::print(&text)));
        }
        _ => {}
    }
    // clap has refused all other commands.
    let tool = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli.command,
        Err(error) => error.exit(),
    };
    match tool {
        Tool::Load(args) => match load::run(&args) {
            Ok(false) => ExitCode::from(exit::REQUESTS_FAILED),
            other => finish("load", other),
        },
        Tool::Stats(args) => finish("stats", stats::run(&args)),
        Tool::Timings(args) => finish("timings", timings::run(&args)),
        Tool::User(args) => finish("user", user::run(&args)),
        Tool::Bucket(args) => finish("bucket", bucket::run(&args)),
        Tool::Collection(args) => finish("collection", collection::run(&args)),
        Tool::Compact(args) => finish("compact", compact::run(&args)),
        Tool::Dump(args) => finish_file("dump", dump::run(&args).map(|()| 0)),
        Tool::Check(args) => finish_file("check", check::run(&args)),
        Tool::Cluster(args) => finish("cluster", cluster::run(&args)),
        Tool::Cert(args) => finish("cert", cert::run(&args)),
        Tool::Encryption(args) => finish("encryption", encryption::run(&args)),
        Tool::Audit(args) => finish("audit", audit::run(&args)),
        Tool::Vbucket(args) => finish("vbucket", vbucket::run(&args)),
        Tool::Import(args) => finish("import", import::run(&args)),
        Tool::Version => finish(
            "version",
            output::print(&format!("kedge {}\n", release.version)),
        ),
    }
}

fn config_text(matches: &ArgMatches) -> Result<String, settings::SettingsError> {
    let effective = settings::Effective::new(matches, |name| std::env::var_os(name))?;
    Ok(settings::text(&effective))
}

/// Returns the exit code of a command and prints its error to standard error.
fn finish<T>(command: &str, result: Result<T, impl Display>) -> ExitCode {
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kedge {command}: {error}");
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Returns the exit code of a command about files and prints its error.
fn finish_file(command: &str, result: Result<u8, FileError>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("kedge {command}: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }

    /// Checks that the subcommands of a command have descriptions of their own.
    fn check_descriptions(command: &Command, path: &str) {
        let mut seen = HashMap::new();
        for below in command.get_subcommands() {
            let name = format!("{path} {}", below.get_name());
            let about = below.get_about().map(ToString::to_string);
            let about = about.filter(|about| !about.is_empty());
            let about = about.unwrap_or_else(|| panic!("{name} has no description"));
            if let Some(other) = seen.insert(about, name.clone()) {
                panic!("{other} and {name} have the same description");
            }
            check_descriptions(below, &name);
        }
    }

    #[test]
    fn every_command_has_its_own_description() {
        // `kedge help` showed the text of `version` for `cluster`, and none for `version`: a doc comment stood before
        // the wrong command.
        let command = command();
        check_descriptions(&command, "kedge");
        let about = |name: &str| {
            let found = command.find_subcommand(name).and_then(Command::get_about);
            found.map(ToString::to_string).unwrap_or_default()
        };
        assert_eq!(about("version"), "Print the version");
        assert!(about("cluster").contains("node"), "{}", about("cluster"));
    }

    fn names(command: &Command) -> BTreeSet<&str> {
        let below = command.get_subcommands().map(Command::get_name);
        below.filter(|name| *name != "help").collect()
    }

    /// Returns the texts between backquotes.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    /// The list of commands in the architecture had no `version`.
    #[test]
    fn documents_list_all_commands() {
        let command = command();
        let page = include_str!("../../../docs/architecture.md");
        let row = page
            .lines()
            .find(|line| line.starts_with("| 10 | `kedge` |"));
        let listed = quoted(row.expect("the row")).skip(1).collect();
        assert_eq!(names(&command), listed, "docs/architecture.md");

        let page = include_str!("../../../docs/reference/cli.md");
        let mut listed = BTreeSet::new();
        for row in page.lines().filter(|line| line.starts_with("| `kedge ")) {
            let cell = row.split('|').nth(1).expect("a cell");
            let mut words = quoted(cell);
            let mut first = words.next().expect("a command").split(' ').skip(1);
            let name = first.next().expect("a name");
            listed.insert(name);
            let found = command.find_subcommand(name);
            let found = found.unwrap_or_else(|| panic!("there is no kedge {name}"));
            let expected = names(found);
            // Commands without commands of their own have arguments there.
            if !expected.is_empty() && name != "config" {
                assert_eq!(expected, first.chain(words).collect(), "kedge {name}");
            }
        }
        assert_eq!(names(&command), listed, "docs/reference/cli.md");
    }
}
