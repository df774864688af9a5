//! Confirmation of irreversible actions.

use std::io::{self, IsTerminal, Write as _};

use clap::Args;

use super::ToolError;

/// The flag `--yes` of commands that drop something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Confirm {
    /// Do not ask for confirmation; needed without a terminal
    #[arg(short, long)]
    yes: bool,
}

impl Confirm {
    /// Asks whether to do `what`, unless `--yes` was given.
    ///
    /// # Errors
    /// `Usage` when the answer is no, or there is no terminal to ask at; `Io`.
    pub(crate) fn ask(self, what: &str) -> Result<(), ToolError> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(ToolError::Usage(format!(
                "not done: {what}; without a terminal to confirm at, --yes is required"
            )));
        }
        eprint!("{what}? This cannot be undone. [y/N] ");
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if is_yes(&answer) {
            Ok(())
        } else {
            Err(ToolError::Usage(format!("not done: {what}")))
        }
    }
}

fn is_yes(answer: &str) -> bool {
    let answer = answer.trim();
    answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmation_accepts_only_a_clear_yes() {
        for (answer, expected) in [
            ("y\n", true),
            ("YES\r\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yes please\n", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
