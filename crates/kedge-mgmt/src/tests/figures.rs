//! Statistics, timings and metrics.

use kedge_bucket::{Timing, TimingUnit};

use super::Server;
use crate::metrics;

#[test]
fn statistics() {
    let server = Server::start();
    let stats = server.get("/kedge/stats").json();
    assert_eq!(stats["server"]["curr_connections"], "3");
    assert_eq!(stats["buckets"]["default"]["curr_items"], "0");
    let samples = server.get("/pools/default/buckets/default/stats").json();
    assert_eq!(
        samples["op"]["samples"]["curr_items"],
        serde_json::json!([0.0])
    );
}

#[test]
fn timings() {
    let server = Server::start();
    let bucket = server.registry.get("default").unwrap();
    for us in [7, 7, 100] {
        bucket.timings().record_us(0, Timing::Get, us);
    }
    let all = server.get("/kedge/timings/default").json();
    assert_eq!(all["bucket"], "default");
    assert_eq!(all["timings"]["get"]["count"], 3);
    assert_eq!(
        all["timings"]["get"]["buckets"][0],
        serde_json::json!([7, 7, 2])
    );
    assert!(all["timings"].get("set").is_none());
    let one = server.get("/kedge/timings/default/get").json();
    assert_eq!(one["name"], "get");
    assert_eq!(one["buckets"], all["timings"]["get"]["buckets"]);
    assert_eq!(server.get("/kedge/timings/default/set").json()["count"], 0);
    assert_eq!(server.get("/kedge/timings/default/no_such").status, 404);
    let warmup = "/kedge/timings/default/run_time.warmup";
    assert_eq!(server.get(warmup).json()["count"], 1);
    for name in ["queue_time.warmup", "run_time.expiry_sweep"] {
        let count = &all["timings"][name]["count"];
        assert!(count.as_u64() > Some(0), "{name}: {all}");
    }
    let unknown = "/kedge/timings/default/run_time.no_such";
    assert_eq!(server.get(unknown).status, 404);
}

