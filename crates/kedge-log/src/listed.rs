//! The catalog's list of a log's segments, for one who only looks: no disk is asked and nothing is written.

use std::collections::BTreeSet;

use crate::catalog::{Range, decode};
use crate::segment::FileName;

/// The catalog of a log, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSegments {
    range: Range,
}

/// Segments, by the name of their files, that are not as the catalog says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentsCompared {
    /// Runs of segments that have to be there and are not: the first and the last of each.
    pub missing: Vec<(String, String)>,
    /// Segments behind the last one that is listed. They may be sound: a segment is noted without a sync, after it is durable.
    pub unlisted: Vec<String>,
}

impl ListedSegments {
    /// Reads a catalog; `None` if the bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).map(|range| Self { range })
    }

    /// Segments that are listed.
    #[must_use]
    pub fn segments(&self) -> u64 {
        match self.range.last {
            0 => 0,
            last => last - self.range.first + 1,
        }
    }

    /// Forgets what a later reading says otherwise: segments of a log that is written to come and go between two looks.
    #[must_use]
    pub fn unless_changed(mut self, later: &Self) -> Self {
        self.range.first = self.range.first.max(later.range.first);
        self
    }

    /// Compares the catalog with the names of all files in the log's directory.
    #[must_use]
    pub fn compare(&self, names: &[String]) -> SegmentsCompared {
        let segment = |name: &String| match FileName::parse(name) {
            Some(FileName::Segment(number)) => Some(number),
            _ => None,
        };
        let found: BTreeSet<u64> = names.iter().filter_map(segment).collect();
        let name = |number| FileName::Segment(number).to_string();
        let Range { first, last } = self.range;
        let mut compared = SegmentsCompared::default();
        // The first segment of a log is 1.
        let mut expected = first.max(1);
        let there = found.range(expected..).copied();
        for number in there.take_while(|it| *it <= last).chain([last + 1]) {
            if expected < number {
                compared.missing.push((name(expected), name(number - 1)));
            }
            expected = number + 1;
        }
        let behind = found.range(last + 1..).copied();
        compared.unlisted.extend(behind.map(name));
        compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(first: u64, last: u64) -> ListedSegments {
        ListedSegments {
            range: Range { first, last },
        }
    }

    fn names(numbers: &[u64]) -> Vec<String> {
        let name = |number: &u64| FileName::Segment(*number).to_string();
        numbers.iter().map(name).collect()
    }

    #[test]
    fn comparison_finds_runs_of_missing_segments_and_those_that_are_not_listed() {
        for (first, last, found, missing, unlisted) in [
            (0, 0, &[][..], &[][..], &[][..]),
            (1, 1, &[1], &[], &[]),
            (1, 1, &[], &[(1, 1)], &[]),
            (3, 9, &[1, 2, 5, 6, 8], &[(3, 4), (7, 7), (9, 9)], &[]),
            (3, 4, &[3, 4, 5], &[], &[5]),
            (1, (1 << 62) - 1, &[], &[(1, (1 << 62) - 1)], &[]),
        ] {
            let mut files = names(found);
            files.push("spare-00000000000000000007".to_owned());
            let compared = listed(first, last).compare(&files);
            let runs = |it: &(u64, u64)| (names(&[it.0]).remove(0), names(&[it.1]).remove(0));
            let expected: Vec<_> = missing.iter().map(runs).collect();
            assert_eq!(compared.missing, expected, "{first}..={last}, {found:?}");
            assert_eq!(compared.unlisted, names(unlisted), "{first}..={last}");
        }
    }

    #[test]
    fn segments_that_left_or_came_between_two_looks_are_not_missing() {
        let both = listed(3, 5).unless_changed(&listed(5, 7));
        assert_eq!(both.compare(&names(&[5])).missing, []);
        let all_left = listed(3, 5).unless_changed(&listed(9, 9));
        assert_eq!(all_left.compare(&[]), SegmentsCompared::default());
    }
}
