//! The table as a page of the documentation.

use super::BucketConfig;
use std::fmt::Write as _;

/// The text of `docs/reference/bucket-settings.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Bucket settings\n\n\
         Generated from the table of settings; a test checks that this file is current.\n\n\
         A bucket keeps its settings in `bucket.json` in its directory. A key of that file that is not on this page is an \
         error. `kedge bucket create` and `kedge bucket edit` take the flags below, and `kedge bucket show` shows the \
         settings. The fields are those of the form at `/pools/default/buckets`. The settings of `kedge serve` \
         ([Settings](../config.md)) hold for the bucket that it names.\n\n\
         ## Settings that cannot change\n\n\
         | key | setting |\n|---|---|\n",
    );
    for setting in BucketConfig::FIXED {
        let _ = writeln!(out, "| `{}` | {} |", setting.key, setting.doc.trim());
    }
    out.push_str("\n## Settings that can change\n");
    let defaults = BucketConfig::default();
    for row in BucketConfig::table() {
        let _ = writeln!(out, "\n### `{}`\n\n{}\n", row.name, row.doc.trim());
        let _ = writeln!(out, "* Key of `bucket.json`: `{}`", row.key);
        let default = match row.key {
            "quota_bytes" => "none".to_owned(),
            _ => format!("`{}`", (row.show)(&defaults)),
        };
        let _ = writeln!(out, "* Value: {}; default: {default}", (row.kind)());
        if row.at_start {
            out.push_str("* A change takes effect at the next start.\n");
        }
        if let Some(field) = &row.field {
            let newer = field.newer.map(|newer| format!(" or `{newer}`"));
            let newer = newer.unwrap_or_default();
            let values = (field.values)();
            let _ = writeln!(out, "* Field `{}`{newer}: {values}", field.name);
            let flag = row.flag();
            let _ = writeln!(out, "* Flag of `kedge bucket`: `--{flag}`");
        }
        if let Some(field) = row.compaction_field {
            let _ = writeln!(out, "* Field `{field}`, with `autoCompactionDefined=true`");
        }
        if row.group.is_some() {
            let _ = writeln!(out, "* Setting of `kedge serve`: `{}`", row.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_current() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/bucket-settings.md"
        );
        let page = markdown();
        if std::env::var_os("KEDGE_UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == page,
            "docs/reference/bucket-settings.md is out of date: run `KEDGE_UPDATE_DOCS=1 cargo test -p kedge-bucket-core page_is_current`"
        );
    }
}
