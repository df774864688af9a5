//! Tests of the privileges of every command.

use kedge_auth::{Privilege, Privileges, Roles, UserChange, roles_catalogue};
use kedge_protocol::binary::Audience;

use super::*;
use crate::commands::context::RequiredAccess;
use crate::commands::row;

/// A valid request of each opcode.
pub(super) fn sample(opcode: Opcode) -> Vec<u8> {
    use Opcode as O;
    let (extras, value): (Vec<u8>, Vec<u8>) = match opcode {
        O::Set | O::Setq | O::Add | O::Addq | O::Replace | O::Replaceq => (vec![0; 8], vec![]),
        O::Increment | O::Incrementq | O::Decrement | O::Decrementq => (vec![0; 20], vec![]),
        O::Touch | O::Gat | O::Gatq | O::Gatk | O::Gatkq => (vec![0; 4], vec![]),
        O::Observe => (vec![], vec![0, 0, 0, 1, b'k']),
        O::ObserveSeqno => (vec![], vec![0; 8]),
        O::SeqnoPersistence => (vec![0; 8], vec![]),
        O::SubdocGet | O::SubdocExists | O::SubdocGetCount | O::SubdocDelete => {
            (vec![0, 1, 0], b"a".to_vec())
        }
        O::SubdocMultiLookup => (vec![], vec![O::SubdocGet.wire(), 0, 0, 1, b'a']),
        O::SubdocMultiMutation => (
            vec![],
            vec![O::SubdocDictUpsert.wire(), 0, 0, 1, 0, 0, 0, 1, b'a', b'1'],
        ),
        O::SubdocArrayInsert => (vec![0, 3, 0], b"[0]1".to_vec()),
        O::SubdocDictAdd
        | O::SubdocDictUpsert
        | O::SubdocReplace
        | O::SubdocArrayPushLast
        | O::SubdocArrayPushFirst
        | O::SubdocArrayAddUnique
        | O::SubdocCounter => (vec![0, 1, 0], b"a1".to_vec()),
        O::SetWithMeta
        | O::SetqWithMeta
        | O::AddWithMeta
        | O::AddqWithMeta
        | O::DelWithMeta
        | O::DelqWithMeta => {
            let (rev, cas) = (1_u64.to_be_bytes(), (1_u64 << 16).to_be_bytes());
            ([&[0; 8], &rev[..], &cas[..]].concat(), vec![])
        }
        O::MutateWithMeta => {
            let meta = br#"{"command":"set","cas":"0x10000"}"#;
            (vec![0, 0, 0, meta.len() as u8], meta.to_vec())
        }
        O::ReturnMeta => (vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], vec![]),
        O::DcpOpen => (vec![0, 0, 0, 0, 0, 0, 0, 1], vec![]),
        O::SetVbucket => (vec![1], vec![]),
        O::CompactDb => (vec![0; 24], vec![]),
        O::RangeScanCreate => (vec![], br#"{"sampling":{"seed":1,"samples":1}}"#.to_vec()),
        _ => (vec![], vec![]),
    };
    let key: &[u8] = match opcode {
        O::GetRandomKey
        | O::Observe
        | O::ObserveSeqno
        | O::SeqnoPersistence
        | O::GetAllVbSeqnos
        | O::GetFailoverLog
        | O::GetVbucket
        | O::SetVbucket
        | O::DelVbucket
        | O::CompactDb
        | O::Flush
        | O::Flushq
        | O::CollectionsGetManifest
        | O::RangeScanCreate => b"",
        O::SelectBucket => b"default",
        _ => b"k",
    };
    let mut bytes = Vec::new();
    RequestWriter {
        datatype: match opcode {
            O::RangeScanCreate => Datatype::JSON,
            _ => Datatype::RAW,
        },
        cas: Cas(u64::from(opcode == O::UnlockKey)),
        vb: if key.is_empty() {
            VbId(0)
        } else {
            VbId::of_key(key, 4)
        },
        ..RequestWriter::new(opcode)
    }
    .write(&extras, key, &value, &mut bytes);
    bytes
}

/// A session of the kind that has the opcode, without DCP and without commands in flight.
struct Fresh(Option<Rig>, Port);

