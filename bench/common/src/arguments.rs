//! What a benchmark is told on its command line and by its environment, and how it ends when that does not work.

use std::collections::HashMap;
use std::fmt::Display;
use std::{env, fs, process};

/// What a benchmark was told.
#[derive(Debug, Default)]
pub struct Arguments {
    /// A part of the names of what to measure; empty means all.
    pub filter: String,
    values: HashMap<String, String>,
}

impl Arguments {
    /// The words of this process. `flags` are those with a value that the benchmark has beside `--json FILE`. A word
    /// that is not known ends the process with status 2 and `usage`.
    #[must_use]
    pub fn of_process(usage: &str, flags: &[&str]) -> Self {
        Self::parse(env::args().skip(1), flags).unwrap_or_else(|word| {
            eprintln!("do not know what to do with {word}; usage: {usage}");
            process::exit(2);
        })
    }

    /// # Errors
    /// The flag that is not known, or that has no value.
    fn parse(mut words: impl Iterator<Item = String>, flags: &[&str]) -> Result<Self, String> {
        let mut given = Self::default();
        while let Some(word) = words.next() {
            if word == "--json" || flags.contains(&word.as_str()) {
                let value = words.next().ok_or_else(|| word.clone())?;
                given.values.insert(word, value);
            } else if !word.starts_with('-') {
                given.filter = word;
            } else if word != "--bench" {
                // `--bench` is what cargo says to every benchmark.
                return Err(word);
            }
        }
        Ok(given)
    }

    /// The value of a flag, if it was given.
    #[must_use]
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.values.get(flag).map(String::as_str)
    }

    /// Writes the samples to the file of `--json`, if there is to be one; ends the process if that does not work.
    pub fn write_json(&self, samples: &impl Display) {
        if let Some(path) = self.value("--json") {
            fs::write(path, samples.to_string())
                .unwrap_or_else(|error| fail(&format_args!("cannot write {path}: {error}")));
        }
    }
}

/// The first of two efforts if the run is to be a short one: `QUICK` is set, to something other than 0.
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
    fn flags_have_values_and_another_word_is_the_filter() {
        let given = parse("--json a.json update --bench --dir /b").expect("all is known");
        assert_eq!(given.filter, "update");
        assert_eq!(given.value("--json"), Some("a.json"));
        assert_eq!(given.value("--dir"), Some("/b"));
        let none = parse("").expect("nothing is fine");
        assert_eq!((none.filter.as_str(), none.value("--dir")), ("", None));
    }

    #[test]
    fn what_is_not_known_is_named() {
        assert_eq!(parse("insert --tmpfs /c").unwrap_err(), "--tmpfs");
        assert_eq!(parse("insert --dir").unwrap_err(), "--dir");
    }
}
