//! Roles: what they are called, and what they allow.

use kedge_auth::Privilege::{
    Access, Buckets, Collections, Delete, Flush, Insert, Inspect, InspectUsers, Manage, Read,
    ReadSystem, Settings, Stats, Stream, Upsert, Users, WriteMeta, WriteSystem,
};
use kedge_auth::{
    AuthError, Privilege, Privileges, ROLES_PER_USER_MAX, Role, RoleKind, RoleProblem, Roles,
    roles_catalogue,
};
use proptest::prelude::*;

use crate::cases;

const ALL: [Privilege; 19] = Privilege::ALL;
/// The privileges of an application in its bucket.
const APP: [Privilege; 11] = [
    Access,
    Read,
    Insert,
    Upsert,
    Delete,
    WriteMeta,
    ReadSystem,
    WriteSystem,
    Stream,
    Stats,
    Flush,
];

#[test]
fn every_role_grants_its_privileges() {
    /// Roles; what they allow in bucket `b`, in bucket `other`, and without a bucket.
    type Row = (
        &'static str,
        &'static [Privilege],
        &'static [Privilege],
        &'static [Privilege],
    );
    const CLUSTER_ADMIN: [Privilege; 8] = [
        Access,
        Stats,
        Flush,
        Manage,
        Collections,
        Inspect,
        Settings,
        Buckets,
    ];
    const BACKUP: [Privilege; 14] = [
        Access,
        Read,
        Insert,
        Upsert,
        Delete,
        WriteMeta,
        ReadSystem,
        WriteSystem,
        Stream,
        Stats,
        Manage,
        Collections,
        Inspect,
        Buckets,
    ];
    let rows: [Row; 34] = [
        ("", &[], &[], &[]),
        ("admin", &ALL, &ALL, &ALL),
        (
            "ro_admin",
            &[Access, Stats, Inspect, InspectUsers],
            &[Access, Stats, Inspect, InspectUsers],
            &[Access, Stats, Inspect, InspectUsers],
        ),
        (
            "cluster_admin",
            &CLUSTER_ADMIN,
            &CLUSTER_ADMIN,
            &CLUSTER_ADMIN,
        ),
        (
            "security_admin",
            &[Access, Stats, Inspect, InspectUsers, Users],
            &[Access, Stats, Inspect, InspectUsers, Users],
            &[Access, Stats, Inspect, InspectUsers, Users],
        ),
        (
            "user_admin_local",
            &[Access, InspectUsers, Users],
            &[Access, InspectUsers, Users],
            &[Access, InspectUsers, Users],
        ),
        (
            "ro_security_admin",
            &[Access, Inspect, InspectUsers],
            &[Access, Inspect, InspectUsers],
            &[Access, Inspect, InspectUsers],
        ),
        (
            "user_admin_external",
            &[Access, InspectUsers],
            &[Access, InspectUsers],
            &[Access, InspectUsers],
        ),
        (
            "security_admin_local",
            &[Access, Stats, Inspect, InspectUsers, Users],
            &[Access, Stats, Inspect, InspectUsers, Users],
            &[Access, Stats, Inspect, InspectUsers, Users],
        ),
        (
            "security_admin_external",
            &[Access, Stats, Inspect, InspectUsers],
            &[Access, Stats, Inspect, InspectUsers],
            &[Access, Stats, Inspect, InspectUsers],
        ),
        ("backup_admin", &BACKUP, &BACKUP, &BACKUP),
        (
            "replication_admin",
            &[Access, Stats, Inspect],
            &[Access, Stats, Inspect],
            &[Access, Stats, Inspect],
        ),
        ("external_stats_reader", &[], &[], &[Access, Stats]),
        // Of services that are not here: their users connect, and that is all.
        ("query_system_catalog", &[], &[], &[Access]),
        ("views_admin[b]", &[Access], &[], &[Access]),
        ("query_select[b:s:c]", &[Access], &[], &[Access]),
        ("scope_admin[b]", &[Access, Collections], &[], &[Access]),
        ("scope_admin[b:s]", &[Access], &[], &[Access]),
        (
            "data_backup[b]",
            &[
                Access,
                Read,
                Insert,
                Upsert,
                Delete,
                WriteMeta,
                ReadSystem,
                WriteSystem,
                Stream,
                Stats,
                Collections,
            ],
            &[],
            &[Access],
        ),
        (
            "replication_target[b]",
            &[
                Access,
                Read,
                Insert,
                Upsert,
                Delete,
                WriteMeta,
                ReadSystem,
                WriteSystem,
                Stats,
            ],
            &[],
            &[Access],
        ),
        ("mobile_sync_gateway[b]", &APP, &[], &[Access]),
        ("bucket_full_access[b]", &APP, &[], &[Access]),
        (
            "bucket_admin[b]",
            &[Access, Stats, Flush, Manage, Collections],
            &[],
            &[Access],
        ),
        (
            "data_reader[b]",
            &[Access, Read, ReadSystem],
            &[],
            &[Access],
        ),
        (
            "data_writer[b]",
            &[Access, Insert, Upsert, Delete, WriteSystem],
            &[],
            &[Access],
        ),
        ("data_monitoring[b]", &[Access, Stats], &[], &[Access]),
        (
            "data_dcp_reader[b]",
            &[Access, Read, ReadSystem, Stream, Stats],
            &[],
            &[Access],
        ),
        (
            "data_reader[*]",
            &[Access, Read, ReadSystem],
            &[Access, Read, ReadSystem],
            &[Access],
        ),
        (
            "data_reader[b:*:*]",
            &[Access, Read, ReadSystem],
            &[],
            &[Access],
        ),
        ("data_reader[b:s]", &[Access], &[], &[Access]),
        ("data_reader[b:s:c]", &[Access], &[], &[Access]),
        ("data_reader[B]", &[], &[], &[Access]),
        (
            "data_reader[b],data_writer[b]",
            &[
                Access,
                Read,
                Insert,
                Upsert,
                Delete,
                ReadSystem,
                WriteSystem,
            ],
            &[],
            &[Access],
        ),
        (
            "data_reader[b],data_writer[other]",
            &[Access, Read, ReadSystem],
            &[Access, Insert, Upsert, Delete, WriteSystem],
            &[Access],
        ),
    ];
    for (text, in_b, in_other, without) in rows {
        let roles: Roles = text.parse().unwrap();
        for (bucket, allowed) in [
            (Some("b"), in_b),
            (Some("other"), in_other),
            (None, without),
        ] {
            for privilege in ALL {
                assert_eq!(
                    roles.allows(privilege, bucket),
                    allowed.contains(&privilege),
                    "{text:?} {privilege:?} {bucket:?}"
                );
            }
        }
        assert_eq!(roles.is_empty(), text.is_empty());
    }
    // The star is for roles, not for what is asked.
    assert!(
        !"data_reader[b]"
            .parse::<Roles>()
            .unwrap()
            .allows(Read, Some("*"))
    );
}

