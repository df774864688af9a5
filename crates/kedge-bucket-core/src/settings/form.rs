//! Fields of the management's form: reading their text, and showing them in the document of a bucket.
//!
//! Names and error texts are those of Couchbase Server where it gives them.

use super::values::Choice;
use super::{BucketConfig, DURABILITY_LEVELS};
use kedge_types::setting::SettingValue;
use kedge_vbucket::MinRatio;
use serde_json::Value;
use std::ops::RangeInclusive;

const MIB: u64 = 1 << 20;
/// The number of the master key in the management's forms and documents.
pub const MASTER_KEY_ID: i64 = 1;

/// The type of a field's text, from which the command line derives the type of its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// `0` or `1`.
    Flag,
    /// A whole number.
    Number,
    /// One of a few words.
    Word,
    /// A number with a fraction.
    Text,
}

/// A format of a field's values.
pub(super) trait FieldFormat<T> {
    /// Returns the type of the text.
    fn kind(&self) -> FieldKind;

    /// Returns a description of the values.
    fn values(&self) -> String;

    /// Reads the text of the field of this name. An error is the text for the client.
    fn read(&self, field: &str, text: &str) -> Result<T, String>;

    /// Returns the value in the document of a bucket; `None` when the document has it elsewhere.
    fn show(&self, value: &T) -> Option<Value>;
}

fn one_of(field: &str, names: &[&str]) -> String {
    format!("{field} must be one of {}.", names.join(", "))
}

/// True or false. The document shows it elsewhere if it is `hidden`.
pub(super) struct Flag {
    pub(super) hidden: bool,
}

impl FieldFormat<bool> for Flag {
    fn kind(&self) -> FieldKind {
        FieldKind::Flag
    }

    fn values(&self) -> String {
        bool::KIND.to_owned()
    }

    fn read(&self, field: &str, text: &str) -> Result<bool, String> {
        match text {
            "0" | "false" => Ok(false),
            "1" | "true" => Ok(true),
            _ => Err(one_of(field, &["0", "1", "false", "true"])),
        }
    }

    fn show(&self, value: &bool) -> Option<Value> {
        (!self.hidden).then(|| (*value).into())
    }
}

/// The number of the key that encrypts: -1 for none. There is one key, that of the server.
pub(super) struct KeyId;

impl KeyId {
    const NONE: i64 = -1;
}

impl FieldFormat<bool> for KeyId {
    fn kind(&self) -> FieldKind {
        FieldKind::Word
    }

    fn values(&self) -> String {
        format!("`{MASTER_KEY_ID}` or `true`, `{}` or `false`", Self::NONE)
    }

    fn read(&self, field: &str, text: &str) -> Result<bool, String> {
        match text {
            // 0 is a key of the original, so it must not leave data in plain text.
            "-1" | "false" => Ok(false),
            "1" | "true" => Ok(true),
            _ => Err(one_of(field, &["-1", "1"])),
        }
    }

    fn show(&self, value: &bool) -> Option<Value> {
        let id = if *value { MASTER_KEY_ID } else { Self::NONE };
        Some(id.into())
    }
}

/// A number of this range.
pub(super) struct Number(pub(super) RangeInclusive<u64>);

impl<T: Copy + TryFrom<u64> + Into<u64>> FieldFormat<T> for Number {
    fn kind(&self) -> FieldKind {
        FieldKind::Number
    }

    fn values(&self) -> String {
        format!("a number from {} to {}", self.0.start(), self.0.end())
    }

    fn read(&self, field: &str, text: &str) -> Result<T, String> {
        let number = text.parse().ok().filter(|number| self.0.contains(number));
        let value = number.and_then(|number| T::try_from(number).ok());
        value.ok_or_else(|| format!("{field} must be {}.", FieldFormat::<T>::values(self)))
    }

    fn show(&self, value: &T) -> Option<Value> {
        let number: u64 = (*value).into();
        Some(number.into())
    }
}

/// Memory in MiB. The document has bytes, of one node and of all.
pub(super) struct Mib(pub(super) RangeInclusive<u64>);

