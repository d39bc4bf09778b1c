//! `ctl etcd`: the members of etcd.

use halite_proto::v1;
use halite_states::shipped::{DEFRAG_ETCD, RECOVER_ETCD};
use serde_json::{Value, json};

use crate::cli::{EtcdDefrag, EtcdRecover, Global};
use crate::client;
use crate::client::document;
use crate::commands::again::Again;
use crate::commands::promotion;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::{Paint, Screen, table};

/// Runs `ctl etcd status`.
///
/// # Errors
/// The master does not answer or refuses, or no member answers.
pub async fn status(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    let request = v1::ShowRequest {
        what: "etcd".into(),
        ..v1::ShowRequest::default()
    };
    let status = document(operator.show(request).await)?;
    screen.answer(&status, |paint| overview(&status, paint))?;
    let is_sound = status["problems"].as_array().is_some_and(Vec::is_empty);
    Ok(u8::from(!is_sound))
}

/// Runs `ctl etcd defrag`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn defrag(global: &Global, args: &EtcdDefrag, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut pillar = json!({});
    let mut again = Again::new("ctl etcd defrag");
    if let Some(host) = &args.host {
        pillar["member"] = json!(host);
        again = Again::new(format!("ctl etcd defrag {host}"));
    }
    let again = again.flag(args.test, "test");
    let request = v1::OrchestrateRequest {
        sls: DEFRAG_ETCD.to_owned(),
        pillar_json: pillar.to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, "etcd", screen).await?;
    // The room of each member before and after.
    let freed = said(&done.summary, "defragmented");
    let freed = success_of(freed, args.test);
    print_outcome(&done, freed, &again.text(), screen)
}

/// Runs `ctl etcd recover`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn recover(
    global: &Global,
    args: &EtcdRecover,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let EtcdRecover {
        host: from,
        force,
        cluster,
        test,
    } = args;
    if !test {
        promotion::for_recovery(global, from.as_str(), cluster, screen).await?;
    }
    let request = v1::OrchestrateRequest {
        sls: RECOVER_ETCD.to_owned(),
        pillar_json: json!({"node": from, "force": force, "cluster": cluster}).to_string(),
        test: *test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, from.as_str(), screen).await?;
    let success = format!(
        "{}; {from} serves alone. Bring back each host that was lost: ctl node replace NAME --force --cluster {cluster}",
        said(&done.summary, "allowed")
    );
    let again = Again::new(format!("ctl etcd recover {from}"))
        .flag(*force, "force")
        .option("cluster", Some(cluster))
        .flag(*test, "test");
    print_outcome(&done, success_of(&success, *test), &again.text(), screen)
}

/// What a step says about its work.
fn said<'a>(summary: &'a Value, step: &str) -> &'a str {
    let mut steps = summary["steps"].as_array().into_iter().flatten();
    let step = steps.find(|found| found["id"] == step);
    let comment = step.and_then(|step| step["detail"]["comment"].as_str());
    comment.unwrap_or_default()
}

/// Formats the quorum, the members as a table, and all problems.
fn overview(status: &Value, paint: &Paint) -> String {
    let external = if status["external"] == true {
        " (external: not this cluster's to change)"
    } else {
        ""
    };
    let quorum = table::cell(&status["quorum"]);
    let mut text = format!(
        "{quorum}{external}\n\n{}{}",
        members(status),
        schedule(status)
    );
    for problem in status["problems"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n{} {}\n", paint.bad("✗"), table::cell(problem)));
    }
    text
}

/// Formats the line about the defragmentation that the master does by itself, if the members are the cluster's.
fn schedule(status: &Value) -> String {
    let declared = &status["defrag"];
    match (declared["at"].as_str(), declared["above"].as_str()) {
        (Some("never"), _) => "\ndefragmented by `ctl etcd defrag` only\n".to_owned(),
        (Some(at), Some(above)) => {
            let (at, above) = (table::line(at), table::line(above));
            // A master of an earlier version does not say it.
            let next = match declared["next"].as_str() {
                Some(next) => format!(" (next {})", table::line(next)),
                None => String::new(),
            };
            format!("\ndefragmented {at}{next}, where more than {above} of the database is free\n")
        }
        _ => String::new(),
    }
}

/// Formats the members as a table.
pub fn members(status: &Value) -> String {
    let members = status["members"].as_array().into_iter().flatten();
    let heading = [
        "member", "id", "role", "lag", "database", "in use", "quota", "version",
    ];
    let row = |member: &Value| {
        vec![
            table::cell(&member["name"]),
            table::cell(&member["id"]),
            table::cell(&member["role"]),
            table::cell(&member["lag"]),
            size(&member["dbSize"]),
            size(&member["dbInUse"]),
            size(&member["dbQuota"]),
            table::cell(&member["version"]),
        ]
    };
    table::rows(&heading, members.map(row))
}

/// Formats bytes as MiB.
fn size(bytes: &Value) -> String {
    match bytes.as_u64() {
        Some(bytes) => format!("{} MiB", bytes.div_ceil(1 << 20)),
        None => table::cell(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_what_it_did() {
        let step = |id: &str, comment: &str| json!({"id": id, "detail": {"comment": comment}});
        let steps = [
            step("turn", "this run holds it"),
            step("defragmented", "cp-2: 20 MiB → 9 MiB"),
        ];
        let summary = json!({"steps": steps});
        assert_eq!(said(&summary, "defragmented"), "cp-2: 20 MiB → 9 MiB");
        assert_eq!(said(&Value::Null, "turn"), "");
    }

    #[test]
    fn members_quorum_and_problems_are_shown() {
        let status = json!({
            "quorum": "2 members, 1 of them serves: no quorum, 2 are needed",
            "members": [
                {"name": "cp-1", "id": "8e9e05c52164694d", "role": "leader", "lag": 0, "dbSize": 20 << 20,
                 "dbInUse": (9 << 20) + 1, "dbQuota": 2_147_483_648_u64, "version": "3.6.8"},
                {"name": "cp-2", "id": "b1", "role": "follower", "lag": null, "dbSize": null, "dbInUse": null,
                 "dbQuota": null, "version": null},
            ],
            "problems": ["cp-2: no answer within 2 s"],
            "defrag": {"at": "Sun 03:30", "above": "45%", "next": "2026-11-29T03:30:00.000Z"},
        });
        let text = overview(&status, &Paint { colour: false });
        let expected = "\
2 members, 1 of them serves: no quorum, 2 are needed

MEMBER  ID                ROLE      LAG  DATABASE  IN USE  QUOTA     VERSION
cp-1    8e9e05c52164694d  leader    0    20 MiB    10 MiB  2048 MiB  3.6.8
cp-2    b1                follower  -    -         -       -         -

defragmented Sun 03:30 (next 2026-11-29T03:30:00.000Z), where more than 45% of the database is free

✗ cp-2: no answer within 2 s
";
        assert_eq!(text, expected);
        let mut by_hand = status.clone();
        by_hand["defrag"]["next"] = Value::Null;
        let text = overview(&by_hand, &Paint { colour: false });
        assert!(text.contains("\ndefragmented Sun 03:30, where"), "{text}");
        by_hand["defrag"]["at"] = json!("never");
        let wanted = "\ndefragmented by `ctl etcd defrag` only\n";
        let text = overview(&by_hand, &Paint { colour: false });
        assert!(text.contains(wanted), "{text}");
        let mut external = status;
        external["external"] = json!(true);
        let text = overview(&external, &Paint { colour: false });
        let first = "2 members, 1 of them serves: no quorum, 2 are needed (external: not this cluster's to change)\n";
        assert!(text.starts_with(first), "{text}");
    }
}
