//! The shared files of AWS with profiles: `~/.aws/credentials` and `~/.aws/config`.

use std::fmt;

use zeroize::Zeroizing;

use super::environment::Environment;
use super::source::AwsSource;
use crate::service::ServiceError;

/// The name of the profile without another one in the settings.
const DEFAULT: &str = "default";

/// The values of a profile.
#[derive(Default)]
pub(super) struct Profile {
    name: String,
    /// `true` if the settings ask for the profile.
    is_given: bool,
    values: Vec<(String, Zeroizing<String>)>,
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profile({})", self.name)
    }
}

impl Profile {
    /// Reads the profile of the settings. Files that do not exist are left out, unless the settings name them.
    pub(super) fn load(
        source: &AwsSource,
        environment: &dyn Environment,
    ) -> Result<Self, ServiceError> {
        let given = source.option("profile").map(str::to_owned);
        let is_given = given.is_some() || source.option("credentialsFile").is_some();
        let name = given.or_else(|| environment.variable("AWS_PROFILE"));
        let name = name.unwrap_or_else(|| DEFAULT.to_owned());
        let mut values = Vec::new();
        for (option, variable, file, sections) in [
            (
                "credentialsFile",
                "AWS_SHARED_CREDENTIALS_FILE",
                ".aws/credentials",
                [name.clone(), name.clone()],
            ),
            (
                "configFile",
                "AWS_CONFIG_FILE",
                ".aws/config",
                [format!("profile {name}"), section_of(&name)],
            ),
        ] {
            let path = match source.option(option) {
                Some(path) => Some(path.to_owned()),
                None => environment
                    .variable(variable)
                    .or_else(|| environment.home(file)),
            };
            let Some(path) = path else { continue };
            match environment.file(&path) {
                Ok(text) => values.extend(section(&text, &sections)),
                Err(error) if source.option(option).is_some() => {
                    return Err(ServiceError::refused(format!(
                        "cannot read {path}: {error}"
                    )));
                }
                Err(_) => {}
            }
        }
        Ok(Self {
            name,
            is_given,
            values,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns a value; that of the credentials file comes first.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Returns the section of the configuration file that needs no `profile` before its name.
fn section_of(name: &str) -> String {
    match name {
        DEFAULT => DEFAULT.to_owned(),
        name => format!("profile {name}"),
    }
}

/// Returns the values of a section.
fn section(text: &str, names: &[String]) -> Vec<(String, Zeroizing<String>)> {
    let (mut is_in, mut values) = (false, Vec::new());
    for line in text.lines() {
        // Lines that begin with a blank belong to the value above, which is none that matters.
        if line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            let words: Vec<&str> = header.split_whitespace().collect();
            is_in = names.contains(&words.join(" "));
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_in) {
            let value = Zeroizing::new(value.trim().to_owned());
            values.push((name.trim().to_ascii_lowercase(), value));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::super::environment::testing::TestEnvironment;
    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key=s=\n\n# x = y\n[other]\naws_access_key_id=B\n";
    const CONFIG: &str = "[default]\nregion = eu-1\n[profile  other]\nregion=us-2\ns3 =\n  region = no\n[other]\nregion=no\n";

    fn load(source: &str, environment: &TestEnvironment) -> Profile {
        let source = AwsSource::read(source).expect("a source");
        Profile::load(&source, environment).expect("a profile")
    }

    #[test]
    fn profiles_are_read_from_both_files() {
        let environment = TestEnvironment::default()
            .with("HOME", "/h")
            .with_file("/h/.aws/credentials", CREDENTIALS)
            .with_file("/h/.aws/config", CONFIG);
        let profile = load("k", &environment);
        assert_eq!(profile.value("aws_access_key_id"), Some("A"));
        assert_eq!(profile.value("aws_secret_access_key"), Some("s="));
        assert_eq!(profile.value("region"), Some("eu-1"));
        assert!(!profile.is_given());
        for (source, environment) in [
            ("k?profile=other", environment),
            (
                "k?credentialsFile=/c&configFile=/d",
                TestEnvironment::default()
                    .with("AWS_PROFILE", "other")
                    .with_file("/c", CREDENTIALS)
                    .with_file("/d", CONFIG),
            ),
        ] {
            let profile = load(source, &environment);
            assert_eq!(profile.value("aws_access_key_id"), Some("B"));
            assert_eq!(profile.value("aws_secret_access_key"), None);
            assert_eq!(profile.value("region"), Some("us-2"));
            assert!(profile.is_given());
        }
    }

    #[test]
    fn only_a_file_of_the_settings_has_to_exist() {
        let nothing = TestEnvironment::default().with("HOME", "/h");
        assert_eq!(load("k", &nothing).value("region"), None);
        let source = AwsSource::read("k?configFile=/d").expect("a source");
        let error = Profile::load(&source, &nothing).expect_err("no file");
        assert!(error.to_string().contains("cannot read /d"), "{error}");
    }
}
