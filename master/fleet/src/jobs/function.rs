//! The functions of jobs.

use halite_core::refusal::Refusal;
use halite_proto::role::Role;
use serde_json::Value;

use super::core::DispatchLimits;

/// The place where a function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionSite {
    /// Compiled by the master and run by the minion (or by the master, for the target `master`);
    /// never two at a time on one minion.
    States,
    /// The minion.
    Minion,
    /// The master, with its own data.
    Here,
}

/// A function of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// The name, as in Salt.
    pub name: &'static str,
    /// The place where it runs.
    pub place: FunctionSite,
    /// The lowest role of an operator who may run it.
    pub role: Role,
    /// The default timeout in seconds, after which a minion's part expires.
    pub timeout: u32,
}

/// The SLS that installs a host's minion: the only change that a minion of an earlier protocol
/// makes.
pub const MINION_SLS: &str = "halite.services.minion";

/// The part of a highstate that renews certificates and loads them.
pub const RENEW: &str = "state.certificates";

/// A command of an operator.
const COMMAND: &str = "cmd.run";

/// Lines of the host's journal. While it is followed, new lines are its progress.
pub(super) const READ_JOURNAL: &str = "log.read";

const FUNCTIONS: [Function; 9] = [
    Function {
        name: "state.highstate",
        place: FunctionSite::States,
        role: Role::Deployer,
        timeout: 3600,
    },
    Function {
        name: "state.apply",
        place: FunctionSite::States,
        role: Role::Deployer,
        timeout: 3600,
    },
    Function {
        name: RENEW,
        place: FunctionSite::States,
        role: Role::Deployer,
        timeout: 3600,
    },
    Function {
        name: "test.ping",
        place: FunctionSite::Minion,
        role: Role::Viewer,
        timeout: 15,
    },
    Function {
        name: "grains.items",
        place: FunctionSite::Minion,
        role: Role::Viewer,
        timeout: 30,
    },
    Function {
        name: "saltutil.refresh_grains",
        place: FunctionSite::Minion,
        role: Role::Viewer,
        timeout: 60,
    },
    Function {
        name: COMMAND,
        place: FunctionSite::Minion,
        // A command can read every secret of its host.
        role: Role::Admin,
        timeout: 300,
    },
    Function {
        name: READ_JOURNAL,
        place: FunctionSite::Minion,
        // Programs write there what only an administrator may see, and the master does not know all
        // of it.
        role: Role::Admin,
        timeout: 120,
    },
    Function {
        name: "pillar.items",
        place: FunctionSite::Here,
        role: Role::Viewer,
        timeout: 30,
    },
];

impl Function {
    /// Finds the function of this name; `state.sls` is Salt's older name of `state.apply`.
    ///
    /// # Errors
    /// No function has this name.
    pub fn find(name: &str) -> Result<&'static Self, Refusal> {
        let wanted = if name == "state.sls" {
            "state.apply"
        } else {
            name
        };
        FUNCTIONS
            .iter()
            .find(|function| function.name == wanted)
            .ok_or_else(|| {
                let known: Vec<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
                Refusal::invalid(format!(
                    "unknown function {name:?}; the functions are {}",
                    known.join(", ")
                ))
            })
    }

    /// Returns whether the function may run in test mode; a command would simply run.
    #[must_use]
    pub fn has_test_mode(&self) -> bool {
        self.name != COMMAND
    }

    /// Returns whether the function only reads from a minion: repeated or lost queries do no harm,
    /// and the record of the job names operator, function and target. So the answer need not wait
    /// until the store has recorded that they were sent, or an audit line.
    #[must_use]
    pub fn is_query(&self) -> bool {
        self.place == FunctionSite::Minion && self.role < Role::Admin
    }

    /// Returns whether the function may change a host or the cluster.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self.place {
            FunctionSite::States => true,
            FunctionSite::Minion => self.name == COMMAND,
            FunctionSite::Here => false,
        }
    }

    /// The time limits for a disconnected minion before its part expires.
    #[must_use]
    pub fn limits(&self) -> DispatchLimits {
        match self.place {
            // A minion restarts in seconds; a host that reboots during a highstate reconnects in
            // minutes.
            FunctionSite::States => DispatchLimits {
                connect: 30_000,
                reconnect: 300_000,
            },
            FunctionSite::Minion | FunctionSite::Here => DispatchLimits {
                connect: 5_000,
                reconnect: 15_000,
            },
        }
    }
}