impl Fresh {
    fn get(&mut self) -> &mut Rig {
        let spent = |rig: &Rig| {
            let session = &rig.session;
            session.dcp.is_dcp() || session.in_flight() > 0 || !rig.waiting.is_empty()
        };
        if self.0.as_ref().is_none_or(spent) {
            self.0 = Some(Rig::new(self.1, Features::of(&[Feature::Xerror])));
        }
        self.0.as_mut().unwrap()
    }

    /// The status of the reply to a request with these rights; success if there is none, as with quiet commands.
    fn ask(&mut self, rights: Rights, opcode: Opcode) -> Status {
        // Some commands need negotiated datatypes.
        let datatypes = [Feature::Json, Feature::Xattr, Feature::SnappyEverywhere];
        let features = match opcode {
            Opcode::RangeScanCreate => &datatypes[..1],
            Opcode::GetEx | Opcode::GetExReplica => &datatypes,
            _ => &[],
        };
        if !features.is_empty() {
            let features = features.iter().copied();
            let features = features.fold(Features::of(&[Feature::Xerror]), Features::with);
            self.0 = Some(Rig::new(self.1, features));
        }
        let rig = self.get();
        rig.session.privileges = rights.into();
        rig.give(&sample(opcode));
        rig.replies().first().map_or(Status::Success, |it| it.1)
    }
}

#[test]
fn every_command_checks_the_privileges_of_its_row() {
    let mut sessions = [Fresh(None, Port::Kv), Fresh(None, Port::Memcached)];
    let mut served = 0;
    for &opcode in Opcode::ALL {
        let is_memcacheds = !opcode.is_supported(ConnectionKind::Couchbase)
            && opcode.is_supported(ConnectionKind::Memcached);
        let session = &mut sessions[usize::from(is_memcacheds)];
        let access = row(opcode).access;
        let kind = match is_memcacheds {
            true => ConnectionKind::Memcached,
            false => ConnectionKind::Couchbase,
        };
        let unsupported = Opcode::unsupported_status(opcode.wire(), kind);
        let everything = session.ask(Rights::ALL, opcode);
        let needed = match access {
            RequiredAccess::Unserved => {
                assert_eq!(everything, unsupported, "{}", opcode.name());
                continue;
            }
            RequiredAccess::Anyone | RequiredAccess::User | RequiredAccess::Argument => {
                Rights::NONE
            }
            RequiredAccess::Document(needed)
            | RequiredAccess::Somewhere(needed)
            | RequiredAccess::Bucket(needed) => needed,
        };
        assert_ne!(opcode.audience(), Audience::Reserved);
        if everything == unsupported {
            continue;
        }
        served += 1;
        assert_ne!(everything, Status::AccessDenied, "{}", opcode.name());
        let just = session.ask(needed, opcode);
        if access != RequiredAccess::Argument {
            assert_ne!(just, Status::AccessDenied, "{}: {needed:?}", opcode.name());
        }
        if let RequiredAccess::Document(_) = access {
            let says = "needs a better sample in this test";
            assert_ne!(everything, Status::Invalid, "{} {says}", opcode.name());
        }
        for privilege in Privilege::ALL {
            let one = Rights(Privileges::of(&[privilege]));
            if !needed.allow(one) {
                continue;
            }
            let rest = Rights(Privileges::ALL.without(Privileges::of(&[privilege])));
            let status = session.ask(rest, opcode);
            let name = opcode.name();
            assert_eq!(status, Status::AccessDenied, "{name} without {privilege:?}");
        }
    }
    assert!(served > 60, "{served}");
}

#[test]
fn every_command_but_those_for_anyone_needs_a_login() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    rig.session.login.log_out();
    rig.session.refresh(&rig.shared);
    let mut asked = 0;
    for &opcode in Opcode::ALL {
        let kind = ConnectionKind::Couchbase;
        let access = row(opcode).access;
        let is_for_anyone = matches!(access, RequiredAccess::Anyone | RequiredAccess::Unserved);
        if is_for_anyone || !opcode.is_supported(kind) {
            continue;
        }
        rig.give(&sample(opcode));
        let status = rig.replies().first().map(|reply| reply.1);
        assert_eq!(status, Some(Status::AccessDenied), "{}", opcode.name());
        asked += 1;
    }
    assert!(asked > 60, "{asked}");
}

