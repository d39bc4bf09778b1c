//! The law of state modules, on every case under `cases/`: a check finds the missing effects and
//! changes nothing; after apply, a check finds none; and a host that loses power anywhere in
//! between ends in the same state.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a broken case file must end the test"
)]

#[path = "modules/arguments.rs"]
mod arguments;
#[path = "modules/edits.rs"]
mod edits;
#[path = "modules/spellings.rs"]
mod spellings;
mod support;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use halite_minion::host::Host;
use halite_minion::host::overlay::Overlay;
use halite_minion::modules;
use halite_minion::modules::Plan;
use halite_minion_fake::FakeHost;
use halite_states::low::Chunk;
use halite_states::signatures;
use serde_json::Value;
use support::{Case, Snapshot, build, carry_out, chunk};

/// Functions that act each time by their nature.
const ALWAYS: &[&str] = &["cmd", "test"];
/// Modules whose effects leave values that only apply can determine: certificates, unpacked files,
/// answers.
const UNPREDICTABLE: &[&str] = &[
    "archive",
    "http",
    "kubeconfig",
    "static_pod",
    "unit",
    "x509",
];

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn all_cases() -> Vec<Case> {
    support::cases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"))
}

#[test]
fn every_case_keeps_the_law() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in all_cases() {
        count += 1;
        if let Err(reason) = block_on(run(&case)) {
            wrong.push(format!("{}: {reason:#}", case.label));
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
    let cases = all_cases();
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
        carry_out(&host, &check(&host, &case).await.unwrap())
            .await
            .unwrap();
        empty(&host, &case).await.unwrap();
    });
}

async fn run(case: &Case) -> anyhow::Result<()> {
    let host = build(case).await?;
    known_arguments(case)?;
    let before = Snapshot::from_host(&host);
    let found = check(&host, case).await;
    if Snapshot::from_host(&host) != before {
        bail!("the check changed the host");
    }
    let plan = match (found, &case.expected.error) {
        (Err(error), Some(wanted)) if format!("{error:#}").contains(wanted.as_str()) => {
            return Ok(());
        }
        (Err(error), _) => return Err(error.context("the check failed")),
        (Ok(plan), Some(wanted)) => {
            bail!("no error `{wanted}`, but {:?}", plan.changes);
        }
        (Ok(plan), None) => plan,
    };
    let changes = Value::Object(plan.changes.clone());
    let wanted = case
        .expected
        .changes
        .clone()
        .unwrap_or(Value::Object(serde_json::Map::new()));
    if changes != wanted {
        bail!("changes are\n    {changes}\n  not\n    {wanted}");
    }
    for (what, found, wanted) in [
        ("comment", &plan.comment, &case.expected.comment),
        ("done", &plan.done, &case.expected.done),
    ] {
        if wanted.as_ref().is_some_and(|wanted| wanted != found) {
            bail!(
                "the {what} is `{found}`, not `{}`",
                wanted.as_deref().unwrap_or_default()
            );
        }
    }
    let kinds: Vec<String> = plan.effects.iter().map(support::summary).collect();
    if case
        .expected
        .effects
        .as_ref()
        .is_some_and(|wanted| *wanted != kinds)
    {
        bail!("effects are {kinds:?}");
    }
    if ALWAYS.contains(&case.state.as_str()) {
        return Ok(());
    }
    if plan.effects.is_empty() != plan.changes.is_empty() {
        bail!("changes and effects must both be empty, or neither");
    }
    if plan.comment.is_empty() || (!plan.effects.is_empty() && plan.done.is_empty()) {
        bail!("a comment is missing");
    }
    predicted(case, &host, &plan).await?;
    if let Some(wanted) = &case.expected.fails {
        let Err(error) = carry_out(&host, &plan).await else {
            bail!("the apply did not fail with `{wanted}`");
        };
        if !format!("{error:#}").contains(wanted.as_str()) {
            bail!("the apply failed with `{error:#}`, not `{wanted}`");
        }
        return case.expected.expect(&host);
    }
    lawful(case, &host, &plan).await
}

