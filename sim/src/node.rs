//! A node: a bucket on a disk, and its connections.

use crate::change::MapChange;
use crate::control::{Control, Times};
use crate::following::ReceivingEnd;
use crate::map::{SimMap, name};
use crate::network::{Delivery, LinkEnd, LinkId, Network};
use crate::plan::HistoryPlan;
use crate::service::SimStore;
use crate::serving::{Closed, SendingEnd};
use crate::trace::note;
use kedge_bucket::{
    Bucket, BucketChange, BucketConfig, BucketSetup, CompactionRate, Completion, Completions,
    Cookie, Ctx, RecoveryMode, ReplicaSink, ServingGate, Total, VbRole, WarmupBehavior,
};
use kedge_cluster::{CatchUp, FailoverAttempt, Fences, MoveStart, Revision, VbucketRole};
use kedge_coordination::Moment;
use kedge_coordination::lease::LeaseTiming;
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

/// The bucket's quota in bytes, and its value while memory is short.
const QUOTA: u64 = 64 << 20;
const QUOTA_SQUEEZED: u64 = 1 << 10;
/// The time of leases.
const LEASE_TIME: Duration = Duration::from_secs(1);
/// The drift of the clocks of nodes: 1,000 parts per million, the bound of leases.
const DRIFT_PPM_MAX: u64 = 1_000;
/// The time for which a node that is to be failed over is not followed, unless the failover is given up or done.
const FENCE_TIME: Duration = Duration::from_secs(10);
/// One in parts per million.
const ONE_PPM: u64 = 1_000_000;

/// The events of a bucket for its node.
#[derive(Default)]
pub(crate) struct NodeEvents {
    done: Mutex<HashMap<u64, Completion>>,
    acks: Mutex<Vec<(VbId, Seqno)>>,
    has_failed: AtomicBool,
}

impl Completions for NodeEvents {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        let mut all = self.done.lock();
        for (cookie, completion) in done.drain(..) {
            let before = all.insert(cookie.0, completion);
            assert!(before.is_none(), "cookie {} was completed twice", cookie.0);
        }
    }
}

impl ReplicaSink for NodeEvents {
    fn acknowledge(&self, acks: &mut Vec<(VbId, Seqno)>) {
        self.acks.lock().append(acks);
    }

    fn memory_available(&self) {}
}

/// A process.
pub(crate) struct Process {
    node: usize,
    pub(crate) bucket: Arc<Bucket>,
    sink: Arc<NodeEvents>,
    manual: ManualExecutor,
    executor: kedge_executor::Executor,
    /// The time until which it serves clients.
    gate: Arc<ServingGate>,
    /// Its part in the coordination of the cluster.
    pub(crate) control: Control,
    /// The revision of the map that it has applied.
    pub(crate) revision: Revision,
    /// vBuckets whose active it is by that map, or was until it handed them over.
    leads: BTreeSet<VbId>,
    /// The targets of copies that do not count yet, while it is the first member.
    pub(crate) copies: Option<CatchUp>,
    serving: BTreeMap<LinkId, SendingEnd>,
    following: BTreeMap<usize, (LinkId, ReceivingEnd)>,
    /// vBuckets that were rolled back: their acknowledged data is gone.
    went_back: Vec<VbId>,
    /// vBuckets that were taken over, with the starts of their moves, until the map contains that.
    taken: Vec<(VbId, MoveStart)>,
    /// The nodes that it does not follow, as they are to be failed over, by attempt, and the times at which it does again.
    fenced: Fences<Moment>,
}

impl Drop for Process {
    /// Its tasks hold references to the bucket, and would keep it for ever.
    fn drop(&mut self) {
        self.executor.shutdown();
    }
}

/// A node.
pub(crate) struct SimNode {
    pub(crate) number: usize,
    pub(crate) disk: SimDisk,
    /// The node's own clock: no two nodes agree on the time.
    clock: Arc<ManualClock>,
    /// The nanoseconds by which the clock advances in a true millisecond.
    rate: u64,
    /// The true time until which the node is paused.
    paused_until_ns: Option<u64>,
    /// The time that the first operation after a pause is given: its batch began before it. No batch goes on for longer
    /// than the lease: the watchdog is armed until the last one has ended.
    stale: Option<Now>,
    timing: LeaseTiming,
    nodes: usize,
    starts: u64,
    config: BucketConfig,
    /// True while its disk is slow: commands are served, but disk operations wait.
    pub(crate) is_slow: bool,
    /// The time by which its tasks lag for that reason.
    behind: Duration,
    /// The saved map. A process that starts follows no map before it has read the store: others may have been failed over
    /// to, and lose what this node has lost if they stream from it.
    pub(crate) saved: SimMap,
    /// The first map, which a node with an empty disk begins with.
    first: SimMap,
    pub(crate) process: Option<Process>,
}