impl FieldFormat<u64> for Mib {
    fn kind(&self) -> FieldKind {
        FieldKind::Number
    }

    fn values(&self) -> String {
        "a number of MiB".to_owned()
    }

    fn read(&self, field: &str, text: &str) -> Result<u64, String> {
        let mib: u64 = Number(self.0.clone()).read(field, text)?;
        Ok(mib * MIB)
    }

    fn show(&self, _: &u64) -> Option<Value> {
        None
    }
}

/// The number of replicas.
pub(super) struct Replicas;

impl FieldFormat<u8> for Replicas {
    fn kind(&self) -> FieldKind {
        FieldKind::Number
    }

    fn values(&self) -> String {
        format!("a number from 0 to {}", BucketConfig::REPLICAS_MAX)
    }

    fn read(&self, field: &str, text: &str) -> Result<u8, String> {
        let max = BucketConfig::REPLICAS_MAX.into();
        if text.parse::<u64>().is_ok_and(|asked| asked > max) {
            return Err(format!(
                "Replica number larger than {max} is not supported."
            ));
        }
        Number(0..=max).read(field, text)
    }

    fn show(&self, value: &u8) -> Option<Value> {
        Some((*value).into())
    }
}

/// One of the words of a type.
pub(super) struct Words;

impl<T: Choice> FieldFormat<T> for Words {
    fn kind(&self) -> FieldKind {
        FieldKind::Word
    }

    fn values(&self) -> String {
        let names: Vec<String> = T::ALL
            .iter()
            .map(|it| format!("`{}`", it.form_name()))
            .collect();
        names.join(", ")
    }

    fn read(&self, field: &str, text: &str) -> Result<T, String> {
        let chosen = T::ALL.iter().find(|it| it.form_name() == text);
        let names = || T::ALL.iter().map(|it| it.form_name()).collect::<Vec<_>>();
        chosen.copied().ok_or_else(|| one_of(field, &names()))
    }

    fn show(&self, value: &T) -> Option<Value> {
        Some(value.form_name().into())
    }
}

/// A durability level, or none.
pub(super) struct MinLevel;

impl FieldFormat<u8> for MinLevel {
    fn kind(&self) -> FieldKind {
        FieldKind::Word
    }

    fn values(&self) -> String {
        DURABILITY_LEVELS.map(|name| format!("`{name}`")).join(", ")
    }

    fn read(&self, field: &str, text: &str) -> Result<u8, String> {
        let level = (0..).zip(DURABILITY_LEVELS).find(|(_, name)| *name == text);
        let level = level.map(|(level, _)| level);
        level.ok_or_else(|| one_of(field, &DURABILITY_LEVELS))
    }

    fn show(&self, value: &u8) -> Option<Value> {
        let name = DURABILITY_LEVELS.get(usize::from(*value));
        Some((*name.unwrap_or(&DURABILITY_LEVELS[0])).into())
    }
}

/// A ratio of sizes.
pub(super) struct Ratio;

impl FieldFormat<MinRatio> for Ratio {
    fn kind(&self) -> FieldKind {
        FieldKind::Text
    }

    fn values(&self) -> String {
        MinRatio::KIND.to_owned()
    }

    fn read(&self, field: &str, text: &str) -> Result<MinRatio, String> {
        let ratio = text.parse().ok().and_then(MinRatio::new);
        ratio.ok_or_else(|| format!("{field} must be a number from 1 to 1000."))
    }

    fn show(&self, value: &MinRatio) -> Option<Value> {
        Some(value.get().into())
    }
}

/// Another form with Couchbase Server's own error text.
pub(super) struct Said<F>(pub(super) F, pub(super) &'static str);

impl<T, F: FieldFormat<T>> FieldFormat<T> for Said<F> {
    fn kind(&self) -> FieldKind {
        self.0.kind()
    }

    fn values(&self) -> String {
        self.0.values()
    }

    fn read(&self, field: &str, text: &str) -> Result<T, String> {
        self.0.read(field, text).map_err(|_| self.1.to_owned())
    }

    fn show(&self, value: &T) -> Option<Value> {
        self.0.show(value)
    }
}
