//! The roles of a user: their text form, and the privileges that they grant.
//!
//! The text form (`data_reader[default]`) is that of Couchbase's management interface (documentation of
//! `PUT /settings/rbac/users`), so that its SDKs and tools can set and read them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::catalogue::{Extent, RoleKind, specs};
use crate::custom_role::{CustomRole, CustomRoles};
use crate::error::{AuthError, RoleProblem};
use crate::limits::{BUCKET_NAME_BYTES_MAX, ROLES_PER_USER_MAX, SCOPE_NAME_BYTES_MAX};
use crate::privilege::{Privilege, Privileges};

/// A role, with its bucket if it is a role for buckets.
///
/// Its text form is `admin`, `data_reader[travel]`, `data_reader[*]` (all buckets) or
/// `data_reader[travel:inventory:hotel]`. Its JSON form is the object of the management interface:
/// `{"role":"data_reader","bucket_name":"travel","scope_name":"*","collection_name":"*"}`, with every parameter that
/// the role takes, `*` where none was given.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role {
    definition: Definition,
    bucket: Option<String>,
    scope: Option<String>,
    collection: Option<String>,
}

/// The meaning of a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Definition {
    Catalogue(RoleKind),
    Custom(Arc<CustomRole>),
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", self.name())?;
        let extent = self.extent();
        for (name, least, given) in [
            ("bucket_name", Extent::Bucket, self.bucket()),
            ("scope_name", Extent::Scope, self.scope()),
            ("collection_name", Extent::Collection, self.collection()),
        ] {
            if extent >= least {
                map.serialize_entry(name, given.unwrap_or("*"))?;
            }
        }
        map.end()
    }
}

impl Role {
    /// Returns the kind of the role; `None` if an administrator has defined it.
    #[must_use]
    pub const fn kind(&self) -> Option<RoleKind> {
        match self.definition {
            Definition::Catalogue(kind) => Some(kind),
            Definition::Custom(_) => None,
        }
    }

    /// Returns the name, as in `data_reader`.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.definition {
            Definition::Catalogue(kind) => kind.name(),
            Definition::Custom(role) => role.name(),
        }
    }

    fn extent(&self) -> Extent {
        match &self.definition {
            Definition::Catalogue(kind) => kind.spec().extent,
            Definition::Custom(role) => role.extent().of_catalogue(),
        }
    }

    fn grants(&self) -> Privileges {
        match &self.definition {
            Definition::Catalogue(kind) => kind.spec().grants,
            Definition::Custom(role) => role.grants,
        }
    }

    /// Returns whether users with this role can grant rights to others.
    fn is_guarded(&self) -> bool {
        self.grants().allow(Privileges::of(&[Privilege::Users]))
    }

    /// Returns the bucket, `*` for all; none for a role that applies to the whole cluster.
    #[must_use]
    pub fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// Returns the scope, `*` for all; none for the whole bucket.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Returns the collection, `*` for all; none for the whole scope.
    #[must_use]
    pub fn collection(&self) -> Option<&str> {
        self.collection.as_deref()
    }

    /// Returns the privileges on all of `bucket` or, with `None`, on the node as such. A user with any role in a bucket
    /// may select it and connect, and a role for a part of it grants nothing more on the whole.
    fn privileges(&self, bucket: Option<&str>) -> Privileges {
        const ACCESS: Privileges = Privileges::of(&[Privilege::Access]);
        match (self.bucket(), bucket) {
            (None, Some(_)) if self.extent() == Extent::Node => Privileges::NONE,
            (None, _) => self.grants(),
            (Some(_), None) => ACCESS,
            (Some(own), Some(asked)) if own != "*" && own != asked => Privileges::NONE,
            _ if is_any(self.scope()) && is_any(self.collection()) => self.grants(),
            _ => ACCESS,
        }
    }
}

/// Returns whether a name in a role stands for all.
fn is_any(name: Option<&str>) -> bool {
    matches!(name, None | Some("*"))
}

/// The privileges that roles grant in a part of a bucket, in addition to those on all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialPrivileges {
    scope: Option<Box<str>>,
    collection: Option<Box<str>>,
    grants: Privileges,
}

