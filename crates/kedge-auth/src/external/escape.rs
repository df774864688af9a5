//! Text from clients inside of filters and distinguished names.
//!
//! The name that a client sends becomes a part of a search and of the name of an entry. Here it stays one value: it cannot end
//! the value, add a condition, or name an entry elsewhere in the tree.

use std::fmt::Write as _;

/// Escapes a value of a search filter (RFC 4515 section 3).
#[must_use]
pub fn escape_filter_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '*' | '(' | ')' | '\\' | '\0' => write_hex(&mut escaped, c as u8),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Escapes a value of an attribute in a distinguished name (RFC 4514 section 2.4).
#[must_use]
pub fn escape_dn_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let is_special = match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => true,
            ' ' => at == 0 || at == last,
            '#' => at == 0,
            _ => false,
        };
        match c {
            _ if is_special => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ if c.is_ascii_control() => write_hex(&mut escaped, c as u8),
            _ => escaped.push(c),
        }
    }
    escaped
}

fn write_hex(text: &mut String, byte: u8) {
    write!(text, "\\{byte:02x}").expect("a string takes any text");
}

/// Returns a distinguished name in a form in which equal names are equal texts, for names of groups: lower-case, without blanks around
/// separators, with escapes as hexadecimal digits. Directories compare the attributes of groups' names without regard to case.
#[must_use]
pub fn normal_dn(dn: &str) -> String {
    let mut normal = String::with_capacity(dn.len());
    // Blanks after a value count only if more of the value follows.
    let mut blanks = 0;
    let mut is_start = true;
    let mut chars = dn.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' if is_start => {}
            ' ' => blanks += 1,
            ',' | ';' | '+' | '=' => {
                blanks = 0;
                is_start = true;
                normal.push(if c == ';' { ',' } else { c });
            }
            _ => {
                normal.extend(std::iter::repeat_n(' ', blanks));
                blanks = 0;
                is_start = false;
                match c {
                    '\\' => push_escape(&mut normal, &mut chars),
                    c => normal.extend(c.to_lowercase()),
                }
            }
        }
    }
    normal
}

/// Adds an escaped character: a special one, or a byte in two digits.
fn push_escape(normal: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let Some(first) = chars.next() else {
        return normal.push('\\');
    };
    let second = chars.peek().copied().filter(char::is_ascii_hexdigit);
    match (first.is_ascii_hexdigit(), second) {
        (true, Some(second)) => {
            chars.next();
            normal.push('\\');
            normal.extend([first, second].map(|digit| digit.to_ascii_lowercase()));
        }
        _ if first.is_ascii() => write_hex(normal, first as u8),
        _ => normal.extend(first.to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn filter_values_are_escaped_as_in_rfc_4515() {
        for (value, expected) in [
            ("ada", "ada"),
            ("*", "\\2a"),
            ("a)(uid=*", "a\\29\\28uid=\\2a"),
            ("C:\\x", "C:\\5cx"),
            ("a\0b", "a\\00b"),
            ("Лу", "Лу"),
        ] {
            assert_eq!(escape_filter_value(value), expected, "{value:?}");
        }
    }

    #[test]
    fn dn_values_are_escaped_as_in_rfc_4514() {
        for (value, expected) in [
            ("ada", "ada"),
            ("James \"Jim\" Smith, III", "James \\\"Jim\\\" Smith\\, III"),
            (" a ", "\\ a\\ "),
            ("#a#", "\\#a#"),
            ("ada,ou=admins", "ada\\,ou\\=admins"),
            ("Before\rAfter", "Before\\0dAfter"),
            ("a+b", "a\\+b"),
            (" ", "\\ "),
            ("", ""),
        ] {
            assert_eq!(escape_dn_value(value), expected, "{value:?}");
        }
    }

    #[test]
    fn equal_group_names_have_one_normal_form() {
        let normal = "cn=devs,ou=groups,dc=example,dc=org";
        for dn in [
            "cn=devs,ou=groups,dc=example,dc=org",
            "CN=Devs, OU=Groups , DC=example;dc = org",
            " cn=devs,ou=groups,dc=example,dc=org ",
        ] {
            assert_eq!(normal_dn(dn), normal, "{dn:?}");
        }
        assert_eq!(normal_dn("cn=a\\, b"), normal_dn("CN=A\\2C B"));
        assert_ne!(normal_dn("cn=a\\,b"), normal_dn("cn=a,b"));
        assert_ne!(normal_dn("cn=a  b"), normal_dn("cn=ab"));
        assert_eq!(normal_dn("\\"), "\\");
    }

    /// Reads a value of a filter up to an unescaped special character, as a server does.
    fn filter_value(text: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'*' | b'(' | b')' | 0 => return None,
                b'\\' => {
                    let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                    bytes.push(u8::from_str_radix(digits, 16).ok()?);
                    rest = &rest[2..];
                }
                _ => bytes.push(byte),
            }
        }
        Some(bytes)
    }

    /// Reads a value of a distinguished name up to its end, as a server does; `None` if it ends before.
    fn dn_value(text: &str) -> Option<String> {
        let mut value = String::new();
        let mut is_escaped_blank = false;
        let mut chars = text.chars().peekable();
        if chars.peek().is_some_and(|c| matches!(c, ' ' | '#')) {
            return None;
        }
        while let Some(c) = chars.next() {
            is_escaped_blank = false;
            match c {
                '"' | '+' | ',' | ';' | '<' | '>' | '=' | '\0' => return None,
                '\\' => {
                    let first = chars.next()?;
                    if first.is_ascii_hexdigit() {
                        let digits = [first, chars.next()?].iter().collect::<String>();
                        value.push(u8::from_str_radix(&digits, 16).ok()? as char);
                    } else {
                        is_escaped_blank = first == ' ';
                        value.push(first);
                    }
                }
                _ => value.push(c),
            }
        }
        let ends_in_blank = value.ends_with(' ') && !is_escaped_blank;
        (!ends_in_blank).then_some(value)
    }

    proptest! {
        #[test]
        fn escaped_filter_value_is_read_as_the_same_value(value in "\\PC*|[*()\\\\\0 a-c]{0,12}") {
            let read = filter_value(&escape_filter_value(&value));
            prop_assert_eq!(read.as_deref(), Some(value.as_bytes()));
        }

        #[test]
        fn escaped_dn_value_is_read_as_the_same_value(value in "\\PC*|[\"+,;<>=# \\\\\0\ra-c]{0,12}") {
            prop_assert_eq!(dn_value(&escape_dn_value(&value)), Some(value));
        }

        #[test]
        fn normal_dn_is_stable_and_never_panics(dn in "\\PC*|[=,+; \\\\a-cA-C0-9]{0,24}") {
            let normal = normal_dn(&dn);
            prop_assert_eq!(normal_dn(&normal), normal);
        }

        #[test]
        fn escaped_value_adds_no_part_to_a_normal_dn(value in "\\PC{1,16}|[\"+,;<>=# \\\\a-c]{1,12}") {
            let dn = format!("uid={},dc=org", escape_dn_value(&value));
            let normal = normal_dn(&dn);
            let separators = normal.chars().filter(|c| matches!(c, ',' | '=' | '+')).count();
            prop_assert_eq!(separators, 3, "{}", normal);
        }
    }
}