/// Test mode: after a prediction of the effects a check finds nothing, and the host is unchanged.
async fn predicted(case: &Case, host: &FakeHost, plan: &Plan) -> anyhow::Result<()> {
    if UNPREDICTABLE.contains(&case.state.as_str()) || case.watch {
        return Ok(());
    }
    let before = Snapshot::from_host(host);
    let overlay = Overlay::new(host);
    for effect in &plan.effects {
        overlay.predict(effect).await;
    }
    let again = checked(&overlay, case, &chunk(case, host)?)
        .await
        .context("predicted, it fails")?;
    if !again.effects.is_empty() {
        bail!(
            "predicted, a check still finds {}",
            Value::Object(again.changes)
        );
    }
    if Snapshot::from_host(host) != before {
        bail!("the prediction changed the host");
    }
    Ok(())
}

/// Applies and checks again, which must find nothing; and the same after each prefix of the
/// effects, and after a power cut at each write.
async fn lawful(case: &Case, host: &FakeHost, plan: &Plan) -> anyhow::Result<()> {
    let writes_before = host.writes();
    carry_out(host, plan).await.context("apply failed")?;
    let writes = host.writes() - writes_before;
    empty(host, case).await.context("after apply")?;
    case.expected.expect(host)?;
    let after = Snapshot::from_host(host);
    for done in 0..plan.effects.len() {
        let host = build(case).await?;
        let plan = check(&host, case).await?;
        for effect in plan.effects.iter().take(done) {
            host.perform(effect).await?;
        }
        again(&host, case)
            .await
            .with_context(|| format!("interrupted after {done} effects"))?;
        if Snapshot::from_host(&host) != after {
            bail!("interrupted after {done} effects, it ended in another state");
        }
    }
    for done in 0..writes {
        let host = build(case).await?;
        let plan = check(&host, case).await?;
        host.crash_after(done);
        if carry_out(&host, &plan).await.is_ok() {
            bail!("the power cut after {done} writes did not happen");
        }
        host.reboot();
        again(&host, case)
            .await
            .with_context(|| format!("power cut after {done} writes"))?;
        if Snapshot::from_host(&host).disk != after.disk {
            bail!("power cut after {done} writes: it ended in another state");
        }
    }
    Ok(())
}

async fn check(host: &FakeHost, case: &Case) -> anyhow::Result<Plan> {
    checked(host, case, &chunk(case, host)?).await
}

async fn checked(host: &dyn Host, case: &Case, chunk: &Chunk) -> anyhow::Result<Plan> {
    let function = modules::find(&case.state, &case.fun).context("there is no such function")?;
    let check = match (case.watch, function.watch) {
        (true, Some(watch)) => watch,
        (true, None) => bail!("it has no watch"),
        (false, _) => function.check,
    };
    check(host, chunk).await.map_err(anyhow::Error::from)
}

async fn again(host: &FakeHost, case: &Case) -> anyhow::Result<()> {
    let plan = check(host, case).await.context("the check failed")?;
    carry_out(host, &plan)
        .await
        .context("the second apply failed")?;
    empty(host, case).await
}

async fn empty(host: &FakeHost, case: &Case) -> anyhow::Result<()> {
    if case.watch {
        return Ok(());
    }
    let plan = check(host, case).await.context("the check failed")?;
    if plan.changes.is_empty() && plan.effects.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "a check still finds {}",
        Value::Object(plan.changes)
    ))
}

/// A case only uses arguments that the signature has, and all that it requires.
fn known_arguments(case: &Case) -> anyhow::Result<()> {
    let signature =
        signatures::find(&case.state, &case.fun).context("there is no such signature")?;
    let compiled = signatures::compiled_arguments(&case.state, &case.fun);
    if let Some(unknown) = case.args.keys().find(|key| {
        !signature.args.iter().any(|arg| arg.name == **key) && !compiled.contains(&key.as_str())
    }) {
        bail!("the signature has no argument `{unknown}`");
    }
    let resolved = |name: &str| name == "source" && case.args.contains_key("files");
    let missing = signature
        .args
        .iter()
        .find(|a| a.required && !case.args.contains_key(a.name) && !resolved(a.name));
    match missing {
        Some(arg) if case.expected.error.is_none() => {
            Err(anyhow!("the required argument `{}` is missing", arg.name))
        }
        _ => Ok(()),
    }
}
