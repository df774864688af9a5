//! What each command needs. A command that is not in the table is refused to everybody.

use kedge_protocol::binary::Opcode;

use super::{Failure, Rights, Session};

/// What a command needs of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing but the login, or not even that.
    Nothing,
    /// That in the collection of each document it is about.
    Document(Rights),
    /// That in the bucket as a whole, or in any part of it.
    Somewhere(Rights),
    /// That in the whole bucket.
    Bucket(Rights),
    /// What its arguments say: the command looks by itself.
    Argument,
    /// It is known and not served: it is answered so.
    Unserved,
    /// Nobody has thought of it.
    Unlisted,
}

/// What a command needs; see [`Need`].
#[expect(clippy::too_many_lines, reason = "one line for each family of opcodes")]
pub(crate) const fn needs(opcode: Opcode) -> Need {
    use Opcode as O;
    const READ_WRITE: Rights = Rights::READ.and(Rights::WRITE);
    match opcode {
        O::Hello
        | O::SaslListMechs
        | O::SaslAuth
        | O::SaslStep
        | O::GetErrorMap
        | O::Noop
        | O::Version
        | O::Verbosity
        | O::Quit
        | O::Quitq
        | O::GetClusterConfig => Need::Nothing,
        // The bucket that is named, or of which statistics are asked.
        O::SelectBucket | O::ListBuckets | O::Stat | O::GetCmdTimer => Need::Argument,
        O::Get
        | O::Getq
        | O::Getk
        | O::Getkq
        | O::GetReplica
        | O::GetMeta
        | O::GetqMeta
        | O::GetRandomKey
        | O::GetKeys
        | O::Observe
        | O::SubdocGet
        | O::SubdocExists
        | O::SubdocGetCount
        | O::SubdocMultiLookup
        | O::RangeScanCreate => Need::Document(Rights::READ),
        O::GetEx | O::GetExReplica => Need::Document(Rights::READ.and(Rights::READ_SYSTEM)),
        O::Set
        | O::Setq
        | O::Add
        | O::Addq
        | O::Replace
        | O::Replaceq
        | O::Delete
        | O::Deleteq
        | O::Append
        | O::Appendq
        | O::Prepend
        | O::Prependq
        | O::Touch
        | O::UnlockKey
        | O::ReturnMeta
        | O::SubdocDictAdd
        | O::SubdocDictUpsert
        | O::SubdocDelete
        | O::SubdocReplace
        | O::SubdocArrayPushLast
        | O::SubdocArrayPushFirst
        | O::SubdocArrayInsert
        | O::SubdocArrayAddUnique
        | O::SubdocCounter
        | O::SubdocMultiMutation
        | O::SubdocReplaceBodyWithXattr => Need::Document(Rights::WRITE),
        O::Increment
        | O::Incrementq
        | O::Decrement
        | O::Decrementq
        | O::Gat
        | O::Gatq
        | O::Gatk
        | O::Gatkq
        | O::GetLocked => Need::Document(READ_WRITE),
        O::SetWithMeta
        | O::SetqWithMeta
        | O::AddWithMeta
        | O::AddqWithMeta
        | O::DelWithMeta
        | O::DelqWithMeta
        | O::MutateWithMeta => Need::Document(Rights::WRITE_META),
        O::ObserveSeqno
        | O::SeqnoPersistence
        | O::GetAllVbSeqnos
        | O::GetFailoverLog
        | O::RangeScanContinue
        | O::RangeScanCancel => Need::Somewhere(Rights::READ),
        O::CollectionsGetManifest | O::CollectionsGetId | O::CollectionsGetScopeId => {
            Need::Somewhere(Rights::ACCESS)
        }
        O::DcpOpen
        | O::DcpControl
        | O::DcpStreamReq
        | O::DcpCloseStream
        | O::DcpGetFailoverLog
        | O::DcpNoop
        | O::DcpBufferAcknowledgement
        | O::DcpSeqnoAcknowledged => Need::Somewhere(Rights::STREAM),
        O::GetVbucket => Need::Bucket(Rights::STATS),
        O::Flush | O::Flushq => Need::Bucket(Rights::FLUSH),
        O::SetVbucket | O::DelVbucket | O::CompactDb => Need::Bucket(Rights::MANAGE),
        O::DcpAddStream
        | O::DcpStreamEnd
        | O::DcpSnapshotMarker
        | O::DcpMutation
        | O::DcpDeletion
        | O::DcpExpiration
        | O::DcpFlush
        | O::DcpSetVbucketState
        | O::DcpSystemEvent
        | O::DcpPrepare
        | O::DcpCommit
        | O::DcpAbort
        | O::DcpSeqnoAdvanced
        | O::DcpOsoSnapshot
        | O::DcpCacheTransfer
        | O::DcpCacheTransferEnd
        | O::IoctlGet
        | O::IoctlSet
        | O::ConfigValidate
        | O::ConfigReload
        | O::AuditPut
        | O::AuditConfigReload
        | O::Shutdown
        | O::SetBucketThrottleProperties
        | O::SetBucketDataLimitExceeded
        | O::SetNodeThrottleProperties
        | O::SetActiveEncryptionKeys
        | O::PruneEncryptionKeys
        | O::RegisterAuthToken
        | O::GetFusionStorageSnapshot
        | O::ReleaseFusionStorageSnapshot
        | O::MountFusionVbucket
        | O::UnmountFusionVbucket
        | O::SyncFusionLogstore
        | O::StartFusionUploader
        | O::StopFusionUploader
        | O::DeleteFusionNamespace
        | O::GetFusionNamespaces
        | O::CreateFusionNamespace
        | O::StopPersistence
        | O::StartPersistence
        | O::SetParam
        | O::SetChronicleAuthToken
        | O::CreateBucket
        | O::DeleteBucket
        | O::PauseBucket
        | O::ResumeBucket
        | O::ValidateBucketConfig
        | O::EvictKey
        | O::EnableTraffic
        | O::DisableTraffic
        | O::Ifconfig
        | O::SetClusterConfig
        | O::CollectionsSetManifest
        | O::PrepareSnapshot
        | O::ReleaseSnapshot
        | O::DownloadSnapshot
        | O::GetFileFragment
        | O::IsaslRefresh
        | O::SetCtrlToken
        | O::GetCtrlToken
        | O::UpdateExternalUserPermissions
        | O::RbacRefresh
        | O::AuthProvider
        | O::DropPrivilege
        | O::AdjustTimeofday
        | O::EwouldblockCtl => Need::Unserved,
        other if matches!(other.rank(), kedge_protocol::binary::Rank::Reserved) => Need::Unserved,
        _ => Need::Unlisted,
    }
}

impl Session {
    /// Refuses a command whose user may not do what it needs, as far as that does not depend on its arguments.
    /// Without a bucket the command says so itself.
    ///
    /// # Errors
    /// `AccessDenied`.
    #[inline]
    pub(crate) fn check_needs(&self, opcode: Opcode) -> Result<(), Failure> {
        let allowed = match needs(opcode) {
            Need::Bucket(needed) => self.rights.allow(needed),
            Need::Somewhere(needed) => self.may_somewhere(needed),
            Need::Unlisted => false,
            Need::Nothing | Need::Argument | Need::Document(_) | Need::Unserved => true,
        };
        if allowed || self.bucket.is_none() {
            return Ok(());
        }
        Err(match needs(opcode) {
            Need::Bucket(needed) | Need::Somewhere(needed) => self.rights.denied(needed),
            _ => Rights::NONE.denied(Rights::NONE),
        })
    }
}
