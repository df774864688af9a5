//! Reading what several paths name, in one walk: a large document is not gone through once for each of them.

use crate::SubdocError;
use crate::from_end::narrow;
use crate::path::{Component, Path};
use crate::walk::{Kind, Walk};

/// One of several questions about a document.
#[derive(Clone, Debug)]
pub enum Ask<'p> {
    /// The value that the path names, see [`crate::get`].
    Value(Path<'p>),
    /// The number of its entries, see [`crate::count`].
    Count(Path<'p>),
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'d> {
    /// The text of the value.
    Value(&'d [u8]),
    /// The number of entries.
    Count(u64),
}

type Found<'d> = Result<Answer<'d>, SubdocError>;

impl<'p> Ask<'p> {
    fn path(&self) -> &[Component<'p>] {
        match self {
            Self::Value(path) | Self::Count(path) => path.components(),
        }
    }
}

/// Answers several questions about `document`, which is JSON, in their order and as [`crate::get`] and [`crate::count`] do
/// one by one. The document is gone through once, whatever their number is; those that begin with last elements look at
/// these only.
#[must_use]
pub fn ask_all<'d>(document: &'d [u8], asked: &[Ask<'_>]) -> Vec<Found<'d>> {
    let mut many = Many {
        asked,
        found: vec![None; asked.len()],
        within: vec![0; asked.len()],
    };
    let is_last = |of: &usize| matches!(asked[*of].path(), [Component::Last, ..]);
    let (mut lasts, mut others): (Vec<usize>, Vec<usize>) = (0..asked.len()).partition(is_last);
    others.retain(|of| match &asked[*of] {
        Ask::Value(path) if path.is_empty() => {
            many.found[*of] = Some(Err(SubdocError::PathEinval));
            false
        }
        _ => true,
    });
    many.walk(document, 0, &others);
    // All that begin with the same number of last elements have the same part of the document.
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
    let all = many.found.into_iter();
    all.map(|found| found.unwrap_or(Err(SubdocError::PathEnoent)))
        .collect()
}

fn leading_lasts(path: &[Component<'_>]) -> usize {
    let lasts = path.iter();
    lasts
        .take_while(|component| matches!(component, Component::Last))
        .count()
}

struct Many<'d, 'a, 'p> {
    asked: &'a [Ask<'p>],
    found: Vec<Option<Found<'d>>>,
    /// In how many arrays each question is followed whose last element is asked for: until these end, what was found may
    /// be another element's.
    within: Vec<u32>,
}

impl<'d> Many<'d, '_, '_> {
    /// Answers some of the questions with a value, in which they go on with the component `level`.
    fn walk(&mut self, text: &'d [u8], level: usize, of: &[usize]) {
        if of.is_empty() {
            return;
        }
        let mut walk = Walk::within(text, level);
        if let Err(error) = self.visit(&mut walk, of, level) {
            for &of in of {
                if self.found[of].is_none() || self.within[of] > 0 {
                    self.found[of] = Some(Err(error));
                }
            }
        }
    }

    /// Looks at the value here for some of the questions. True when the walk is behind the value afterwards; else it is at
    /// the value, or somewhere in it.
    fn visit(
        &mut self,
        walk: &mut Walk<'d>,
        of: &[usize],
        level: usize,
    ) -> Result<bool, SubdocError> {
        let start = walk.at();
        let kind = walk.kind();
        let (mut texts, mut counts, mut inner) = (Vec::new(), Vec::new(), Vec::new());
        for &of in of {
            match (&self.asked[of], self.asked[of].path().get(level)) {
                (_, Some(component)) if kind == Some(kind_of(component)) => inner.push(of),
                (Ask::Value(_), None) => texts.push(of),
                (Ask::Count(_), None) if kind.is_some() => counts.push(of),
                _ => self.found[of] = Some(Err(SubdocError::PathMismatch)),
            }
        }
        let mut is_behind = false;
        match kind {
            Some(kind) if !inner.is_empty() || !counts.is_empty() => {
                let all = !texts.is_empty() || !counts.is_empty();
                if let Some(entries) = self.entries(walk, &inner, level, kind, all)? {
                    for &of in &counts {
                        self.found[of] = Some(Ok(Answer::Count(entries)));
                    }
                    walk.leave(level)?;
                    is_behind = true;
                }
            }
            _ if !texts.is_empty() => {
                walk.skip_value()?;
                is_behind = true;
            }
            _ => {}
        }
        for of in texts {
            self.found[of] = Some(Ok(Answer::Value(walk.since(start))));
        }
        Ok(is_behind)
    }

    /// Looks at the entries of the container here. Returns how many there are if it went to its end, which it does when
    /// `all` are wanted.
    fn entries(
        &mut self,
        walk: &mut Walk<'d>,
        of: &[usize],
        level: usize,
        kind: Kind,
        all: bool,
    ) -> Result<Option<u64>, SubdocError> {
        let asked = self.asked;
        let component = |of: usize| &asked[of].path()[level];
        let is_last = |of: &usize| matches!(component(*of), Component::Last);
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
                    Component::Key(key) => walk.has_name(&entry, key),
                    Component::Index(wanted) => *wanted as u64 == entries,
                    Component::Last => false,
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
                let is_behind = self.visit(walk, &hit, level + 1)?;
                if !all && left.is_empty() && lasts.is_empty() {
                    return Ok(None);
                }
                if !is_behind {
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

fn kind_of(component: &Component<'_>) -> Kind {
    match component {
        Component::Key(_) => Kind::Object,
        Component::Index(_) | Component::Last => Kind::Array,
    }
}
