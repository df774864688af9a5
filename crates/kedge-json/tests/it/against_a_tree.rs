//! Sub-document operations compared with the naive ones, byte for byte, and with serde_json.

use kedge_json::{
    Edit, Lookup, LookupValue, Path, SubdocError, count, edit, exists, get, is_json, lookup_all,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::against_serde_json::{piece, value};
use crate::naive::tree::{Container, Entry, Tree};
use crate::naive::{self, Step};

/// Names: as in a path, without escapes, and as an edit with the path writes them into a document.
const NAMES: &[(&str, &str, &str)] = &[
    ("a", "a", "a"),
    ("`a`", "a", "a"),
    ("\\u0061", "a", "\\u0061"),
    ("b", "b", "b"),
    ("`c.d`", "c.d", "c.d"),
    ("c`.d`", "c.d", "c.d"),
    ("q\\\"`[`", "q\"[", "q\\\"["),
    ("\u{e9}", "\u{e9}", "\u{e9}"),
    ("\\u00e9", "\u{e9}", "\\u00e9"),
    ("``", "`", "`"),
];
/// The same names as in documents.
const NAMES_IN_DOCUMENTS: &[&str] = &[
    "a",
    "\\u0061",
    "b",
    "c.d",
    "\\u0063.d",
    "q\\\"[",
    "\u{e9}",
    "\\u00E9",
    "`",
    "",
    "aa",
];
const SCALARS: &[&str] = &[
    "0",
    "-0",
    "5",
    "-7",
    "1.5",
    "1e3",
    "9223372036854775807",
    "9223372036854775808",
    "true",
    "false",
    "null",
    "\"\"",
    "\"x\"",
    "\"x, y\"",
    "\"]}\\\"\"",
    "\"\\\\\"",
    "\"\u{e9}\\u00e9\"",
    "\"A string of more than one block, with a quotation mark (\\\") and brackets { [ ] } in it, and then some more text\"",
];
const NO_VALUES: &[&str] = &[
    "", " ", "x", "1 2", "[1", "1]", "{\"a\"}", "\"", "1,", "],[",
];

fn space() -> impl Strategy<Value = String> {
    select(&["", "", "", " ", "\n  ", "\t\r\n"][..]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Tree> {
    select(SCALARS).prop_map(|text| Tree::Scalar(text.to_owned()))
}

fn tree() -> impl Strategy<Value = Tree> {
    let inside = scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![container(inner), container(scalar())]
    });
    prop_oneof![1 => scalar(), 15 => container(inside)]
}

fn container(inside: impl Strategy<Value = Tree>) -> impl Strategy<Value = Tree> {
    let name = (select(NAMES_IN_DOCUMENTS), space(), space());
    let entry = (space(), name, inside, space());
    let entries = prop::collection::vec(entry, 0..5);
    (any::<bool>(), entries, space()).prop_map(|(is_object, entries, space)| {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(before, (name, left, right), value, behind)| Entry {
                before,
                name: is_object.then(|| (name.to_owned(), format!("{left}:{right}"))),
                value,
                behind,
            })
            .collect();
        Tree::Container(Container {
            is_object,
            space: if entries.is_empty() {
                space
            } else {
                String::new()
            },
            entries,
        })
    })
}

/// Choices of the steps of a path.
type Choices = Vec<(u8, prop::sample::Index)>;

fn choices() -> impl Strategy<Value = Choices> {
    prop::collection::vec(any::<(u8, prop::sample::Index)>(), 0..5)
}

/// A path that mostly follows existing entries of the tree, with an optional step after them.
fn path(
    tree: &Tree,
    choices: &Choices,
    step_behind: Option<(String, Step)>,
) -> (String, Vec<Step>) {
    let mut steps = Vec::new();
    let mut here = Some(tree);
    for (kind, choice) in choices {
        let entries = match here {
            Some(Tree::Container(container)) => container.entries.as_slice(),
            _ => &[],
        };
        if entries.is_empty() && kind % 8 > 0 {
            break;
        }
        steps.push(if kind % 8 > 1 && !entries.is_empty() {
            let at = choice.index(entries.len());
            here = Some(&entries[at].value);
            match entries[at].meaning() {
                Some(meaning) => key(*choice, Some(&meaning)),
                None if at + 1 == entries.len() && kind % 2 == 0 => last(),
                None => index(at),
            }
        } else {
            here = None;
            match kind % 4 {
                0 | 1 => key(*choice, None),
                2 => index(choice.index(4)),
                _ => last(),
            }
        });
    }
    steps.extend(step_behind);
    let mut text = String::new();
    for (shown, step) in &steps {
        if !text.is_empty() && matches!(step, Step::Key(..)) {
            text.push('.');
        }
        text += shown;
    }
    (text, steps.into_iter().map(|(_, step)| step).collect())
}