/// The roles whose users may use a command. That each command checks the privileges of its row is tested above.
fn roles_of(access: RequiredAccess) -> String {
    let needed = match access {
        RequiredAccess::Anyone => return "no login is needed".to_owned(),
        RequiredAccess::User => return "every user".to_owned(),
        RequiredAccess::Argument => return "by its argument".to_owned(),
        RequiredAccess::Unserved => return "nobody: it is not served".to_owned(),
        RequiredAccess::Document(needed)
        | RequiredAccess::Somewhere(needed)
        | RequiredAccess::Bucket(needed) => needed,
    };
    let allowed = roles_catalogue().into_iter().filter(|role| {
        let text = match role.bucket_name {
            Some(_) => format!("{}[default]", role.role),
            None => role.role.to_owned(),
        };
        let roles: Roles = text.parse().unwrap();
        Rights(roles.privileges(Some("default"))).allow(needed)
    });
    let names: Vec<&str> = allowed.map(|role| role.role).collect();
    names.join(", ")
}

#[test]
fn roles_of_every_command_are_as_documented() {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for &opcode in Opcode::ALL {
        let access = row(opcode).access;
        if access == RequiredAccess::Unserved {
            continue;
        }
        let roles = roles_of(access);
        match rows.iter_mut().find(|(known, _)| *known == roles) {
            Some((_, commands)) => commands.push(opcode.name()),
            None => rows.push((roles, vec![opcode.name()])),
        }
    }
    let mut page = String::from(
        "# Commands of roles\n\n\
         Generated from the table of commands and the roles; a test checks that this file is current, another one that each command checks its \
         privileges.\n\n\
         For the binary commands of the key-value port: the roles that have all needed privileges in the bucket or collection that they name.\n\n\
         | roles | commands |\n|---|---|\n",
    );
    for (roles, commands) in rows {
        page.push_str(&format!("| {roles} | {} |\n", commands.join(", ")));
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("../../docs/reference/command-rights.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let documented = std::fs::read_to_string(&file).unwrap_or_default();
    let mut both = page.lines().zip(documented.lines());
    let differs = both.find(|(now, then)| now != then);
    assert!(
        page == documented,
        "docs/reference/command-rights.md is stale: check the difference; UPDATE_DOCS=1 writes it: {differs:?}"
    );
}

/// System attributes need privileges of their own, which all roles for documents have today.
#[test]
fn system_attributes_need_their_own_privileges() {
    use kedge_protocol::binary::commands::subdoc::{PathFlags, SubdocMulti, SubdocOp, SubdocSpec};
    let (read, write) = (Rights::READ, Rights::UPSERT);
    let (read_system, write_system) = (Rights::READ_SYSTEM, Rights::WRITE_SYSTEM);
    let with = |own: Rights, system: Rights| own.and(system);
    // (operation, path, value, needed privileges)
    for (op, path, value, needed) in [
        (SubdocOp::Get, "u.a", "", read),
        (SubdocOp::Get, "$document", "", read),
        (SubdocOp::Get, "_s.a", "", with(read, read_system)),
        (SubdocOp::Exists, "_s", "", with(read, read_system)),
        (SubdocOp::Get, "$XTOC", "", with(read, read_system)),
        (SubdocOp::DictUpsert, "u.a", "1", write),
        (SubdocOp::DictUpsert, "_s.a", "1", with(write, write_system)),
        (SubdocOp::Delete, "_s", "", with(write, write_system)),
        (SubdocOp::ReplaceBodyWithXattr, "u", "", write),
        (
            SubdocOp::ReplaceBodyWithXattr,
            "_s",
            "",
            with(write, read_system),
        ),
    ] {
        let spec = SubdocSpec {
            op,
            flags: PathFlags::XATTR,
            path: path.as_bytes(),
            value: value.as_bytes(),
        };
        let multi = match op.is_mutation() {
            true => Opcode::SubdocMultiMutation,
            false => Opcode::SubdocMultiLookup,
        };
        let vb = VbId::of_key(b"k", 4);
        let writer = |opcode| RequestWriter {
            vb,
            ..RequestWriter::new(opcode)
        };
        let mut several = Vec::new();
        SubdocMulti::of_key(b"k").encode(&[spec], &writer(multi), &mut several);
        let features = Features::of(&[Feature::Xerror, Feature::Xattr]);
        let mut rig = Rig::new(Port::Kv, features);
        let mut ask = |rights: Rights| {
            rig.session.privileges = rights.into();
            rig.give(&several);
            rig.replies()[0].1
        };
        let all = with(with(read, write), with(read_system, write_system));
        assert_ne!(ask(needed), Status::AccessDenied, "{op:?} {path}");
        for one in [read, write, read_system, write_system] {
            let rest = Rights(all.0.without(one.0));
            let is_denied = ask(rest) == Status::AccessDenied;
            assert_eq!(
                is_denied,
                needed.allow(one),
                "{op:?} {path} without {one:?}"
            );
        }
    }
}

/// The audit log has failed logins of the KV port and denied commands, and no others.
#[test]
fn audit_log_has_failed_logins_and_denials() {
    use std::collections::BTreeSet;

    use kedge_auth::AuditSettings;
    use kedge_disk::{Disk, read_file};
    use kedge_node::audit::{Audit, AuditConfig};

    let disk = SimDisk::new(1);
    disk.create_dir_all(std::path::Path::new("/audit")).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let config = AuditConfig {
        dir: PathBuf::from("/audit"),
        files_max: 1,
        settings: AuditSettings {
            enabled: true,
            rotate_interval_s: 86_400,
            rotate_bytes: 1 << 20,
            prune_age_s: 0,
            disabled: BTreeSet::new(),
            disabled_users: BTreeSet::new(),
        },
        keyring: None,
    };
    let audit = Audit::open(disk.clone(), config).unwrap();
    let features = Features::of(&[Feature::Xerror, Feature::Collections]);
    let mut rig = Rig::new(Port::Kv, features);
    let store = UserStore::clone(&rig.shared.users.read());
    rig.shared.users = Arc::new(Users::new(store, Box::new(|_| Ok(()))).audited(audit));
    let mut ask = |text: &str, opcode: Opcode| {
        roles(&mut rig, text);
        rig.give(&sample(opcode));
        rig.replies();
    };
    ask("bucket_full_access[default]", Opcode::GetRandomKey);
    ask("data_writer[default]", Opcode::ObserveSeqno);
    ask("data_reader[default:other]", Opcode::GetRandomKey);
    let mut login = Vec::new();
    let first = b"n,,n=eve,r=abc".as_slice();
    RequestWriter::new(Opcode::SaslAuth).write(&[], b"SCRAM-SHA512", first, &mut login);
    RequestWriter::new(Opcode::SaslStep).write(
        &[],
        b"SCRAM-SHA512",
        b"c=biws,r=x,p=eA==",
        &mut login,
    );
    rig.give(&login);
    assert_eq!(rig.replies()[1].1, Status::AuthError);
    rig.shared.users.audit().finish();
    let bytes = read_file(&*disk, std::path::Path::new("/audit/audit.log")).unwrap();
    let seen: Vec<[String; 4]> = String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["remote"]["port"], 9);
            ["name", "request", "reason"]
                .map(|name| line[name].as_str().unwrap_or("").to_owned())
                .into_iter()
                .chain([line["real_userid"]["user"].as_str().unwrap().to_owned()])
                .collect::<Vec<_>>()
                .try_into()
                .unwrap()
        })
        .collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let denied = "command access failure";
    let expected = [
        [
            denied,
            "OBSERVE_SEQNO",
            "the user's roles do not allow reading here",
            "app",
        ],
        [
            denied,
            "GET_RANDOM_KEY",
            "the user may do nothing there",
            "app",
        ],
        ["authentication failed", "", &seen[2][2], "eve"],
    ];
    assert_eq!(seen, expected.map(|line| line.map(str::to_owned)));
    assert!(!seen[2][2].is_empty());
}

