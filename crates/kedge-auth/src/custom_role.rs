//! Roles that an administrator defines: a name for a list of privileges.
//!
//! Invariants:
//! * No role has the name of a role of the catalogue.
//! * A role grants only what its extent allows: nobody gets a privilege on the node by a role for a collection.
//! * No role grants all that `admin` does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::catalogue::{Extent, specs};
use crate::error::{AuthError, RoleDefinitionProblem};
use crate::limits::DISPLAY_NAME_BYTES_MAX;
use crate::names::{check_group_name, check_text, check_unreserved};
use crate::privilege::{Privilege, Privileges};

/// The parts of a cluster for which a defined role can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleExtent {
    /// The whole cluster.
    Cluster,
    /// A bucket.
    Bucket,
    /// A bucket, or a scope of it.
    Scope,
    /// A bucket, a scope or a collection.
    Collection,
}

impl RoleExtent {
    const ALL: [Self; 4] = [Self::Cluster, Self::Bucket, Self::Scope, Self::Collection];

    /// Returns the name, as in `collection`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Bucket => "bucket",
            Self::Scope => "scope",
            Self::Collection => "collection",
        }
    }

    /// Returns the extent with this name.
    #[must_use]
    pub fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|extent| extent.name() == name)
    }

    pub(crate) const fn of_catalogue(self) -> Extent {
        match self {
            Self::Cluster => Extent::Cluster,
            Self::Bucket => Extent::Bucket,
            Self::Scope => Extent::Scope,
            Self::Collection => Extent::Collection,
        }
    }

    /// Returns the smallest extent for which a privilege has a meaning.
    const fn least_of(privilege: Privilege) -> Self {
        match privilege {
            Privilege::Access
            | Privilege::Read
            | Privilege::Insert
            | Privilege::Upsert
            | Privilege::Delete
            | Privilege::WriteMeta
            | Privilege::ReadSystem
            | Privilege::WriteSystem
            | Privilege::Stream
            | Privilege::Stats => Self::Collection,
            Privilege::Collections => Self::Scope,
            Privilege::Flush | Privilege::Manage => Self::Bucket,
            Privilege::Inspect
            | Privilege::Settings
            | Privilege::Buckets
            | Privilege::InspectUsers
            | Privilege::Users
            | Privilege::Admin => Self::Cluster,
        }
    }
}

/// A role that an administrator has defined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomRole {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) extent: RoleExtent,
    pub(crate) grants: Privileges,
}

/// The roles that administrators have defined, by name.
pub type CustomRoles = BTreeMap<String, Arc<CustomRole>>;

impl CustomRole {
    /// Checks a definition. `Access` is part of each role, and who may change documents may add them.
    ///
    /// # Errors
    /// [`AuthError::BadRoleName`], [`AuthError::BadDescription`], [`AuthError::BadRoleDefinition`].
    pub fn new<'p>(
        name: &str,
        description: &str,
        extent: RoleExtent,
        privileges: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, AuthError> {
        check_group_name(name).map_err(|error| match error {
            AuthError::BadGroupName(problem) => AuthError::BadRoleName(problem),
            error => error,
        })?;
        check_unreserved(name)?;
        check_text(description, DISPLAY_NAME_BYTES_MAX).map_err(AuthError::BadDescription)?;
        let bad = |problem| AuthError::BadRoleDefinition(problem);
        if specs().any(|spec| spec.role == name) {
            return Err(bad(RoleDefinitionProblem::InCatalogue));
        }
        let mut grants = Privileges::of(&[Privilege::Access]);
        for text in privileges {
            let privilege = Privilege::with_name(text)
                .filter(|privilege| *privilege != Privilege::Admin)
                .ok_or_else(|| bad(RoleDefinitionProblem::Privilege(text.to_owned())))?;
            if extent > RoleExtent::least_of(privilege) {
                return Err(bad(RoleDefinitionProblem::Extent {
                    privilege: privilege.name(),
                    extent: RoleExtent::least_of(privilege).name(),
                }));
            }
            grants = grants.and(Privileges::of(&[privilege]));
        }
        if grants.allow(Privileges::of(&[Privilege::Upsert])) {
            grants = grants.and(Privileges::of(&[Privilege::Insert]));
        }
        Ok(Self {
            name: name.to_owned(),
            description: description.to_owned(),
            extent,
            grants,
        })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description; may be empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the parts of a cluster for which the role can be given.
    #[must_use]
    pub const fn extent(&self) -> RoleExtent {
        self.extent
    }

    /// Iterates over the names of the privileges.
    pub fn privileges(&self) -> impl Iterator<Item = &'static str> {
        self.grants.iter().map(Privilege::name)
    }

    /// Returns the role as the management interface lists it beside those of the catalogue.
    #[must_use]
    pub fn info(&self) -> CustomRoleInfo<'_> {
        let star = |least| (self.extent >= least).then_some("*");
        CustomRoleInfo {
            role: &self.name,
            bucket_name: star(RoleExtent::Bucket),
            scope_name: star(RoleExtent::Scope),
            collection_name: star(RoleExtent::Collection),
            name: &self.name,
            desc: &self.description,
            custom: true,
        }
    }
}

/// A defined role as the management interface lists it.
#[derive(Clone, Debug, Serialize)]
pub struct CustomRoleInfo<'r> {
    role: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket_name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope_name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collection_name: Option<&'static str>,
    name: &'r str,
    desc: &'r str,
    custom: bool,
}