impl PartialPrivileges {
    /// Returns the privileges in the part.
    #[must_use]
    pub const fn privileges(&self) -> Privileges {
        self.grants
    }

    /// Returns whether the collection is in the part; with `None`, whether all of the scope is.
    #[must_use]
    pub fn covers(&self, scope: &str, collection: Option<&str>) -> bool {
        let scope_fits = self.scope.as_deref().is_none_or(|own| own == scope);
        let collection_fits = match (self.collection.as_deref(), collection) {
            (None, _) => true,
            (Some(own), Some(asked)) => own == asked,
            (Some(_), None) => false,
        };
        scope_fits && collection_fits
    }

    /// Returns whether any of the part is in the scope.
    #[must_use]
    pub fn touches(&self, scope: &str) -> bool {
        self.scope.as_deref().is_none_or(|own| own == scope)
    }
}

impl FromStr for Role {
    type Err = AuthError;

    /// Parses a role of the catalogue.
    fn from_str(text: &str) -> Result<Self, AuthError> {
        Self::parse(text, &CustomRoles::new())
    }
}

impl Role {
    /// Parses a role of the catalogue, or one of the defined ones.
    pub(crate) fn parse(text: &str, custom: &CustomRoles) -> Result<Self, AuthError> {
        let text = text.trim();
        let bad = |problem| AuthError::BadRole {
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
        let spec = specs().find(|spec| spec.role == name);
        let definition = match (spec, custom.get(name)) {
            (Some(spec), _) => Definition::Catalogue(spec.kind),
            (None, Some(role)) => Definition::Custom(role.clone()),
            (None, None) => return Err(AuthError::UnknownRole(name.to_owned())),
        };
        let extent = match &definition {
            Definition::Catalogue(kind) => kind.spec().extent,
            Definition::Custom(role) => role.extent().of_catalogue(),
        };
        let Some(inside) = inside else {
            return match extent {
                Extent::Node | Extent::Cluster => Ok(Self {
                    definition,
                    bucket: None,
                    scope: None,
                    collection: None,
                }),
                _ => Err(bad(RoleProblem::BucketMissing)),
            };
        };
        let parts: Vec<&str> = inside.split(':').collect();
        let (bucket, below) = parts.split_first().ok_or(bad(RoleProblem::Syntax))?;
        match extent {
            Extent::Node | Extent::Cluster => return Err(bad(RoleProblem::BucketNotTaken)),
            Extent::Bucket if !below.is_empty() => return Err(bad(RoleProblem::ScopeNotTaken)),
            Extent::Scope if below.len() > 1 => return Err(bad(RoleProblem::CollectionNotTaken)),
            Extent::Bucket | Extent::Scope | Extent::Collection => {}
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
            definition,
            bucket: Some(owned(bucket)),
            scope: below.first().map(owned),
            collection: below.get(1).map(owned),
        })
    }
}

