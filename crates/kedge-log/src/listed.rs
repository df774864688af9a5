//! The list of a log's segments in its catalog, for read-only tools. It accesses no disk.

use std::collections::BTreeSet;

use crate::catalog::{SegmentRange, decode};
use crate::segment::FileName;

/// The list of segments in the catalog of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentListing {
    range: SegmentRange,
}

/// The differences between the catalog and the files of a log, by file name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentDifferences {
    /// Ranges of missing segments: the first and the last one of each.
    pub missing: Vec<(String, String)>,
    /// Segments after the last listed one. They may be sound, because a segment is listed without a sync after it is
    /// durable.
    pub unlisted: Vec<String>,
}

impl SegmentListing {
    /// Decodes a catalog. Returns `None` if the bytes are not a catalog.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).map(|range| Self { range })
    }

    /// Returns the number of listed segments.
    #[must_use]
    pub fn segments(&self) -> u64 {
        match self.range.last {
            0 => 0,
            last => last - self.range.first + 1,
        }
    }

    /// Removes segments that a later reading of the catalog no longer lists. The segments of a log in use may come and
    /// go between two readings.
    #[must_use]
    pub fn unless_changed(mut self, later: &Self) -> Self {
        self.range.first = self.range.first.max(later.range.first);
        self
    }

    /// Compares the list with the names of all files in the log's directory.
    #[must_use]
    pub fn compare(&self, names: &[String]) -> SegmentDifferences {
        let segment = |name: &String| match FileName::parse(name) {
            Some(FileName::Segment(number)) => Some(number),
            _ => None,
        };
        let found: BTreeSet<u64> = names.iter().filter_map(segment).collect();
        let name = |number| FileName::Segment(number).to_string();
        let SegmentRange { first, last } = self.range;
        let mut compared = SegmentDifferences::default();
        // The first segment of a log has number 1.
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

    fn listed(first: u64, last: u64) -> SegmentListing {
        SegmentListing {
            range: SegmentRange { first, last },
        }
    }

    fn names(numbers: &[u64]) -> Vec<String> {
        let name = |number: &u64| FileName::Segment(*number).to_string();
        numbers.iter().map(name).collect()
    }

    #[test]
    fn compare_finds_missing_and_unlisted_segments() {
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
    fn segments_that_come_and_go_between_two_readings_are_not_missing() {
        let both = listed(3, 5).unless_changed(&listed(5, 7));
        assert_eq!(both.compare(&names(&[5])).missing, []);
        let all_left = listed(3, 5).unless_changed(&listed(9, 9));
        assert_eq!(all_left.compare(&[]), SegmentDifferences::default());
    }
}
