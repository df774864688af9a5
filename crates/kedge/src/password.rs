//! Passwords from files and terminals, so that none has to be on a command line, which other users of the machine see.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// The name of a file that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// The password that was typed: standard input has it once, and a tool may need it twice.
static TYPED: OnceLock<Zeroizing<String>> = OnceLock::new();

/// Returns the first line of a file; of `-` that of standard input, see [`prompt`].
pub(crate) fn of_file_or_input(path: &Path, user: &str) -> io::Result<Zeroizing<String>> {
    if path.as_os_str() != STANDARD_INPUT {
        return of_file(path);
    }
    if let Some(typed) = TYPED.get() {
        return Ok(typed.clone());
    }
    let typed = prompt(&format!("Password of {user}: "))?;
    Ok(TYPED.get_or_init(|| typed).clone())
}

/// Returns the first line of a file; of `-` that of standard input, see [`prompt`]. Nothing is remembered.
pub(crate) fn of_file_or_prompt(path: &Path, text: &str) -> io::Result<Zeroizing<String>> {
    match path.as_os_str() == STANDARD_INPUT {
        true => prompt(text),
        false => of_file(path),
    }
}

/// Returns the first line of a file, without its end.
pub(crate) fn of_file(path: &Path) -> io::Result<Zeroizing<String>> {
    let text = Zeroizing::new(std::fs::read_to_string(path)?);
    Ok(first_line(&text))
}

/// Reads one line of standard input; on a terminal it prompts first and does not echo the input.
pub(crate) fn prompt(text: &str) -> io::Result<Zeroizing<String>> {
    let stdin = io::stdin();
    let mut line = Zeroizing::new(String::new());
    if stdin.is_terminal() {
        let shown = tcgetattr(&stdin)?;
        let mut hidden = shown.clone();
        hidden.local_modes -= LocalModes::ECHO;
        eprint!("{text}");
        io::stderr().flush()?;
        tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
        let read = stdin.lock().read_line(&mut line);
        tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
        eprintln!();
        read?;
    } else {
        stdin.lock().read_line(&mut line)?;
    }
    Ok(first_line(&line))
}

fn first_line(text: &str) -> Zeroizing<String> {
    let line = text.split('\n').next().unwrap_or_default();
    Zeroizing::new(line.trim_end_matches('\r').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_of_a_file_is_its_first_line() {
        for (text, expected) in [
            ("secret", "secret"),
            ("two words \r\nmore\n", "two words "),
            ("\nsecret", ""),
            ("", ""),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(of_file(file.path()).unwrap().as_str(), expected, "{text:?}");
        }
    }
}
