//! The law of edits: everything in a file that a state does not name stays, also the ends of lines.

use halite_minion::modules::Plan;
use halite_minion_fake::FakeHost;
use halite_minion_fake::disk::Node;

use super::support::{Case, build, carry_out};
use super::{all_cases, block_on, check};

/// Functions that edit files that other programs write too.
const EDITORS: &[&str] = &[
    "file.append",
    "file.blockreplace",
    "file.line",
    "host.absent",
    "host.present",
    "kmod.present",
    "mount.mounted",
    "mount.unmounted",
    "pkgrepo.absent",
    "swap.absent",
    "sysctl.present",
];

fn function(case: &Case) -> String {
    format!("{}.{}", case.state, case.fun)
}

/// The cases of the editors that succeed.
fn edits(cases: &[Case]) -> impl Iterator<Item = &Case> {
    cases.iter().filter(|case| {
        let is_editor = EDITORS.contains(&function(case).as_str());
        is_editor && case.expected.error.is_none() && case.expected.fails.is_none() && !case.watch
    })
}

/// The case's host with another text in each of its files.
async fn host_with(case: &Case, text: impl Fn(&str) -> String) -> FakeHost {
    let host = build(case).await.unwrap();
    for (path, old) in case.texts() {
        let mut state = host.state();
        let node = state.disk.node(path).unwrap().clone();
        let content = text(old).into_bytes();
        state.disk.put(path, Node { content, ..node });
    }
    host
}

async fn applied(host: &FakeHost, case: &Case) -> anyhow::Result<Plan> {
    let plan = check(host, case).await?;
    carry_out(host, &plan).await?;
    Ok(plan)
}

#[test]
fn the_ends_of_other_lines_stay() {
    let cases = all_cases();
    let mut wrong = Vec::new();
    let mut edited = 0;
    for case in edits(&cases) {
        // A text that already has such ends has its own case.
        if case.texts().iter().any(|(_, text)| text.contains('\r')) {
            continue;
        }
        let found = block_on(async {
            let unix = host_with(case, str::to_owned).await;
            applied(&unix, case).await?;
            let dos = host_with(case, |text| text.replace('\n', "\r\n")).await;
            applied(&dos, case).await?;
            let again = check(&dos, case).await?;
            anyhow::ensure!(again.effects.is_empty(), "a second run changes something");
            anyhow::Ok((unix, dos))
        });
        let (unix, dos) = match found {
            Ok(hosts) => hosts,
            Err(error) => {
                wrong.push(format!("{}: {error:#}", case.label));
                continue;
            }
        };
        for (path, before) in case.texts() {
            let (wanted, text) = (unix.text(path), dos.text(path));
            if text.as_ref().map(|text| text.replace("\r\n", "\n")) != wanted {
                wrong.push(format!(
                    "{}: {path} has {text:?}, not {wanted:?}",
                    case.label
                ));
            }
            let text = text.unwrap_or_default();
            let lost = text.split_inclusive('\n').filter(|line| {
                // A last line without an end has none afterwards either.
                line.ends_with('\n')
                    && !line.ends_with("\r\n")
                    && before.split_inclusive('\n').any(|old| old == *line)
            });
            wrong.extend(lost.map(|line| format!("{}: {path}: the end of {line:?}", case.label)));
            edited += usize::from(wanted.as_deref() != Some(before));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(edited > 20, "only {edited} files were edited");
}

#[test]
fn a_missing_newline_at_the_end_is_not_a_difference() {
    let cases = all_cases();
    let mut wrong = Vec::new();
    // Salt ends the last line in the edits of `file.*`.
    for case in edits(&cases).filter(|case| case.state != "file") {
        let has_changes = block_on(async {
            let with = check(&host_with(case, str::to_owned).await, case).await?;
            let cut = |text: &str| text.strip_suffix('\n').unwrap_or(text).to_owned();
            let host = host_with(case, cut).await;
            let without = check(&host, case).await?;
            carry_out(&host, &without).await?;
            let again = check(&host, case).await?;
            anyhow::ensure!(again.effects.is_empty(), "a second run changes something");
            anyhow::Ok([with, without].map(|plan| !plan.effects.is_empty()))
        });
        match has_changes {
            Ok([with, without]) if with == without => {}
            other => wrong.push(format!("{}: {other:?}", case.label)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