/// Returns whether this is a valid name of a bucket, scope or collection, or `*`.
fn is_name(name: &str, bytes_max: usize, punctuation: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || punctuation.contains(c);
    name == "*" || (!name.is_empty() && name.len() <= bytes_max && name.chars().all(allowed))
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
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

/// The roles of one user, without duplicates.
///
/// Its text form is the roles separated by `,`; its JSON form is the list of [`Role`]s.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Roles(Vec<Role>);

impl Roles {
    /// Creates the list of these roles, without duplicates.
    ///
    /// # Errors
    /// [`AuthError::TooManyRoles`] beyond [`ROLES_PER_USER_MAX`].
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Result<Self, AuthError> {
        let mut distinct = Vec::new();
        for role in roles {
            if distinct.contains(&role) {
                continue;
            }
            if distinct.len() == ROLES_PER_USER_MAX {
                return Err(AuthError::TooManyRoles);
            }
            distinct.push(role);
        }
        Ok(Self(distinct))
    }

    /// Creates the list of only `admin`.
    #[must_use]
    pub fn admin() -> Self {
        Self(vec![Role {
            definition: Definition::Catalogue(RoleKind::Admin),
            bucket: None,
            scope: None,
            collection: None,
        }])
    }

    /// Returns whether any of the roles grants this on all of this bucket or, with `None`, on the node as such.
    #[must_use]
    pub fn allows(&self, privilege: Privilege, bucket: Option<&str>) -> bool {
        self.privileges(bucket).allow(Privileges::of(&[privilege]))
    }

    /// Returns the privileges that the roles together grant on all of this bucket or, with `None`, on the node as such.
    #[must_use]
    pub fn privileges(&self, bucket: Option<&str>) -> Privileges {
        let each = self.0.iter().map(|role| role.privileges(bucket));
        each.fold(Privileges::NONE, Privileges::and)
    }

    /// Returns the privileges that the roles grant in parts of this bucket, one entry for each role for a part.
    #[must_use]
    pub fn parts(&self, bucket: &str) -> Vec<PartialPrivileges> {
        let here = |role: &&Role| matches!(role.bucket(), Some(own) if own == "*" || own == bucket);
        let given = |name: Option<&str>| name.filter(|name| *name != "*").map(Box::from);
        self.0
            .iter()
            .filter(here)
            .map(|role| PartialPrivileges {
                scope: given(role.scope()),
                collection: given(role.collection()),
                grants: role.grants(),
            })
            .filter(|part| part.scope.is_some() || part.collection.is_some())
            .collect()
    }

    /// Returns whether this is allowed in a collection or, with `None`, in a whole scope.
    #[must_use]
    pub fn allows_in(
        &self,
        privilege: Privilege,
        bucket: &str,
        scope: &str,
        collection: Option<&str>,
    ) -> bool {
        let needed = Privileges::of(&[privilege]);
        let parts = self.parts(bucket);
        let mut covering = parts.iter().filter(|part| part.covers(scope, collection));
        self.allows(privilege, Some(bucket)) || covering.any(|part| part.grants.allow(needed))
    }

    /// Returns these roles and those of `others`, without duplicates.
    #[must_use]
    pub fn joined<'o>(&self, others: impl IntoIterator<Item = &'o Self>) -> Self {
        let mut all = self.0.clone();
        for role in others.into_iter().flat_map(|other| &other.0) {
            if !all.contains(role) {
                all.push(role.clone());
            }
        }
        Self(all)
    }

    /// Returns whether any of the roles allows to grant rights to others.
    #[must_use]
    pub fn are_guarded(&self) -> bool {
        self.0.iter().any(Role::is_guarded)
    }

    /// Iterates over the roles, in the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Role> {
        self.0.iter()
    }

    /// Returns whether there are none: such a user can only log in.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Roles {
    /// Parses roles as `from_str` does, defined ones among them.
    ///
    /// # Errors
    /// Those of `from_str`.
    pub fn parse(text: &str, custom: &CustomRoles) -> Result<Self, AuthError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let roles = text.split(',').map(|text| Role::parse(text, custom));
        Self::new(roles.collect::<Result<Vec<Role>, AuthError>>()?)
    }

    /// Returns the same roles as they are defined now.
    pub(crate) fn resolved(self, custom: &CustomRoles) -> Result<Self, AuthError> {
        let roles = self.0.into_iter().map(|role| match role.definition {
            Definition::Catalogue(_) => Ok(role),
            Definition::Custom(_) => Role::parse(&role.to_string(), custom),
        });
        Self::new(roles.collect::<Result<Vec<Role>, AuthError>>()?)
    }

    /// Gives a role another definition, if it is among these.
    pub(crate) fn redefine(&mut self, role: &Arc<CustomRole>) {
        for own in &mut self.0 {
            if let Definition::Custom(known) = &mut own.definition
                && known.name() == role.name()
            {
                *known = role.clone();
            }
        }
    }
}

impl FromStr for Roles {
    type Err = AuthError;

    /// Parses `admin,data_reader[default]`, roles of the catalogue; blank text is no role.
    fn from_str(text: &str) -> Result<Self, AuthError> {
        Self::parse(text, &CustomRoles::new())
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
