//! Samples as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figures::median;

/// A column of figures: its name, and the figure of a sample.
pub type Column<S> = (&'static str, fn(&S) -> f64);

/// The layout of a table.
#[derive(Debug)]
pub struct Table<'a, S> {
    /// The heading of the row names.
    pub corner: &'a str,
    /// The width of the row names, in characters.
    pub name_width: usize,
    /// The width of each column, in characters.
    pub width: usize,
    /// The number of decimals.
    pub decimals: usize,
    /// The columns.
    pub columns: &'a [Column<S>],
}

impl<S> Table<'_, S> {
    /// Formats medians: samples of the same cell make a row, and rows are in the order of cells.
    #[must_use]
    pub fn medians<C: Ord>(
        &self,
        samples: &[S],
        cell: impl Fn(&S) -> C,
        name: impl Fn(&C) -> String,
    ) -> String {
        let (name_width, width, decimals) = (self.name_width, self.width, self.decimals);
        let mut rows: BTreeMap<C, Vec<&S>> = BTreeMap::new();
        for sample in samples {
            rows.entry(cell(sample)).or_default().push(sample);
        }
        let mut text = format!("{:name_width$}", self.corner);
        for (column, _) in self.columns {
            let _ = write!(text, "{column:>width$}");
        }
        text.push('\n');
        for (cell, samples) in &rows {
            let _ = write!(text, "{:name_width$}", name(cell));
            for (_, figure) in self.columns {
                let figure = median(samples.iter().map(|sample| figure(sample)));
                let _ = write!(text, "{figure:>width$.decimals$}");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_rows_have_the_medians_of_their_cells() {
        let table = Table {
            corner: "per item",
            name_width: 10,
            width: 7,
            decimals: 1,
            columns: &[
                ("half", |(_, value)| value / 2.0),
                ("all", |(_, value)| *value),
            ],
        };
        let samples = [(100, 6.0), (20, 5.0), (100, 2.0), (100, 3.0)];
        let text = table.medians(&samples, |(size, _)| *size, |size| format!("get {size}"));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "per item     half    all",
                "get 20        2.5    5.0",
                "get 100       1.5    3.0",
            ]
        );
    }
}
