//! The table of settings: its row, and the macro that derives everything else from rows.

use super::form::FieldKind;
use super::{BucketChange, BucketConfig};
use kedge_types::setting::nearest;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A row of the table: a setting that can change while the bucket runs.
#[derive(Debug)]
pub struct BucketSetting {
    /// Name on the command line, in a configuration file and in tables.
    pub name: &'static str,
    /// Place in `bucket.json`.
    pub key: &'static str,
    /// Effect of the setting.
    pub doc: &'static str,
    /// Group of the setting in `kedge serve`; `None` when no start changes it.
    pub group: Option<&'static str>,
    /// Explanation of a default that depends on the machine.
    pub default_note: Option<&'static str>,
    /// True if a change takes effect at the next start.
    pub at_start: bool,
    /// Form of its values.
    pub kind: fn() -> String,
    /// Reads a value into a change.
    pub read: fn(&str, &mut BucketChange) -> Result<(), String>,
    /// Shows the value in the form that [`Self::read`] reads.
    pub show: fn(&BucketConfig) -> String,
    /// Checks the value. An error is a sentence that names the setting.
    pub check: fn(&BucketConfig) -> Result<(), String>,
    /// Field of the management's form that sets it alone.
    pub field: Option<FormField>,
    /// Field of the group `autoCompactionDefined` that sets it.
    pub compaction_field: Option<&'static str>,
}

impl BucketSetting {
    /// Returns its flag of `kedge bucket`.
    #[must_use]
    pub fn flag(&self) -> String {
        let name = self.name.strip_prefix("bucket_").unwrap_or(self.name);
        name.replace('_', "-")
    }
}

/// A field of the management's form, and of the document of a bucket.
#[derive(Debug)]
pub struct FormField {
    /// Name of the field.
    pub name: &'static str,
    /// Newer name of the field, which takes precedence.
    pub newer: Option<&'static str>,
    /// Type of the field's text.
    pub kind: fn() -> FieldKind,
    /// Form of its values.
    pub values: fn() -> String,
    /// Reads the text of the field of this name into a change. An error is the text for the client.
    pub read: fn(&str, &str, &mut BucketChange) -> Result<(), String>,
    /// Function that returns the value in the document of a bucket; `None` when the document has it elsewhere.
    pub show: fn(&BucketConfig) -> Option<Value>,
}

/// A setting that is chosen when the bucket is created.
#[derive(Debug)]
pub struct FixedSetting {
    /// Place in `bucket.json`.
    pub key: &'static str,
    /// Effect of the setting.
    pub doc: &'static str,
}

/// A type as which the text of a setting is read and shown.
pub(super) trait ShownAs<T>: Sized {
    fn wrap(value: &T) -> Self;
    fn unwrap(self) -> Result<T, String>;
}

impl<T: Clone> ShownAs<T> for T {
    fn wrap(value: &T) -> Self {
        value.clone()
    }

    fn unwrap(self) -> Result<T, String> {
        Ok(self)
    }
}

/// Checks a value against the range that its row gives.
pub(super) fn check_range<T: PartialOrd + Display>(
    name: &str,
    value: &T,
    range: &RangeInclusive<T>,
    max: &T,
) -> Result<(), String> {
    if range.contains(value) {
        return Ok(());
    }
    let (low, high) = (range.start(), range.end());
    Err(match high == max {
        true => format!("{name} must be at least {low}"),
        false => format!("{name} {value} is not {low} to {high}"),
    })
}

/// Checks the keys of a JSON object of settings: each is known, and all of `required` are there.
pub(super) fn check_keys(
    object: &Map<String, Value>,
    known: &[&str],
    required: &[&str],
) -> Result<(), String> {
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        let nearest = nearest(key, known.iter().copied()).unwrap_or_default();
        return Err(format!(
            "unknown setting `{key}`; did you mean `{nearest}`? If a newer release wrote it, use that one"
        ));
    }
    match required.iter().find(|key| !object.contains_key(**key)) {
        Some(key) => Err(format!("missing setting `{key}`")),
        None => Ok(()),
    }
}

