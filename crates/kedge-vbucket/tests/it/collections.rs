//! Keys are of use while their collection is open.

use crate::tools::{at, done, store, vbucket, write};
use kedge_types::{Collection, CollectionId, DocKey, Manifest, ManifestUid, Status};
use kedge_vbucket::{StoreMode, VBucket};

/// The default manifest, and collections of these ids in the default scope.
pub(crate) fn manifest(uid: u64, ids: &[u32]) -> Manifest {
    let mut manifest = Manifest {
        uid: ManifestUid(uid),
        ..Manifest::default()
    };
    manifest.scopes[0]
        .collections
        .extend(ids.iter().map(|id| Collection {
            id: CollectionId(*id),
            name: format!("c{id}"),
            max_ttl: None,
            history: false,
        }));
    manifest
}

fn key(collection: u32) -> DocKey {
    DocKey::new(CollectionId(collection), b"k").unwrap()
}

fn set(vb: &mut VBucket, collection: u32) -> Result<(), Status> {
    let key = key(collection);
    store(vb, at(1), &write(&key), StoreMode::Set, b"v").map(|outcome| {
        done(outcome);
    })
}

fn get(vb: &mut VBucket, collection: u32) -> Result<Vec<u8>, Status> {
    let found = vb.get(at(1), &key(collection), |it| it.item.value().to_vec());
    found.map(done)
}

#[test]
fn a_key_is_known_while_its_collection_is_open() {
    let mut vb = vbucket();
    assert_eq!(set(&mut vb, 8), Err(Status::UnknownCollection));
    vb.follow_manifest(at(1), &manifest(1, &[8]));
    assert_eq!(set(&mut vb, 8), Ok(()));
    assert_eq!(get(&mut vb, 8).unwrap(), b"v");
    assert_eq!(set(&mut vb, 0), Ok(()));
    let items = |vb: &VBucket| -> Vec<(u32, u64)> {
        let all = vb.collections().iter();
        all.map(|open| (open.id.get(), open.items)).collect()
    };
    assert_eq!(items(&vb), [(0, 1), (8, 1)]);
    vb.follow_manifest(at(1), &manifest(2, &[9]));
    assert_eq!(get(&mut vb, 8), Err(Status::UnknownCollection));
    assert_eq!(set(&mut vb, 8), Err(Status::UnknownCollection));
    assert_eq!(get(&mut vb, 9), Err(Status::KeyNotFound));
    assert_eq!(items(&vb), [(0, 1), (9, 0)]);
    // An older manifest than the one that it knows changes nothing.
    vb.follow_manifest(at(1), &manifest(1, &[8]));
    assert_eq!(set(&mut vb, 8), Err(Status::UnknownCollection));
    assert_eq!(vb.manifest_uid(), ManifestUid(2));
}
