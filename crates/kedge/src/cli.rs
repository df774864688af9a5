//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::load;

/// Memory-first, durable key-value server for JSON and binary documents.
#[derive(Parser)]
#[command(name = "kedge", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a server under a load of GETs and SETs
    Load(load::LoadArgs),
}

/// Parses the command line and runs the command.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Load(args) => match load::run(&args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(3),
            Err(error) => {
                eprintln!("kedge load: {error}");
                ExitCode::FAILURE
            }
        },
    }
}
