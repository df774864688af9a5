//! The flags of `kedge load`, and the plan made from them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kedge_auth::{Mechanism, PASSWORD_BYTES_MAX, USER_NAME_BYTES_MAX};
use kedge_tls::rustls::ClientConfig;
use kedge_types::DurabilityLevel;
use kedge_types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::generate::share;
use super::wire::KEY_DIGITS;
use crate::client::LoginCredentials;
use crate::target::{Scheme, ServerUrl};
use crate::tools::ServerArgs;

/// Most connections of one run.
const CONNECTIONS_MAX: usize = 60_000;
/// Most requests in flight on one connection.
const WINDOW_MAX: usize = 65_536;
/// Largest skew of a Zipfian distribution: its formulas have a pole at 1.
const ZIPFIAN_MAX: f64 = 0.999;
/// Requests in flight on one connection while the items are stored before the run.
const POPULATE_WINDOW: usize = 64;

/// The protocol of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Couchbase's binary protocol, with login and bucket.
    Couchbase,
    /// Plain memcached, binary.
    Memcached,
    /// Plain memcached, text.
    MemcachedText,
    /// Redis: RESP GET and SET.
    Redis,
}

impl Protocol {
    /// Returns the name on the command line.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Couchbase => "couchbase",
            Self::Memcached => "memcached",
            Self::MemcachedText => "memcached-text",
            Self::Redis => "redis",
        }
    }

    const fn scheme(self) -> Scheme {
        match self {
            Self::Couchbase => Scheme::Couchbase,
            Self::Memcached | Self::MemcachedText => Scheme::Memcached,
            Self::Redis => Scheme::Redis,
        }
    }
}

/// The durability level of a SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum DurabilityArg {
    /// In the memory of the active.
    None,
    /// In the memory of a majority.
    Majority,
    /// In the memory of a majority, and on the active's disk.
    MajorityAndPersistToActive,
    /// On the disks of a majority.
    PersistToMajority,
}

impl DurabilityArg {
    const fn durability(self) -> Option<DurabilityLevel> {
        match self {
            Self::None => None,
            Self::Majority => Some(DurabilityLevel::Majority),
            Self::MajorityAndPersistToActive => Some(DurabilityLevel::MajorityAndPersistOnActive),
            Self::PersistToMajority => Some(DurabilityLevel::PersistToMajority),
        }
    }
}

/// Measure a server under a load of GETs and SETs.
///
/// Every connection has its own requests in flight (--pipeline, or --batch-size). Without --rate-limit it sends the
/// next request after a reply; with it, requests are due at a fixed rate, and latency counts from the due time, not
/// from the time of sending.
///
/// In a cluster each connection belongs to one node, in turn, and requests the items that are active there.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Protocol; by default that of the URL's scheme
    #[arg(long)]
    pub(crate) protocol: Option<Protocol>,
    /// Number of items from which keys are chosen
    #[arg(short = 'I', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) num_items: u64,
    /// Text before the 20 digits of a key
    #[arg(long, default_value = "")]
    pub(crate) key_prefix: String,
    /// Independent connections (not operating-system threads)
    #[arg(short = 't', long, default_value_t = 1)]
    pub(crate) num_threads: usize,
    /// Operating-system threads that drive the connections
    #[arg(long, default_value_t = 1)]
    pub(crate) worker_threads: usize,
    /// Smallest value, in bytes
    #[arg(short = 'm', long, default_value_t = 50)]
    pub(crate) min_size: usize,
    /// Largest value, in bytes; sizes are uniformly distributed
    #[arg(short = 'M', long, default_value_t = 5120)]
    pub(crate) max_size: usize,
    /// Percent of requests that are SETs
    #[arg(short = 'r', long, default_value_t = 33, value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) set_pct: u8,
    /// Requests sent together on a connection; the next ones follow after all replies
    #[arg(short = 'B', long, default_value_t = 1)]
    pub(crate) batch_size: usize,
    /// Requests kept in flight on a connection; each reply triggers the next request
    #[arg(long, default_value_t = 1, conflicts_with = "batch_size")]
    pub(crate) pipeline: usize,
    /// Batches per connection; -1 or 0: until --duration or Ctrl-C
    #[arg(short = 'c', long, default_value_t = -1, allow_negative_numbers = true)]
    pub(crate) num_cycles: i64,
    /// Seconds to run
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Seconds at the start that are not measured
    #[arg(long, value_name = "SECS", default_value = "0", value_parser = seconds)]
    pub(crate) warmup: Duration,
    /// Use values of random bytes instead of repeated text
    #[arg(short = 'R', long)]
    pub(crate) random_body: bool,
    /// Let each connection iterate over its share of the items in order
    #[arg(long)]
    pub(crate) sequential: bool,
    /// Choose items by a Zipfian distribution of this skew, 0.99 if none is given; uniform without the flag
    #[arg(long, value_name = "THETA", num_args = 0..=1, default_missing_value = "0.99", conflicts_with = "sequential")]
    pub(crate) zipfian: Option<f64>,
    /// Do not store all items before the run
    #[arg(short = 'n', long)]
    pub(crate) no_population: bool,
    /// Durability level of a SET (couchbase only)
    #[arg(long, default_value = "none")]
    pub(crate) durability: DurabilityArg,
    /// Wait until so many replicas have a SET: WAIT after each (redis only, with --set-pct 100)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) wait_replicas: u16,
    /// Total requests per second, due at fixed times; those due within 0.2 ms are sent together
    #[arg(long, value_name = "OPS")]
    pub(crate) rate_limit: Option<f64>,
    /// Seconds after which a request without a reply ends its connection
    #[arg(long, value_name = "SECS", default_value = "45", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Seconds for which to retry a lost connection
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = seconds)]
    pub(crate) reconnect: Duration,
    /// Seed for keys, sizes and kinds of requests
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: ServerArgs,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