/// A name, with this meaning if there is such a name.
fn key(choice: prop::sample::Index, meaning: Option<&str>) -> (String, Step) {
    let mut rows: Vec<_> = NAMES.iter().collect();
    if rows.iter().any(|row| Some(row.1) == meaning) {
        rows.retain(|row| Some(row.1) == meaning);
    }
    let (text, meaning, written) = rows[choice.index(rows.len())];
    (
        (*text).to_owned(),
        Step::Key((*meaning).to_owned(), (*written).to_owned()),
    )
}

fn index(index: usize) -> (String, Step) {
    (format!("[{index}]"), Step::Index(index))
}

fn last() -> (String, Step) {
    ("[-1]".to_owned(), Step::Last)
}

/// A text to insert: mostly a value, sometimes a list of values, sometimes invalid.
fn inserted() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => scalar().prop_map(|tree| tree.write()),
        4 => (space(), tree(), space()).prop_map(|(before, tree, behind)| before + &tree.write() + &behind),
        2 => (tree(), tree()).prop_map(|(one, other)| format!("{}, {}", one.write(), other.write())),
        1 => select(NO_VALUES).prop_map(str::to_owned),
    ]
}

fn edit_of(kind: u8, value: &[u8], delta: i64) -> Edit<'_> {
    match kind % 9 {
        0 => Edit::DictAdd(value),
        1 => Edit::DictUpsert(value),
        2 => Edit::Delete,
        3 => Edit::Replace(value),
        4 => Edit::PushLast(value),
        5 => Edit::PushFirst(value),
        6 => Edit::Insert(value),
        7 => Edit::AddUnique(value),
        _ => Edit::Counter(delta),
    }
}

