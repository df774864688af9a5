//! What a user may do: privileges, and the roles that bundle them.
//!
//! Role names and the way they are written (`data_reader[default]`) are those of Couchbase's
//! management interface (documentation of `PUT /settings/rbac/users`), so that its SDKs and tools
//! can set and read them.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, RoleProblem};
use crate::limits::{BUCKET_NAME_BYTES_MAX, ROLES_PER_USER_MAX, SCOPE_NAME_BYTES_MAX};

/// One thing that can be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Privilege {
    /// Select a bucket, see its settings and cluster map. Without a bucket: connect at all.
    Access,
    /// Read documents.
    Read,
    /// Write and delete documents.
    Write,
    /// Statistics, of a bucket or (without a bucket) of the node.
    Stats,
    /// Delete all documents of a bucket at once.
    Flush,
    /// Change a bucket: settings, collections, compaction.
    Manage,
    /// See the settings of the cluster and its users.
    Inspect,
    /// All the rest: users, creation and removal of buckets, settings of the cluster.
    Admin,
}

/// The roles there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RoleKind {
    /// `admin`: everything.
    Admin,
    /// `ro_admin`: sees everything but documents.
    RoAdmin,
    /// `bucket_admin[b]`: manages a bucket, but has no access to its documents.
    BucketAdmin,
    /// `bucket_full_access[b]`: what an application needs.
    BucketFullAccess,
    /// `data_reader[b]`.
    DataReader,
    /// `data_writer[b]`.
    DataWriter,
    /// `data_monitoring[b]`.
    DataMonitoring,
}

/// What can stand in a role's brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Nothing: the role holds everywhere.
    Cluster,
    /// A bucket.
    Bucket,
    /// A bucket, perhaps with a scope, perhaps with a collection.
    Collection,
}

struct Spec {
    kind: RoleKind,
    role: &'static str,
    extent: Extent,
    grants: &'static [Privilege],
    title: &'static str,
    description: &'static str,
}

/// The table of roles, in the order of [`RoleKind`].
static SPECS: [Spec; 7] = {
    use Privilege::{Access, Admin, Flush, Inspect, Manage, Read, Stats, Write};
    [
        Spec {
            kind: RoleKind::Admin,
            role: "admin",
            extent: Extent::Cluster,
            grants: &[Access, Read, Write, Stats, Flush, Manage, Inspect, Admin],
            title: "Full Admin",
            description: "May do everything: documents, buckets, users and settings.",
        },
        Spec {
            kind: RoleKind::RoAdmin,
            role: "ro_admin",
            extent: Extent::Cluster,
            grants: &[Access, Stats, Inspect],
            title: "Read-Only Admin",
            description: "Sees all settings, users and statistics; changes nothing, reads no documents.",
        },
        Spec {
            kind: RoleKind::BucketAdmin,
            role: "bucket_admin",
            extent: Extent::Bucket,
            grants: &[Access, Stats, Flush, Manage],
            title: "Bucket Admin",
            description: "Manages one bucket; reads and writes no documents.",
        },
        Spec {
            kind: RoleKind::BucketFullAccess,
            role: "bucket_full_access",
            extent: Extent::Bucket,
            grants: &[Access, Read, Write, Stats, Flush],
            title: "Application Access",
            description: "Reads and writes all documents of one bucket, and may flush it.",
        },
        Spec {
            kind: RoleKind::DataReader,
            role: "data_reader",
            extent: Extent::Collection,
            grants: &[Access, Read],
            title: "Data Reader",
            description: "Reads documents.",
        },
        Spec {
            kind: RoleKind::DataWriter,
            role: "data_writer",
            extent: Extent::Collection,
            grants: &[Access, Write],
            title: "Data Writer",
            description: "Writes and deletes documents, but does not read them.",
        },
        Spec {
            kind: RoleKind::DataMonitoring,
            role: "data_monitoring",
            extent: Extent::Collection,
            grants: &[Access, Stats],
            title: "Data Monitor",
            description: "Reads statistics.",
        },
    ]
};

impl RoleKind {
    fn spec(self) -> &'static Spec {
        SPECS
            .iter()
            .find(|spec| spec.kind == self)
            .expect("every role is in the table")
    }

    /// The name, as in `data_reader`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().role
    }
}

/// A role, with the bucket it holds for if it is a role for buckets.
///
/// Its text form is `admin`, `data_reader[travel]`, `data_reader[*]` (all buckets) or
/// `data_reader[travel:inventory:hotel]`. As JSON it is the object that the management interface
/// shows: `{"role":"data_reader","bucket_name":"travel"}`, with `scope_name` and `collection_name`
/// where they were given.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Role {
    #[serde(rename = "role", serialize_with = "serialize_kind")]
    kind: RoleKind,
    #[serde(rename = "bucket_name", skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
    #[serde(rename = "scope_name", skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(rename = "collection_name", skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
}

impl Role {
    /// Which role it is.
    #[must_use]
    pub const fn kind(&self) -> RoleKind {
        self.kind
    }

    /// The bucket it holds for, `*` for all; none for a role that holds for the whole cluster.
    #[must_use]
    pub fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// The scope it was given with. It is kept and shown, but the role holds for the whole bucket.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// The collection it was given with; see [`scope`](Self::scope).
    #[must_use]
    pub fn collection(&self) -> Option<&str> {
        self.collection.as_deref()
    }

