//! Reads of several paths in one pass over the document.

use crate::SubdocError;
use crate::from_end::narrow;
use crate::path::{Path, PathComponent};
use crate::walk::{ContainerKind, DocumentWalk};

/// A lookup in a document.
#[derive(Clone, Debug)]
pub enum Lookup<'p> {
    /// The text of the value that the path names, see [`crate::get`].
    Value(Path<'p>),
    /// The number of its entries, see [`crate::count`].
    Count(Path<'p>),
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupValue<'d> {
    /// The text of the value.
    Value(&'d [u8]),
    /// The number of entries.
    Count(u64),
}

type PathResult<'d> = Result<LookupValue<'d>, SubdocError>;

impl<'p> Lookup<'p> {
    fn path(&self) -> &[PathComponent<'p>] {
        match self {
            Self::Value(path) | Self::Count(path) => path.components(),
        }
    }
}

/// Performs several lookups in `document`, which must be JSON. Returns their results in order, each as from
/// [`crate::get`] or [`crate::count`]. It reads the document once, whatever the number of lookups. Lookups with leading
/// `[-1]` components read the last elements only.
#[must_use]
pub fn lookup_all<'d>(document: &'d [u8], asked: &[Lookup<'_>]) -> Vec<PathResult<'d>> {
    let all = LookupBatch::of(document, asked).found.into_iter();
    all.map(|found| found.unwrap_or(Err(SubdocError::PathEnoent)))
        .collect()
}

fn leading_lasts(path: &[PathComponent<'_>]) -> usize {
    let lasts = path.iter();
    lasts
        .take_while(|component| matches!(component, PathComponent::Last))
        .count()
}

struct LookupBatch<'d, 'a, 'p> {
    asked: &'a [Lookup<'p>],
    found: Vec<Option<PathResult<'d>>>,
    /// For each lookup, the number of enclosing arrays that it follows by `[-1]`. Until these arrays end, its result
    /// may belong to an element that is not the last.
    within: Vec<u32>,
    /// Bytes of the document that the walks have read.
    #[cfg(test)]
    read_bytes: usize,
}

impl<'d, 'a, 'p> LookupBatch<'d, 'a, 'p> {
    /// Performs all lookups.
    fn of(document: &'d [u8], asked: &'a [Lookup<'p>]) -> Self {
        let mut many = Self {
            asked,
            found: vec![None; asked.len()],
            within: vec![0; asked.len()],
            #[cfg(test)]
            read_bytes: 0,
        };
        let is_last = |of: &usize| matches!(asked[*of].path(), [PathComponent::Last, ..]);
        let (mut lasts, mut others): (Vec<usize>, Vec<usize>) = (0..asked.len()).partition(is_last);
        others.retain(|of| match &asked[*of] {
            Lookup::Value(path) if path.is_empty() => {
                many.found[*of] = Some(Err(SubdocError::PathEinval));
                false
            }
            _ => true,
        });
        many.walk(document, 0, &others);
        // Lookups with the same number of leading `[-1]` components share the part of the document.
        while let Some(first) = lasts.first() {
            let depth = leading_lasts(asked[*first].path());
            let same = |of: &usize| leading_lasts(asked[*of].path()) == depth;
            let (group, rest): (Vec<usize>, Vec<usize>) = lasts.into_iter().partition(same);
            match narrow(document, &asked[group[0]].path()[..depth]) {
                Ok(narrowed) => many.walk(narrowed.text, depth, &group),
                Err(error) => group
                    .iter()
                    .for_each(|of| many.found[*of] = Some(Err(error))),
            }
            lasts = rest;
        }
        many
    }

    /// Performs some of the lookups in a value, from the component `level` of their paths.
    fn walk(&mut self, text: &'d [u8], level: usize, of: &[usize]) {
        if of.is_empty() {
            return;
        }
        let mut walk = DocumentWalk::within(text, level);
        let visited = self.visit(&mut walk, of, level);
        #[cfg(test)]
        {
            self.read_bytes += walk.at();
        }
        if let Err(error) = visited {
            for &of in of {
                if self.found[of].is_none() || self.within[of] > 0 {
                    self.found[of] = Some(Err(error));
                }
            }
        }
    }

    /// Performs some of the lookups at the current value. Returns `true` if the walk is after the value, and `false` if
    /// it is at the value or inside it.
    fn visit(
        &mut self,
        walk: &mut DocumentWalk<'d>,
        of: &[usize],
        level: usize,
    ) -> Result<bool, SubdocError> {
        let start = walk.at();
        let kind = walk.kind();
        let (mut texts, mut counts, mut inner) = (Vec::new(), Vec::new(), Vec::new());
        for &of in of {
            match (&self.asked[of], self.asked[of].path().get(level)) {
                (_, Some(component)) if kind == Some(kind_of(component)) => inner.push(of),
                (Lookup::Value(_), None) => texts.push(of),
                (Lookup::Count(_), None) if kind.is_some() => counts.push(of),
                _ => self.found[of] = Some(Err(SubdocError::PathMismatch)),
            }
        }
        let mut is_after = false;
        match kind {
            Some(kind) if !inner.is_empty() || !counts.is_empty() => {
                let all = !texts.is_empty() || !counts.is_empty();
                if let Some(entries) = self.entries(walk, &inner, level, kind, all)? {
                    for &of in &counts {
                        self.found[of] = Some(Ok(LookupValue::Count(entries)));
                    }
                    walk.leave(level)?;
                    is_after = true;
                }
            }
            _ if !texts.is_empty() => {
                walk.skip_value()?;
                is_after = true;
            }
            _ => {}
        }
        for of in texts {
            self.found[of] = Some(Ok(LookupValue::Value(walk.since(start))));
        }
        Ok(is_after)
    }

    /// Performs some of the lookups in the entries of the current container. Returns the number of entries if it read
    /// the container to its end, as it does if `all` is set.
    fn entries(
        &mut self,
        walk: &mut DocumentWalk<'d>,
        of: &[usize],
        level: usize,
        kind: ContainerKind,
        all: bool,
    ) -> Result<Option<u64>, SubdocError> {
        let asked = self.asked;
        let component = |of: usize| &asked[of].path()[level];
        let is_last = |of: &usize| matches!(component(*of), PathComponent::Last);
        let (lasts, mut left): (Vec<usize>, Vec<usize>) = of.iter().copied().partition(is_last);
        lasts.iter().for_each(|of| self.within[*of] += 1);
        let mut entries = 0;
        let mut next = walk.first(kind)?;
        let mut hit = Vec::new();
        while let Some(entry) = next {
            hit.clear();
            hit.extend_from_slice(&lasts);
            left.retain(|of| {
                let is_it = match component(*of) {
                    PathComponent::Key(key) => walk.has_name(&entry, key),
                    PathComponent::Index(wanted) => *wanted as u64 == entries,
                    PathComponent::Last => false,
                };
                if is_it {
                    hit.push(*of);
                }
                !is_it
            });
            lasts.iter().for_each(|of| self.found[*of] = None);
            if hit.is_empty() {
                walk.skip_value()?;
            } else {
                let is_after = self.visit(walk, &hit, level + 1)?;
                if !all && left.is_empty() && lasts.is_empty() {
                    return Ok(None);
                }
                if !is_after {
                    walk.leave(level + 1)?;
                }
            }
            entries += 1;
            next = walk.next(kind)?;
        }
        lasts.iter().for_each(|of| self.within[*of] -= 1);
        let missing = left.iter().chain(lasts.iter().filter(|_| entries == 0));
        missing.for_each(|of| self.found[*of] = Some(Err(SubdocError::PathEnoent)));
        Ok(Some(entries))
    }
}

fn kind_of(component: &PathComponent<'_>) -> ContainerKind {
    match component {
        PathComponent::Key(_) => ContainerKind::Object,
        PathComponent::Index(_) | PathComponent::Last => ContainerKind::Array,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookups(paths: &[&'static str]) -> Vec<Lookup<'static>> {
        let of = |path: &&'static str| Lookup::Value(Path::parse(path.as_bytes()).unwrap());
        paths.iter().map(of).collect()
    }

    /// 16 paths read the document 16 times: two clients with such requests kept all others waiting for seconds.
    #[test]
    fn document_is_read_once_whatever_the_number_of_paths() {
        let elements: Vec<String> = (0..1_000).map(|at| format!("{{\"a\":{at}}}")).collect();
        let document = format!("{{\"list\":[{}],\"end\":7}}", elements.join(","));
        let whole = document.len();
        let in_order = [
            "list[0].a",
            "list[500].a",
            "list[999].a",
            "list[-1].a",
            "list",
            "end",
        ];
        let reversed: Vec<&str> = in_order.into_iter().rev().collect();
        for paths in [
            &in_order[..],
            &reversed,
            &["end"; 16],
            &["list[-1].a"; 16],
            &["nowhere"; 16],
        ] {
            let asked = lookups(paths);
            let many = LookupBatch::of(document.as_bytes(), &asked);
            assert!(
                many.read_bytes <= whole,
                "{paths:?}: {} of {whole}",
                many.read_bytes
            );
        }
        let mut counts = lookups(&["end"; 8]);
        let path = Path::parse(b"list").unwrap();
        counts.extend((0..8).map(|_| Lookup::Count(path.clone())));
        let many = LookupBatch::of(document.as_bytes(), &counts);
        assert!(many.read_bytes <= whole);
    }

    /// The elements before the last one need not even be JSON.
    #[test]
    fn last_element_is_found_from_the_end() {
        let document = format!("[{},{{\"a\":[1,23]}}]", "?".repeat(100_000));
        let asked = lookups(&["[-1]", "[-1].a", "[-1].a[0]", "[-1].a[-1]"].repeat(4));
        let many = LookupBatch::of(document.as_bytes(), &asked);
        assert!(many.read_bytes < 20, "{}", many.read_bytes);
        let expected = ["{\"a\":[1,23]}", "[1,23]", "1", "23"].repeat(4);
        for (found, expected) in many.found.into_iter().zip(expected) {
            assert_eq!(found, Some(Ok(LookupValue::Value(expected.as_bytes()))));
        }
        let path = Path::parse(b"[-1].a[-1]").unwrap();
        assert_eq!(crate::get(document.as_bytes(), &path), Ok(&b"23"[..]));
    }
}
