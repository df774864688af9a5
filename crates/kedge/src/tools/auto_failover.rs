//! `kedge cluster auto-failover`: the settings of automatic failover.

use std::time::Duration;

use clap::Args;
use kedge_types::setting::SettingValue as _;
use serde_json::Value;

use super::ToolError;
use crate::client::ManagementClient;

/// The path of the settings.
const PATH: &str = "/settings/autoFailover";
/// The options of the disk.
const DISK_OPTIONS: [&str; 2] = [
    "failoverOnDataDiskIssues",
    "failoverOnDataDiskNonResponsiveness",
];

/// Show or change automatic failover
#[derive(Args, Clone, Debug)]
pub(crate) struct AutoFailoverArgs {
    /// Fail nodes over automatically
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Fail no node over automatically
    #[arg(long)]
    disable: bool,
    /// Time after which a node that is not heard of is failed over, 1s to 2m
    #[arg(long, value_parser = Duration::read)]
    timeout: Option<Duration>,
    /// Largest number of nodes that are failed over before the count is reset
    #[arg(long)]
    max_count: Option<u32>,
    /// Reset the count of failovers
    #[arg(long)]
    reset_count: bool,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

/// Changes the settings as asked for, and returns the text that shows them.
pub(crate) fn run(client: &ManagementClient, args: &AutoFailoverArgs) -> Result<String, ToolError> {
    let now = client.json(PATH)?;
    if let Some(form) = form(args, &now)? {
        let form: Vec<(&str, &str)> = form.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        client.expect("POST", PATH, &form)?;
    }
    if args.reset_count {
        client.expect("POST", &format!("{PATH}/resetCount"), &[])?;
    }
    let settings = client.json(PATH)?;
    Ok(match args.json {
        true => format!("{settings}\n"),
        false => describe(&settings),
    })
}

/// Returns the form that changes the settings; `None` if nothing is to change.
fn form(args: &AutoFailoverArgs, now: &Value) -> Result<Option<Vec<(String, String)>>, ToolError> {
    if !args.enable && !args.disable && args.timeout.is_none() && args.max_count.is_none() {
        return Ok(None);
    }
    let was_enabled = now["enabled"].as_bool().unwrap_or(false);
    let enabled = args.enable || (was_enabled && !args.disable);
    let timeout = match args.timeout {
        Some(timeout) if timeout.subsec_nanos() > 0 => {
            let why = "the timeout is a number of whole seconds";
            return Err(ToolError::Usage(why.to_owned()));
        }
        Some(timeout) => timeout.as_secs(),
        None => now["timeout"].as_u64().unwrap_or(0),
    };
    let mut form = vec![
        ("enabled".to_owned(), enabled.to_string()),
        ("timeout".to_owned(), timeout.to_string()),
    ];
    if let Some(max) = args.max_count {
        form.push(("disableMaxCount".to_owned(), "false".to_owned()));
        form.push(("maxCount".to_owned(), max.to_string()));
    }
    if enabled && !was_enabled {
        // To disable it has disabled these as well.
        for option in DISK_OPTIONS {
            let period = now[option]["timePeriod"].to_string();
            form.push((format!("{option}[enabled]"), "true".to_owned()));
            form.push((format!("{option}[timePeriod]"), period));
        }
    }
    Ok(Some(form))
}

fn describe(settings: &Value) -> String {
    let is = |value: &Value| value.as_bool().unwrap_or(false);
    let (timeout, count) = (&settings["timeout"], &settings["count"]);
    let mut out = match is(&settings["enabled"]) {
        true => format!("automatic failover: enabled, after {timeout} s\n"),
        false => "automatic failover: disabled\n".to_owned(),
    };
    out.push_str(&match is(&settings["disableMaxCount"]) {
        true => format!("count: {count}, no maximum\n"),
        false => format!("count: {count} of {}\n", settings["maxCount"]),
    });
    let disks = ["failing disk", "slow or hanging disk"];
    for (what, option) in disks.into_iter().zip(DISK_OPTIONS) {
        let option = &settings[option];
        out.push_str(&match is(&option["enabled"]) {
            true => format!("{what}: after {} s\n", option["timePeriod"]),
            false => format!("{what}: no reason for a failover\n"),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(enabled: bool) -> Value {
        json!({
            "enabled": enabled, "timeout": 5, "count": 1, "maxCount": 2, "disableMaxCount": false,
            "failoverOnDataDiskIssues": {"enabled": enabled, "timePeriod": 10},
            "failoverOnDataDiskNonResponsiveness": {"enabled": false, "timePeriod": 20},
        })
    }

    const NOTHING: AutoFailoverArgs = AutoFailoverArgs {
        enable: false,
        disable: false,
        timeout: None,
        max_count: None,
        reset_count: false,
        json: false,
    };

    fn sent(args: &AutoFailoverArgs, now: &Value) -> Option<String> {
        let form = form(args, now).expect("it is valid")?;
        let fields = form.iter().map(|(name, value)| format!("{name}={value}"));
        Some(fields.collect::<Vec<_>>().join("&"))
    }

    #[test]
    fn form_has_what_a_change_needs() {
        let with_timeout = |ms| AutoFailoverArgs {
            timeout: Some(Duration::from_millis(ms)),
            ..NOTHING
        };
        assert_eq!(sent(&NOTHING, &settings(true)), None);
        let reset = AutoFailoverArgs {
            reset_count: true,
            ..NOTHING
        };
        assert_eq!(sent(&reset, &settings(true)), None);
        let on = "enabled=true&timeout=60";
        assert_eq!(
            sent(&with_timeout(60_000), &settings(true)).as_deref(),
            Some(on)
        );
        let off = "enabled=false&timeout=60";
        assert_eq!(
            sent(&with_timeout(60_000), &settings(false)).as_deref(),
            Some(off)
        );
        form(&with_timeout(1_500), &settings(true)).expect_err("no whole second");
        let disable = AutoFailoverArgs {
            disable: true,
            max_count: Some(3),
            ..NOTHING
        };
        assert_eq!(
            sent(&disable, &settings(true)).as_deref(),
            Some("enabled=false&timeout=5&disableMaxCount=false&maxCount=3")
        );
        let enable = AutoFailoverArgs {
            enable: true,
            ..NOTHING
        };
        assert_eq!(
            sent(&enable, &settings(false)).as_deref(),
            Some(
                "enabled=true&timeout=5&failoverOnDataDiskIssues[enabled]=true\
                 &failoverOnDataDiskIssues[timePeriod]=10\
                 &failoverOnDataDiskNonResponsiveness[enabled]=true\
                 &failoverOnDataDiskNonResponsiveness[timePeriod]=20"
            )
        );
    }

    #[test]
    fn settings_are_shown_in_lines() {
        assert_eq!(
            describe(&settings(true)),
            "automatic failover: enabled, after 5 s\n\
             count: 1 of 2\n\
             failing disk: after 10 s\n\
             slow or hanging disk: no reason for a failover\n"
        );
        let mut off = settings(false);
        off["disableMaxCount"] = true.into();
        let text = describe(&off);
        assert!(
            text.starts_with("automatic failover: disabled\ncount: 1, no maximum\n"),
            "{text}"
        );
    }
}
