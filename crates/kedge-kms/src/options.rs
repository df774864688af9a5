//! The options of a source: `?NAME=VALUE&NAME=VALUE`, percent-encoded where it is necessary.

use std::time::Duration;

/// The timeout of a request without another one in the settings.
const TIMEOUT_MS: u64 = 10_000;
const TIMEOUT_MS_MAX: u64 = 120_000;

/// The name of the timeout of a request.
pub(crate) const TIMEOUT: &str = "reqTimeoutMs";

/// Options by name, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// Reads options. The names that may be are `known`.
    pub(crate) fn read(text: &str, known: &[&str]) -> Result<Self, String> {
        let mut options: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !known.contains(&&*name) {
                return Err(format!(
                    "unknown option {name}; there are {}",
                    known.join(", ")
                ));
            }
            if options.iter().any(|(other, _)| *other == name) {
                return Err(format!("the option {name} is given twice"));
            }
            if value.is_empty() || value.contains(char::is_control) {
                return Err(format!("the option {name} has no value that can work"));
            }
            options.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(options))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_on(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(format!("the option {name} is true or false")),
        }
    }

    /// Returns the timeout of a request.
    pub(crate) fn timeout(&self) -> Result<Duration, String> {
        let Some(text) = self.text(TIMEOUT) else {
            return Ok(Duration::from_millis(TIMEOUT_MS));
        };
        let ms = text.parse().ok();
        let ms = ms.filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
        ms.map(Duration::from_millis)
            .ok_or_else(|| format!("{TIMEOUT} is a number from 1 to {TIMEOUT_MS_MAX}"))
    }

    /// Returns the text of the options, with `?` if there is one.
    pub(crate) fn show(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let encoded = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(&self.0)
            .finish();
        format!("?{encoded}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_shown() {
        let options = Options::read(
            "region=eu-1&useIMDS=true&reqTimeoutMs=50",
            &["region", "useIMDS", TIMEOUT],
        );
        let options = options.expect("options");
        assert_eq!(options.text("region"), Some("eu-1"));
        assert_eq!(options.is_on("useIMDS"), Ok(true));
        assert_eq!(options.timeout(), Ok(Duration::from_millis(50)));
        assert_eq!(options.show(), "?region=eu-1&useIMDS=true&reqTimeoutMs=50");
        assert_eq!(Options::default().timeout(), Ok(Duration::from_secs(10)));
        assert_eq!(Options::default().show(), "");
    }

    #[test]
    fn unknown_repeated_and_empty_options_are_refused() {
        for wrong in ["x=1", "region=a&region=b", "region=", "region=a%0d%0ab"] {
            assert!(Options::read(wrong, &["region"]).is_err(), "{wrong}");
        }
        let options =
            Options::read("useIMDS=yes&reqTimeoutMs=0", &["useIMDS", TIMEOUT]).expect("options");
        assert!(options.is_on("useIMDS").is_err());
        assert!(options.timeout().is_err());
    }
}
