//! A node: a bucket on a disk, and its connections.

use crate::following::Following;
use crate::map::{Map, name};
use crate::network::{Arrival, End, LinkId, Network};
use crate::plan::Plan;
use crate::serving::{Closed, Serving};
use crate::trace::note;
use kedge_bucket::{
    Bucket, BucketChange, BucketConfig, BucketSetup, CompactionRate, Completion, Completions,
    Cookie, Ctx, Recovery, ReplicaSink, Total, VbRole, WarmupBehavior,
};
use kedge_cluster::{Revision, VbucketRole};
use kedge_disk::{Disk, Rng, SimDisk};
use kedge_executor::{ManualExecutor, Pool};
use kedge_types::{Clock, ManualClock, Now, Seqno, VbId};
use kedge_vbucket::VbState;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The bucket's quota in bytes, and what it is for a moment when memory is short.
const QUOTA: u64 = 64 << 20;
const QUOTA_SQUEEZED: u64 = 1 << 10;

/// What a bucket tells its node.
#[derive(Default)]
pub(crate) struct Sink {
    done: Mutex<HashMap<u64, Completion>>,
    acks: Mutex<Vec<(VbId, Seqno)>>,
    has_failed: AtomicBool,
}

impl Completions for Sink {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        let mut all = self.done.lock();
        for (cookie, completion) in done.drain(..) {
            let before = all.insert(cookie.0, completion);
            assert!(before.is_none(), "cookie {} was completed twice", cookie.0);
        }
    }
}

impl ReplicaSink for Sink {
    fn acknowledge(&self, acks: &mut Vec<(VbId, Seqno)>) {
        self.acks.lock().append(acks);
    }

    fn room(&self) {}
}

/// A process.
pub(crate) struct Process {
    node: usize,
    pub(crate) bucket: Arc<Bucket>,
    sink: Arc<Sink>,
    manual: ManualExecutor,
    executor: kedge_executor::Executor,
    /// The revision of the map that it has.
    pub(crate) revision: Revision,
    /// vBuckets that it is the active of by that map, or was until it handed them over.
    leads: BTreeSet<VbId>,
    serving: BTreeMap<LinkId, Serving>,
    following: BTreeMap<usize, (LinkId, Following)>,
}

impl Drop for Process {
    /// Its tasks hold the bucket, and would for ever.
    fn drop(&mut self) {
        self.executor.shutdown();
    }
}

/// A node.
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) disk: SimDisk,
    /// Its own: no two nodes agree on the time.
    clock: Arc<ManualClock>,
    config: BucketConfig,
    /// Its disk takes long over everything: commands are served, and what needs the disk waits.
    pub(crate) is_slow: bool,
    /// The time that its tasks have not seen for that.
    behind: Duration,
    pub(crate) process: Option<Process>,
}

impl Node {
    pub(crate) fn new(number: usize, plan: &Plan, now: Now, seed: u64) -> Self {
        let mut config = BucketConfig::new("sim", plan.vbuckets, QUOTA);
        config.uuid = "00112233445566778899aabbccddeeff".to_owned();
        config.apply_max_lag_ms = 100;
        config.flusher_batch_max_items = 3;
        config.log_bytes_max = 256 << 10;
        config.num_shards = 1;
        config.commit_log = plan.commit_log;
        config.eviction_policy = plan.eviction;
        config.memory.warmup_behavior = WarmupBehavior::Blocking;
        config.compaction.throttle = CompactionRate::Off;
        let disk = SimDisk::new(seed);
        disk.create_dir_all(&dir()).expect("nothing fails yet");
        Self {
            number,
            disk,
            clock: Arc::new(ManualClock::new(now)),
            config,
            is_slow: false,
            behind: Duration::ZERO,
            process: None,
        }
    }