fn roles(rig: &mut Rig, roles: &str) {
    let change = UserChange {
        roles: Some(roles.parse().unwrap()),
        ..UserChange::default()
    };
    let by = Privileges::ALL;
    let users = &rig.shared.users;
    users
        .change(|store| store.set_user("app", &change, by, 2))
        .unwrap();
    rig.session.refresh(&rig.shared);
}

/// The connection stays open while its user's roles change.
#[test]
fn collection_roles_apply_to_their_collections() {
    const DENIED: Status = Status::AccessDenied;
    const HIDDEN: Status = Status::UnknownCollection;
    // (roles; the statuses of GET, SET, GAT, GET_RANDOM_KEY, OBSERVE, OBSERVE_SEQNO, FLUSH with collections)
    let rows: [(&str, [Status; 7]); 8] = [
        (
            "bucket_full_access[default]",
            [MISS, OK, OK, OK, OK, MISS, Status::NotSupported],
        ),
        (
            "data_reader[default:_default:_default]",
            [OK, DENIED, DENIED, OK, OK, MISS, DENIED],
        ),
        (
            "data_writer[default:_default]",
            [DENIED, OK, DENIED, DENIED, DENIED, DENIED, DENIED],
        ),
        (
            "data_writer[default:_default],data_reader[*]",
            [OK, OK, OK, OK, OK, MISS, DENIED],
        ),
        (
            "data_reader[default:other]",
            [HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, MISS, DENIED],
        ),
        (
            "data_reader[default:_default:other],data_monitoring[default]",
            [DENIED, DENIED, DENIED, DENIED, DENIED, MISS, DENIED],
        ),
        (
            "bucket_admin[default]",
            [
                DENIED,
                DENIED,
                DENIED,
                DENIED,
                DENIED,
                DENIED,
                Status::NotSupported,
            ],
        ),
        (
            "ro_admin",
            [DENIED, DENIED, DENIED, DENIED, DENIED, DENIED, DENIED],
        ),
    ];
    let features = Features::of(&[Feature::Xerror, Feature::Collections]);
    let mut rig = Rig::new(Port::Kv, features);
    // Keys have the id of the default collection in front, which is 0.
    let prefixed = |opcode: Opcode, extras: &[u8]| {
        let mut bytes = Vec::new();
        RequestWriter {
            vb: VbId::of_key(b"k", 4),
            ..RequestWriter::new(opcode)
        }
        .write(extras, b"\0k", b"", &mut bytes);
        bytes
    };
    let mut observe = Vec::new();
    let vb = VbId::of_key(b"k", 4);
    let asked = [&vb.0.to_be_bytes()[..], &[0, 2, 0, b'k']].concat();
    RequestWriter::new(Opcode::Observe).write(&[], b"", &asked, &mut observe);
    let requests = [
        prefixed(Opcode::Get, &[]),
        prefixed(Opcode::Set, &[0; 8]),
        prefixed(Opcode::Gat, &[0; 4]),
        sample(Opcode::GetRandomKey),
        observe,
        sample(Opcode::ObserveSeqno),
        sample(Opcode::Flush),
    ];
    for (text, expected) in rows {
        roles(&mut rig, text);
        let found = requests.clone().map(|request| {
            rig.give(&request);
            rig.replies()[0].1
        });
        assert_eq!(found, expected, "{text}");
    }
    // A client without collections gets a status that it knows.
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    roles(&mut rig, "data_reader[default:other]");
    rig.give(&sample(Opcode::Get));
    assert_eq!(rig.replies()[0].1, DENIED);
}

