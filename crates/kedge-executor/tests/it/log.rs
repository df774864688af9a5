//! Log lines about tasks that panic or run for too long.

use std::sync::Arc;
use std::time::Duration;

use kedge_executor::{Next, Pool, Priority, TaskContext, TaskKind, TaskSpec};

use crate::lines::lines_of;
use crate::support::{HOUR, dropping, manual};

fn has_all(line: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| line.contains(part))
}

#[test]
fn slow_run_is_logged() {
    const EXPECTED: Duration = Duration::from_millis(20);
    static SLOW: TaskKind = TaskKind::new("slow_line", Pool::AuxIo, Priority::Normal, EXPECTED);
    let (executor, manual, owner) = manual();
    let manual = Arc::new(manual);
    let nanosecond = Duration::from_nanos(1);
    for (takes, has_line) in [(EXPECTED, false), (EXPECTED + nanosecond, true)] {
        let spec = TaskSpec {
            description: "copies what is worth it".into(),
            ..TaskSpec::new(&SLOW, owner)
        };
        let clock = manual.clone();
        let task = move |_: &TaskContext<'_>| {
            clock.advance(takes);
            Next::Done
        };
        executor.schedule(spec, task).unwrap();
        let lines = lines_of(|| {
            manual.run_ready();
        });
        assert_eq!(lines.len(), usize::from(has_line), "{lines:?}");
        for line in lines {
            let parts = [
                " WARN ",
                "kind=\"slow_line\"",
                "owner=\"owner\"",
                "description=copies what is worth it",
                "took_ms=20",
                "expected_ms=20",
            ];
            assert!(has_all(&line, &parts), "{line}");
        }
    }
}

#[test]
fn panic_in_run_or_destructor_is_logged() {
    static BAD: TaskKind = TaskKind::new("bad_line", Pool::Reader, Priority::Normal, HOUR);
    let (executor, manual, owner) = manual();
    let in_the_run = |_: &TaskContext<'_>| -> Next { panic!("in the run") };
    let lines = lines_of(|| {
        executor
            .schedule(TaskSpec::new(&BAD, owner), in_the_run)
            .unwrap();
        manual.run_ready();
        let dropped = dropping(|| panic!("in the destructor"));
        let dropped = executor
            .schedule(TaskSpec::new(&BAD, owner), dropped)
            .unwrap();
        assert!(executor.cancel(dropped));
        manual.run_ready();
    });
    let texts = ["in the run", "in the destructor"];
    assert_eq!(lines.len(), texts.len(), "{lines:?}");
    for (line, text) in lines.iter().zip(texts) {
        let panic = format!("panic=\"{text}\"");
        assert!(
            has_all(line, &["ERROR ", "kind=\"bad_line\"", &panic]),
            "{line}"
        );
    }
}