    /// Starts the process.
    ///
    /// # Errors
    /// Why it does not start: its disk has failed, or it finds there what cannot be.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let (executor, manual) = ManualExecutor::new();
        let sink = Arc::new(Sink::default());
        let fatal = Arc::clone(&sink);
        let setup = BucketSetup {
            disk: Arc::new(self.disk.clone()),
            dir: dir(),
            config: self.config.clone(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            executor: executor.clone(),
            completions: Arc::clone(&sink) as Arc<dyn Completions>,
            threads: 1,
            topology: None,
            recovery: Recovery::Strict,
            open_files_max: u32::MAX,
            compaction_reserve_bytes: 0,
            on_fatal: Arc::new(move |_| fatal.has_failed.store(true, Ordering::SeqCst)),
        };
        let bucket = Bucket::open(setup).map_err(|error| error.to_string())?;
        manual.run_ready();
        if let Err(error) = bucket.wait_loaded() {
            executor.shutdown();
            return Err(error.to_string());
        }
        bucket
            .dcp()
            .set_replica_sink(Arc::clone(&sink) as Arc<dyn ReplicaSink>);
        note!(name(self.number), "starts");
        self.process = Some(Process {
            node: self.number,
            bucket,
            sink,
            manual,
            executor,
            revision: Revision::default(),
            leads: BTreeSet::new(),
            serving: BTreeMap::new(),
            following: BTreeMap::new(),
        });
        Ok(())
    }

    /// The process is gone; with `power` also what the kernel had in memory.
    pub(crate) fn kill(&mut self, power: bool, seed: u64, network: &mut Network) {
        let how = if power {
            "loses its power"
        } else {
            "is killed"
        };
        note!(name(self.number), "{how}");
        network.kill(self.number);
        let process = self.process.take();
        if power {
            self.disk.crash(seed);
        } else {
            self.disk.kill_process();
        }
        drop(process);
    }

    /// Whether the process cannot go on, or the machine has lost power.
    pub(crate) fn has_failed(&self) -> bool {
        let has_no_power = || self.disk.exists(&dir()).is_err();
        let failed = |process: &Process| process.sink.has_failed.load(Ordering::SeqCst);
        self.process
            .as_ref()
            .is_some_and(|process| failed(process) || has_no_power())
    }

    pub(crate) fn ctx(&self) -> Ctx {
        Ctx {
            now: self.clock.now(),
            thread: 0,
        }
    }