/// The checked plan of the flags.
#[derive(Clone, Debug)]
pub(super) struct LoadPlan {
    pub(super) protocol: Protocol,
    /// Host and port of each node; only those of the URL until the map is known.
    pub(super) nodes: Vec<(String, u16)>,
    /// TLS of the key-value port, if the URL asks for it.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) bucket: String,
    /// The credentials; `None` if a certificate logs in.
    pub(super) login: Option<LoginCredentials>,
    pub(super) items: u64,
    pub(super) key_prefix: String,
    pub(super) connections: usize,
    pub(super) workers: usize,
    pub(super) size_min: usize,
    pub(super) size_max: usize,
    pub(super) set_pct: u8,
    /// Requests in flight on one connection during the run.
    pub(super) window: usize,
    /// Requests in flight on one connection during the population; 0 to store no items.
    pub(super) populate_window: usize,
    /// True if the window is refilled only after all replies.
    pub(super) in_batches: bool,
    /// Requests per connection.
    pub(super) requests: Option<u64>,
    pub(super) duration: Option<Duration>,
    pub(super) warmup: Duration,
    pub(super) random_body: bool,
    pub(super) sequential: bool,
    /// The skew of the Zipfian distribution of items; `None` for a uniform one.
    pub(super) zipfian: Option<f64>,
    pub(super) durability: Option<DurabilityLevel>,
    /// The number of replicas that must have a SET before it counts as successful; 0 for none.
    pub(super) wait_replicas: u16,
    pub(super) rate: Option<f64>,
    pub(super) timeout: Duration,
    pub(super) reconnect: Duration,
    pub(super) seed: u64,
}

/// The error of flags that make no plan.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PlanError(String);

/// The credentials; `None` if a certificate logs in.
fn login(args: &LoadArgs, password: &str) -> Option<LoginCredentials> {
    args.access.client_cert.is_none().then(|| LoginCredentials {
        user: args.access.user.clone(),
        password: password.to_owned(),
        // The cheapest SCRAM mechanism where processors have SHA-256 instructions: thousands of connections are opened
        // before a run.
        mechanism: Mechanism::ScramSha256,
    })
}

fn require(holds: bool, otherwise: &str) -> Result<(), PlanError> {
    if holds {
        Ok(())
    } else {
        Err(PlanError(otherwise.to_owned()))
    }
}

