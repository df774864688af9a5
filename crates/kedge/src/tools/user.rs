//! `kedge user`: users, groups and roles.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use kedge_auth::AuthError;
use serde_json::Value;
use zeroize::Zeroizing;

use super::table::table;
use super::{ServerArgs, ToolError};
use crate::client::{ClientError, ManagementClient, encode};
use crate::{output, password};

/// Add, change, remove and list users, groups and roles, and change passwords
#[derive(Args, Clone, Debug)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
    #[command(flatten)]
    access: ServerArgs,
}

#[derive(Args, Clone)]
struct NewPassword {
    /// The new password; by default it is read from standard input
    #[arg(long, env = "KEDGE_NEW_PASSWORD", hide_env_values = true)]
    new_password: Option<String>,
    /// File whose first line is the new password; - is standard input. It is stronger than --new-password
    #[arg(long, env = "KEDGE_NEW_PASSWORD_FILE", value_name = "FILE")]
    new_password_file: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
enum UserCommand {
    /// Add a user
    Add {
        /// Login name
        name: String,
        /// Roles, such as admin, ro_admin or data_reader[default],data_writer[default]; without any, the user can only
        /// log in
        #[arg(long, default_value = "")]
        roles: String,
        /// Groups, separated by commas, whose roles the user inherits
        #[arg(long, default_value = "")]
        groups: String,
        /// Display name
        #[arg(long, default_value = "")]
        display_name: String,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Change roles, groups or display name; others keep their values
    Set {
        /// Login name
        name: String,
        /// All roles of the user itself
        #[arg(long)]
        roles: Option<String>,
        /// All groups of the user
        #[arg(long)]
        groups: Option<String>,
        /// Display name
        #[arg(long)]
        display_name: Option<String>,
    },
    /// Create, change, remove and list groups, whose roles their members inherit
    #[command(subcommand)]
    Group(GroupCommand),
    /// Define, remove and list roles of your own, which are lists of privileges
    #[command(subcommand)]
    Role(RoleCommand),
    /// Remove a user
    Remove {
        /// Login name
        name: String,
    },
    /// List the users
    List {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Change a password
    Passwd {
        /// Login name
        name: String,
        #[command(flatten)]
        password: NewPassword,
    },
}

#[derive(Subcommand, Clone, Debug)]
enum GroupCommand {
    /// Create or change a group; other properties keep their values
    Set {
        /// Name of the group
        name: String,
        /// All roles of the group
        #[arg(long)]
        roles: Option<String>,
        /// Description
        #[arg(long)]
        description: Option<String>,
    },
    /// Remove a group; its members stay
    Remove {
        /// Name of the group
        name: String,
    },
    /// List the groups
    List {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[derive(Subcommand, Clone, Debug)]
enum RoleCommand {
    /// Define a role, or replace its definition; users who have it get the new privileges at once
    Set {
        /// Name of the role
        name: String,
        /// All privileges of the role, such as read,insert,upsert,delete
        #[arg(long)]
        privileges: String,
        /// The largest part for which the role has to be given: cluster, bucket, scope or collection
        #[arg(long, default_value = "collection")]
        scope: String,
        /// Description
        #[arg(long, default_value = "")]
        description: String,
    },
    /// Remove a role that no user and no group has
    Remove {
        /// Name of the role
        name: String,
    },
    /// List the roles that were defined
    List {
        /// Print the server's JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

const ROLES: &str = "/kedge/roles";
const USERS: &str = "/settings/rbac/users/local";
const GROUPS: &str = "/settings/rbac/groups";

pub(crate) fn run(args: &UserArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let said = match &args.command {
        UserCommand::Add {
            name,
            roles,
            groups,
            display_name,
            password,
        } => {
            if user(&client, name)?.is_some() {
                return Err(ToolError::Usage(format!(
                    "there is a user \"{name}\" already"
                )));
            }
            let password = password.get(name)?;
            let form = [
                ("name", display_name.as_str()),
                ("password", password.as_str()),
                ("roles", roles.as_str()),
                ("groups", groups.as_str()),
            ];
            client.expect("PUT", &place(name), &form)?;
            format!("user \"{name}\" may log in\n")
        }
        UserCommand::Set {
            name,
            roles,
            groups,
            display_name,
        } => {
            require_user(&client, name)?;
            let fields = [("roles", roles), ("groups", groups), ("name", display_name)];
            client.expect("PATCH", &place(name), &given(&fields))?;
            format!("user \"{name}\" is changed\n")
        }
        UserCommand::Group(command) => group(&client, command)?,
        UserCommand::Role(command) => defined_role(&client, command)?,
        UserCommand::Remove { name } => {
            client.expect("DELETE", &place(name), &[])?;
            format!("user \"{name}\" is gone\n")
        }
        UserCommand::List { json } => {
            let list = list(&client)?;
            if *json {
                format!("{list}\n")
            } else {
                describe(&list)
            }
        }
        UserCommand::Passwd { name, password } => {
            require_user(&client, name)?;
            let password = password.get(name)?;
            client.expect("PATCH", &place(name), &[("password", password.as_str())])?;
            format!("user \"{name}\" has a new password\n")
        }
    };
    Ok(output::print(&said)?)
}

/// Returns all users, by name: those of the server's store, and the administrator of the server's settings.
fn list(client: &ManagementClient) -> Result<Value, ToolError> {
    let mut all = Vec::new();
    for domain in ["admin", "local"] {
        let listed = client.json(&format!("/settings/rbac/users/{domain}"))?;
        all.extend(listed.as_array().into_iter().flatten().cloned());
    }
    all.sort_by_key(|user| text(user, "id"));
    Ok(all.into())
}

fn place(name: &str) -> String {
    format!("{USERS}/{}", encode(name))
}

/// Returns the given fields.
fn given<'f>(fields: &[(&'f str, &'f Option<String>)]) -> Vec<(&'f str, &'f str)> {
    let each = fields.iter();
    each.filter_map(|(name, text)| Some((*name, text.as_deref()?)))
        .collect()
}

fn group(client: &ManagementClient, command: &GroupCommand) -> Result<String, ToolError> {
    let place = |name: &str| format!("{GROUPS}/{}", encode(name));
    Ok(match command {
        GroupCommand::Set {
            name,
            roles,
            description,
        } => {
            let fields = [("roles", roles), ("description", description)];
            client.expect("PATCH", &place(name), &given(&fields))?;
            format!("group \"{name}\" is set\n")
        }
        GroupCommand::Remove { name } => {
            client.expect("DELETE", &place(name), &[])?;
            format!("group \"{name}\" is gone\n")
        }
        GroupCommand::List { json } => {
            let list = client.json(GROUPS)?;
            if *json {
                format!("{list}\n")
            } else {
                describe_groups(&list)
            }
        }
    })
}

fn describe_groups(list: &Value) -> String {
    let mut rows = vec![
        ["GROUP", "ROLES", "DESCRIPTION"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for group in list.as_array().into_iter().flatten() {
        rows.push(vec![
            text(group, "id"),
            roles(group, ", "),
            text(group, "description"),
        ]);
    }
    table("lll", &rows)
}

fn defined_role(client: &ManagementClient, command: &RoleCommand) -> Result<String, ToolError> {
    let place = |name: &str| format!("{ROLES}/{}", encode(name));
    Ok(match command {
        RoleCommand::Set {
            name,
            privileges,
            scope,
            description,
        } => {
            let form = [
                ("privileges", privileges.as_str()),
                ("scope", scope.as_str()),
                ("description", description.as_str()),
            ];
            client.expect("PUT", &place(name), &form)?;
            format!("role \"{name}\" is set\n")
        }
        RoleCommand::Remove { name } => {
            client.expect("DELETE", &place(name), &[])?;
            format!("role \"{name}\" is gone\n")
        }
        RoleCommand::List { json } => {
            let list = client.json(ROLES)?;
            if *json {
                format!("{list}\n")
            } else {
                describe_roles(&list)
            }
        }
    })
}

fn describe_roles(list: &Value) -> String {
    let mut rows = vec![
        ["ROLE", "SCOPE", "PRIVILEGES", "DESCRIPTION"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for role in list.as_array().into_iter().flatten() {
        let privileges = role.get("privileges").and_then(Value::as_array);
        let privileges: Vec<&str> = privileges
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        rows.push(vec![
            text(role, "name"),
            text(role, "scope"),
            privileges.join(","),
            text(role, "description"),
        ]);
    }
    table("llll", &rows)
}

fn text(object: &Value, name: &str) -> String {
    let text = object.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Returns the user with that name.
fn user(client: &ManagementClient, name: &str) -> Result<Option<Value>, ToolError> {
    match client.json(&place(name)) {
        Err(ClientError::Http { code: 404, .. }) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Returns an error if there is no user with that name. Users of the server itself are not shown, so their names are
/// refused as reserved.
fn require_user(client: &ManagementClient, name: &str) -> Result<(), ToolError> {
    if kedge_auth::is_reserved(name) {
        let error = AuthError::ReservedName(name.to_owned());
        return Err(ToolError::Usage(error.to_string()));
    }
    match user(client, name)? {
        Some(_) => Ok(()),
        None => Err(ToolError::Usage(format!("there is no user \"{name}\""))),
    }
}

/// Returns roles in the form of the command line.
fn roles(user: &Value, separator: &str) -> String {
    let list = user.get("roles").and_then(Value::as_array);
    let texts: Vec<String> = list.into_iter().flatten().map(role).collect();
    texts.join(separator)
}

fn role(role: &Value) -> String {
    let field = |name: &str| {
        role.get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let name = field("role").unwrap_or("?");
    let scope: Vec<&str> = ["bucket_name", "scope_name", "collection_name"]
        .into_iter()
        .map_while(field)
        .collect();
    // `b:*:*` means the same as `b`.
    let kept = scope
        .iter()
        .rposition(|&part| part != "*")
        .map_or(1, |at| at + 1);
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{name}[{}]", scope[..kept.min(scope.len())].join(":"))
    }
}

fn describe(list: &Value) -> String {
    let mut rows = vec![
        ["USER", "NAME", "GROUPS", "ROLES"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for user in list.as_array().into_iter().flatten() {
        let groups = user.get("groups").and_then(Value::as_array);
        let groups: Vec<&str> = groups
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        rows.push(vec![
            text(user, "id"),
            text(user, "name"),
            groups.join(", "),
            roles(user, ", "),
        ]);
    }
    table("llll", &rows)
}

impl fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewPassword").finish_non_exhaustive()
    }
}

impl NewPassword {
    fn get(&self, user: &str) -> Result<Zeroizing<String>, ToolError> {
        let password = match (&self.new_password_file, &self.new_password) {
            (Some(file), _) => {
                password::of_file_or_prompt(file, &format!("New password of {user}: "))?
            }
            (None, Some(password)) => password.clone().into(),
            (None, None) => password::prompt(&format!("New password of {user}: "))?,
        };
        if password.is_empty() {
            return Err(ToolError::Usage("the password is empty".to_owned()));
        }
        Ok(password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_shown_in_command_line_form() {
        let user = serde_json::json!({"id": "ada", "name": "Ada", "groups": ["g", "h"], "roles": [
            {"role": "admin"},
            {"role": "data_reader", "bucket_name": "b"},
            {"role": "data_writer", "bucket_name": "b", "scope_name": "s", "collection_name": "*"},
            {"role": "data_writer", "bucket_name": "*", "scope_name": "*", "collection_name": "*"},
        ]});
        assert_eq!(
            roles(&user, ","),
            "admin,data_reader[b],data_writer[b:s],data_writer[*]"
        );
        assert_eq!(
            describe(&serde_json::json!([user])),
            "USER  NAME  GROUPS  ROLES\nada   Ada   g, h    admin, data_reader[b], data_writer[b:s], data_writer[*]\n"
        );
        let groups =
            serde_json::json!([{"id": "g", "description": "d", "roles": [{"role": "admin"}]}]);
        assert_eq!(
            describe_groups(&groups),
            "GROUP  ROLES  DESCRIPTION\ng      admin  d\n"
        );
    }
}