impl SimNode {
    pub(crate) fn new(
        number: usize,
        plan: &HistoryPlan,
        map: &SimMap,
        now: Now,
        seed: u64,
    ) -> Self {
        let mut config = BucketConfig::new("sim", plan.vbuckets, QUOTA);
        config.uuid = "00112233445566778899aabbccddeeff".to_owned();
        config.apply_max_lag_ms = 100;
        config.flusher_batch_max_items = 3;
        config.log_bytes_max = 256 << 10;
        config.num_shards = 1;
        config.commit_log = plan.commit_log;
        config.eviction_policy = plan.eviction;
        config.memory.warmup_behavior = WarmupBehavior::Blocking;
        // Its runs depend on all slabs of the process, so on other histories beside this one.
        config.memory.defragmenter_enabled = false;
        config.compaction.throttle = CompactionRate::Off;
        let disk = SimDisk::new(seed);
        let pause = Duration::from_millis(plan.pause_ms);
        let timing = LeaseTiming::new(LEASE_TIME, Some(pause)).expect("the inequality holds");
        disk.create_dir_all(&dir()).expect("nothing fails yet");
        Self {
            number,
            disk,
            clock: Arc::new(ManualClock::new(now)),
            rate: ONE_PPM - DRIFT_PPM_MAX + seed % (2 * DRIFT_PPM_MAX + 1),
            paused_until_ns: None,
            stale: None,
            timing,
            nodes: plan.all_nodes(),
            starts: 0,
            config,
            is_slow: false,
            behind: Duration::ZERO,
            saved: map.clone(),
            first: map.clone(),
            process: None,
        }
    }

    /// Starts the process.
    ///
    /// # Errors
    /// The reason why it does not start: its disk has failed, or has impossible content.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let (executor, manual) = ManualExecutor::new();
        let sink = Arc::new(NodeEvents::default());
        let fatal = Arc::clone(&sink);
        let gate = Arc::new(ServingGate::closed());
        let setup = BucketSetup {
            disk: Arc::new(self.disk.clone()),
            dir: dir(),
            config: self.config.clone(),
            keyring: None,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            executor: executor.clone(),
            completions: Arc::clone(&sink) as Arc<dyn Completions>,
            threads: 1,
            topology: None,
            serving: Arc::clone(&gate),
            recovery: RecoveryMode::Strict,
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
        self.starts += 1;
        self.process = Some(Process {
            node: self.number,
            bucket,
            sink,
            manual,
            executor,
            gate,
            control: Control::new(self.number, self.nodes, self.starts, self.timing),
            revision: Revision::default(),
            leads: BTreeSet::new(),
            copies: None,
            serving: BTreeMap::new(),
            following: BTreeMap::new(),
            went_back: Vec::new(),
            taken: Vec::new(),
            fenced: Fences::default(),
        });
        Ok(())
    }

    /// Kills the process; with `power` the kernel's buffers are lost, too.
    pub(crate) fn kill(&mut self, power: bool, seed: u64, network: &mut Network) {
        let how = if power {
            "loses its power"
        } else {
            "is killed"
        };
        note!(name(self.number), "{how}");
        network.kill(self.number);
        self.paused_until_ns = None;
        self.stale = None;
        let process = self.process.take();
        if power {
            self.disk.crash(seed);
        } else {
            self.disk.kill_process();
        }
        drop(process);
    }

    /// Replaces the disk by an empty one. With `keeps_map`, only the directory of the bucket is lost.
    pub(crate) fn replace_disk(&mut self, seed: u64, keeps_map: bool) {
        let what = if keeps_map { "bucket" } else { "disk" };
        note!(name(self.number), "loses its {what}");
        self.disk = SimDisk::new(seed);
        self.disk.create_dir_all(&dir()).expect("nothing fails yet");
        if !keeps_map {
            self.saved = self.first.clone();
        }
    }

    /// Returns whether the process cannot go on, or the machine has lost power.
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