/// Removes one of the needed privileges after the other, and expects a denial each time and only then.
#[track_caller]
fn needs_just(name: &str, needed: Rights, mut is_denied: impl FnMut(Rights) -> bool) {
    assert!(!is_denied(needed), "{name} with {needed:?}");
    for privilege in Privilege::ALL {
        let one = Privileges::of(&[privilege]);
        let rest = Rights(Privileges::ALL.without(one));
        let expected = needed.allow(Rights(one));
        assert_eq!(is_denied(rest), expected, "{name} without {privilege:?}");
    }
}

/// The flags of the document, and deletions in the list of paths, decide which privilege a mutation of paths needs.
#[test]
fn subdoc_mutations_need_the_privilege_of_what_they_do_to_the_document() {
    use kedge_protocol::binary::commands::subdoc::{
        DocFlags, PathFlags, SubdocMulti, SubdocOp, SubdocSpec,
    };
    let spec = |op, flags, path: &'static str, value: &'static str| SubdocSpec {
        op,
        flags,
        path: path.as_bytes(),
        value: value.as_bytes(),
    };
    let upsert = spec(SubdocOp::DictUpsert, PathFlags::NONE, "a", "1");
    let attribute = spec(SubdocOp::DictUpsert, PathFlags::XATTR, "u", "1");
    let delete = spec(SubdocOp::DeleteDoc, PathFlags::NONE, "", "");
    for (name, doc_flags, specs, needed) in [
        ("change", DocFlags::NONE, &[upsert][..], Rights::UPSERT),
        (
            "upsert of a document",
            DocFlags::MKDOC,
            &[upsert],
            Rights::UPSERT,
        ),
        ("addition", DocFlags::ADD, &[upsert], Rights::INSERT),
        ("deletion", DocFlags::NONE, &[delete], Rights::DELETE),
        (
            "deletion with an attribute",
            DocFlags::NONE,
            &[attribute, delete],
            Rights::UPSERT.and(Rights::DELETE),
        ),
    ] {
        let writer = RequestWriter {
            vb: VbId::of_key(b"k", 4),
            ..RequestWriter::new(Opcode::SubdocMultiMutation)
        };
        let mut bytes = Vec::new();
        SubdocMulti {
            doc_flags,
            ..SubdocMulti::of_key(b"k")
        }
        .encode(specs, &writer, &mut bytes);
        let features = Features::of(&[Feature::Xerror, Feature::Xattr]);
        let mut rig = Rig::new(Port::Kv, features);
        needs_just(name, needed, |rights| {
            rig.session.privileges = rights.into();
            rig.give(&bytes);
            rig.replies()[0].1 == Status::AccessDenied
        });
    }
}

