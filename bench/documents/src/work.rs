//! The operations on the document, and their implementations.

use kedge_json::{Edit, Path, SubdocError};
use serde_json::Value;

use crate::document::PLACES;

/// An implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// `kedge-json`, which starts from the text of the path.
    Kedge,
    /// `serde_json`: parses, finds, and writes the found value, or changes the tree and writes all of it.
    SerdeJson,
}

/// Executes an operation once on the text of the document.
pub type OperationFn = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A piece of work.
pub struct Operation {
    /// The operation.
    pub name: &'static str,
    /// The place: start, middle or end of the document.
    pub place: &'static str,
    /// The implementation.
    pub who: Implementation,
    /// The function.
    pub run: OperationFn,
}

const NEW_VALUE: &[u8] = br#""Hartmann & Sons""#;

/// Returns all measured operations. Compared ones are next to each other.
#[must_use]
pub fn all() -> Vec<Operation> {
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

/// Returns each operation once, with one place in the document.
fn operations() -> Vec<Operation> {
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
) -> Operation {
    Operation {
        name,
        place,
        who: Implementation::Kedge,
        run: Box::new(move |text| run(text).expect("the path is in the document")),
    }
}

fn theirs(
    name: &'static str,
    place: &'static str,
    run: impl Fn(&mut Value) -> Vec<u8> + 'static,
) -> Operation {
    Operation {
        name,
        place,
        who: Implementation::SerdeJson,
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
    fn both_implementations_return_the_same() {
        let (text, all) = (document(), all());
        let mut compared = 0;
        for pair in all.windows(2) {
            if let [ours, theirs] = pair
                && theirs.who == Implementation::SerdeJson
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
    fn every_operation_succeeds() {
        let text = document();
        for work in all() {
            (work.run)(&text);
        }
    }
}
