//! Revisions, caching, listeners and what survives a restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kedge_cluster::{ChangeKind, ClusterError, ClusterState, ClusterView, Ports};

use crate::{bucket, state, view};

const PORTS: Ports = Ports::plain(1, 2);

#[test]
fn every_change_saves_a_new_revision_before_publishing_it() {
    let (view, saved) = view();
    assert_eq!(view.revision().rev, 1);
    // (change, whether it is one)
    type Step = fn(&ClusterView) -> Result<kedge_cluster::Revision, ClusterError>;
    let steps: [(Step, bool); 7] = [
        (|v| v.put_bucket(bucket("b", 8)), true),
        (|v| v.put_bucket(bucket("b", 8)), true),
        (|v| v.set_cluster_name("x"), true),
        (|v| v.set_cluster_name("x"), false),
        (|v| v.remove_bucket("b"), true),
        (|v| v.remove_bucket("b"), false),
        (|v| v.remove_bucket("default"), true),
    ];
    for (at, (step, changes)) in steps.into_iter().enumerate() {
        let before = view.revision();
        let after = step(&view).expect("saved");
        assert_eq!(after > before, changes, "step {at}");
        assert_eq!(after, view.revision(), "step {at}");
        assert_eq!(saved.load(Ordering::SeqCst), after.rev, "step {at}");
    }
    assert!(view.bucket_config("default", "::1").is_none());
}

#[test]
fn config_is_composed_once_per_revision_and_host() {
    let (view, _) = view();
    let first = view.bucket_config("default", "::1").expect("exists");
    let again = view.bucket_config("default", "::1").expect("exists");
    assert!(Arc::ptr_eq(&first, &again));
    let other = view.bucket_config("default", "127.0.0.1").expect("exists");
    assert!(!Arc::ptr_eq(&first, &other));
    view.set_cluster_name("x").expect("saved");
    let newer = view.bucket_config("default", "::1").expect("exists");
    assert!(newer.revision > first.revision);
    assert_eq!(newer.revision, view.global_config("::1").revision);
}

#[test]
fn config_cache_is_bounded_by_hosts() {
    let (view, _) = view();
    for round in 0..2 {
        for n in 0..50 {
            let host = format!("10.0.0.{n}");
            let config = view.global_config(&host);
            let text = std::str::from_utf8(&config.json).expect("JSON is UTF-8");
            assert!(text.contains(&format!("\"{host}\"")), "round {round}");
        }
    }
}

#[test]
fn listeners_are_called_after_the_new_view_is_published() {
    let (view, _) = view();
    let view = Arc::new(view);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (sink, seen) = (heard.clone(), view.clone());
    view.subscribe(move |change| {
        assert_eq!(seen.revision(), change.revision);
        sink.lock().expect("not poisoned").push(change.kind.clone());
    });
    view.put_bucket(bucket("b", 8)).expect("saved");
    view.set_cluster_name("x").expect("saved");
    view.set_cluster_name("x").expect("saved");
    view.remove_bucket("b").expect("saved");
    assert_eq!(
        *heard.lock().expect("not poisoned"),
        [
            ChangeKind::Bucket("b".to_owned()),
            ChangeKind::ClusterName,
            ChangeKind::BucketRemoved("b".to_owned()),
        ]
    );
}

#[test]
fn change_is_not_published_when_it_cannot_be_saved() {
    let full = Arc::new(AtomicBool::new(false));
    let flag = full.clone();
    let view = ClusterView::new(
        state(),
        PORTS,
        [],
        Box::new(move |_| {
            if flag.load(Ordering::SeqCst) {
                return Err("no space".into());
            }
            Ok(())
        }),
    )
    .expect("saved");
    let before = view.revision();
    full.store(true, Ordering::SeqCst);
    let refused = view.put_bucket(bucket("b", 8));
    assert!(matches!(refused, Err(ClusterError::Save(_))), "{refused:?}");
    assert_eq!(view.revision(), before);
    assert!(view.snapshot().bucket("b").is_none());
    full.store(false, Ordering::SeqCst);
    assert!(view.put_bucket(bucket("b", 8)).expect("saved") > before);
}

#[test]
fn revisions_grow_across_a_restart() {
    let saved = Arc::new(Mutex::new(state().to_json()));
    let mut last = 0;
    for _ in 0..3 {
        let sink = saved.clone();
        let json = saved.lock().expect("not poisoned").clone();
        let view = ClusterView::new(
            ClusterState::from_json(&json).expect("what was saved can be read"),
            PORTS,
            [],
            Box::new(move |state| {
                *sink.lock().expect("not poisoned") = state.to_json();
                Ok(())
            }),
        )
        .expect("saved");
        assert!(view.revision().rev > last);
        view.put_bucket(bucket("b", 8)).expect("saved");
        last = view.revision().rev;
    }
    assert_eq!(last, 6);
}

#[test]
fn foreign_or_newer_state_is_rejected() {
    let good = String::from_utf8(state().to_json()).expect("JSON is UTF-8");
    let cases = [
        ("", "damaged"),
        ("{}", "damaged"),
        (&good[..good.len() / 2], "damaged"),
        (&good.replace("\"rev\"", "\"vre\""), "damaged"),
        (
            &good.replace("\"version\": 1", "\"version\": 9"),
            "version 9",
        ),
    ];
    for (json, says) in cases {
        let error = ClusterState::from_json(json.as_bytes()).expect_err(json);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(
        ClusterState::from_json(good.as_bytes()).expect("good"),
        state()
    );
}
