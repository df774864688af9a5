//! The group `tasks` of the statistics as tables: the pools, and their tasks.

use std::time::Duration;

use serde_json::Value;

use super::table::table;

/// Converts the JSON object of each pool and task into rows of two tables.
pub(crate) fn tables(rows: &[(String, String)]) -> String {
    let mut pools = vec![header(&["POOL", "THREADS", "IDLE", "QUEUED"])];
    let mut tasks = vec![header(&[
        "ID",
        "OWNER",
        "KIND",
        "POOL",
        "PRIORITY",
        "STATE",
        "RUNS",
        "RUN TIME",
        "DESCRIPTION",
    ])];
    for (name, json) in rows {
        let value: Value = serde_json::from_str(json).unwrap_or_default();
        if let Some(pool) = name.strip_prefix("pool:") {
            let count = |field: &str| text(&value, field);
            pools.push(vec![
                pool.to_owned(),
                count("threads"),
                count("idle"),
                count("queued"),
            ]);
        } else if name.starts_with("task:") {
            tasks.push(task(&value));
        }
    }
    format!("{}\n{}", table("lrrr", &pools), table("rlllllrrl", &tasks))
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn text(value: &Value, field: &str) -> String {
    match value.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

fn task(value: &Value) -> Vec<String> {
    let time = |field: &str| value.get(field).and_then(Value::as_u64).map(show_us);
    let state = match time("sleeps_us") {
        Some(left) => format!("{} {left}", text(value, "state")),
        None => text(value, "state"),
    };
    vec![
        text(value, "id"),
        text(value, "owner"),
        text(value, "kind"),
        text(value, "pool"),
        text(value, "priority"),
        state,
        text(value, "runs"),
        time("run_time_us").unwrap_or_default(),
        text(value, "description"),
    ]
}

/// Formats a time with about three digits.
fn show_us(us: u64) -> String {
    let time = Duration::from_micros(us);
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", time.as_secs_f64() * 1e3),
        _ => format!("{:.1}s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_and_tasks_are_tables() {
        let rows = [
            ("pool:writer", r#"{"threads":4,"idle":3,"queued":0}"#),
            (
                "task:7",
                r#"{"id":7,"owner":"bucket:b","kind":"log_commit","pool":"writer","priority":"high",
                    "description":"appends","state":"snoozing","sleeps_us":19500,"runs":12,"run_time_us":999}"#,
            ),
            (
                "task:21",
                r#"{"id":21,"owner":"server","kind":"authentication","pool":"nonio","priority":"high",
                    "description":"verifies","state":"sleeping","sleeps_us":null,"runs":0,"run_time_us":2500000}"#,
            ),
        ];
        let rows: Vec<_> = rows
            .iter()
            .map(|&(name, json)| (name.to_owned(), json.to_owned()))
            .collect();
        assert_eq!(
            tables(&rows),
            "POOL    THREADS  IDLE  QUEUED\n\
             writer        4     3       0\n\
             \n\
             ID  OWNER     KIND            POOL    PRIORITY  STATE            RUNS  RUN TIME  DESCRIPTION\n \
             7  bucket:b  log_commit      writer  high      snoozing 19.5ms    12     999us  appends\n\
             21  server    authentication  nonio   high      sleeping            0      2.5s  verifies\n"
        );
    }
}
