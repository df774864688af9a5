//! The registry of buckets behind management's [`Buckets`] trait.

use kedge_bucket::{
    Bucket, BucketChange, BucketConfig, CollectionFigures, CompactionProgress, CompactionRequest,
    CompactionTicket, EncryptionStatus, Timing, TimingSnapshot, VbReset,
};
use kedge_cluster::ManifestEdit;
use kedge_encryption::{KeyringError, MasterKeyError, MasterKeyInfo};
use kedge_node::registry::{BucketRegistry, RegistryError, Unserved};
use kedge_types::limits::BUCKETS_MAX;
use kedge_types::{Manifest, ManifestUid, Status, VbId};
use std::sync::Arc;

use super::backend::{BucketFacts, Buckets, BucketsError, StartingBuckets};

impl From<RegistryError> for BucketsError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Exists(_) => Self::Exists,
            RegistryError::NotFound(_) => Self::NotFound,
            RegistryError::Manifest(error) => Self::Manifest(error),
            RegistryError::TooMany => Self::TooMany(BUCKETS_MAX),
            RegistryError::FlushDisabled(_) => Self::FlushDisabled,
            RegistryError::Refused(_)
            | RegistryError::Keyring {
                source: KeyringError::Master(MasterKeyError::Unavailable { .. }),
                ..
            } => Self::Temporary(error.to_string()),
            RegistryError::BadSetting(_)
            | RegistryError::BadName(_)
            | RegistryError::Unserved(_)
            | RegistryError::NoSettings(_)
            | RegistryError::NoMasterKey { .. }
            | RegistryError::NotOfCluster(_) => Self::Refused(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

fn facts(bucket: &Bucket) -> BucketFacts {
    let figures = bucket.figures();
    let figure = |name: &str| {
        figures
            .iter()
            .find(|(known, _)| *known == name)
            .map_or(0, |(_, value)| *value)
    };
    BucketFacts {
        config: BucketConfig::clone(&bucket.config()),
        loading: bucket.is_loading(),
        items: figure("curr_items"),
        mem_used_bytes: figure("mem_used"),
        disk_bytes: figure("ep_log_file_bytes") + figure("ep_db_file_size"),
        encryption: Some(bucket.persistence().encryption().status())
            .filter(|status| status.master_key.is_some()),
    }
}

/// Returns the error of a refused command about some vBuckets.
fn refused(bucket: &Bucket, status: Status) -> BucketsError {
    match status {
        Status::NotMyVbucket => BucketsError::Refused(format!(
            "the bucket has the vBuckets 0 to {} only",
            bucket.vbuckets() - 1
        )),
        other => BucketsError::Temporary(format!("it answers {}", other.name())),
    }
}

impl Buckets for BucketRegistry {
    fn get(&self, name: &str) -> Option<BucketFacts> {
        Some(facts(&*Self::get(self, name)?))
    }

    fn list(&self) -> Vec<BucketFacts> {
        Self::list(self)
            .iter()
            .map(|bucket| facts(bucket))
            .collect()
    }

    fn starting(&self) -> StartingBuckets {
        let buckets = Self::list(self);
        let count = |is: fn(&Bucket) -> bool| buckets.iter().filter(|bucket| is(bucket)).count();
        StartingBuckets {
            loading: count(Bucket::is_loading),
            warming: count(|bucket| bucket.residency().warmup().is_warming()),
        }
    }

    fn create(&self, config: BucketConfig) -> Result<(), BucketsError> {
        Self::create(self, config)?;
        Ok(())
    }

    fn unserved(&self) -> Result<Vec<Unserved>, BucketsError> {
        Ok(Self::unserved(self)?)
    }

    fn count_unserved(&self) {
        Self::count_unserved(self);
    }

    fn adopt(&self, name: &str, uuid: Option<&str>) -> Result<(), BucketsError> {
        Self::adopt(self, name, uuid)?;
        Ok(())
    }

    fn update(&self, name: &str, change: &BucketChange) -> Result<(), BucketsError> {
        Ok(Self::update(self, name, change)?)
    }

    fn remove(&self, name: &str) -> Result<(), BucketsError> {
        Ok(self.drop_bucket(name)?)
    }

    fn flush(&self, name: &str) -> Result<(), BucketsError> {
        Ok(Self::flush(self, name)?)
    }

    fn manifest(&self, name: &str) -> Option<Arc<Manifest>> {
        Self::manifest(self, name)
    }

    fn collection_figures(&self, name: &str) -> Option<Vec<CollectionFigures>> {
        Some(Self::get(self, name)?.collections().figures())
    }

    fn edit_manifest(&self, name: &str, edit: &ManifestEdit) -> Result<ManifestUid, BucketsError> {
        Ok(Self::edit_manifest(self, name, edit)?)
    }

    fn compact(
        &self,
        name: &str,
        request: &CompactionRequest,
    ) -> Result<CompactionTicket, BucketsError> {
        let bucket = Self::get(self, name).ok_or(BucketsError::NotFound)?;
        bucket
            .persistence()
            .compactions()
            .compact(request)
            .map_err(|status| refused(&bucket, status))
    }

    fn reset_vbucket(&self, name: &str, vb: VbId) -> Result<VbReset, BucketsError> {
        let bucket = Self::get(self, name).ok_or(BucketsError::NotFound)?;
        if self.cluster().is_counted_by_others(name, vb.get()) {
            return Err(BucketsError::Refused(format!(
                "other nodes count the copy of vBucket {vb} on this node, which would begin without acknowledged SyncWrites: \
                 stop the node, fail it over with kedge cluster failover, start it, reset the vBucket, and bring the node back \
                 with kedge cluster recover"
            )));
        }
        bucket
            .persistence()
            .reset_vbucket(self.ctx(), vb)
            .map_err(|status| match status {
                Status::Invalid => BucketsError::Refused(format!(
                    "vBucket {vb} is not quarantined: it has its file, and stays as it is; if that is damaged and takes no \
                     changes, rebuild it with: kedge compact {name} --vb {vb} --wait"
                )),
                other => refused(&bucket, other),
            })
    }

    fn cancel_compaction(&self, name: &str) -> Result<usize, BucketsError> {
        let bucket = Self::get(self, name).ok_or(BucketsError::NotFound)?;
        // All vBuckets are the bucket's own.
        Ok(bucket.persistence().compactions().cancel(None).unwrap_or(0))
    }

    fn compactions(&self, name: &str) -> Vec<CompactionProgress> {
        Self::get(self, name).map_or_else(Vec::new, |bucket| {
            bucket.persistence().compactions().progress()
        })
    }

    fn encryption(&self, name: &str) -> Option<EncryptionStatus> {
        let bucket = Self::get(self, name)?;
        Some(bucket.persistence().encryption().status())
    }

    fn rotate_keys(&self, name: &str) -> Result<(), BucketsError> {
        let bucket = Self::get(self, name).ok_or(BucketsError::NotFound)?;
        let encryption = bucket.persistence().encryption();
        if !encryption.is_enabled() {
            return Err(BucketsError::Refused(
                "the bucket is not encrypted: switch encryption_at_rest on".to_owned(),
            ));
        }
        let rotated = encryption.rotate();
        rotated.map_err(|error| BucketsError::Failed(error.to_string()))
    }

    fn master_key(&self) -> Option<(String, MasterKeyInfo)> {
        let keys = self.master_keys()?;
        Some((keys.name().to_owned(), keys.info()))
    }

    fn test_master_key(&self) -> Result<(), BucketsError> {
        let keys = self.master_keys().ok_or(BucketsError::NotFound)?;
        let tested = keys.test();
        tested.map_err(|error| BucketsError::Temporary(error.to_string()))
    }

    fn rewrap_keys(&self) -> Result<(), BucketsError> {
        self.master_keys().ok_or(BucketsError::NotFound)?;
        let mut result = Ok(());
        for bucket in Self::list(self) {
            if let Err(error) = bucket.persistence().encryption().rewrap() {
                let error = format!("{}: {error}; it is tried again", bucket.name());
                result = Err(BucketsError::Temporary(error));
            }
        }
        result
    }

    fn stats(&self, name: &str) -> Option<Vec<(String, String)>> {
        let mut stats = Vec::new();
        Self::get(self, name)?
            .stats(&mut |name, text| stats.push((name.to_owned(), text.to_owned())));
        Some(stats)
    }

    fn timings(&self, name: &str) -> Option<Vec<(&'static str, TimingSnapshot)>> {
        let bucket = Self::get(self, name)?;
        let timings = Timing::ALL.iter().map(|timing| timing.name());
        Some(
            timings
                .filter_map(|name| Some((name, bucket.timings().snapshot(name)?)))
                .collect(),
        )
    }
}