#[test]
fn text_forms() {
    for (text, shown) in [
        ("admin", "admin"),
        (" admin , ro_admin ", "admin,ro_admin"),
        (
            "admin,admin,data_reader[b],data_reader[b]",
            "admin,data_reader[b]",
        ),
        (
            "data_reader[a],data_reader[b]",
            "data_reader[a],data_reader[b]",
        ),
        (
            "data_writer[travel-sample:in_v:%h]",
            "data_writer[travel-sample:in_v:%h]",
        ),
        ("data_reader[b:s]", "data_reader[b:s]"),
        ("data_reader[b:*:*]", "data_reader[b:*:*]"),
        ("bucket_full_access[a.b%c]", "bucket_full_access[a.b%c]"),
        ("", ""),
        ("  ", ""),
    ] {
        let roles: Roles = text.parse().unwrap();
        assert_eq!(roles.to_string(), shown, "{text:?}");
        assert_eq!(shown.parse(), Ok(roles));
    }
    let role: Role = "data_reader[b:s:c]".parse().unwrap();
    assert_eq!(role.kind(), Some(RoleKind::DataReader));
    let parts = (role.bucket(), role.scope(), role.collection());
    assert_eq!(parts, (Some("b"), Some("s"), Some("c")));
    assert_eq!("admin".parse(), Ok(Roles::admin()));
}