impl LoadPlan {
    pub(super) fn new(args: &LoadArgs) -> Result<Self, PlanError> {
        let target =
            ServerUrl::parse(&args.access.url).map_err(|error| PlanError(error.to_string()))?;
        let tls = args.access.tls(&target);
        let tls = tls.map_err(|error| PlanError(error.to_string()))?;
        let protocol = match (args.protocol, target.scheme) {
            (Some(protocol), _) => protocol,
            (None, None | Some(Scheme::Couchbase)) => Protocol::Couchbase,
            (None, Some(Scheme::Memcached)) => Protocol::Memcached,
            (None, Some(Scheme::Redis)) => Protocol::Redis,
            (None, Some(Scheme::Http)) => {
                return Err(PlanError(
                    "http:// is no address of a key-value port".to_owned(),
                ));
            }
        };
        let password = args.access.password();
        let password = password.map_err(|error| PlanError(error.to_string()))?;
        check(args, protocol, &password)?;
        let cycles = u64::try_from(args.num_cycles).unwrap_or(0);
        let batch = args.batch_size.max(1);
        Ok(Self {
            protocol,
            nodes: vec![(target.host.clone(), target.port_or(protocol.scheme()))],
            tls,
            bucket: target.bucket.unwrap_or_else(|| "default".to_owned()),
            login: login(args, &password),
            items: args.num_items,
            key_prefix: args.key_prefix.clone(),
            connections: args.num_threads,
            workers: args.worker_threads.min(args.num_threads),
            size_min: args.min_size,
            size_max: args.max_size,
            set_pct: args.set_pct,
            window: args.pipeline.max(batch),
            populate_window: if args.no_population {
                0
            } else {
                POPULATE_WINDOW
            },
            in_batches: batch > 1,
            requests: (cycles > 0).then(|| cycles.saturating_mul(batch as u64)),
            duration: args.duration,
            warmup: args.warmup,
            random_body: args.random_body,
            sequential: args.sequential,
            zipfian: args.zipfian,
            durability: args.durability.durability(),
            wait_replicas: args.wait_replicas,
            rate: args.rate_limit,
            timeout: args.timeout,
            reconnect: args.reconnect,
            seed: args.seed,
        })
    }

    /// Sets the nodes of the cluster's map.
    ///
    /// # Errors
    /// Items must be stored, and there are fewer connections than nodes.
    pub(super) fn use_nodes(&mut self, nodes: Vec<(String, u16)>) -> Result<(), PlanError> {
        let count = nodes.len();
        self.nodes = nodes;
        require(
            self.populate_window == 0 || self.connections >= count,
            "--num-threads: to store all items, each node of the cluster needs a connection",
        )
    }

    /// Returns the index in `nodes` of the node of connection `at`.
    pub(super) const fn node_of(&self, at: usize) -> usize {
        at % self.nodes.len()
    }

    /// Returns connection `at`'s share of the items: connections to one node divide them, and each skips those of other
    /// nodes.
    pub(super) fn share_of(&self, at: usize) -> Range<u64> {
        let nodes = self.nodes.len();
        let with_its_node = (self.node_of(at)..self.connections).step_by(nodes).len();
        share(self.items, at / nodes, with_its_node)
    }

    /// Returns whether out-of-order replies help: otherwise a durable write delays those behind it.
    pub(super) const fn wants_unordered(&self) -> bool {
        self.window > 1 && self.durability.is_some()
    }
}

