//! A check of help texts, for tests.

/// Words that refer to something outside of the text.
const POINTERS: [&str; 9] = [
    "those", "they", "them", "their", "these", "it", "its", "so", "did",
];

/// Checks that each family has a help text that is understandable alone and unique.
///
/// The texts were written as a list, in which each continued the one above: "Those that did", "Changes that they read",
/// "Times that there was no room for them". A dashboard shows only one of them.
pub(crate) fn check(text: &str) {
    let families = families(text);
    assert!(families.len() > 5, "{text}");
    for (name, help) in &families {
        let words: Vec<&str> = help
            .split(|letter: char| !letter.is_alphanumeric())
            .collect();
        assert!(words.len() >= 2, "{name}: {help:?} is no sentence");
        assert!(!help.contains(['\\', '"', '\n']), "{name}: {help:?}");
        for word in words {
            let word = word.to_lowercase();
            assert!(
                !POINTERS.contains(&word.as_str()),
                "{name}: {help:?} points elsewhere by {word:?}"
            );
        }
        let same = families.iter().filter(|(_, other)| other == help).count();
        assert_eq!(same, 1, "{name}: {help:?} fits several families");
    }
}

/// Returns name and help text of each family.
fn families(text: &str) -> Vec<(&str, &str)> {
    let after = |start: &'static str| {
        let rest = text
            .lines()
            .filter_map(move |line| line.strip_prefix(start));
        rest.map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
    };
    let helps: Vec<_> = after("# HELP ").collect();
    let typed: Vec<&str> = after("# TYPE ").map(|(name, _)| name).collect();
    let described: Vec<&str> = helps.iter().map(|(name, _)| *name).collect();
    assert_eq!(described, typed);
    helps
}