#[test]
fn bad_text() {
    for (text, problem) in [
        ("data_reader", RoleProblem::BucketMissing),
        ("bucket_admin", RoleProblem::BucketMissing),
        ("data_reader[]", RoleProblem::BucketName),
        ("data_reader[a b]", RoleProblem::BucketName),
        ("data_reader[[b]]", RoleProblem::BucketName),
        ("data_reader[b", RoleProblem::Syntax),
        ("data_reader[b]x", RoleProblem::Syntax),
        ("data_reader[b:s:c:d]", RoleProblem::Syntax),
        ("data_reader[b:]", RoleProblem::ScopeName),
        ("data_reader[b:s:]", RoleProblem::ScopeName),
        ("data_reader[b:s.t]", RoleProblem::ScopeName),
        ("admin[b]", RoleProblem::BucketNotTaken),
        ("ro_admin[*]", RoleProblem::BucketNotTaken),
        ("bucket_admin[b:s]", RoleProblem::ScopeNotTaken),
        ("scope_admin[b:s:c]", RoleProblem::CollectionNotTaken),
        ("scope_admin[b:s:c:d]", RoleProblem::CollectionNotTaken),
        ("data_backup[b:s]", RoleProblem::ScopeNotTaken),
        ("bucket_full_access[b:s:c]", RoleProblem::ScopeNotTaken),
    ] {
        let error = AuthError::BadRole {
            role: text.to_owned(),
            problem,
        };
        assert_eq!(
            format!("admin,{text}").parse::<Roles>(),
            Err(error),
            "{text}"
        );
    }
    for (text, unknown) in [
        ("Admin", "Admin"),
        ("admin,", ""),
        (",", ""),
        ("[b]", ""),
        ("x[b]", "x"),
    ] {
        assert_eq!(
            text.parse::<Roles>(),
            Err(AuthError::UnknownRole(unknown.to_owned())),
            "{text}"
        );
    }
    let name = |bytes| format!("data_reader[{}]", "x".repeat(bytes));
    assert!(name(100).parse::<Role>().is_ok());
    assert!(name(101).parse::<Role>().is_err());
    let many = |count: usize| {
        (0..count)
            .map(|n| format!("data_reader[b{n}]"))
            .collect::<Vec<_>>()
            .join(",")
    };
    assert!(many(ROLES_PER_USER_MAX).parse::<Roles>().is_ok());
    assert_eq!(
        many(ROLES_PER_USER_MAX + 1).parse::<Roles>(),
        Err(AuthError::TooManyRoles)
    );
}

#[test]
fn role_catalogue_lists_assignable_roles() {
    let catalogue = roles_catalogue();
    // Name, parameters and title of each role of Couchbase Server 8.0, as its documentation has them (learn/security/roles),
    // and of two that were in 7.6.
    let documented = include_str!("../golden/roles-8.0.txt");
    let rows = |text: &str| {
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    };
    let parameters = |info: &kedge_auth::RoleInfo| {
        let given = [info.bucket_name, info.scope_name, info.collection_name];
        given.into_iter().flatten().count()
    };
    let listed = catalogue
        .iter()
        .map(|info| format!("{} {} {}", info.role, parameters(info), info.name));
    let listed: Vec<String> = listed.collect();
    assert_eq!(rows(&listed.join("\n")), rows(documented));
    for info in catalogue {
        let inside: Vec<&str> = [info.bucket_name, info.scope_name, info.collection_name]
            .into_iter()
            .flatten()
            .collect();
        let text = match inside.len() {
            0 => info.role.to_owned(),
            _ => format!("{}[{}]", info.role, inside.join(":")),
        };
        let role: Role = text.parse().unwrap();
        assert_eq!((role.name(), role.to_string()), (info.role, text));
        assert!(!info.name.is_empty() && !info.desc.is_empty());
    }
}

