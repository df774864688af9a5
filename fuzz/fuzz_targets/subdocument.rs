//! Any document, path, operation and value: an answer or an error, and what was JSON stays JSON around the change.
#![no_main]

use kedge_json::{Edit, Path, SubdocError, count, edit, exists, get, is_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, bool, i64, &[u8], &[u8], &[u8])| {
    let (kind, make_parents, delta, path, value, document) = input;
    let Ok(path) = Path::parse(path) else { return };
    let was_json = is_json(document);
    let found = get(document, &path);
    assert_eq!(exists(document, &path), found.map(|_| ()));
    if let Ok(found) = found {
        assert!(!was_json || is_json(found));
    }
    let _ = count(document, &path);
    let change = match kind % 9 {
        0 => Edit::DictAdd(value),
        1 => Edit::DictUpsert(value),
        2 => Edit::Delete,
        3 => Edit::Replace(value),
        4 => Edit::PushLast(value),
        5 => Edit::PushFirst(value),
        6 => Edit::Insert(value),
        7 => Edit::AddUnique(value),
        _ => Edit::Counter(delta),
    };
    match edit(document, &path, change, make_parents) {
        Ok(edited) if was_json => {
            assert!(is_json(&edited.document));
            match change {
                // Another member may have the same name, and another element the same number.
                Edit::Delete => assert!(edited.document.len() < document.len()),
                Edit::DictAdd(value) | Edit::DictUpsert(value) | Edit::Replace(value) => {
                    let now = get(&edited.document, &path).expect("it was put there");
                    assert_eq!(now, value.trim_ascii());
                }
                Edit::Counter(_) => {
                    let now = get(&edited.document, &path).expect("it was put there");
                    let sum = edited.number.expect("a counter has a sum");
                    assert_eq!(now, sum.to_string().as_bytes());
                }
                _ => assert!(
                    count(&edited.document, &path).is_ok() || matches!(change, Edit::Insert(_))
                ),
            }
        }
        Err(SubdocError::DocNotjson) => assert!(!was_json),
        _ => {}
    }
});