    /// Does the node's part in the coordination: handles what comes from the store, follows its map, renews the lease, and
    /// serves for as long as that allows. Returns the number of rounds in which all others have promised it to let it serve.
    pub(crate) fn coordinate(
        &mut self,
        true_ns: u64,
        store: &mut SimStore,
        network: &mut Network,
        rng: &mut Rng,
    ) -> u64 {
        let times = self.times(true_ns);
        if self.is_paused() {
            return 0;
        }
        let Some(process) = &mut self.process else {
            return 0;
        };
        process.control.step(times, &self.saved, store, rng);
        self.follow_view(network);
        let Some(process) = &mut self.process else {
            return 0;
        };
        let control = &mut process.control;
        control.exchange_promises(times, &self.saved, network, rng);
        control.renew(times, &self.saved, store, rng);
        process
            .gate
            .serve_until(process.control.serves_until().ns());
        std::mem::take(&mut process.control.promises.complete)
    }

    /// Applies the map of the store, if it is newer.
    fn follow_view(&mut self, network: &mut Network) {
        let number = self.number;
        let Some(process) = &mut self.process else {
            return;
        };
        let Some(map) = process.control.view().map(|view| view.map.clone()) else {
            return;
        };
        if map != self.saved && !map.is_adopted(number, &self.saved) {
            return;
        }
        if !process.has_begun() && map.without_moves_from(number).is_some() {
            // Its copies may be older than those of the nodes that were taking over.
            process.control.request(MapChange::GiveUpMoves(number));
            return;
        }
        let has_new_members = map.revision() > self.saved.revision() && map.begins_membership();
        self.saved = map;
        self.adopt(network);
        if let Some(process) = self.process.as_mut().filter(|_| has_new_members) {
            process.control.holder.renew_soon();
        }
        if let Some(process) = &mut self.process {
            process.control.has_applied();
        }
    }

    /// Returns the present times, as `coordinate` needs them.
    pub(crate) fn times(&self, true_ns: u64) -> Times {
        Times {
            true_ns,
            local: Moment::at_ns(self.clock.now().mono_ns),
        }
    }

    /// Ends the streams from nodes that an attempt is to fail over: nothing is acknowledged to them any more.
    pub(crate) fn fence(&mut self, nodes: &[usize], attempt: u64, network: &mut Network) {
        note!(name(self.number), "does not follow {nodes:?} any more");
        let until = Moment::at_ns(self.now_ns()).plus(FENCE_TIME);
        if let Some(process) = &mut self.process {
            for node in nodes {
                process.end_following(*node, network);
                process
                    .fenced
                    .add(*node as u16, FailoverAttempt(attempt), until);
            }
        }
    }

    /// Lets the process follow the nodes again that an attempt was to fail over, as it was given up.
    pub(crate) fn lift_fences(&mut self, attempt: u64) {
        if let Some(process) = &mut self.process {
            process.fenced.lift(FailoverAttempt(attempt));
        }
    }

    /// Stops the process for a while. With `in_batch`, the next operation of a client was read before.
    pub(crate) fn pause(&mut self, until_ns: u64, in_batch: bool) {
        note!(name(self.number), "is paused");
        self.paused_until_ns = Some(until_ns);
        self.stale = in_batch.then(|| self.clock.now());
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until_ns.is_some()
    }

    /// Ends a pause whose time is over, or all with `None`. Returns whether the watchdog ends the process: it is still
    /// stopped when its lease ends.
    pub(crate) fn end_pause(&mut self, true_ns: Option<u64>) -> bool {
        if !self.is_paused() {
            return false;
        }
        let lease_ends = self.process.as_ref().map(|it| it.control.holder.ends());
        let is_late = |ends: Moment| ends > Moment::default() && ends.ns() <= self.now_ns();
        if lease_ends.is_some_and(is_late) {
            return true;
        }
        if self.paused_until_ns < true_ns || true_ns.is_none() {
            note!(name(self.number), "goes on");
            self.paused_until_ns = None;
        }
        false
    }

    /// Returns whether it goes on after a pause with an operation that was read before it.
    pub(crate) fn has_stale_batch(&self) -> bool {
        self.stale.is_some() && !self.is_paused()
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().mono_ns
    }

    /// Returns whether it serves a vBucket to clients.
    pub(crate) fn serves(&self, vb: VbId) -> bool {
        let process = self.process.as_ref();
        let is_open = process.is_some_and(|it| it.gate.is_open(self.now_ns()));
        is_open && !self.is_paused() && self.is_active(vb)
    }

    /// Returns whether a vBucket is active.
    pub(crate) fn is_active(&self, vb: VbId) -> bool {
        let process = self.process.as_ref();
        let figures = process.and_then(|it| it.bucket.vbucket_figures(vb));
        figures.is_some_and(|it| it.state == VbState::Active)
    }