#[test]
fn json_forms() {
    let roles: Roles = "admin,bucket_admin[*],data_reader[b:s:c]".parse().unwrap();
    assert_eq!(
        serde_json::to_string(&roles).unwrap(),
        concat!(
            r#"[{"role":"admin"},{"role":"bucket_admin","bucket_name":"*"},"#,
            r#"{"role":"data_reader","bucket_name":"b","scope_name":"s","collection_name":"c"}]"#
        )
    );
    // Clients took a parameter that was left out for one that the role does not take, and their own role for another.
    for (text, json) in [
        (
            "data_reader[b]",
            r#"{"role":"data_reader","bucket_name":"b","scope_name":"*","collection_name":"*"}"#,
        ),
        (
            "query_select[b:s]",
            r#"{"role":"query_select","bucket_name":"b","scope_name":"s","collection_name":"*"}"#,
        ),
        (
            "scope_admin[b]",
            r#"{"role":"scope_admin","bucket_name":"b","scope_name":"*"}"#,
        ),
        (
            "bucket_admin[b]",
            r#"{"role":"bucket_admin","bucket_name":"b"}"#,
        ),
        ("query_system_catalog", r#"{"role":"query_system_catalog"}"#),
    ] {
        let role: Role = text.parse().unwrap();
        assert_eq!(serde_json::to_string(&role).unwrap(), json, "{text}");
    }
    let catalogue = serde_json::to_value(roles_catalogue()).unwrap();
    assert_eq!(catalogue[0]["role"], "admin");
    assert_eq!(catalogue[0].get("bucket_name"), None);
    assert_eq!(
        (&catalogue[6]["bucket_name"], catalogue[6].get("scope_name")),
        (&"*".into(), None)
    );
    assert_eq!(catalogue[7]["scope_name"], "*");
    assert_eq!(catalogue[7].get("collection_name"), None);
    assert_eq!(catalogue[9]["collection_name"], "*");
}

#[test]
fn roles_for_parts_of_a_bucket() {
    // (role, what it allows to read: bucket, scope, collection)
    let all = [
        ("b", "s", "c"),
        ("b", "s", "d"),
        ("b", "t", "c"),
        ("other", "s", "c"),
    ];
    for (role, readable) in [
        ("data_reader[b]", &[all[0], all[1], all[2]][..]),
        ("data_reader[b:*:*]", &[all[0], all[1], all[2]]),
        ("data_reader[b:s]", &[all[0], all[1]]),
        ("data_reader[b:s:*]", &[all[0], all[1]]),
        ("data_reader[b:s:c]", &[all[0]]),
        ("data_reader[b:*:c]", &[all[0], all[2]]),
        ("data_reader[*:s:c]", &[all[0], all[3]]),
        ("data_reader[b:s:c],data_reader[b:t]", &[all[0], all[2]]),
        ("data_writer[b:s:c],data_reader[b:t]", &[all[2]]),
        ("ro_admin", &[]),
        ("admin", &all),
    ] {
        let roles: Roles = role.parse().unwrap();
        for place in all {
            let (bucket, scope, collection) = place;
            assert_eq!(
                roles.allows_in(Read, bucket, scope, Some(collection)),
                readable.contains(&place),
                "{role} in {place:?}"
            );
        }
    }
    // A whole scope is more than its collections.
    let may = |role: &str, scope| {
        let roles: Roles = role.parse().unwrap();
        roles.allows_in(Collections, "b", scope, None)
    };
    assert!(may("scope_admin[b:s]", "s") && may("scope_admin[b]", "s"));
    assert!(!may("scope_admin[b:s]", "t"));
    assert!(
        !"data_reader[b:s:c]"
            .parse::<Roles>()
            .unwrap()
            .allows_in(Read, "b", "s", None)
    );
}

#[test]
fn roles_that_grant_rights_are_guarded() {
    for info in roles_catalogue() {
        let text = match info.bucket_name {
            Some(_) => format!("{}[b]", info.role),
            None => info.role.to_owned(),
        };
        let expected = [
            "admin",
            "security_admin",
            "security_admin_local",
            "user_admin_local",
        ]
        .contains(&info.role);
        let roles: Roles = text.parse().unwrap();
        assert_eq!(roles.are_guarded(), expected, "{text}");
    }
}

proptest! {
    #![proptest_config(cases(512))]

    /// Every accepted role is written as it was read, and allows no more than the role of the whole bucket.
    #[test]
    fn role_parser_survives_any_text(text in "(data_reader|scope_admin|admin|x)?\\[?[a-z*%:.\\]-]{0,8}\\]?") {
        if let Ok(role) = text.parse::<Role>() {
            prop_assert_eq!(&role.to_string(), text.trim());
            let roles = Roles::new([role.clone()]).unwrap();
            let bucket = role.bucket().unwrap_or("b");
            let whole: Roles = match role.bucket() {
                Some(bucket) => format!("{}[{bucket}]", role.name()).parse().unwrap(),
                None => roles.clone(),
            };
            let granted = whole.privileges(Some(bucket));
            prop_assert!(granted.allow(roles.privileges(Some(bucket))));
            for part in roles.parts(bucket) {
                prop_assert!(granted.allow(part.privileges()));
            }
        }
    }

    /// A set has what was put in.
    #[test]
    fn sets_of_privileges(picked in proptest::collection::vec(0..ALL.len(), 0..6)) {
        let list: Vec<Privilege> = picked.iter().map(|at| ALL[*at]).collect();
        let set = Privileges::of(&list);
        for privilege in ALL {
            prop_assert_eq!(set.allow(Privileges::of(&[privilege])), list.contains(&privilege));
        }
        prop_assert_eq!(set.iter().count(), ALL.iter().filter(|it| list.contains(it)).count());
        prop_assert!(set.without(set).is_empty());
    }
}