/// Picks the type as which a value is shown.
macro_rules! shown {
    ($type:ty) => {
        $type
    };
    ($type:ty, $shown:ty) => {
        $shown
    };
}
pub(super) use shown;

/// The part of all settings, or of a change of them, that rows belong to.
macro_rules! part {
    ([], $all:ident) => {
        $all
    };
    ([$path:ident], $all:ident) => {
        $all.$path
    };
}
pub(super) use part;

/// The place of a setting in `bucket.json`.
macro_rules! key {
    ([], $field:ident) => {
        stringify!($field)
    };
    ([$path:ident], $field:ident) => {
        concat!(stringify!($path), ".", stringify!($field))
    };
}
pub(super) use key;

/// The form of a row's values.
macro_rules! form_of_values {
    ($shown:ty) => {
        <$shown as SettingValue>::KIND.to_owned()
    };
    ($shown:ty, $type:ty, $low:literal, $high:expr) => {{
        let high: $type = $high;
        match <$shown as SettingValue>::KIND {
            kind if !kind.starts_with("a number") => format!("{kind}; at least {}", $low),
            _ if high == <$type>::MAX => format!("a number of at least {}", $low),
            _ => format!("a number from {} to {high}", $low),
        }
    }};
}
pub(super) use form_of_values;

/// Makes a struct of settings, its change, and the rows of the table, which lie at the path in brackets in
/// [`BucketConfig`].
///
/// A row is `name: type as shown = default, "name", in low..=high, note "default", serve "group", at start,
/// compaction "field", rest "field" or "newer": form;`. Everything after the name may be left out, but keeps this order.
macro_rules! settings {
    (
        $(#[doc = $config_doc:literal])+
        $config:ident, $(#[doc = $change_doc:literal])+ $change:ident, $path:tt;
        required [$($required:literal),*]
        fixed { $($(#[doc = $fixed_doc:literal])+ $fixed:ident: $fixed_type:ty = $fixed_default:expr;)* }
        $(
            $(#[doc = $doc:literal])+
            $(#[alias = $alias:literal])?
            $(#[serde($($serde:tt)+)])?
            $field:ident: $type:ty $(as $shown:ty)? = $default:expr, $name:literal
                $(, in $low:literal ..= $high:expr)?
                $(, note $note:literal)?
                $(, serve $group:literal)?
                $(, at $at_start:ident)?
                $(, compaction $compaction_field:literal)?
                $(, rest $rest:literal $(or $newer:literal)?: $form:expr)?;
        )*
        groups {
            $(
                $(#[doc = $group_doc:literal])+
                $(#[serde($($group_serde:tt)+)])?
                $nested:ident: $nested_type:ty, $nested_change:ty;
            )*
        }
    ) => {
        $(#[doc = $config_doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(remote = "Self", default)]
        pub struct $config {
            $($(#[doc = $fixed_doc])+ pub $fixed: $fixed_type,)*
            $($(#[doc = $doc])+ $(#[serde(alias = $alias)])? $(#[serde($($serde)+)])? pub $field: $type,)*
            $($(#[doc = $group_doc])+ $(#[serde($($group_serde)+)])? pub $nested: $nested_type,)*
        }

        $(#[doc = $change_doc])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $change {
            $($(#[doc = $doc])+ pub $field: Option<$type>,)*
            $($(#[doc = $group_doc])+ pub $nested: $nested_change,)*
        }

        impl Default for $config {
            fn default() -> Self {
                Self {
                    $($fixed: $fixed_default,)*
                    $($field: $default,)*
                    $($nested: <$nested_type>::default(),)*
                }
            }
        }

        impl $config {
            /// Returns the rows of these settings.
            pub(super) const ROWS: &'static [BucketSetting] = &[$(BucketSetting {
                name: $name,
                key: key!($path, $field),
                doc: concat!($($doc),+),
                group: first(&[$($group)?]),
                default_note: first(&[$($note)?]),
                at_start: first(&[$(stringify!($at_start))?]).is_some(),
                kind: || form_of_values!(shown!($type $(, $shown)?) $(, $type, $low, $high)?),
                read: |text, change| {
                    let shown = <shown!($type $(, $shown)?) as SettingValue>::read(text)?;
                    let value: $type = shown.unwrap()?;
                    let _values = || form_of_values!(shown!($type $(, $shown)?) $(, $type, $low, $high)?);
                    $(if !($low..=$high).contains(&value) {
                        return Err(format!("expected {}", _values()));
                    })?
                    let setting = &mut part!($path, change).$field;
                    *setting = Some(value);
                    Ok(())
                },
                show: |config| <shown!($type $(, $shown)?)>::wrap(&part!($path, config).$field).show(),
                check: |_config| {
                    $(check_range($name, &part!($path, _config).$field, &($low..=$high), &<$type>::MAX)?;)?
                    Ok(())
                },
                compaction_field: first(&[$($compaction_field)?]),
                field: settings!(@field $path $field: $type $(, $rest $(or $newer)?: $form)?),
            },)*];

            /// Returns the settings that are chosen when the bucket is created.
            pub const FIXED: &'static [FixedSetting] = &[$(FixedSetting {
                key: stringify!($fixed),
                doc: concat!($($fixed_doc),+),
            },)*];
        }

        impl $change {
            /// Returns the change that gives any bucket the settings of `config`, except those that cannot change.
            #[must_use]
            pub fn to(config: &$config) -> Self {
                Self {
                    $($field: Some(config.$field.clone()),)*
                    $($nested: <$nested_change>::to(&config.$nested),)*
                }
            }

            /// Returns `config` with this change.
            #[must_use]
            pub fn apply(&self, config: &$config) -> $config {
                $config {
                    $($fixed: config.$fixed.clone(),)*
                    $($field: self.$field.clone().unwrap_or_else(|| config.$field.clone()),)*
                    $($nested: self.$nested.apply(&config.$nested),)*
                }
            }

            /// Returns whether it leaves all settings as they are.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                *self == Self::default()
            }

            /// Removes the settings whose name `given` does not accept, and those that `config` has already.
            pub fn retain_new(&mut self, config: &$config, given: &dyn Fn(&str) -> bool) {
                $(if !given($name) || self.$field.as_ref() == Some(&config.$field) {
                    self.$field = None;
                })*
                $(self.$nested.retain_new(&config.$nested, given);)*
            }
        }

        impl Serialize for $config {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, to)
            }
        }

        impl<'de> Deserialize<'de> for $config {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let object = Map::deserialize(from)?;
                let known = [
                    $(stringify!($fixed),)* $(stringify!($field),)* $(stringify!($nested),)* $($($alias,)?)*
                ];
                check_keys(&object, &known, &[$($required),*]).map_err(D::Error::custom)?;
                Self::deserialize(Value::Object(object)).map_err(D::Error::custom)
            }
        }
    };
    (@field $path:tt $field:ident: $type:ty) => { None };
    (@field $path:tt $field:ident: $type:ty, $rest:literal $(or $newer:literal)?: $form:expr) => {
        Some(FormField {
            name: $rest,
            newer: first(&[$($newer)?]),
            kind: || FieldFormat::<$type>::kind(&$form),
            values: || FieldFormat::<$type>::values(&$form),
            read: |field, text, change| {
                let setting = &mut part!($path, change).$field;
                *setting = Some(FieldFormat::<$type>::read(&$form, field, text)?);
                Ok(())
            },
            show: |config| FieldFormat::<$type>::show(&$form, &part!($path, config).$field),
        })
    };
}
pub(super) use settings;

/// The value of an optional part of a row.
pub(super) const fn first(given: &[&'static str]) -> Option<&'static str> {
    match given {
        [it, ..] => Some(it),
        [] => None,
    }
}