#[test]
fn metrics_include_collections() {
    let server = Server::start();
    let scopes = "/pools/default/buckets/default/scopes";
    assert_eq!(server.post(scopes, "name=s").status, 200);
    let made = server.post(&format!("{scopes}/s/collections"), "name=c");
    assert_eq!(made.status, 200);
    let metrics = server.get("/metrics").body;
    for (scope, collection) in [("_default", "_default"), ("s", "c")] {
        let labels = format!("{{bucket=\"default\",scope=\"{scope}\",collection=\"{collection}\"");
        for line in [
            format!("kedge_collection_items{labels}}} 0"),
            format!("kedge_collection_disk_bytes{labels}}} "),
            format!("kedge_collection_ops_total{labels},op=\"get\"}} 0"),
        ] {
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
    }
}

#[test]
fn metrics_include_pools_and_tasks() {
    let server = Server::start();
    let panics = server
        .pools
        .executor()
        .submit(kedge_executor::Pool::Writer, || panic!("as the test wants"));
    assert!(panics.wait().is_err());
    let text = server.get("/metrics").body;
    for line in [
        "kedge_pool_threads{pool=\"writer\"} 1.0",
        "kedge_pool_queued_tasks{pool=\"reader\"} 0.0",
        "kedge_pool_idle_threads{pool=\"reader\"} 1.0",
        "kedge_task_runs_total{kind=\"warmup\",pool=\"reader\"} 1.0",
        "kedge_task_panics_total{kind=\"writer_closure\",pool=\"writer\"} 1.0",
        "kedge_task_panics_total{kind=\"log_commit\",pool=\"writer\"} 0.0",
        "kedge_task_slow_runs_total{kind=\"warmup\",pool=\"reader\"} 0.0",
        "kedge_task_queue_seconds_count{kind=\"warmup\",pool=\"reader\"} 1",
        "kedge_task_run_seconds_count{kind=\"warmup\",pool=\"reader\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn metrics_equal_the_statistics() {
    let server = Server::start();
    let bucket = server.registry.get("default").unwrap();
    for us in [7, 8, 9, 1 << 35] {
        bucket.timings().record_us(0, Timing::Get, us);
    }
    bucket.timings().record_us(0, Timing::ApplyBatchItems, 100);
    let reply = server.get("/metrics");
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    let text = reply.body;
    for line in [
        "kedge_connections 3.0",
        "kedge_bucket_items{bucket=\"default\"} 0.0",
        "kedge_bucket_quota_bytes{bucket=\"default\"} 67108864.0",
        "kedge_bucket_warmup_keys{bucket=\"default\"} 0.0",
        "kedge_bucket_warmup_values{bucket=\"default\"} 0.0",
        "kedge_bucket_warmup_documents{bucket=\"default\"} 0.0",
        "kedge_bucket_reads_total{bucket=\"default\"} 0.0",
        "kedge_bucket_duration_seconds_count{bucket=\"default\",operation=\"get\"} 4",
        "kedge_bucket_duration_seconds_bucket{le=\"0.000004\",bucket=\"default\",operation=\"get\"} 0",
        "kedge_bucket_duration_seconds_bucket{le=\"0.000008\",bucket=\"default\",operation=\"get\"} 2",
        "kedge_bucket_duration_seconds_bucket{le=\"0.000016\",bucket=\"default\",operation=\"get\"} 3",
        "kedge_bucket_duration_seconds_bucket{le=\"+Inf\",bucket=\"default\",operation=\"get\"} 4",
        "kedge_bucket_apply_batch_items_bucket{le=\"64.0\",bucket=\"default\"} 0",
        "kedge_bucket_apply_batch_items_bucket{le=\"128.0\",bucket=\"default\"} 1",
        "kedge_bucket_log_batch_items_count{bucket=\"default\"} 0",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for no_time in ["set", "apply_batch_items"] {
        assert!(
            !text.contains(&format!("operation=\"{no_time}\"")),
            "{text}"
        );
    }
    // Every statistic that is to become a metric is one that a bucket has.
    let mut stats = Vec::new();
    bucket.stats(&mut |name, _| stats.push(name.to_owned()));
    for (stat, name, ..) in metrics::BUCKET {
        assert!(stats.iter().any(|known| known == stat), "{stat}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
}

/// Only the log of the start and a list that nobody asks for named them.
#[test]
fn metrics_count_directories_that_are_not_served() {
    let server = Server::start();
    let count = || {
        let text = server.get("/metrics").body;
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix("kedge_unserved_directories "));
        value.map(str::to_owned)
    };
    assert_eq!(count().as_deref(), Some("0.0"));
    let lost = server.dir.path().join("buckets/lost");
    std::fs::create_dir(&lost).unwrap();
    std::fs::write(lost.join("0.couch.1"), "").unwrap();
    assert_eq!(count().as_deref(), Some("1.0"));
    let stats = server.get("/kedge/stats").json();
    assert_eq!(stats["server"]["unserved_directories"], "1");
    std::fs::remove_dir_all(&lost).unwrap();
    assert_eq!(count().as_deref(), Some("0.0"));
}

#[test]
fn every_metric_has_a_help_text_of_its_own() {
    let server = Server::start();
    let text = server.get("/metrics").body;
    metrics::help::check(&text);
    for (_, name, ..) in metrics::SERVER {
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
    }
}

/// Sizes of reads and writes of files were among the times of operations, so that a read of 4 KiB was one that took 4 ms.
#[test]
fn size_and_count_histograms_are_not_in_seconds() {
    let server = Server::start();
    let bucket = server.registry.get("default").unwrap();
    for timing in [Timing::FsReadSize, Timing::FsWriteSize] {
        for _ in 0..1_000 {
            bucket.timings().record_us(0, timing, 4_000);
        }
    }
    let text = server.get("/metrics").body;
    for timing in Timing::ALL {
        let as_time = format!("operation=\"{}\"", timing.name());
        if timing.unit() != TimingUnit::Microseconds {
            assert!(!text.contains(&as_time), "{as_time}\n{text}");
            let mut rows = metrics::OTHER_UNITS.iter();
            let (_, name, _) = rows.find(|(known, ..)| known == timing).expect("a row");
            let is_size = timing.unit() == TimingUnit::Bytes;
            assert_eq!(name.ends_with("_bytes"), is_size, "{name}");
        }
    }
    for name in [
        "kedge_bucket_file_read_size_bytes",
        "kedge_bucket_file_write_size_bytes",
    ] {
        let below = |le: &str| {
            let start = format!("{name}_bucket{{le=\"{le}\",bucket=\"default\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            let count = line.unwrap_or_else(|| panic!("{start}\n{text}"));
            count.parse::<u64>().unwrap()
        };
        assert!(below("4096.0") >= below("2048.0") + 1_000, "{name}");
    }
}

#[test]
fn metrics_of_process_and_build() {
    let server = Server::start();
    let text = server.get("/metrics").body;
    let value = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("{name}\n{text}"));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    ] {
        assert!(value(name) > 0.0, "{name}");
    }
    assert!(value("kedge_slab_used_bytes") <= value("kedge_slab_bytes"));
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("kedge_build_info{{version=\"{version}\",");
    let line = text.lines().find(|line| line.starts_with(&build));
    assert!(line.is_some_and(|line| line.ends_with("} 1")), "{text}");
}

/// Scrapers that ask for the text format of Prometheus alone got OpenMetrics, in which those that do not know it find
/// counters without type and help.
#[test]
fn metrics_endpoint_serves_the_requested_format() {
    let server = Server::start();
    let get = |accept: &str| {
        let mut client = server.connect();
        client.head("GET", "/metrics", &format!("Accept: {accept}\r\n"));
        let reply = client.reply();
        let content_type = reply.header("content-type").unwrap().to_owned();
        (content_type, reply.body)
    };
    let (content_type, text) = get("text/plain;version=0.0.4;q=0.9");
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    metrics::help::check(&text);
    for line in [
        "# TYPE kedge_bucket_reads_total counter",
        "kedge_bucket_reads_total{bucket=\"default\"} 0.0",
        "# TYPE kedge_connections gauge",
        "# TYPE kedge_build_info gauge",
        "# TYPE kedge_task_run_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("# EOF"), "{text}");
    // Every sample is of a family that was announced just before.
    let mut family = "";
    for line in text.lines().filter(|line| !line.starts_with("# HELP ")) {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap();
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let suffix = name.strip_prefix(family);
            let known = ["", "_bucket", "_sum", "_count"];
            let known = suffix.is_some_and(|suffix| known.contains(&suffix));
            assert!(known, "{family}: {line}");
        }
    }
    let (content_type, text) = get("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(content_type.starts_with("application/openmetrics-text"));
    assert!(text.ends_with("# EOF\n"));
}
