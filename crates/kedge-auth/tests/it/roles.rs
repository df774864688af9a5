//! Roles: what they are called, and what they allow.

use kedge_auth::Privilege::{Access, Admin, Flush, Inspect, Manage, Read, Stats, Write};
use kedge_auth::{
    Error, Privilege, ROLES_PER_USER_MAX, Role, RoleKind, RoleProblem, Roles, roles_catalogue,
};

const ALL: [Privilege; 8] = [Access, Read, Write, Stats, Flush, Manage, Inspect, Admin];

#[test]
fn what_each_role_allows() {
    /// Roles; what they allow in bucket `b`, in bucket `other`, and without a bucket.
    type Row = (
        &'static str,
        &'static [Privilege],
        &'static [Privilege],
        &'static [Privilege],
    );
    let rows: [Row; 14] = [
        ("", &[], &[], &[]),
        ("admin", &ALL, &ALL, &ALL),
        (
            "ro_admin",
            &[Access, Stats, Inspect],
            &[Access, Stats, Inspect],
            &[Access, Stats, Inspect],
        ),
        (
            "bucket_full_access[b]",
            &[Access, Read, Write, Stats, Flush],
            &[],
            &[Access],
        ),
        (
            "bucket_admin[b]",
            &[Access, Stats, Flush, Manage],
            &[],
            &[Access],
        ),
        ("data_reader[b]", &[Access, Read], &[], &[Access]),
        ("data_writer[b]", &[Access, Write], &[], &[Access]),
        ("data_monitoring[b]", &[Access, Stats], &[], &[Access]),
        (
            "data_reader[*]",
            &[Access, Read],
            &[Access, Read],
            &[Access],
        ),
        ("data_reader[b:s]", &[Access, Read], &[], &[Access]),
        ("data_reader[b:s:c]", &[Access, Read], &[], &[Access]),
        ("data_reader[B]", &[], &[], &[Access]),
        (
            "data_reader[b],data_writer[b]",
            &[Access, Read, Write],
            &[],
            &[Access],
        ),
        (
            "data_reader[b],data_writer[other]",
            &[Access, Read],
            &[Access, Write],
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
    assert_eq!(role.kind(), RoleKind::DataReader);
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
        ("bucket_full_access[b:s:c]", RoleProblem::ScopeNotTaken),
    ] {
        let error = Error::BadRole {
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
            Err(Error::UnknownRole(unknown.to_owned())),
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
        Err(Error::TooManyRoles)
    );
}

#[test]
fn the_catalogue_lists_roles_that_can_be_given() {
    let catalogue = roles_catalogue();
    let names: Vec<&str> = catalogue.iter().map(|info| info.role).collect();
    assert_eq!(
        names,
        [
            "admin",
            "ro_admin",
            "bucket_admin",
            "bucket_full_access",
            "data_reader",
            "data_writer",
            "data_monitoring"
        ]
    );
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
        assert_eq!((role.kind().name(), role.to_string()), (info.role, text));
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
    let catalogue = serde_json::to_value(roles_catalogue()).unwrap();
    assert_eq!(catalogue[0]["role"], "admin");
    assert_eq!(catalogue[0].get("bucket_name"), None);
    assert_eq!(
        (&catalogue[2]["bucket_name"], catalogue[2].get("scope_name")),
        (&"*".into(), None)
    );
    assert_eq!(catalogue[4]["collection_name"], "*");
}
