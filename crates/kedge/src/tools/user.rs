//! `kedge user`: who may log in.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;

use super::table::table;
use super::{Access, ToolError};
use crate::client::{ClientError, HttpClient, encode};
use crate::output;

/// Add, remove and list users, and change passwords
#[derive(Args, Clone, Debug)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
    #[command(flatten)]
    access: Access,
}

#[derive(Args, Clone, Debug)]
struct NewPassword {
    /// The new password; without it, it is read from standard input
    #[arg(long, env = "KEDGE_NEW_PASSWORD", hide_env_values = true)]
    new_password: Option<String>,
}

#[derive(Subcommand, Clone, Debug)]
enum UserCommand {
    /// Add a user
    Add {
        /// Name to log in with
        name: String,
        /// Roles, such as admin, ro_admin or data_reader[default],data_writer[default]
        #[arg(long, default_value = "admin")]
        roles: String,
        /// Name to show
        #[arg(long, default_value = "")]
        display_name: String,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Remove a user
    Remove {
        /// Name to log in with
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
        /// Name to log in with
        name: String,
        #[command(flatten)]
        password: NewPassword,
    },
}

const USERS: &str = "/settings/rbac/users/local";

pub(crate) fn run(args: &UserArgs) -> Result<(), ToolError> {
    let client = args.access.management()?;
    let said = match &args.command {
        UserCommand::Add {
            name,
            roles,
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
            ];
            client.expect("PUT", &place(name), &form)?;
            format!("user \"{name}\" may log in\n")
        }
        UserCommand::Remove { name } => {
            client.expect("DELETE", &place(name), &[])?;
            format!("user \"{name}\" is gone\n")
        }
        UserCommand::List { json } => {
            let list = client.json("/settings/rbac/users")?;
            if *json {
                format!("{list}\n")
            } else {
                describe(&list)
            }
        }
        UserCommand::Passwd { name, password } => {
            let Some(known) = user(&client, name)? else {
                return Err(ToolError::Usage(format!("there is no user \"{name}\"")));
            };
            let password = password.get(name)?;
            // Setting a user replaces all of it, so what stays is sent again.
            let roles = roles(&known, ",");
            let display_name = known.get("name").and_then(Value::as_str).unwrap_or("");
            let form = [
                ("name", display_name),
                ("password", password.as_str()),
                ("roles", roles.as_str()),
            ];
            client.expect("PUT", &place(name), &form)?;
            format!("user \"{name}\" has a new password\n")
        }
    };
    Ok(output::print(&said)?)
}

fn place(name: &str) -> String {
    format!("{USERS}/{}", encode(name))
}

/// The user of that name.
fn user(client: &HttpClient, name: &str) -> Result<Option<Value>, ToolError> {
    match client.json(&place(name)) {
        Err(ClientError::Http { code: 404, .. }) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Roles as they are written on the command line.
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
    // `b:*:*` is what `b` means.
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
    let mut rows = vec![["USER", "NAME", "ROLES"].map(str::to_owned).to_vec()];
    for user in list.as_array().into_iter().flatten() {
        let text = |name: &str| {
            user.get(name)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        rows.push(vec![text("id"), text("name"), roles(user, ", ")]);
    }
    table("lll", &rows)
}

impl NewPassword {
    fn get(&self, user: &str) -> Result<String, ToolError> {
        let password = match &self.new_password {
            Some(password) => password.clone(),
            None => read_password(user)?,
        };
        if password.is_empty() {
            return Err(ToolError::Usage("the password is empty".to_owned()));
        }
        Ok(password)
    }
}

/// Reads one line; on a terminal it asks first and does not show what is typed.
fn read_password(user: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let mut line = String::new();
    if stdin.is_terminal() {
        let shown = tcgetattr(&stdin)?;
        let mut hidden = shown.clone();
        hidden.local_modes -= LocalModes::ECHO;
        eprint!("New password of {user}: ");
        io::stderr().flush()?;
        tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
        let read = stdin.lock().read_line(&mut line);
        tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
        eprintln!();
        read?;
    } else {
        stdin.lock().read_line(&mut line)?;
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_written_as_they_are_given() {
        let user = serde_json::json!({"id": "ada", "name": "Ada", "roles": [
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
            "USER  NAME  ROLES\nada   Ada   admin, data_reader[b], data_writer[b:s], data_writer[*]\n"
        );
    }
}