    /// Returns the context of a client's operation. After a pause, it may have begun before it.
    pub(crate) fn client_ctx(&mut self) -> Ctx {
        let ctx = self.ctx();
        let now = self.stale.take().unwrap_or(ctx.now);
        Ctx { now, ..ctx }
    }

    /// Applies the saved map. Nothing happens if the process has done so already.
    fn adopt(&mut self, network: &mut Network) {
        let now = Moment::at_ns(self.now_ns());
        let (number, map) = (self.number, &self.saved);
        let Some(process) = self
            .process
            .as_mut()
            .filter(|it| it.revision < map.revision())
        else {
            return;
        };
        process.revision = map.revision();
        note!(name(number), "adopts {}", map.brief());
        let fenced = process.fenced.nodes(now);
        if fenced.iter().all(|node| map.is_out(usize::from(*node))) {
            // Nobody follows them by this map.
            process.fenced.clear();
        }
        // First streams that end: nothing of them may be acknowledged when the node is active.
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
            // An error fails the node.
            let _ = process.bucket.states().assign(&[(vb, role)]);
            let figures = process.bucket.vbucket_figures(vb);
            let has_some = figures.is_some_and(|it| it.high_seqno > Seqno(0));
            if state == VbState::Dead && has_some && !map.is_failed(number) {
                let _ = process.bucket.states().begin_delete_vbucket(vb, |_| ());
            }
        }
    }

    /// Advances the clock.
    pub(crate) fn advance(&mut self, time: Duration) {
        let ns = u128::from(self.rate) * time.as_nanos() / u128::from(ONE_PPM);
        self.clock.advance(ns as u64);
        let lease_ends = self
            .process
            .as_ref()
            .map(|it| it.control.holder.ends().ns());
        if !self.is_paused() && lease_ends.is_some_and(|ends| ends <= self.now_ns()) {
            self.stale = None;
        }
        self.behind += time;
        if self.is_slow || self.is_paused() {
            return;
        }
        let behind = std::mem::take(&mut self.behind);
        if let Some(process) = &self.process {
            process.manual.advance(behind);
        }
    }

    /// Sets the wall clock.
    pub(crate) fn set_unix_ns(&self, unix_ns: u64) {
        self.clock.set_unix_ns(unix_ns);
    }

    /// Runs all due tasks.
    pub(crate) fn run_ready(&self) {
        if let Some(process) = self.process.as_ref().filter(|_| !self.is_paused()) {
            process.manual.run_ready();
        }
    }

    /// Runs a task, if one is due.
    pub(crate) fn run_one(&self, rng: &mut Rng) {
        let is_stopped = self.is_slow || self.is_paused();
        if let Some(process) = self.process.as_ref().filter(|_| !is_stopped) {
            let first = rng.below(4) as usize;
            let pools = (0..4).map(|at| Pool::ALL[(first + at) % 4]);
            let _ = pools.into_iter().any(|pool| process.manual.run_one(pool));
        }
    }

    /// Returns the outcome of a command.
    pub(crate) fn take_done(&self, cookie: u64) -> Option<Completion> {
        self.process.as_ref()?.sink.done.lock().remove(&cookie)
    }

    /// Connects to the peers that it follows.
    pub(crate) fn connect(&mut self, network: &mut Network) {
        let now_ns = self.clock.now().mono_ns;
        let (number, map) = (self.number, &self.saved);
        if self.is_paused() {
            return;
        }
        let Some(process) = self.process.as_mut().filter(|it| it.has_begun()) else {
            return;
        };
        let fenced = process.fenced.nodes(Moment::at_ns(now_ns));
        for peer in map.actives() {
            let wanted = map.followed(number, peer);
            let is_fenced = fenced.contains(&(peer as u16));
            let is_followed = process.following.contains_key(&peer);
            if peer == number || wanted.is_empty() || is_followed || is_fenced {
                continue;
            }
            let link = network.connect(number, peer);
            let mut out = Vec::new();
            let (me, other) = (name(number), name(peer));
            let epoch = map.revision().epoch;
            let mut following =
                ReceivingEnd::new(&process.bucket, (me, other), epoch, now_ns, &mut out);
            following.set_vbuckets(&wanted, &mut out);
            network.send(link, LinkEnd::Producer, &out);
            process.following.insert(peer, (link, following));
        }
    }

    /// Delivers data, and executes all due work.
    pub(crate) fn pump(&mut self, rng: &mut Rng, network: &mut Network) {
        let now_ns = self.clock.now().mono_ns;
        if self.is_paused() {
            return;
        }
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

    /// Returns vBuckets that were rolled back since the last call.
    pub(crate) fn take_went_back(&mut self) -> Vec<VbId> {
        let Some(process) = &mut self.process else {
            return Vec::new();
        };
        for (_, following) in process.following.values_mut() {
            process.went_back.append(&mut following.went_back);
        }
        std::mem::take(&mut process.went_back)
    }

    /// Returns vBuckets that were taken over since the last call, or whose map was given up, with the starts of their moves. While
    /// a node is to be failed over, there are none: the map after that says who has them.
    pub(crate) fn take_taken(&mut self) -> Vec<(VbId, MoveStart)> {
        let now = Moment::at_ns(self.now_ns());
        let Some(process) = &mut self.process else {
            return Vec::new();
        };
        for (_, following) in process.following.values_mut() {
            process.taken.append(&mut following.taken);
        }
        process.taken.append(&mut process.control.unfinished);
        if process.has_fence(now) {
            return Vec::new();
        }
        std::mem::take(&mut process.taken)
    }
}

