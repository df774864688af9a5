//! The table of commands: one row for each opcode, or for opcodes that differ in their wire form only.
//!
//! Dispatch, access checks, histograms, replies of parked commands and offloading read it. The tables of `docs/compat.md`
//! are generated from it: `UPDATE_DOCS=1 cargo test -p kedge-frontend commands::table` writes them. An opcode without a row
//! does not compile. Facts of the wire are in the table of `kedge_protocol::binary::Opcode`.

use kedge_bucket::Timing;
use kedge_protocol::binary::Opcode;

use super::context::{CommandRow, LongRun, RequiredAccess};
use super::{
    arithmetic, collections, compact, concat, config, dcp, file_copy, flush, get, hello, keys,
    lock, meta, misc, observe, range_scan, remove, sasl, seqno, stat, store, subdoc, timer, touch,
    vbucket, with_meta,
};
use crate::session::{ReplyKind, Rights};

/// The row of commands that are known but not served.
const UNSERVED: CommandRow = CommandRow {
    handler: misc::unserved,
    access: RequiredAccess::Unserved,
    changes_session: false,
    timing: None,
    reply: || ReplyKind::StatusOnly,
    long: LongRun::Never,
};

macro_rules! command_row {
    ({
        run: $run:expr, access: $access:expr, timing: $timing:expr,
        reply: $reply:expr, long: $long:expr, $(changes_session: $changes:literal,)?
        tested: $tested:literal,
        notes: $notes:literal,
    }) => {
        CommandRow {
            handler: $run,
            access: $access,
            changes_session: false $(|| $changes)?,
            timing: $timing,
            reply: || $reply,
            long: $long,
        }
    };
}

macro_rules! commands {
    (
        served { $([$($served:ident),+] $row:tt)+ }
        dcp { $([$($dcp:ident),+] $dcp_row:tt)+ }
        unserved { $([$($unserved:ident),+] $reason:literal;)+ }
    ) => {
        /// The row of a command.
        #[inline]
        pub(crate) const fn row(opcode: Opcode) -> &'static CommandRow {
            match opcode {
                $($(Opcode::$served)|+ => const { &command_row!($row) },)+
                $($(Opcode::$dcp)|+ => const { &command_row!($dcp_row) },)+
                $($(Opcode::$unserved)|+ => &UNSERVED,)+
            }
        }

        #[cfg(test)]
        const DOCUMENTATION: tests::Documentation = tests::Documentation {
            served: &[$(tests::served!([$($served),+] $row)),+],
            dcp: &[$(tests::served!([$($dcp),+] $dcp_row)),+],
            unserved: &[$((&[$(Opcode::$unserved),+], $reason)),+],
        };
    };
}

