//! The command line and environment of a benchmark, and its end when they are wrong.

use std::collections::HashMap;
use std::fmt::Display;
use std::{env, fs, process};

/// The arguments of a benchmark.
#[derive(Debug, Default)]
pub struct Arguments {
    /// A part of the names of the measurements to run; empty for all.
    pub filter: String,
    values: HashMap<String, String>,
}

impl Arguments {
    /// Parses the arguments of this process. `flags` are the flags with a value that the benchmark has besides
    /// `--json FILE`. An unknown word ends the process with status 2 and `usage`.
    #[must_use]
    pub fn of_process(usage: &str, flags: &[&str]) -> Self {
        Self::parse(env::args().skip(1), flags).unwrap_or_else(|word| {
            eprintln!("do not know what to do with {word}; usage: {usage}");
            process::exit(2);
        })
    }

    /// # Errors
    /// The flag that is unknown, or has no value.
    fn parse(mut words: impl Iterator<Item = String>, flags: &[&str]) -> Result<Self, String> {
        let mut given = Self::default();
        while let Some(word) = words.next() {
            if word == "--json" || flags.contains(&word.as_str()) {
                let value = words.next().ok_or_else(|| word.clone())?;
                given.values.insert(word, value);
            } else if !word.starts_with('-') {
                given.filter = word;
            } else if word != "--bench" {
                // `--bench` is the word that cargo passes to every benchmark.
                return Err(word);
            }
        }
        Ok(given)
    }

    /// Returns the value of a flag, if given.
    #[must_use]
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.values.get(flag).map(String::as_str)
    }

    /// Writes the samples to the file of `--json`, if given; ends the process if that fails.
    pub fn write_json(&self, samples: &impl Display) {
        if let Some(path) = self.value("--json") {
            fs::write(path, samples.to_string())
                .unwrap_or_else(|error| fail(&format_args!("cannot write {path}: {error}")));
        }
    }
}

/// Returns the first of two efforts if `QUICK` is set to something other than 0.
#[must_use]
pub fn if_quick<T>(quick: T, full: T) -> T {
    let is_quick = env::var("QUICK").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    if is_quick { quick } else { full }
}

/// Ends the process with status 1.
pub fn fail(message: &impl Display) -> ! {
    eprintln!("{message}");
    process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Arguments, String> {
        Arguments::parse(words.split_whitespace().map(str::to_owned), &["--dir"])
    }

    #[test]
    fn arguments_parse_flags_and_the_filter() {
        let given = parse("--json a.json update --bench --dir /b").expect("all is known");
        assert_eq!(given.filter, "update");
        assert_eq!(given.value("--json"), Some("a.json"));
        assert_eq!(given.value("--dir"), Some("/b"));
        let none = parse("").expect("nothing is fine");
        assert_eq!((none.filter.as_str(), none.value("--dir")), ("", None));
    }

    #[test]
    fn unknown_flag_is_named() {
        assert_eq!(parse("insert --tmpfs /c").unwrap_err(), "--tmpfs");
        assert_eq!(parse("insert --dir").unwrap_err(), "--dir");
    }
}