impl Process {
    /// Returns whether it has applied a map.
    fn has_begun(&self) -> bool {
        self.revision > Revision::default()
    }

    /// Makes memory short for a moment and executes all due work: evictable data leaves memory. Returns the number of
    /// evicted values and documents.
    ///
    /// # Errors
    /// The quota cannot be changed.
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

    fn follow_as(&mut self, map: &SimMap, number: usize, network: &mut Network) {
        let peers: Vec<usize> = self.following.keys().copied().collect();
        for peer in peers {
            let wanted = map.followed(number, peer);
            if wanted.is_empty() {
                self.end_following(peer, network);
            } else if let Some((link, following)) = self.following.get_mut(&peer) {
                let mut out = Vec::new();
                following.set_vbuckets(&wanted, &mut out);
                network.send(*link, LinkEnd::Producer, &out);
            }
        }
    }

    /// Returns whether a node is to be failed over.
    fn has_fence(&mut self, now: Moment) -> bool {
        !self.fenced.nodes(now).is_empty()
    }

    fn end_following(&mut self, peer: usize, network: &mut Network) {
        if let Some((link, mut following)) = self.following.remove(&peer) {
            self.went_back.append(&mut following.went_back);
            self.taken.append(&mut following.taken);
            following.end();
            network.close(link, LinkEnd::Consumer);
        }
    }

    fn end_serving(&mut self, link: LinkId, network: &mut Network) {
        self.serving.remove(&link);
        network.close(link, LinkEnd::Producer);
    }

    fn on_arrival(
        &mut self,
        now_ns: u64,
        link: LinkId,
        end: LinkEnd,
        peer: usize,
        arrival: Option<Delivery>,
        network: &mut Network,
    ) {
        let mut out = Vec::new();
        match end {
            LinkEnd::Producer => {
                let (bucket, node, epoch) = (&self.bucket, self.node, self.revision.epoch);
                let serving = self.serving.entry(link);
                let done = match arrival {
                    None => return,
                    Some(Delivery::Closed) => Err(Closed),
                    Some(Delivery::Bytes(bytes)) => serving
                        .or_insert_with(|| SendingEnd::new(bucket, name(node), epoch))
                        .on_bytes(now_ns, &bytes, &mut out),
                };
                network.send(link, LinkEnd::Consumer, &out);
                if done.is_err() {
                    self.end_serving(link, network);
                } else {
                    self.end_older(link, network);
                }
            }
            LinkEnd::Consumer => {
                let is_it = |(known, _): &&mut (LinkId, ReceivingEnd)| *known == link;
                let Some((_, following)) = self.following.get_mut(&peer).filter(is_it) else {
                    return;
                };
                let done = match arrival {
                    None => return,
                    Some(Delivery::Closed) => Err(Closed),
                    Some(Delivery::Bytes(bytes)) => following.on_bytes(now_ns, &bytes, &mut out),
                };
                network.send(link, LinkEnd::Producer, &out);
                if done.is_err() {
                    self.end_following(peer, network);
                }
            }
        }
    }

    /// Closes another connection of the same name.
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
                network.send(*link, LinkEnd::Producer, &out);
            }
        }
        let mut gone = Vec::new();
        for (peer, (link, following)) in &mut self.following {
            let mut out = Vec::new();
            let done = following.work(now_ns, &mut out);
            network.send(*link, LinkEnd::Producer, &out);
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
            network.send(*link, LinkEnd::Consumer, &out);
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