    /// Makes the node what a map says. Nothing happens if it knows that already.
    pub(crate) fn adopt(&mut self, map: &Map, network: &mut Network) {
        let number = self.number;
        let Some(process) = self
            .process
            .as_mut()
            .filter(|it| it.revision < map.revision())
        else {
            return;
        };
        process.revision = map.revision();
        note!(name(number), "adopts {}", map.brief());
        // First what is followed no more: nothing of it may be acknowledged when the node is active.
        process.follow_as(map, number, network);
        for vb in map.vbuckets() {
            let state = match map.role(vb, number) {
                VbucketRole::Active => VbState::Active,
                VbucketRole::Replica { .. } => VbState::Replica,
                VbucketRole::None => VbState::Dead,
            };
            let led = if state == VbState::Active {
                !process.leads.insert(vb)
            } else {
                process.leads.remove(&vb)
            };
            let role = VbRole {
                state,
                topology: map.topology(vb).filter(|_| state == VbState::Active),
                takeover: false,
                unless_dead: led && state == VbState::Active && map.moves_to(vb).is_some(),
            };
            // One that fails fails the node.
            let _ = process.bucket.states().assign(&[(vb, role)]);
            let figures = process.bucket.vbucket_figures(vb);
            let has_some = figures.is_some_and(|it| it.high_seqno > Seqno(0));
            if state == VbState::Dead && has_some && !map.is_out(number) {
                let _ = process.bucket.states().begin_delete_vbucket(vb, |_| ());
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.clock.advance(time.as_nanos() as u64);
        self.behind += time;
        if self.is_slow {
            return;
        }
        let behind = std::mem::take(&mut self.behind);
        if let Some(process) = &self.process {
            process.manual.advance(behind);
        }
    }

    /// Somebody sets its wall clock.
    pub(crate) fn set_unix_ns(&self, unix_ns: u64) {
        self.clock.set_unix_ns(unix_ns);
    }

    /// Runs all that is due.
    pub(crate) fn run_ready(&self) {
        if let Some(process) = &self.process {
            process.manual.run_ready();
        }
    }

    /// Runs a task, if one is due.
    pub(crate) fn run_one(&self, rng: &mut Rng) {
        if let Some(process) = self.process.as_ref().filter(|_| !self.is_slow) {
            let first = rng.below(4) as usize;
            let pools = (0..4).map(|at| Pool::ALL[(first + at) % 4]);
            let _ = pools.into_iter().any(|pool| process.manual.run_one(pool));
        }
    }

    /// What became of a command.
    pub(crate) fn take_done(&self, cookie: u64) -> Option<Completion> {
        self.process.as_ref()?.sink.done.lock().remove(&cookie)
    }

    /// Connects to peers that it is to follow.
    pub(crate) fn connect(&mut self, map: &Map, network: &mut Network) {
        let now_ns = self.clock.now().mono_ns;
        let number = self.number;
        let Some(process) = &mut self.process else {
            return;
        };
        if process.revision != map.revision() {
            return;
        }
        for peer in map.actives() {
            let wanted = map.followed(number, peer);
            if peer == number || wanted.is_empty() || process.following.contains_key(&peer) {
                continue;
            }
            let link = network.connect(number, peer);
            let mut out = Vec::new();
            let (me, other) = (name(number), name(peer));
            let mut following = Following::new(&process.bucket, me, other, now_ns, &mut out);
            following.set_vbuckets(&wanted, &mut out);
            network.send(link, End::Producer, &out);
            process.following.insert(peer, (link, following));
        }
    }

    /// Something arrives, and everything that is due is done.
    pub(crate) fn pump(&mut self, rng: &mut Rng, network: &mut Network) {
        let now_ns = self.clock.now().mono_ns;
        let links = network.of(self.number);
        let Some(process) = &mut self.process else {
            // Nobody listens.
            for (link, end, _) in links {
                network.close(link, end);
            }
            return;
        };
        for (link, end, peer) in links {
            let arrival = network.arrive(link, end, rng);
            process.on_arrival(now_ns, link, end, peer, arrival, network);
        }
        process.work(now_ns, network);
    }

    /// vBuckets that went back since the last call.
    pub(crate) fn take_went_back(&mut self) -> Vec<VbId> {
        let Some(process) = &mut self.process else {
            return Vec::new();
        };
        let all = process.following.values_mut();
        all.flat_map(|(_, following)| std::mem::take(&mut following.went_back))
            .collect()
    }
}

impl Node {
    /// vBuckets that were taken over since the last call.
    pub(crate) fn take_taken(&mut self) -> Vec<VbId> {
        let process = self.process.as_mut();
        let all = process.map(|process| process.following.values_mut());
        let all = all.into_iter().flatten();
        all.flat_map(|(_, following)| std::mem::take(&mut following.taken))
            .collect()
    }
}

impl Process {
    /// Memory is short for a moment, in which all that is due is done: what may leave memory leaves it. Returns how many
    /// values and documents that were.
    ///
    /// # Errors
    /// The change of the quota is refused.
    pub(crate) fn squeeze(&self) -> Result<u64, String> {
        let evicted = || {
            let figures = self.bucket.figures().into_iter();
            let of = |(name, _): &(&str, u64)| {
                [Total::ValueEjects.name(), Total::ItemEjects.name()].contains(name)
            };
            figures.filter(of).map(|(_, figure)| figure).sum::<u64>()
        };
        let before = evicted();
        for quota in [QUOTA_SQUEEZED, QUOTA] {
            self.bucket.update(&BucketChange {
                quota_bytes: Some(quota),
                ..BucketChange::default()
            })?;
            self.manual.run_ready();
        }
        Ok(evicted() - before)
    }

    fn follow_as(&mut self, map: &Map, number: usize, network: &mut Network) {
        let peers: Vec<usize> = self.following.keys().copied().collect();
        for peer in peers {
            let wanted = map.followed(number, peer);
            if wanted.is_empty() {
                self.end_following(peer, network);
            } else if let Some((link, following)) = self.following.get_mut(&peer) {
                let mut out = Vec::new();
                following.set_vbuckets(&wanted, &mut out);
                network.send(*link, End::Producer, &out);
            }
        }
    }

    fn end_following(&mut self, peer: usize, network: &mut Network) {
        if let Some((link, following)) = self.following.remove(&peer) {
            following.end();
            network.close(link, End::Consumer);
        }
    }

    fn end_serving(&mut self, link: LinkId, network: &mut Network) {
        self.serving.remove(&link);
        network.close(link, End::Producer);
    }

    fn on_arrival(
        &mut self,
        now_ns: u64,
        link: LinkId,
        end: End,
        peer: usize,
        arrival: Option<Arrival>,
        network: &mut Network,
    ) {
        let mut out = Vec::new();
        match end {
            End::Producer => {
                let (bucket, node) = (&self.bucket, self.node);
                let serving = self.serving.entry(link);
                let done = match arrival {
                    None => return,
                    Some(Arrival::Closed) => Err(Closed),
                    Some(Arrival::Bytes(bytes)) => serving
                        .or_insert_with(|| Serving::new(bucket, name(node)))
                        .on_bytes(now_ns, &bytes, &mut out),
                };
                network.send(link, End::Consumer, &out);
                if done.is_err() {
                    self.end_serving(link, network);
                } else {
                    self.end_older(link, network);
                }
            }
            End::Consumer => {
                let is_it = |(known, _): &&mut (LinkId, Following)| *known == link;
                let Some((_, following)) = self.following.get_mut(&peer).filter(is_it) else {
                    return;
                };
                let done = match arrival {
                    None => return,
                    Some(Arrival::Closed) => Err(Closed),
                    Some(Arrival::Bytes(bytes)) => following.on_bytes(now_ns, &bytes, &mut out),
                };
                network.send(link, End::Producer, &out);
                if done.is_err() {
                    self.end_following(peer, network);
                }
            }
        }
    }

    /// Another connection of the same name ends.
    fn end_older(&mut self, newer: LinkId, network: &mut Network) {
        let name_of = |link: &LinkId| self.serving.get(link)?.name().map(<[u8]>::to_vec);
        let Some(name) = name_of(&newer) else {
            return;
        };
        let is_older = |link: &&LinkId| **link != newer && name_of(link).as_ref() == Some(&name);
        let older: Vec<LinkId> = self.serving.keys().filter(is_older).copied().collect();
        for link in older {
            self.end_serving(link, network);
        }
    }

    fn work(&mut self, now_ns: u64, network: &mut Network) {
        for (vb, prepared) in std::mem::take(&mut *self.sink.acks.lock()) {
            for (link, following) in self.following.values_mut() {
                let mut out = Vec::new();
                following.acknowledge(vb, prepared, &mut out);
                network.send(*link, End::Producer, &out);
            }
        }
        let mut gone = Vec::new();
        for (peer, (link, following)) in &mut self.following {
            let mut out = Vec::new();
            let done = following.work(now_ns, &mut out);
            network.send(*link, End::Producer, &out);
            if done.is_err() {
                gone.push(*peer);
            }
        }
        for peer in gone {
            self.end_following(peer, network);
        }
        let mut gone = Vec::new();
        for (link, serving) in &mut self.serving {
            let mut out = Vec::new();
            let done = serving.fill(now_ns, &mut out);
            network.send(*link, End::Consumer, &out);
            if done.is_err() {
                gone.push(*link);
            }
        }
        for link in gone {
            self.end_serving(link, network);
        }
    }
}

fn dir() -> PathBuf {
    PathBuf::from("/data/sim")
}
