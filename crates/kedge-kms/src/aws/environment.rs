//! The environment variables and files from which credentials come.

use std::fs::File;
use std::io::{self, Read};

use zeroize::Zeroizing;

use crate::service::ServiceError;

/// Largest size of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Environment variables and files.
pub(crate) trait Environment: Send + Sync {
    /// Returns a variable that is not empty.
    fn variable(&self, name: &str) -> Option<String>;

    /// Reads a file.
    fn file(&self, path: &str) -> io::Result<Zeroizing<String>>;

    /// Reads a file that has to exist.
    fn read(&self, path: &str) -> Result<Zeroizing<String>, ServiceError> {
        self.file(path)
            .map_err(|error| ServiceError::refused(format!("cannot read {path}: {error}")))
    }

    /// Returns the endpoint that the variables name for a service.
    fn endpoint(&self, service: &str) -> Option<String> {
        let of_service = self.variable(&format!("AWS_ENDPOINT_URL_{service}"));
        of_service.or_else(|| self.variable("AWS_ENDPOINT_URL"))
    }

    /// Returns a path below the home directory.
    fn home(&self, below: &str) -> Option<String> {
        Some(format!("{}/{below}", self.variable("HOME")?))
    }
}

/// The environment of this process.
pub(crate) struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }

    fn file(&self, path: &str) -> io::Result<Zeroizing<String>> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len().min(FILE_BYTES_MAX);
        // With its capacity from the start, it leaves no copies.
        let mut text = Zeroizing::new(String::with_capacity(bytes as usize + 1));
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::collections::HashMap;

    use super::*;

    /// An environment of a test.
    #[derive(Default)]
    pub(crate) struct TestEnvironment {
        variables: HashMap<String, String>,
        files: HashMap<String, String>,
    }

    impl TestEnvironment {
        pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
            self.variables.insert(name.to_owned(), value.to_owned());
            self
        }

        pub(crate) fn with_file(mut self, path: &str, text: &str) -> Self {
            self.files.insert(path.to_owned(), text.to_owned());
            self
        }
    }

    impl Environment for TestEnvironment {
        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).cloned()
        }

        fn file(&self, path: &str) -> io::Result<Zeroizing<String>> {
            let found = self.files.get(path).cloned();
            let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            Ok(Zeroizing::new(found))
        }
    }
}
