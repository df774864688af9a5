//! What is done with the document, and by whom.

use kedge_json::{Edit, Path, SubdocError};
use serde_json::Value;

use crate::document::PLACES;

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// `kedge-json`, from the text of the path on.
    Kedge,
    /// `serde_json`: parse, find, write what was found, or change it and write all.
    SerdeJson,
}

/// Does its work once with the text of the document.
pub type Run = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A piece of work.
pub struct Work {
    /// What is done.
    pub name: &'static str,
    /// Where: the start, the middle or the end.
    pub place: &'static str,
    /// Who does it.
    pub who: Who,
    /// Does it.
    pub run: Run,
}

const NEW_VALUE: &[u8] = br#""Hartmann & Sons""#;

/// Everything that is measured. What is compared stands together.
#[must_use]
pub fn all() -> Vec<Work> {
    let mut all = Vec::new();
    for (place, path, pointer) in PLACES {
        all.push(ours("read", place, move |text| {
            Ok(kedge_json::get(text, &Path::parse(path.as_bytes())?)?.to_vec())
        }));
        all.push(theirs("read", place, move |tree| {
            written(tree.pointer(pointer).expect("the value"))
        }));
        all.push(ours("write", place, move |text| {
            edited(text, path, Edit::Replace(NEW_VALUE))
        }));
        all.push(theirs("write", place, move |tree| {
            let value = tree.pointer_mut(pointer).expect("the value");
            *value = serde_json::from_slice(NEW_VALUE).expect("JSON");
            written(tree)
        }));
    }
    all.extend(operations());
    all
}

/// Each operation once, as far into the document as it goes.
fn operations() -> Vec<Work> {
    let edits: [(&str, &str, Edit<'static>); 9] = [
        (
            "dict_add",
            "lines[20].product.size",
            Edit::DictAdd(NEW_VALUE),
        ),
        (
            "dict_upsert",
            "lines[20].product.name",
            Edit::DictUpsert(NEW_VALUE),
        ),
        ("delete", "lines[20].product.name", Edit::Delete),
        (
            "replace",
            "lines[20].product.name",
            Edit::Replace(NEW_VALUE),
        ),
        ("array_push_last", "lines", Edit::PushLast(NEW_VALUE)),
        ("array_push_first", "lines", Edit::PushFirst(NEW_VALUE)),
        ("array_insert", "lines[20]", Edit::Insert(NEW_VALUE)),
        ("array_add_unique", "tags", Edit::AddUnique(NEW_VALUE)),
        ("counter", "lines[20].quantity", Edit::Counter(1)),
    ];
    let mut all = vec![
        ours("is_json", "", |text| {
            assert!(kedge_json::is_json(text));
            Ok(Vec::new())
        }),
        ours("get", "lines[20].product", |text| {
            let path = Path::parse(b"lines[20].product")?;
            Ok(kedge_json::get(text, &path)?.to_vec())
        }),
        ours("exists", "lines[20].product", |text| {
            kedge_json::exists(text, &Path::parse(b"lines[20].product")?)?;
            Ok(Vec::new())
        }),
        ours("get_count", "lines", |text| {
            assert!(kedge_json::count(text, &Path::parse(b"lines")?)? > 20);
            Ok(Vec::new())
        }),
    ];
    for (name, path, edit) in edits {
        all.push(ours(name, path, move |text| edited(text, path, edit)));
    }
    all
}

fn edited(text: &[u8], path: &str, edit: Edit<'_>) -> Result<Vec<u8>, SubdocError> {
    let path = Path::parse(path.as_bytes())?;
    Ok(kedge_json::edit(text, &path, edit, false)?.document)
}

fn ours(
    name: &'static str,
    place: &'static str,
    run: impl Fn(&[u8]) -> Result<Vec<u8>, SubdocError> + 'static,
) -> Work {
    Work {
        name,
        place,
        who: Who::Kedge,
        run: Box::new(move |text| run(text).expect("the path is in the document")),
    }
}

fn theirs(
    name: &'static str,
    place: &'static str,
    run: impl Fn(&mut Value) -> Vec<u8> + 'static,
) -> Work {
    Work {
        name,
        place,
        who: Who::SerdeJson,
        run: Box::new(move |text| run(&mut serde_json::from_slice(text).expect("JSON"))),
    }
}

fn written(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a tree of its own can be written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::document;

    #[test]
    fn both_do_the_same() {
        let (text, all) = (document(), all());
        let mut compared = 0;
        for pair in all.windows(2) {
            if let [ours, theirs] = pair
                && theirs.who == Who::SerdeJson
            {
                assert_eq!((ours.name, ours.place), (theirs.name, theirs.place));
                assert_eq!(
                    (ours.run)(&text),
                    (theirs.run)(&text),
                    "{} {}",
                    ours.name,
                    ours.place
                );
                compared += 1;
            }
        }
        assert_eq!(compared, 2 * PLACES.len());
    }

    #[test]
    fn every_operation_can_be_done() {
        let text = document();
        for work in all() {
            (work.run)(&text);
        }
    }
}
