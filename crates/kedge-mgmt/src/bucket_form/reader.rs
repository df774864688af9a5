//! Reading the fields of a form one by one, and collecting their errors.

use std::ops::RangeInclusive;

use super::FieldErrors;
use crate::form::FormFields;

/// The forms of `true` and `false`.
const BOOLEANS: [(&str, bool); 4] = [("0", false), ("1", true), ("false", false), ("true", true)];

pub(super) struct FormReader<'a> {
    pub(super) form: &'a FormFields,
    pub(super) errors: &'a mut FieldErrors,
}

impl FormReader<'_> {
    pub(super) fn number(
        &mut self,
        field: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let (low, high) = (*range.start(), *range.end());
        let says = format!("{field} must be a number from {low} to {high}.");
        self.number_or(field, range, &says)
    }

    /// Reads a number as [`Self::number`] does, with a given error text.
    pub(super) fn number_or(
        &mut self,
        field: &'static str,
        range: RangeInclusive<u64>,
        says: &str,
    ) -> Option<u64> {
        let text = self.form.get(field)?;
        let number = text.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong(field, says);
        }
        number
    }

    /// Reads a number that may be `undefined`, which is the same as a missing one.
    pub(super) fn number_if_defined(
        &mut self,
        field: &'static str,
        range: RangeInclusive<u64>,
        says: &str,
    ) -> Option<u64> {
        match self.form.get(field)? {
            "" | "undefined" => None,
            _ => self.number_or(field, range, says),
        }
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        field: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let says = format!("{field} must be one of {}.", names.join(", "));
        self.choice_or(field, choices, &says)
    }

    /// Reads a choice as [`Self::choice`] does, with a given error text.
    pub(super) fn choice_or<T: Copy>(
        &mut self,
        field: &'static str,
        choices: &[(&str, T)],
        says: &str,
    ) -> Option<T> {
        let text = self.form.get(field)?;
        let chosen = choices.iter().find(|(name, _)| *name == text);
        if chosen.is_none() {
            self.wrong(field, says);
        }
        chosen.map(|(_, choice)| *choice)
    }

    /// Reads a boolean, with a given error text.
    pub(super) fn boolean_or(&mut self, field: &'static str, says: &str) -> Option<bool> {
        self.choice_or(field, &BOOLEANS, says)
    }

    /// Rejects a field unless it has one of the harmless values.
    pub(super) fn only(&mut self, field: &'static str, nothing: &[&str], says: &str) {
        let asks = |text: &str| !nothing.contains(&text);
        if self.form.get(field).is_some_and(asks) {
            self.wrong(field, says);
        }
    }

    pub(super) fn wrong(&mut self, field: &'static str, text: impl Into<String>) {
        self.errors.insert(error_key(field), text.into());
    }
}

/// Returns the name of a field in errors. Some differ from those in forms; SDKs know both.
pub(super) fn error_key(field: &'static str) -> &'static str {
    match field {
        "ramQuotaMB" => "ramQuota",
        "durabilityMinLevel" => "durability_min_level",
        _ => field,
    }
}
