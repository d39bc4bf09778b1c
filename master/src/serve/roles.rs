//! Roles where the table of methods does not say enough: by function, and in what is shown of past
//! jobs.

use halite_proto::role::Role;
use halite_proto::tonic::Status;
use halite_proto::transport::Peer;
use serde_json::{Value, json};

use crate::jobs::function::Function;

/// Refuses a function that the operator's role does not allow. One that does not exist is refused
/// with its name later.
#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
pub(super) fn check_function(peer: &Peer, function: &str) -> Result<(), Status> {
    match Function::find(function) {
        Ok(function) => require(peer, function.role, function.name),
        Err(_) => Ok(()),
    }
}

/// Refuses pillar values for an orchestration: own states may put them into commands.
#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
pub(super) fn check_pillar(peer: &Peer, pillar_json: &str) -> Result<(), Status> {
    match pillar_json.trim() {
        "" | "{}" | "null" => Ok(()),
        _ => require(peer, Role::Admin, "an orchestration with pillar values"),
    }
}

#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
fn require(peer: &Peer, least: Role, what: &str) -> Result<(), Status> {
    if peer.role.is_some_and(|role| role >= least) {
        Ok(())
    } else {
        Err(peer.lacks(least, what))
    }
}

/// Takes out of documents about jobs and runs what only an administrator may see: arguments and
/// returns of commands, and pillar values of orchestrations. Both may have secrets that no
/// declaration names.
pub(super) fn withhold(peer: &Peer, mut document: Value) -> Value {
    if peer.role == Some(Role::Admin) {
        return document;
    }
    match &mut document {
        Value::Array(jobs) => jobs.iter_mut().for_each(withhold_one),
        job => withhold_one(job),
    }
    document
}

fn withhold_one(job: &mut Value) {
    let function = job["function"].as_str();
    let is_command = function.is_some_and(|name| {
        // A function of another version may be anything.
        Function::find(name).map_or(true, |function| function.role == Role::Admin)
    });
    if is_command {
        job["args"] = Value::Null;
        let returns = job.get_mut("returns").and_then(Value::as_array_mut);
        for part in returns.into_iter().flatten() {
            part["return"] = Value::Null;
            if part["error"].as_str().is_some_and(|text| !text.is_empty()) {
                part["error"] = json!("withheld");
            }
        }
    }
    if job.get("pillar").is_some() {
        job["pillar"] = Value::Null;
    }
    if is_command || job.get("pillar").is_some() {
        job["withheld"] = json!(format!(
            "arguments, returns and pillar values take the role {}",
            Role::Admin
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn peer(role: Option<Role>) -> Peer {
        Peer {
            caller: None,
            role,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        }
    }

    #[test]
    fn a_function_takes_its_role() {
        for (function, least) in [
            ("test.ping", Role::Viewer),
            ("state.sls", Role::Deployer),
            ("state.highstate", Role::Deployer),
            ("cmd.run", Role::Admin),
            ("log.read", Role::Admin),
            ("absent", Role::Viewer),
        ] {
            for role in Role::ALL {
                let allowed = check_function(&peer(Some(role)), function).is_ok();
                assert_eq!(allowed, role >= least, "{role} {function}");
            }
        }
        assert!(check_function(&peer(None), "test.ping").is_err());
        assert!(check_pillar(&peer(Some(Role::Deployer)), "{}").is_ok());
        assert!(check_pillar(&peer(Some(Role::Deployer)), "{\"a\": 1}").is_err());
        assert!(check_pillar(&peer(Some(Role::Admin)), "{\"a\": 1}").is_ok());
    }

    #[test]
    fn what_a_command_was_and_printed_is_for_administrators() {
        let command = json!({
            "function": "cmd.run", "args": ["echo pw"],
            "returns": [{"minion": "a", "retcode": 0, "return": "pw", "error": "pw"}],
        });
        let journal = json!({
            "function": "log.read", "args": {"unit": "x"},
            "returns": [{"minion": "a", "retcode": 0, "return": {"lines": ["pw"]}, "error": ""}],
        });
        let ping = json!({"function": "test.ping", "args": {}, "returns": [{"return": true}]});
        let run = json!({"run": "1", "pillar": {"password": "pw"}, "steps": []});
        for document in [
            command.clone(),
            journal,
            json!([ping.clone(), command.clone()]),
            run.clone(),
        ] {
            for role in [Role::Viewer, Role::Deployer] {
                let shown = withhold(&peer(Some(role)), document.clone()).to_string();
                assert!(!shown.contains("pw"), "{shown}");
                assert!(shown.contains("take the role admin"), "{shown}");
            }
            assert_eq!(
                withhold(&peer(Some(Role::Admin)), document.clone()),
                document
            );
        }
        assert_eq!(withhold(&peer(Some(Role::Viewer)), ping.clone()), ping);
    }
}