commands! {
    served {
        [Get, Getq, Getk, Getkq] {
            run: get::get, access: RequiredAccess::Document(Rights::READ), timing: Some(Timing::Get),
            reply: ReplyKind::Document, long: LongRun::Sends,
            tested: "sdk mc codec server",
            notes: "",
        }
        [Set, Replace, Setq, Replaceq] {
            run: store::store, access: RequiredAccess::Document(Rights::UPSERT), timing: Some(Timing::Set),
            reply: ReplyKind::Mutation, long: LongRun::Replaces,
            tested: "sdk mc codec server bucket",
            notes: "",
        }
        [Add, Addq] {
            run: store::store, access: RequiredAccess::Document(Rights::INSERT), timing: Some(Timing::Set),
            reply: ReplyKind::Mutation, long: LongRun::Replaces,
            tested: "sdk mc codec server bucket",
            notes: "",
        }
        [Delete, Deleteq] {
            run: remove::remove, access: RequiredAccess::Document(Rights::DELETE), timing: Some(Timing::Delete),
            reply: ReplyKind::Mutation, long: LongRun::Replaces,
            tested: "sdk mc codec server bucket",
            notes: "",
        }
        [Increment, Decrement, Incrementq, Decrementq] {
            run: arithmetic::arithmetic, access: RequiredAccess::Document(Rights::READ.and(Rights::UPSERT)), timing: Some(Timing::Arithmetic),
            reply: ReplyKind::Counter, long: LongRun::Reads,
            tested: "sdk mc codec server bucket",
            notes: "",
        }
        [Append, Prepend, Appendq, Prependq] {
            run: concat::concat, access: RequiredAccess::Document(Rights::UPSERT), timing: Some(Timing::Set),
            reply: ReplyKind::Mutation, long: LongRun::Reads,
            tested: "sdk mc codec server bucket",
            notes: "inflates a compressed value first",
        }
        [Touch] {
            run: touch::touch, access: RequiredAccess::Document(Rights::UPSERT), timing: Some(Timing::Touch),
            reply: ReplyKind::CasOnly, long: LongRun::Reads,
            tested: "sdk mc codec server bucket",
            notes: "the response has no extras",
        }
        [Gat, Gatq] {
            run: touch::get_and_touch, access: RequiredAccess::Document(Rights::READ.and(Rights::UPSERT)), timing: Some(Timing::Touch),
            reply: ReplyKind::Document, long: LongRun::Reads,
            tested: "sdk mc codec server bucket",
            notes: "",
        }
        [Gatk, Gatkq] {
            run: touch::get_and_touch, access: RequiredAccess::Document(Rights::READ.and(Rights::UPSERT)), timing: Some(Timing::Touch),
            reply: ReplyKind::Document, long: LongRun::Reads,
            tested: "codec server",
            notes: "memcached port only; on the KV port the numbers are those of other commands",
        }
        [GetReplica] {
            run: get::replica, access: RequiredAccess::Document(Rights::READ), timing: Some(Timing::Get),
            reply: ReplyKind::Document, long: LongRun::Sends,
            tested: "codec server",
            notes: "from a vBucket that is a replica here",
        }
        [GetEx, GetExReplica] {
            run: get::whole, access: RequiredAccess::Document(Rights::READ.and(Rights::READ_SYSTEM)), timing: Some(Timing::Get),
            reply: ReplyKind::WholeDocument, long: LongRun::Never,
            tested: "codec server",
            notes: "the document as stored: extended attributes in front of the body, compressed or not. `NotSupported` without SnappyEverywhere, XATTR and JSON of HELLO",
        }
        [GetLocked] {
            run: lock::get_locked, access: RequiredAccess::Document(Rights::READ.and(Rights::UPSERT)), timing: Some(Timing::Lock),
            reply: ReplyKind::Locked, long: LongRun::Reads,
            tested: "sdk codec server bucket",
            notes: "a locked document stays in memory",
        }
        [UnlockKey] {
            run: lock::unlock, access: RequiredAccess::Document(Rights::UPSERT), timing: Some(Timing::Lock),
            reply: ReplyKind::Unlocked, long: LongRun::Reads,
            tested: "sdk codec server bucket",
            notes: "an evicted document is looked up on disk, to find out whether it exists",
        }
        [GetMeta, GetqMeta] {
            run: meta::get_meta, access: RequiredAccess::Document(Rights::READ), timing: Some(Timing::GetMeta),
            reply: ReplyKind::Meta { with_datatype: false, }, long: LongRun::Never,
            tested: "sdk codec server bucket",
            notes: "tombstones too",
        }
        [SetWithMeta, SetqWithMeta, AddWithMeta, AddqWithMeta] {
            run: with_meta::write, access: RequiredAccess::Document(Rights::WRITE_META), timing: Some(Timing::SetWithMeta),
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server vbucket",
            notes: "[below](#writes-with-metadata), with extended attributes",
        }
        [DelWithMeta, DelqWithMeta] {
            run: with_meta::write, access: RequiredAccess::Document(Rights::WRITE_META), timing: Some(Timing::DeleteWithMeta),
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server vbucket",
            notes: "[below](#writes-with-metadata), with extended attributes",
        }
        [MutateWithMeta] {
            run: with_meta::mutate, access: RequiredAccess::Document(Rights::WRITE_META), timing: Some(Timing::SetWithMeta),
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server vbucket",
            notes: "[below](#writes-with-metadata)",
        }
        [ReturnMeta] {
            run: with_meta::returning, access: RequiredAccess::Document(Rights::UPSERT), timing: Some(Timing::Set),
            reply: ReplyKind::Mutation, long: LongRun::Replaces,
            tested: "codec server",
            notes: "an addition needs `insert` and a deletion `delete` in place of `upsert`",
        }
        [SubdocGet, SubdocExists, SubdocGetCount, SubdocMultiLookup] {
            run: subdoc::look, access: RequiredAccess::Document(Rights::READ), timing: Some(Timing::SubdocLookup),
            reply: ReplyKind::Mutation, long: LongRun::Reads,
            tested: "sdk codec server vbucket",
            notes: "[below](#sub-documents)",
        }
        [SubdocDictAdd, SubdocDictUpsert, SubdocDelete, SubdocReplace, SubdocArrayPushLast, SubdocArrayPushFirst, SubdocArrayInsert, SubdocArrayAddUnique, SubdocCounter, SubdocMultiMutation] {
            run: subdoc::change, access: RequiredAccess::Document(Rights::UPSERT), timing: Some(Timing::SubdocMutation),
            reply: ReplyKind::Mutation, long: LongRun::Reads,
            tested: "sdk codec server vbucket",
            notes: "[below](#sub-documents)",
        }
        [RangeScanCreate] {
            run: range_scan::create, access: RequiredAccess::Document(Rights::READ), timing: Some(Timing::RangeScanCreate),
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server bucket",
            notes: "[below](#range-scans)",
        }
        [RangeScanContinue] {
            run: range_scan::go_on, access: RequiredAccess::Somewhere(Rights::READ), timing: Some(Timing::RangeScanContinue),
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server bucket",
            notes: "[below](#range-scans)",
        }
        [RangeScanCancel] {
            run: range_scan::cancel, access: RequiredAccess::Somewhere(Rights::READ), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server bucket",
            notes: "[below](#range-scans)",
        }
        [GetRandomKey] {
            run: keys::random, access: RequiredAccess::Document(Rights::READ), timing: Some(Timing::Get),
            reply: ReplyKind::Document, long: LongRun::Always,
            tested: "codec server bucket",
            notes: "of a collection; with extended attributes in the form of GET_EX if the extras ask for them, and `NotSupported` in the same cases. The returned key has no collection prefix",
        }
        [GetKeys] {
            run: keys::list, access: RequiredAccess::Document(Rights::READ), timing: None,
            reply: ReplyKind::Keys, long: LongRun::Always,
            tested: "codec server bucket",
            notes: "",
        }
        [Quit, Quitq] {
            run: misc::quit, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "mc codec server",
            notes: "",
        }
        [Noop] {
            run: misc::noop, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "mc codec server",
            notes: "",
        }
        [Version] {
            run: misc::version, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "mc codec server",
            notes: "",
        }
        [Verbosity] {
            run: misc::verbosity, access: RequiredAccess::User, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "mc codec server",
            notes: "",
        }
        [Stat] {
            run: stat::stat, access: RequiredAccess::Argument, timing: Some(Timing::Stat),
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "mc codec server",
            notes: "[groups](#groups-of-stat)",
        }
        [Flush, Flushq] {
            run: flush::flush, access: RequiredAccess::Bucket(Rights::FLUSH), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "mc codec server bucket",
            notes: "if the bucket allows it",
        }
        [Hello] {
            run: hello::hello, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never, changes_session: true,
            tested: "sdk codec server",
            notes: "",
        }
        [SaslListMechs] {
            run: sasl::list, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "SCRAM-SHA512, -SHA256, -SHA1, PLAIN; over TLS OAUTHBEARER, if tokens are accepted",
        }
        [SaslAuth] {
            run: sasl::auth, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never, changes_session: true,
            tested: "sdk codec server",
            notes: "",
        }
        [SaslStep] {
            run: sasl::step, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never, changes_session: true,
            tested: "sdk codec server",
            notes: "",
        }
        [SelectBucket] {
            run: config::select_bucket, access: RequiredAccess::Argument, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never, changes_session: true,
            tested: "sdk codec server",
            notes: "a missing bucket is 0x24",
        }
        [ListBuckets] {
            run: config::list_buckets, access: RequiredAccess::Argument, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "",
        }
        [GetErrorMap] {
            run: config::error_map, access: RequiredAccess::Anyone, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "versions 1 and 2",
        }
        [GetClusterConfig] {
            run: config::cluster_config, access: RequiredAccess::User, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "with known version, with and without a bucket; NoBucket after the bucket was dropped",
        }
        [CollectionsGetManifest] {
            run: collections::manifest, access: RequiredAccess::Somewhere(Rights::ACCESS), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "only what the user may see. Changes are made through management",
        }
        [CollectionsGetId] {
            run: collections::id, access: RequiredAccess::Somewhere(Rights::ACCESS), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "only what the user may see; the response to an unknown name has the manifest's uid",
        }
        [CollectionsGetScopeId] {
            run: collections::scope_id, access: RequiredAccess::Somewhere(Rights::ACCESS), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "sdk codec server",
            notes: "only what the user may see; the response to an unknown name has the manifest's uid",
        }
        [Observe] {
            run: observe::keys, access: RequiredAccess::Document(Rights::READ), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::ManyKeys,
            tested: "codec server bucket",
            notes: "",
        }
        [ObserveSeqno] {
            run: observe::seqno, access: RequiredAccess::Somewhere(Rights::READ), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "",
        }
        [SetVbucket] {
            run: vbucket::set, access: RequiredAccess::Bucket(Rights::MANAGE), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Always,
            tested: "codec server bucket",
            notes: "commands on a pending vBucket wait until its state changes. The response is sent when the state is durable. A `topology` names the nodes that acknowledge SyncWrites; `use_snapshot` and `expected_next_state` are refused as not supported",
        }
        [DelVbucket] {
            run: vbucket::delete, access: RequiredAccess::Bucket(Rights::MANAGE), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Always,
            tested: "codec server bucket",
            notes: "the response is sent when the deletion is durable with `async=0`, else at once. A deleted vBucket serves no commands from that moment on",
        }
        [PrepareSnapshot] {
            run: file_copy::prepare, access: RequiredAccess::Bucket(Rights::MANAGE), timing: None,
            reply: ReplyKind::FileRead, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "between nodes of the cluster: opens the file of an active vBucket at a consistent point. The fields are Kedge's own ([DCP](reference/dcp.md#copies-of-files))",
        }
        [GetFileFragment] {
            run: file_copy::fragment, access: RequiredAccess::Bucket(Rights::MANAGE), timing: None,
            reply: ReplyKind::FileRead, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "between nodes of the cluster: reads up to 4 MiB of such a file, at the throttle of compactions",
        }
        [ReleaseSnapshot] {
            run: file_copy::release, access: RequiredAccess::Bucket(Rights::MANAGE), timing: None,
            reply: ReplyKind::StatusOnly, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "between nodes of the cluster: closes such a file. One that is not read for a minute is closed, too",
        }
        [SeqnoPersistence] {
            run: seqno::persistence, access: RequiredAccess::Somewhere(Rights::READ), timing: None,
            reply: ReplyKind::StatusOnly, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "",
        }
        [GetAllVbSeqnos] {
            run: seqno::all_vbuckets, access: RequiredAccess::Somewhere(Rights::READ), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "",
        }
        [GetFailoverLog] {
            run: seqno::failover_log, access: RequiredAccess::Somewhere(Rights::READ), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "a new vBucket has one branch, in a cluster too; an unclean stop, and each activation except a takeover, begins another one, also at seqno 0 ([reason](#branches))",
        }
        [GetVbucket] {
            run: vbucket::get, access: RequiredAccess::Bucket(Rights::STATS), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "",
        }
        [GetCmdTimer] {
            run: timer::get, access: RequiredAccess::Argument, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server",
            notes: "",
        }
        [CompactDb] {
            run: compact::compact, access: RequiredAccess::Bucket(Rights::MANAGE), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "the response is sent at the end of the compaction",
        }
    }
    dcp {
        [DcpOpen] {
            run: dcp::open, access: RequiredAccess::Somewhere(Rights::STREAM), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server",
            notes: "producers only, because nodes pull the changes that they replicate. A second open of a name closes the first connection",
        }
        [DcpControl] {
            run: dcp::not_open, access: RequiredAccess::Somewhere(Rights::STREAM), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server",
            notes: "all settings of the original; history, cache transfer and an order of backfills other than round-robin can only be declined. Each setting, flag and filter: [DCP](reference/dcp.md)",
        }
        [DcpStreamReq, DcpCloseStream] {
            run: dcp::not_open, access: RequiredAccess::Somewhere(Rights::STREAM), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "from memory or from the file; to the latest seqno, from it, from the disk only, takeover (with the right to manage the bucket); stream ids; filters by collections or scope ([DCP](reference/dcp.md))",
        }
        [DcpSystemEvent] {
            run: misc::unserved, access: RequiredAccess::Unserved, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "created and dropped scopes and collections, versions 0, 1 and 2 (flatbuffers); in version 2 also changed settings",
        }
        [DcpOsoSnapshot] {
            run: misc::unserved, access: RequiredAccess::Unserved, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server bucket",
            notes: "collections that are read from the file are sent in the order of keys, if the consumer asked for it",
        }
        [DcpGetFailoverLog] {
            run: dcp::not_open, access: RequiredAccess::Somewhere(Rights::STREAM), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server",
            notes: "",
        }
        [DcpStreamEnd, DcpSnapshotMarker, DcpMutation, DcpDeletion, DcpExpiration, DcpPrepare, DcpCommit, DcpAbort, DcpSeqnoAdvanced] {
            run: misc::unserved, access: RequiredAccess::Unserved, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "cluster codec server",
            notes: "sent; `NotSupported` when a client sends them",
        }
        [DcpSetVbucketState] {
            run: misc::unserved, access: RequiredAccess::Unserved, timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "cluster codec server",
            notes: "sent at a takeover, and received by a node that takes over",
        }
        [DcpNoop, DcpBufferAcknowledgement] {
            run: dcp::not_open, access: RequiredAccess::Somewhere(Rights::STREAM), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server",
            notes: "a consumer that does not respond to a NOOP for 360 s, or leaves its buffer full for 720 s, is closed",
        }
        [DcpSeqnoAcknowledged] {
            run: dcp::not_open, access: RequiredAccess::Somewhere(Rights::STREAM), timing: None,
            reply: ReplyKind::Mutation, long: LongRun::Never,
            tested: "codec server",
            notes: "from nodes of the cluster only: the right to manage the bucket is needed",
        }
    }
    unserved {
        [SetParam, IoctlGet, IoctlSet, ConfigValidate, ConfigReload, Ifconfig] "settings are given at the start, or changed over HTTP and with `kedge config set`";
        [CreateBucket, DeleteBucket, ValidateBucketConfig] "buckets are created and dropped over HTTP and with `kedge bucket`";
        [SetClusterConfig, CollectionsSetManifest] "nodes exchange maps and manifests themselves, without a separate manager";
        [PauseBucket, ResumeBucket] "there is no hibernation";
        [StopPersistence, StartPersistence, EnableTraffic, DisableTraffic] "the server decides when to write, and when it is warm";
        [Shutdown, SetCtrlToken, GetCtrlToken] "SIGTERM stops the server";
        [EvictKey, DropPrivilege, AdjustTimeofday, EwouldblockCtl] "for the original's own tests";
        [AuditPut, AuditConfigReload] "only the server writes its audit log";
        [IsaslRefresh, RbacRefresh] "changes of users take effect at once";
        [UpdateExternalUserPermissions, AuthProvider, RegisterAuthToken] "the server asks the [directory](guides/external-users.md) itself, without a separate manager";
        [SetBucketThrottleProperties, SetBucketDataLimitExceeded, SetNodeThrottleProperties] "clients are not throttled";
        [SetActiveEncryptionKeys, PruneEncryptionKeys] "a node makes and drops its data keys itself ([encrypt data at rest](guides/encryption.md))";
        [DownloadSnapshot] "a node decides itself when it copies files";
        [GetFusionStorageSnapshot, ReleaseFusionStorageSnapshot, MountFusionVbucket, UnmountFusionVbucket, SyncFusionLogstore, StartFusionUploader, StopFusionUploader, DeleteFusionNamespace, GetFusionNamespaces, CreateFusionNamespace, SetChronicleAuthToken] "for Magma on an object store";
        [DcpAddStream, DcpFlush, DcpCacheTransfer, DcpCacheTransferEnd] "a node opens the streams that it follows itself; the others are declined in DCP_CONTROL, or not supported by the original either";
        [SubdocReplaceBodyWithXattr] "in a multi mutation only, as in the original";
        [Rget, Rset, Rsetq, Rappend, Rappendq, Rprepend, Rprependq, Rdelete, Rdeleteq, Rincr, Rincrq, Rdecr, Rdecrq, TapConnect, TapMutation, TapDelete, TapFlush, TapOpaque, TapVbucketSet, TapCheckpointStart, TapCheckpointEnd, LastClosedCheckpoint, DeregisterTapClient, ResetReplicationChain, SnapshotVbStates, VbucketBatchCount, CreateCheckpoint, NotifyVbucketUpdate, ChangeVbFilter, CheckpointPersistence, SetDriftCounterState, GetAdjustedTime, Scrub, SslCertsRefresh] "abandoned by the original";
    }
}

#[cfg(test)]
mod tests;
