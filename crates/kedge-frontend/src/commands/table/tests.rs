//! Generation of the tables of commands in the documentation.

use std::fmt::Write as _;
use std::path::Path;

use super::*;

/// Opcodes, the tests that cover them, and notes.
type Served = (&'static [Opcode], &'static str, &'static str);

/// The rows of the documentation.
pub(super) struct Documentation {
    pub(super) served: &'static [Served],
    pub(super) dcp: &'static [Served],
    /// Opcodes that are not served, and the reason.
    pub(super) unserved: &'static [(&'static [Opcode], &'static str)],
}

macro_rules! served {
    ([$($opcode:ident),+] {
        run: $run:expr, access: $access:expr, timing: $timing:expr,
        reply: $reply:expr, long: $long:expr, $(changes_session: $changes:literal,)?
        tested: $tested:literal,
        notes: $notes:literal,
    }) => {
        (&[$(Opcode::$opcode),+], $tested, $notes)
    };
}
pub(super) use served;

fn names(opcodes: &[Opcode]) -> String {
    let names: Vec<_> = opcodes.iter().map(|opcode| opcode.name()).collect();
    names.join(", ")
}

fn numbers(opcodes: &[Opcode]) -> String {
    let numbers = opcodes
        .iter()
        .map(|opcode| format!("{:02x}", opcode.wire()));
    numbers.collect::<Vec<_>>().join(" ")
}

fn privileges(access: RequiredAccess) -> String {
    let names = |needed: Rights| {
        let names: Vec<_> = needed.names().collect();
        names.join(", ")
    };
    match access {
        RequiredAccess::Anyone => "none".to_owned(),
        RequiredAccess::User | RequiredAccess::Unserved => "login".to_owned(),
        RequiredAccess::Argument => "by argument".to_owned(),
        RequiredAccess::Document(needed) => names(needed),
        RequiredAccess::Somewhere(needed) => format!("{}, anywhere", names(needed)),
        RequiredAccess::Bucket(needed) => format!("{}, bucket", names(needed)),
    }
}

fn table_of_served(rows: &[Served], first: &str) -> String {
    let mut text =
        format!("| {first} | opcode | privileges | notes | tested |\n|---|---|---|---|---|\n");
    for (opcodes, tested, notes) in rows {
        let needed = privileges(row(opcodes[0]).access);
        let (names, numbers) = (names(opcodes), numbers(opcodes));
        let _ = writeln!(
            text,
            "| {names} | {numbers} | {needed} | {notes} | {tested} |"
        );
    }
    text.replace("|  |", "| |")
}

fn table_of_unserved() -> String {
    let mut text = "| commands | opcode | reason |\n|---|---|---|\n".to_owned();
    for (opcodes, reason) in DOCUMENTATION.unserved {
        let _ = writeln!(
            text,
            "| {} | {} | {reason} |",
            names(opcodes),
            numbers(opcodes)
        );
    }
    text
}

/// The tables in `docs/compat.md`, between their markers, must be those of the code.
#[test]
fn compat_doc_matches_the_command_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat.md");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut after = before.clone();
    for (name, table) in [
        (
            "served commands",
            table_of_served(DOCUMENTATION.served, "command"),
        ),
        (
            "DCP messages",
            table_of_served(DOCUMENTATION.dcp, "message"),
        ),
        ("commands that are not served", table_of_unserved()),
    ] {
        let begin = format!(
            "<!-- {name}: generated from crates/kedge-frontend/src/commands/table.rs -->\n"
        );
        let from = after.find(&begin).expect("the mark of the table") + begin.len();
        let len = after[from..]
            .find("<!-- end -->")
            .expect("the end of the table");
        after.replace_range(from..from + len, &format!("\n{table}\n"));
    }
    if before == after {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, after).unwrap();
        return;
    }
    let differing = before
        .lines()
        .zip(after.lines())
        .find(|(is, wanted)| is != wanted);
    panic!(
        "docs/compat.md is not what the table of commands says; UPDATE_DOCS=1 writes it: {differing:?}"
    );
}

/// Every opcode has a row, as the match over them shows; a row names a histogram only if its command is served.
#[test]
fn commands_that_are_not_served_have_no_histogram() {
    for opcode in Opcode::ALL {
        let row = row(*opcode);
        if row.access == RequiredAccess::Unserved {
            assert_eq!(row.timing, None, "{}", opcode.name());
        }
    }
}
