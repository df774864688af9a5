//! The policy of passwords: what a new password must have.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The largest minimum length of passwords, in characters.
pub const PASSWORD_LENGTH_MIN_MAX: u8 = 100;
/// The characters that count as special.
const SPECIAL: &str = "@%+\\/'\"!#$^?:,(){}[]~`-_";

/// A class of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CharacterClass {
    /// Uppercase letters.
    Uppercase,
    /// Lowercase letters.
    Lowercase,
    /// Digits.
    Digits,
    /// Characters that are neither letters nor digits: ``@%+\/'"!#$^?:,(){}[]~`-_``.
    SpecialChars,
}

impl CharacterClass {
    /// All classes.
    pub const ALL: [Self; 4] = [
        Self::Uppercase,
        Self::Lowercase,
        Self::Digits,
        Self::SpecialChars,
    ];

    fn has(self, character: char) -> bool {
        match self {
            Self::Uppercase => character.is_uppercase(),
            Self::Lowercase => character.is_lowercase(),
            Self::Digits => character.is_ascii_digit(),
            Self::SpecialChars => SPECIAL.contains(character),
        }
    }

    fn one(self) -> &'static str {
        match self {
            Self::Uppercase => "an uppercase letter",
            Self::Lowercase => "a lowercase letter",
            Self::Digits => "a digit",
            Self::SpecialChars => "a special character",
        }
    }
}

/// The policy of passwords. It concerns passwords that are set from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordPolicy {
    /// The minimum length in characters, up to [`PASSWORD_LENGTH_MIN_MAX`].
    pub length_min: u8,
    /// The classes of which a password must have a character.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub classes: BTreeSet<CharacterClass>,
}

/// The reason why a password does not satisfy a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeakPassword {
    /// It is too short.
    #[error("The password must be at least {0} characters long.")]
    Short(u8),
    /// It has no character of a class.
    #[error("The password must contain {}.", .0.one())]
    Lacks(CharacterClass),
}

impl PasswordPolicy {
    /// Checks a new password.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, password: &str) -> Result<(), WeakPassword> {
        if password.chars().count() < usize::from(self.length_min) {
            return Err(WeakPassword::Short(self.length_min));
        }
        let lacks = |class: &&CharacterClass| !password.chars().any(|it| class.has(it));
        match self.classes.iter().find(lacks) {
            Some(class) => Err(WeakPassword::Lacks(*class)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_has_a_length_and_the_enforced_classes() {
        let policy = PasswordPolicy {
            length_min: 4,
            classes: CharacterClass::ALL.into(),
        };
        for (password, expected) in [
            ("aB1", Err(WeakPassword::Short(4))),
            ("ab1-", Err(WeakPassword::Lacks(CharacterClass::Uppercase))),
            ("AB1-", Err(WeakPassword::Lacks(CharacterClass::Lowercase))),
            ("aBc-", Err(WeakPassword::Lacks(CharacterClass::Digits))),
            (
                "aB12",
                Err(WeakPassword::Lacks(CharacterClass::SpecialChars)),
            ),
            ("aB1-", Ok(())),
            ("\u{e4}\u{c4}1]", Ok(())),
        ] {
            assert_eq!(policy.check(password), expected, "{password}");
        }
        assert_eq!(PasswordPolicy::default().check(""), Ok(()));
    }
}