/// Follows `choices`. Returns the path, with keys in backticks, and the value there.
fn path_in_value<'v>(
    mut value: &'v serde_json::Value,
    choices: &Choices,
) -> (String, &'v serde_json::Value) {
    let mut path = String::new();
    for (_, choice) in choices {
        match value {
            serde_json::Value::Array(elements) if !elements.is_empty() => {
                let at = choice.index(elements.len());
                path += &format!("[{at}]");
                value = &elements[at];
            }
            serde_json::Value::Object(members) if !members.is_empty() => {
                let (name, member) = members
                    .iter()
                    .nth(choice.index(members.len()))
                    .expect("one of them");
                let quoted = serde_json::to_string(name).expect("a string");
                let inside = quoted[1..quoted.len() - 1].replace('`', "``");
                if inside.is_empty() {
                    // A path cannot name it.
                    break;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                // A name of backticks only would end the quotation.
                let quote = if inside.trim_matches('`').is_empty() {
                    ""
                } else {
                    "`"
                };
                path += &format!("{quote}{inside}{quote}");
                value = member;
            }
            _ => break,
        }
    }
    (path, value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn lookups_agree_with_the_naive_tree(tree in tree(), choices in choices(), around in (space(), space())) {
        let document = format!("{}{}{}", around.0, tree.write(), around.1);
        prop_assert_eq!(&Tree::read(&document), &tree);
        let (text, steps) = path(&tree, &choices, None);
        let path = Path::parse(text.as_bytes()).expect(&text);
        let document = document.as_bytes();
        prop_assert_eq!(count(document, &path), naive::count(&tree, &steps));
        let expected = match steps.as_slice() {
            [] => Err(SubdocError::PathEinval),
            steps => naive::get(&tree, steps).map(|tree| tree.write()),
        };
        prop_assert_eq!(exists(document, &path), expected.as_ref().map(|_| ()).map_err(|error| *error));
        let value = get(document, &path).map(|value| String::from_utf8_lossy(value).into_owned());
        prop_assert_eq!(value, expected, "{}", text);
    }

    /// Lookups of several paths used to read a large document once for each of them, which took seconds for 19 MiB and
    /// 16 paths. One pass must return the same results as single lookups.
    #[test]
    fn lookup_all_agrees_with_single_lookups(
        tree in tree(),
        choices in prop::collection::vec((choices(), any::<bool>()), 0..17),
        around in (space(), space()),
    ) {
        let document = format!("{}{}{}", around.0, tree.write(), around.1);
        let document = document.as_bytes();
        let texts: Vec<_> = choices.iter().map(|(choices, _)| path(&tree, choices, None).0).collect();
        let (mut asked, mut expected) = (Vec::new(), Vec::new());
        for (text, (_, counts)) in texts.iter().zip(&choices) {
            let path = Path::parse(text.as_bytes()).expect(text);
            expected.push(match counts {
                true => count(document, &path).map(LookupValue::Count),
                false => get(document, &path).map(LookupValue::Value),
            });
            asked.push(if *counts { Lookup::Count(path) } else { Lookup::Value(path) });
        }
        prop_assert_eq!(lookup_all(document, &asked), expected, "{:?}", texts);
    }

    #[test]
    fn edits_agree_with_the_naive_tree(
        tree in tree(),
        choices in choices(),
        around in (space(), space()),
        kind in any::<u8>(),
        value in inserted(),
        delta in prop_oneof![-3..4_i64, any::<i64>()],
        make_parents in any::<bool>(),
        behind in any::<prop::sample::Index>(),
    ) {
        let document = format!("{}{}{}", around.0, tree.write(), around.1);
        let change = edit_of(kind, value.as_bytes(), delta);
        let step_behind = match change {
            Edit::DictAdd(_) | Edit::DictUpsert(_) => Some(key(behind, None)),
            Edit::Insert(_) => Some(index(behind.index(4))),
            _ => None,
        };
        let (text, steps) = path(&tree, &choices, step_behind.filter(|_| kind % 11 > 0));
        let path = Path::parse(text.as_bytes()).expect(&text);
        let mut tree = tree;
        let expected = naive::edit(&mut tree, &steps, change, make_parents)
            .map(|number| (format!("{}{}{}", around.0, tree.write(), around.1), number));
        let made = edit(document.as_bytes(), &path, change, make_parents);
        if let Ok(edited) = &made {
            prop_assert!(is_json(&edited.document));
        }
        let made = made.map(|edited| (String::from_utf8(edited.document).unwrap(), edited.number));
        prop_assert_eq!(made, expected, "{} at {} {:?}", document, text, change);
    }

    #[test]
    fn lookups_agree_with_serde_json(value in value(), pretty in any::<bool>(), choices in choices()) {
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        // As serde_json reads it: not every number survives the round trip.
        let value = serde_json::from_str(&text).unwrap();
        let (path, expected) = path_in_value(&value, &choices);
        match Path::parse(path.as_bytes()) {
            Err(error) => prop_assert_eq!(error, SubdocError::PathE2big),
            Ok(path) if path.is_empty() => {}
            Ok(path) => {
                let found = get(text.as_bytes(), &path).expect("it is there");
                prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(found).unwrap(), expected);
            }
        }
    }

    /// Arbitrary bytes cause no panic, and JSON stays JSON.
    #[test]
    fn arbitrary_bytes_never_panic_and_json_stays_json(
        document in prop::collection::vec(piece(), 0..24),
        path in prop::collection::vec(select(&["a", "[", "]", "0", "-1", ".", "`", "\\", "\\\"", "[0]", "[-1]"][..]), 0..6),
        value in prop::collection::vec(piece(), 0..4),
        kind in any::<u8>(),
        make_parents in any::<bool>(),
    ) {
        let (document, path, value) = (document.concat(), path.concat(), value.concat());
        let Ok(path) = Path::parse(path.as_bytes()) else { return Ok(()) };
        let was_json = is_json(&document);
        let asked = [Lookup::Value(path.clone()), Lookup::Count(path.clone())];
        let all = lookup_all(&document, &asked).into_iter().map(Result::err);
        let one_by_one = [get(&document, &path).err(), count(&document, &path).err()];
        for error in all.chain(one_by_one).flatten() {
            prop_assert!(!was_json || error != SubdocError::DocNotjson);
        }
        match edit(&document, &path, edit_of(kind, &value, 1), make_parents) {
            Ok(edited) => prop_assert!(!was_json || is_json(&edited.document)),
            Err(error) => prop_assert!(!was_json || error != SubdocError::DocNotjson),
        }
    }
}