    fn allows(&self, privilege: Privilege, bucket: Option<&str>) -> bool {
        let granted = self.kind.spec().grants.contains(&privilege);
        match (self.bucket(), bucket) {
            (None | Some("*"), Some(_)) | (None, None) => granted,
            (Some(own), Some(asked)) => granted && own == asked,
            // The node itself: whoever has any role may connect, and that is all.
            (Some(_), None) => privilege == Privilege::Access,
        }
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let bad = |problem| Error::BadRole {
            role: text.to_owned(),
            problem,
        };
        let (name, inside) = match text.split_once('[') {
            None => (text, None),
            Some((name, rest)) => (
                name,
                Some(rest.strip_suffix(']').ok_or(bad(RoleProblem::Syntax))?),
            ),
        };
        let spec = SPECS
            .iter()
            .find(|spec| spec.role == name)
            .ok_or_else(|| Error::UnknownRole(name.to_owned()))?;
        let Some(inside) = inside else {
            return match spec.extent {
                Extent::Cluster => Ok(Self {
                    kind: spec.kind,
                    bucket: None,
                    scope: None,
                    collection: None,
                }),
                Extent::Bucket | Extent::Collection => Err(bad(RoleProblem::BucketMissing)),
            };
        };
        let parts: Vec<&str> = inside.split(':').collect();
        let (bucket, below) = parts.split_first().ok_or(bad(RoleProblem::Syntax))?;
        match spec.extent {
            Extent::Cluster => return Err(bad(RoleProblem::BucketNotTaken)),
            Extent::Bucket if !below.is_empty() => return Err(bad(RoleProblem::ScopeNotTaken)),
            Extent::Bucket | Extent::Collection => {}
        }
        if below.len() > 2 {
            return Err(bad(RoleProblem::Syntax));
        }
        if !is_name(bucket, BUCKET_NAME_BYTES_MAX, "_-%.") {
            return Err(bad(RoleProblem::BucketName));
        }
        if !below
            .iter()
            .all(|part| is_name(part, SCOPE_NAME_BYTES_MAX, "_-%"))
        {
            return Err(bad(RoleProblem::ScopeName));
        }
        let owned = |part: &&str| (*part).to_owned();
        Ok(Self {
            kind: spec.kind,
            bucket: Some(owned(bucket)),
            scope: below.first().map(owned),
            collection: below.get(1).map(owned),
        })
    }
}

/// Whether this can be the name of a bucket, scope or collection, or `*`.
fn is_name(name: &str, bytes_max: usize, punctuation: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || punctuation.contains(c);
    name == "*" || (!name.is_empty() && name.len() <= bytes_max && name.chars().all(allowed))
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        let Some(bucket) = &self.bucket else {
            return Ok(());
        };
        write!(f, "[{bucket}")?;
        for below in [&self.scope, &self.collection].into_iter().flatten() {
            write!(f, ":{below}")?;
        }
        f.write_str("]")
    }
}

/// The roles of one user, each at most once.
///
/// Its text form is the roles separated by `,`; its JSON form is the list of [`Role`]s.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Roles(Vec<Role>);

impl Roles {
    /// These roles, without repetitions.
    ///
    /// # Errors
    /// [`Error::TooManyRoles`] beyond [`ROLES_PER_USER_MAX`].
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Result<Self, Error> {
        let mut distinct = Vec::new();
        for role in roles {
            if distinct.contains(&role) {
                continue;
            }
            if distinct.len() == ROLES_PER_USER_MAX {
                return Err(Error::TooManyRoles);
            }
            distinct.push(role);
        }
        Ok(Self(distinct))
    }

    /// Just `admin`.
    #[must_use]
    pub fn admin() -> Self {
        Self(vec![Role {
            kind: RoleKind::Admin,
            bucket: None,
            scope: None,
            collection: None,
        }])
    }

    /// Whether any of the roles allows this in this bucket or, with `None`, for the node as such.
    #[must_use]
    pub fn allows(&self, privilege: Privilege, bucket: Option<&str>) -> bool {
        self.0.iter().any(|role| role.allows(privilege, bucket))
    }

    /// The roles, in the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Role> {
        self.0.iter()
    }

    /// Whether there are none: such a user can log in, and nothing else.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Roles {
    type Err = Error;

    /// Reads `admin,data_reader[default]`; blank text is no role.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Self::new(
            text.split(',')
                .map(str::parse)
                .collect::<Result<Vec<Role>, Error>>()?,
        )
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, role) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{role}")?;
        }
        Ok(())
    }
}

fn serialize_kind<S: serde::Serializer>(kind: &RoleKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// What `GET /settings/rbac/roles` says of one role; serialises to just that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoleInfo {
    /// The role's name, as in `data_reader`.
    pub role: &'static str,
    /// `*` if the role takes a bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_name: Option<&'static str>,
    /// `*` if the role takes a scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_name: Option<&'static str>,
    /// `*` if the role takes a collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection_name: Option<&'static str>,
    /// A name to show.
    pub name: &'static str,
    /// What the role is for.
    pub desc: &'static str,
}

/// All roles there are, for `GET /settings/rbac/roles`.
#[must_use]
pub fn roles_catalogue() -> Vec<RoleInfo> {
    let star = |given: bool| given.then_some("*");
    SPECS
        .iter()
        .map(|spec| RoleInfo {
            role: spec.role,
            bucket_name: star(spec.extent != Extent::Cluster),
            scope_name: star(spec.extent == Extent::Collection),
            collection_name: star(spec.extent == Extent::Collection),
            name: spec.title,
            desc: spec.description,
        })
        .collect()
}