#[test]
fn return_meta_needs_the_privilege_of_its_kind() {
    for (kind, needed) in [
        (1_u32, Rights::UPSERT),
        (2, Rights::INSERT),
        (3, Rights::DELETE),
    ] {
        let mut extras = kind.to_be_bytes().to_vec();
        extras.extend_from_slice(&[0; 8]);
        let mut bytes = Vec::new();
        RequestWriter {
            vb: VbId::of_key(b"k", 4),
            ..RequestWriter::new(Opcode::ReturnMeta)
        }
        .write(&extras, b"k", b"", &mut bytes);
        let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
        needs_just(&format!("kind {kind}"), needed, |rights| {
            rig.session.privileges = rights.into();
            rig.give(&bytes);
            rig.replies()[0].1 == Status::AccessDenied
        });
    }
}

/// Every command of the memcached port needed the privileges to read and to write.
#[test]
fn text_commands_need_the_privileges_of_what_they_do() {
    let denied = Status::AccessDenied.name();
    let change = Rights::READ.and(Rights::UPSERT);
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    for (command, needed) in [
        ("get k", Rights::READ),
        ("gets k", Rights::READ),
        ("gat 0 k", change),
        ("set k 0 0 1\r\n1", Rights::UPSERT),
        ("replace k 0 0 1\r\n1", Rights::UPSERT),
        ("append k 0 0 1\r\n1", Rights::UPSERT),
        ("prepend k 0 0 1\r\n1", Rights::UPSERT),
        ("cas k 0 0 1 7\r\n1", Rights::UPSERT),
        ("cas k 0 0 1 0\r\n1", Rights::UPSERT),
        ("add k 0 0 1\r\n1", Rights::INSERT),
        ("delete k", Rights::DELETE),
        ("touch k 0", Rights::UPSERT),
        ("incr k 1", change),
        ("decr k 1", change),
        ("mg k v", Rights::READ),
        ("mg k v T0", change),
        ("mg missing v N0", Rights::READ.and(Rights::INSERT)),
        ("me k", Rights::READ),
        ("ms k 1\r\n1", Rights::UPSERT),
        ("ms k 1 ME\r\n1", Rights::INSERT),
        ("ms k 1 MR\r\n1", Rights::UPSERT),
        ("ms k 1 MA s\r\n1", Rights::UPSERT),
        ("ms k 1 C0\r\n1", Rights::UPSERT),
        ("ms fresh 1 MA N0\r\n1", Rights::UPSERT.and(Rights::INSERT)),
        ("md k", Rights::DELETE),
        ("md k C0", Rights::DELETE),
        ("md k I", Rights::UPSERT),
        ("md k x", Rights::UPSERT),
        ("ma k", change),
        ("ma k N0 t", change),
    ] {
        needs_just(command, needed, |rights| {
            // The documents that the command finds, whatever the last one has done.
            rig.session.privileges = Rights::ALL.into();
            rig.give(b"set k 0 0 1\r\n1\r\ndelete missing\r\ndelete fresh\r\n");
            rig.out = Output::default();
            rig.session.privileges = rights.into();
            rig.give(format!("{command}\r\n").as_bytes());
            let reply = String::from_utf8_lossy(&rig.out.to_vec()).into_owned();
            assert!(!reply.is_empty(), "{command}");
            reply.contains(denied)
        });
    }
}