fn check(args: &LoadArgs, protocol: Protocol, password: &str) -> Result<(), PlanError> {
    require(
        (1..=CONNECTIONS_MAX).contains(&args.num_threads),
        "--num-threads: expected 1 to 60000 connections",
    )?;
    require(
        (1..=256).contains(&args.worker_threads),
        "--worker-threads: expected 1 to 256",
    )?;
    require(
        args.min_size <= args.max_size,
        "--min-size is larger than --max-size",
    )?;
    require(
        args.max_size <= VALUE_BYTES_MAX,
        "--max-size: a value has at most 20 MiB",
    )?;
    require(
        (1..=WINDOW_MAX).contains(&args.pipeline) && (1..=WINDOW_MAX).contains(&args.batch_size),
        "--pipeline and --batch-size: expected 1 to 65536",
    )?;
    let key_len = args.key_prefix.len() + KEY_DIGITS;
    require(
        key_len <= KEY_BYTES_MAX,
        "--key-prefix: a key has at most 250 bytes",
    )?;
    let printable = args.key_prefix.bytes().all(|b| b.is_ascii_graphic());
    require(
        printable,
        "--key-prefix: expected printable ASCII without spaces",
    )?;
    require(
        args.durability == DurabilityArg::None || protocol == Protocol::Couchbase,
        "--durability needs the couchbase protocol",
    )?;
    require(
        args.wait_replicas == 0 || protocol == Protocol::Redis,
        "--wait-replicas needs the redis protocol",
    )?;
    require(
        args.wait_replicas == 0 || args.set_pct == 100,
        "--wait-replicas goes with --set-pct 100",
    )?;
    require(
        args.rate_limit
            .is_none_or(|rate| rate.is_finite() && rate > 0.0 && rate <= 1e8),
        "--rate-limit: expected more than 0 and at most 100000000 requests per second",
    )?;
    require(
        args.rate_limit.is_none() || args.batch_size <= 1,
        "--rate-limit goes with --pipeline, not with --batch-size",
    )?;
    require(
        args.zipfian
            .is_none_or(|theta| theta > 0.0 && theta <= ZIPFIAN_MAX),
        "--zipfian: expected a skew of more than 0 and at most 0.999",
    )?;
    require(
        args.duration.is_none_or(|it| it > args.warmup),
        "--warmup is as long as --duration",
    )?;
    require(
        !args.timeout.is_zero(),
        "--timeout: expected more than 0 seconds",
    )?;
    let credentials_fit = args.access.user.len() <= USER_NAME_BYTES_MAX
        && password.len() <= PASSWORD_BYTES_MAX
        && !password.is_empty();
    require(credentials_fit, "user or password is empty or too long")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn plan(flags: &str) -> Result<LoadPlan, String> {
        let words = std::iter::once("load").chain(flags.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        LoadPlan::new(&line.load).map_err(|error| error.to_string())
    }

    #[test]
    fn documented_load_flags_are_valid() {
        let plan = plan(
            "-U couchbase://127.0.0.1:12000/b -u U -P p --num-items 10 --num-threads 3 --min-size 5 \
             --max-size 6 --set-pct 100 --batch-size 4 --num-cycles 7 --random-body --sequential \
             --no-population --durability persist_to_majority --rate-limit 10 --json",
        );
        assert_eq!(
            plan.expect_err("both"),
            "--rate-limit goes with --pipeline, not with --batch-size"
        );
        let plan = self::plan(
            "-U couchbase://127.0.0.1:12000/b -u U -P p --num-items 10 --num-threads 3 --min-size 5 \
             --max-size 6 --set-pct 100 --batch-size 4 --num-cycles 7 --random-body --sequential \
             --no-population --durability persist_to_majority --json",
        )
        .expect("a plan");
        assert_eq!(
            (&plan.nodes, plan.bucket.as_str()),
            (&vec![("127.0.0.1".to_owned(), 12000)], "b")
        );
        assert_eq!(
            (plan.connections, plan.window, plan.requests),
            (3, 4, Some(28))
        );
        assert_eq!(plan.durability, Some(DurabilityLevel::PersistToMajority));
        assert_eq!(plan.populate_window, 0);
        assert!(plan.in_batches && plan.wants_unordered());
    }

    #[test]
    fn zipfian_has_a_default_skew() {
        for (flags, theta) in [
            ("", None),
            ("--zipfian", Some(0.99)),
            ("--zipfian 0.5 --json", Some(0.5)),
            ("--zipfian --json", Some(0.99)),
        ] {
            assert_eq!(plan(flags).expect(flags).zipfian, theta, "{flags}");
        }
    }

    #[test]
    fn load_protocol_follows_the_scheme_or_the_flag() {
        for (flags, protocol, port) in [
            ("", Protocol::Couchbase, 11210),
            ("-U memcached://h", Protocol::Memcached, 11211),
            ("-U redis://h", Protocol::Redis, 6379),
            (
                "-U h --protocol memcached-text",
                Protocol::MemcachedText,
                11211,
            ),
            ("-U h:5 --protocol redis", Protocol::Redis, 5),
        ] {
            let plan = plan(flags).expect(flags);
            let asked = (plan.protocol, plan.nodes[0].1);
            assert_eq!(asked, (protocol, port), "{flags}");
        }
    }

    #[test]
    fn connections_to_one_node_divide_its_items() {
        let mut plan = plan("--num-items 10 --num-threads 5").expect("a plan");
        plan.nodes.push(("other".to_owned(), 1));
        let shares = |node| {
            let of_node = (0..5).filter(|&at| plan.node_of(at) == node);
            of_node.map(|at| plan.share_of(at)).collect::<Vec<_>>()
        };
        assert_eq!(shares(0), [0..3, 3..6, 6..10]);
        assert_eq!(shares(1), [0..5, 5..10]);
    }

    #[test]
    fn invalid_load_flags_have_named_errors() {
        for (flags, words) in [
            ("--num-threads 0", "--num-threads"),
            ("--min-size 7 --max-size 6", "--min-size"),
            ("--max-size 20971521", "20 MiB"),
            ("--set-pct 101", "set-pct"),
            ("--num-items 0", "num-items"),
            ("--durability majority --protocol redis", "couchbase"),
            ("--wait-replicas 1", "redis"),
            ("--wait-replicas 1 --protocol redis", "--set-pct"),
            ("--durability sometimes", "sometimes"),
            ("--rate-limit 0", "--rate-limit"),
            ("--duration 1 --warmup 1", "--warmup"),
            ("-U couchbases://h", "TLS"),
            ("--pipeline 0", "--pipeline"),
            ("--zipfian 1", "--zipfian"),
            ("--zipfian 0", "--zipfian"),
            ("--zipfian NaN", "--zipfian"),
            ("--zipfian --sequential", "--sequential"),
        ] {
            let error = plan(flags).expect_err(flags);
            assert!(error.contains(words), "{flags}: {error}");
        }
    }
}
