//! Naive sub-document operations on a tree, as documented, without regard to speed.

pub(crate) mod tree;

use kedge_json::{Edit, SUBDOC_DEPTH_MAX, SubdocError, is_json};
use tree::{Container, Entry, Tree};

use SubdocError::{
    DeltaEinval, NumErange, PathEexists, PathEinval, PathEnoent, PathMismatch, ValueCantinsert,
    ValueEtoodeep,
};

/// A component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A name, without escapes and as in a document.
    Key(String, String),
    Index(usize),
    Last,
}

/// Returns the value that a path names.
pub(crate) fn get<'t>(tree: &'t Tree, path: &[Step]) -> Result<&'t Tree, SubdocError> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(tree);
    };
    let container = container(tree, step)?;
    let place = place(container, step).ok_or(PathEnoent)?;
    get(&container.entries[place].value, rest)
}

pub(crate) fn count(tree: &Tree, path: &[Step]) -> Result<u64, SubdocError> {
    match get(tree, path)? {
        Tree::Scalar(_) => Err(PathMismatch),
        Tree::Container(container) => Ok(container.entries.len() as u64),
    }
}

/// Returns the container that a step enters.
fn container<'t>(tree: &'t Tree, step: &Step) -> Result<&'t Container, SubdocError> {
    match tree {
        Tree::Container(container) if container.is_object == matches!(step, Step::Key(..)) => {
            Ok(container)
        }
        _ => Err(PathMismatch),
    }
}

/// Returns the number of the entry that a step names.
fn place(container: &Container, step: &Step) -> Option<usize> {
    let entries = &container.entries;
    match step {
        Step::Key(name, _) => entries
            .iter()
            .position(|entry| entry.meaning().as_ref() == Some(name)),
        Step::Index(index) => (*index < entries.len()).then_some(*index),
        Step::Last => entries.len().checked_sub(1),
    }
}

/// Edits the tree. Returns the sum of a counter.
pub(crate) fn edit(
    tree: &mut Tree,
    path: &[Step],
    edit: Edit<'_>,
    make_parents: bool,
) -> Result<Option<i64>, SubdocError> {
    check(path, edit)?;
    if let Edit::PushLast(values) | Edit::PushFirst(values) | Edit::AddUnique(values) = edit {
        let make = matches!(path.last(), Some(Step::Key(..))) && make_parents;
        if make && get(tree, path) == Err(PathEnoent) {
            let value = scalar(format!("[{}]", text(values)));
            set(tree, path, value, true)?;
            return Ok(None);
        }
        let array = match get_mut(tree, path)? {
            Tree::Container(container) if !container.is_object => container,
            _ => return Err(PathMismatch),
        };
        let place = match edit {
            Edit::PushFirst(_) => 0,
            _ => array.entries.len(),
        };
        if matches!(edit, Edit::AddUnique(_)) {
            for entry in &array.entries {
                match &entry.value {
                    Tree::Container(_) => return Err(PathMismatch),
                    Tree::Scalar(it) if it == text(values).trim() => return Err(PathEexists),
                    Tree::Scalar(_) => {}
                }
            }
        }
        insert(array, place, None, scalar(text(values).to_owned()));
        return Ok(None);
    }
    let found = get(tree, path).cloned();
    let (last, parents) = path.split_last().expect("checked");
    match edit {
        Edit::DictAdd(_) if found.is_ok() => return Err(PathEexists),
        Edit::DictAdd(value) | Edit::DictUpsert(value) => {
            set(tree, path, scalar(text(value).to_owned()), make_parents)?;
        }
        Edit::Replace(value) => {
            found?;
            *get_mut(tree, path)? = scalar(text(value).to_owned());
        }
        Edit::Delete => {
            found?;
            let Tree::Container(container) = get_mut(tree, parents)? else {
                unreachable!()
            };
            let place = place(container, last).expect("found");
            remove(container, place);
        }
        Edit::Insert(values) => {
            let Step::Index(index) = last else {
                unreachable!()
            };
            container(get(tree, parents)?, last)?;
            let Tree::Container(array) = get_mut(tree, parents)? else {
                unreachable!()
            };
            if *index > array.entries.len() {
                return Err(PathEnoent);
            }
            insert(array, *index, None, scalar(text(values).to_owned()));
        }
        Edit::Counter(delta) => {
            let sum = match found {
                Err(PathEnoent) => delta,
                found => sum(&found?, delta)?,
            };
            set(tree, path, scalar(sum.to_string()), make_parents)?;
            return Ok(Some(sum));
        }
        _ => unreachable!(),
    }
    Ok(None)
}

