//! The law of state modules, on every case under `cases/`: a check finds what is missing and
//! changes nothing; after apply, a check finds nothing; and a host that was cut off anywhere in
//! between ends in the same state.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken case file is to end the test"
)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use halite_minion::host::Host;
use halite_minion::host::fake::FakeHost;
use halite_minion::host::overlay::Overlay;
use halite_minion::modules;
use halite_minion::modules::Plan;
use halite_states::low::Chunk;
use halite_states::signatures;
use serde_json::Value;
use support::{Case, Snapshot, build, chunk, settle};

/// Functions whose very nature is to do something each time.
const ALWAYS: &[&str] = &["cmd", "test"];
/// Modules whose effects leave what only apply can tell: certificates, unpacked files, answers.
const UNPREDICTABLE: &[&str] = &["archive", "http", "kubeconfig", "x509"];

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn every_case_keeps_the_law() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in support::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")) {
        count += 1;
        if let Err(reason) = block_on(run(&case)) {
            wrong.push(format!("{}: {reason}", case.label));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count >= 80, "only {count} cases were found");
}

#[test]
fn every_function_has_a_case() {
    let cases = support::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"));
    let covered: BTreeSet<(&str, &str)> = cases
        .iter()
        .map(|case| (case.state.as_str(), case.fun.as_str()))
        .collect();
    let missing: Vec<_> = modules::functions()
        .iter()
        .map(|f| f.name)
        .filter(|n| !covered.contains(n))
        .collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// kubeadm's default; its keys come from openssl, so it is not cut off at each write.
#[test]
fn a_certificate_with_an_rsa_key_is_found_again() {
    let mut case: Case = serde_json::from_value(serde_json::json!({
        "name": "/etc/kubernetes/pki/front-proxy-client.crt",
        "args": {"ca": "front-proxy", "common_name": "front-proxy-client", "client_auth": true, "days": 365},
        "expect": {"noop": true},
    }))
    .unwrap();
    (case.state, case.fun) = ("x509".to_owned(), "certificate".to_owned());
    block_on(async {
        let host = build(&case).await.unwrap();
        settle(&host, &check(&host, &case).await.unwrap())
            .await
            .unwrap();
        empty(&host, &case).await.unwrap();
    });
}

async fn run(case: &Case) -> Result<(), String> {
    let host = build(case).await?;
    known_arguments(case)?;
    let before = Snapshot::of(&host);
    let found = check(&host, case).await;
    if Snapshot::of(&host) != before {
        return Err("the check changed the host".to_owned());
    }
    let plan = match (found, &case.wanted.error) {
        (Err(error), Some(wanted)) if error.contains(wanted.as_str()) => return Ok(()),
        (Err(error), _) => return Err(format!("failed: {error}")),
        (Ok(plan), Some(wanted)) => {
            return Err(format!("no error `{wanted}`, but {:?}", plan.changes));
        }
        (Ok(plan), None) => plan,
    };
    let changes = Value::Object(plan.changes.clone());
    let wanted = case
        .wanted
        .changes
        .clone()
        .unwrap_or(Value::Object(serde_json::Map::new()));
    if changes != wanted {
        return Err(format!("changes are\n    {changes}\n  not\n    {wanted}"));
    }
    for (what, found, wanted) in [
        ("comment", &plan.comment, &case.wanted.comment),
        ("done", &plan.done, &case.wanted.done),
    ] {
        if wanted.as_ref().is_some_and(|wanted| wanted != found) {
            return Err(format!(
                "the {what} is `{found}`, not `{}`",
                wanted.as_deref().unwrap_or_default()
            ));
        }
    }
    let kinds: Vec<String> = plan.effects.iter().map(support::summary).collect();
    if case
        .wanted
        .effects
        .as_ref()
        .is_some_and(|wanted| *wanted != kinds)
    {
        return Err(format!("effects are {kinds:?}"));
    }
    if ALWAYS.contains(&case.state.as_str()) {
        return Ok(());
    }
    if plan.effects.is_empty() != plan.changes.is_empty() {
        return Err("changes and effects must both be empty, or neither".to_owned());
    }
    if plan.comment.is_empty() || (!plan.effects.is_empty() && plan.done.is_empty()) {
        return Err("a comment is missing".to_owned());
    }
    predicted(case, &host, &plan).await?;
    lawful(case, &host, &plan).await
}

/// Test mode: laid over the host, the effects leave nothing to find, and the host as it was.
async fn predicted(case: &Case, host: &FakeHost, plan: &Plan) -> Result<(), String> {
    if UNPREDICTABLE.contains(&case.state.as_str()) || case.watch {
        return Ok(());
    }
    let before = Snapshot::of(host);
    let overlay = Overlay::new(host);
    for effect in &plan.effects {
        overlay.lay(effect).await;
    }
    let again = checked(&overlay, case, &chunk(case, host)?)
        .await
        .map_err(|e| format!("predicted, it fails: {e}"))?;
    if !again.effects.is_empty() {
        return Err(format!(
            "predicted, a check still finds {}",
            Value::Object(again.changes)
        ));
    }
    if Snapshot::of(host) != before {
        return Err("the prediction changed the host".to_owned());
    }
    Ok(())
}

/// Apply, check again: nothing; and the same after each prefix of the effects, and after a power
/// cut at each write.
async fn lawful(case: &Case, host: &FakeHost, plan: &Plan) -> Result<(), String> {
    let writes_before = host.writes();
    settle(host, plan)
        .await
        .map_err(|e| format!("apply failed: {e}"))?;
    let writes = host.writes() - writes_before;
    empty(host, case)
        .await
        .map_err(|e| format!("after apply, {e}"))?;
    case.wanted.expect(host)?;
    let after = Snapshot::of(host);
    for done in 0..plan.effects.len() {
        let host = build(case).await?;
        let plan = check(&host, case).await?;
        for effect in plan.effects.iter().take(done) {
            host.perform(effect).await.map_err(|e| e.0)?;
        }
        again(&host, case)
            .await
            .map_err(|e| format!("cut off after {done} effects, {e}"))?;
        if Snapshot::of(&host) != after {
            return Err(format!(
                "cut off after {done} effects, it ended in another state"
            ));
        }
    }
    for done in 0..writes {
        let host = build(case).await?;
        let plan = check(&host, case).await?;
        host.crash_after(done);
        if settle(&host, &plan).await.is_ok() {
            return Err(format!("the power cut after {done} writes did not happen"));
        }
        host.reboot();
        again(&host, case)
            .await
            .map_err(|e| format!("power cut after {done} writes, {e}"))?;
        if Snapshot::of(&host).disk != after.disk {
            return Err(format!(
                "power cut after {done} writes: it ended in another state"
            ));
        }
    }
    Ok(())
}

async fn check(host: &FakeHost, case: &Case) -> Result<Plan, String> {
    checked(host, case, &chunk(case, host)?).await
}

async fn checked(host: &dyn Host, case: &Case, chunk: &Chunk) -> Result<Plan, String> {
    let function = modules::find(&case.state, &case.fun).ok_or("there is no such function")?;
    let check = match (case.watch, function.watch) {
        (true, Some(watch)) => watch,
        (true, None) => return Err("it has no watch".to_owned()),
        (false, _) => function.check,
    };
    check(host, chunk).await.map_err(|failure| failure.text())
}

async fn again(host: &FakeHost, case: &Case) -> Result<(), String> {
    let plan = check(host, case)
        .await
        .map_err(|e| format!("the check failed: {e}"))?;
    settle(host, &plan)
        .await
        .map_err(|e| format!("the second apply failed: {e}"))?;
    empty(host, case).await
}

async fn empty(host: &FakeHost, case: &Case) -> Result<(), String> {
    if case.watch {
        return Ok(());
    }
    let plan = check(host, case)
        .await
        .map_err(|e| format!("the check failed: {e}"))?;
    if plan.changes.is_empty() && plan.effects.is_empty() {
        return Ok(());
    }
    Err(format!(
        "a check still finds {}",
        Value::Object(plan.changes)
    ))
}

/// A case only uses arguments that the signature has, and all that it requires.
fn known_arguments(case: &Case) -> Result<(), String> {
    let signature = signatures::find(&case.state, &case.fun).ok_or("there is no such signature")?;
    let compiled = signatures::compiled_arguments(&case.state, &case.fun);
    if let Some(unknown) = case.args.keys().find(|key| {
        !signature.args.iter().any(|arg| arg.name == **key) && !compiled.contains(&key.as_str())
    }) {
        return Err(format!("the signature has no argument `{unknown}`"));
    }
    let resolved = |name: &str| name == "source" && case.args.contains_key("files");
    let missing = signature
        .args
        .iter()
        .find(|a| a.required && !case.args.contains_key(a.name) && !resolved(a.name));
    match missing {
        Some(arg) if case.wanted.error.is_none() => {
            Err(format!("the required argument `{}` is missing", arg.name))
        }
        _ => Ok(()),
    }
}