/// Reads the SLS in the arguments of `state.apply`: `{"sls": ["a", "b"]}`, or `"a,b"` as on Salt's
/// command line.
///
/// # Errors
/// The arguments name no SLS, or are neither text nor list.
pub fn sls_of(args: &Value) -> Result<Vec<String>, Refusal> {
    let bad = || {
        Refusal::invalid(
            "state.apply takes {\"sls\": [\"name\", …]}; without SLS use state.highstate",
        )
    };
    let names: Vec<String> = match args.get("sls") {
        Some(Value::String(text)) => text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(bad)?,
        _ => return Err(bad()),
    };
    if names.is_empty() {
        Err(bad())
    } else {
        Ok(names)
    }
}

/// Reads the argument of `state.certificates`: `{"at_once": true}` renews all certificates; by
/// default, only those that are due.
///
/// # Errors
/// The argument is not a truth value.
pub fn renews_at_once(args: &Value) -> Result<bool, Refusal> {
    match args.get("at_once") {
        None => Ok(false),
        Some(Value::Bool(at_once)) => Ok(*at_once),
        Some(_) => Err(Refusal::invalid(
            "state.certificates takes {\"at_once\": true} or no arguments",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn functions_are_found_by_salts_names() {
        assert_eq!(Function::find("state.sls").unwrap().name, "state.apply");
        assert!(
            Function::find("cmd.rum")
                .unwrap_err()
                .message
                .contains("cmd.run")
        );
    }

    /// Written by hand, so that an added function needs a role here, too.
    #[test]
    fn each_role_has_its_functions() {
        let of = |role: Role| {
            let own = FUNCTIONS.iter().filter(|function| function.role == role);
            own.map(|function| function.name).collect::<Vec<_>>()
        };
        assert_eq!(
            of(Role::Viewer),
            [
                "test.ping",
                "grains.items",
                "saltutil.refresh_grains",
                "pillar.items"
            ]
        );
        assert_eq!(
            of(Role::Deployer),
            ["state.highstate", "state.apply", "state.certificates"]
        );
        assert_eq!(of(Role::Admin), ["cmd.run", "log.read"]);
    }

    #[test]
    fn functions_that_change_hosts_or_show_a_pillar_or_a_journal_are_not_queries() {
        let queries = FUNCTIONS
            .iter()
            .filter(|function| function.is_query())
            .map(|f| f.name);
        assert_eq!(
            queries.collect::<Vec<_>>(),
            ["test.ping", "grains.items", "saltutil.refresh_grains"]
        );
    }

    #[test]
    fn certificates_are_renewed_at_once_only_if_the_arguments_say_so() {
        for (args, at_once) in [
            (Value::Null, Some(false)),
            (json!({}), Some(false)),
            (json!({"at_once": true}), Some(true)),
            (json!({"at_once": false}), Some(false)),
            (json!({"at_once": "yes"}), None),
        ] {
            assert_eq!(renews_at_once(&args).ok(), at_once, "{args}");
        }
    }

    #[test]
    fn sls_come_as_list_or_text() {
        assert_eq!(sls_of(&json!({"sls": "a, b"})).unwrap(), ["a", "b"]);
        assert_eq!(sls_of(&json!({"sls": ["a"]})).unwrap(), ["a"]);
        for bad in [
            json!({}),
            json!({"sls": []}),
            json!({"sls": ""}),
            json!({"sls": [1]}),
            json!({"sls": 1}),
        ] {
            assert!(sls_of(&bad).is_err(), "{bad}");
        }
    }
}