fn check(path: &[Step], edit: Edit<'_>) -> Result<(), SubdocError> {
    let (path_is_fine, value, depth) = match edit {
        Edit::DictAdd(value) | Edit::DictUpsert(value) => {
            (matches!(path.last(), Some(Step::Key(..))), value, 0)
        }
        Edit::Replace(value) => (!path.is_empty(), value, 0),
        Edit::Insert(values) => (matches!(path.last(), Some(Step::Index(_))), values, 1),
        Edit::PushLast(values) | Edit::PushFirst(values) | Edit::AddUnique(values) => {
            (true, values, 1)
        }
        Edit::Counter(_) | Edit::Delete => (!path.is_empty(), b"0".as_slice(), 0),
    };
    if !path_is_fine {
        return Err(PathEinval);
    }
    if edit == Edit::Counter(0) {
        return Err(DeltaEinval);
    }
    // One value, or a list of values.
    let value = str::from_utf8(value).map_err(|_| ValueCantinsert)?;
    let value = if depth == 0 {
        value.to_owned()
    } else {
        format!("[{value}]")
    };
    if !is_json(value.as_bytes()) {
        return Err(ValueCantinsert);
    }
    let tree = Tree::read(&value);
    if let (1, Tree::Container(list)) = (depth, &tree) {
        let is_unique = matches!(edit, Edit::AddUnique(_));
        let is_one = matches!(
            list.entries.as_slice(),
            [Entry {
                value: Tree::Scalar(_),
                ..
            }]
        );
        if list.entries.is_empty() || is_unique && !is_one {
            return Err(ValueCantinsert);
        }
    }
    // The list of an insertion does not add a container to those of the path.
    let around = if matches!(edit, Edit::Insert(_)) {
        path.len() - 1
    } else {
        path.len()
    };
    let is_deep = around + depth_of(&tree) > SUBDOC_DEPTH_MAX;
    if is_deep { Err(ValueEtoodeep) } else { Ok(()) }
}

fn depth_of(tree: &Tree) -> usize {
    match tree {
        Tree::Scalar(_) => 0,
        Tree::Container(container) => {
            1 + container
                .entries
                .iter()
                .map(|entry| depth_of(&entry.value))
                .max()
                .unwrap_or(0)
        }
    }
}

fn get_mut<'t>(tree: &'t mut Tree, path: &[Step]) -> Result<&'t mut Tree, SubdocError> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(tree);
    };
    let place = place(container(tree, step)?, step).ok_or(PathEnoent)?;
    let Tree::Container(container) = tree else {
        unreachable!()
    };
    get_mut(&mut container.entries[place].value, rest)
}

/// Sets the value at the path, and creates missing parents.
fn set(tree: &mut Tree, path: &[Step], value: Tree, make_parents: bool) -> Result<(), SubdocError> {
    let Some((step, rest)) = path.split_first() else {
        *tree = value;
        return Ok(());
    };
    if let Some(place) = place(container(tree, step)?, step) {
        let Tree::Container(container) = tree else {
            unreachable!()
        };
        return set(
            &mut container.entries[place].value,
            rest,
            value,
            make_parents,
        );
    }
    let Step::Key(_, name) = step else {
        return Err(PathEnoent);
    };
    let mut made = Tree::read("{}");
    if rest.is_empty() {
        made = value;
    } else if make_parents && rest.iter().all(|step| matches!(step, Step::Key(..))) {
        set(&mut made, rest, value, true)?;
    } else {
        return Err(PathEnoent);
    }
    let Tree::Container(object) = tree else {
        unreachable!()
    };
    insert(
        object,
        object.entries.len(),
        Some((name.clone(), ":".to_owned())),
        made,
    );
    Ok(())
}

/// White space stays before the first byte of the first entry and after the last byte of the last one.
fn insert(to: &mut Container, place: usize, name: Option<(String, String)>, value: Tree) {
    let mut new = Entry {
        before: String::new(),
        name,
        value,
        behind: String::new(),
    };
    if let Some(next) = to.entries.get_mut(place) {
        new.before = std::mem::take(&mut next.before);
    } else if let Some(last) = to.entries.last_mut() {
        new.behind = std::mem::take(&mut last.behind);
    } else {
        new.behind = std::mem::take(&mut to.space);
    }
    to.entries.insert(place, new);
}

/// Removes an entry with the comma before it and the white space after that, or those after the first entry.
fn remove(from: &mut Container, place: usize) {
    let removed = from.entries.remove(place);
    if place > 0 {
        from.entries[place - 1].behind += &removed.behind;
    } else if let Some(next) = from.entries.first_mut() {
        next.before = removed.before;
    } else {
        from.space = removed.before + &removed.behind;
    }
}

fn sum(tree: &Tree, delta: i64) -> Result<i64, SubdocError> {
    let Tree::Scalar(text) = tree else {
        return Err(PathMismatch);
    };
    if text.contains(['.', 'e', 'E', '"']) || text.parse::<f64>().is_err() {
        return Err(PathMismatch);
    }
    let number: i64 = text.parse().map_err(|_| NumErange)?;
    number.checked_add(delta).ok_or(ValueCantinsert)
}

/// A value that no later step reads.
fn scalar(text: String) -> Tree {
    Tree::Scalar(text)
}

fn text(value: &[u8]) -> &str {
    str::from_utf8(value).expect("checked")
}
