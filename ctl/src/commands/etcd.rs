//! `ctl etcd`: the members of etcd.

use halite_api::{DefragSchedule, EtcdMember, EtcdStatus, to_value};
use halite_proto::v1;
use halite_states::shipped::{DEFRAG_ETCD, RECOVER_ETCD};
use serde_json::json;

use crate::again::CommandLine;
use crate::cli::{EtcdDefrag, EtcdRecover, Global};
use crate::client;
use crate::commands::promotion;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::{Paint, Screen, or_dash, table};

/// Runs `ctl etcd status`.
///
/// # Errors
/// The master does not answer or refuses, or no member answers.
pub async fn status(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let status: EtcdStatus = client::show(global, "etcd", "", Vec::new()).await?;
    screen.answer(&to_value(&status), |paint| overview(&status, paint))?;
    Ok(u8::from(!status.problems.is_empty()))
}

/// Runs `ctl etcd defrag`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn defrag(global: &Global, args: &EtcdDefrag, screen: &mut Screen) -> anyhow::Result<u8> {
    let (pillar, again) = match &args.host {
        Some(host) => (json!({"member": host}), format!("ctl etcd defrag {host}")),
        None => (json!({}), "ctl etcd defrag".to_owned()),
    };
    let again = CommandLine::new(again).flag(args.test, "test");
    let request = v1::OrchestrateRequest {
        sls: DEFRAG_ETCD.to_owned(),
        pillar_json: pillar.to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, "etcd", screen).await?;
    // The size of each member's database before and after.
    let freed = success_of(done.comment("defragmented"), args.test);
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
    promotion::for_recovery(global, from.as_str(), cluster, *test, screen).await?;
    let request = v1::OrchestrateRequest {
        sls: RECOVER_ETCD.to_owned(),
        pillar_json: json!({"node": from, "force": force, "cluster": cluster}).to_string(),
        test: *test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, from.as_str(), screen).await?;
    let success = format!(
        "{}; {from} serves alone. Replace each lost host: ctl node replace NAME --force --cluster {cluster}",
        done.comment("allowed")
    );
    let again = CommandLine::new(format!("ctl etcd recover {from}"))
        .flag(*force, "force")
        .option("cluster", Some(cluster))
        .flag(*test, "test");
    print_outcome(&done, success_of(&success, *test), &again.text(), screen)
}

/// Formats the quorum, the members as a table, and all problems.
pub fn overview(status: &EtcdStatus, paint: &Paint) -> String {
    let external = if status.external {
        " (external: not this cluster's to change)"
    } else {
        ""
    };
    let quorum = or_dash(status.quorum.as_ref());
    let mut text = format!(
        "{quorum}{external}\n\n{}{}",
        members(status),
        status.defrag.as_ref().map(schedule).unwrap_or_default()
    );
    for problem in &status.problems {
        text.push_str(&format!("\n{} {}\n", paint.bad("✗"), table::line(problem)));
    }
    text
}

/// Formats the line about the master's own defragmentation.
fn schedule(declared: &DefragSchedule) -> String {
    if declared.at == "never" {
        return "\ndefragmented by `ctl etcd defrag` only\n".to_owned();
    }
    let next = match declared.next {
        Some(next) => format!(" (next {next})"),
        None => String::new(),
    };
    let (at, above) = (table::line(&declared.at), table::line(&declared.above));
    format!("\ndefragmented {at}{next}, where more than {above} of the database is free\n")
}

/// Formats the members as a table.
pub fn members(status: &EtcdStatus) -> String {
    let heading = [
        "member", "id", "role", "lag", "database", "in use", "quota", "version",
    ];
    let row = |member: &EtcdMember| {
        vec![
            member.name.clone(),
            member.id.clone(),
            member.role.to_string(),
            or_dash(member.lag),
            size(member.db_size),
            size(member.db_in_use),
            size(member.db_quota),
            or_dash(member.version.as_ref()),
        ]
    };
    table::rows(&heading, status.members.iter().map(row))
}

/// Formats bytes as MiB.
fn size(bytes: Option<u64>) -> String {
    or_dash(bytes.map(|bytes| format!("{} MiB", bytes.div_ceil(1 << 20))))
}

#[cfg(test)]
mod tests {
    use halite_api::EtcdMemberRole;

    use super::*;

    fn member(name: &str, id: &str, role: EtcdMemberRole) -> EtcdMember {
        EtcdMember {
            name: name.to_owned(),
            id: id.to_owned(),
            role,
            peer: Vec::new(),
            client: Vec::new(),
            version: None,
            db_size: None,
            db_in_use: None,
            db_quota: None,
            lag: None,
            fault: None,
        }
    }

    #[test]
    fn members_quorum_and_problems_are_shown() {
        let leader = EtcdMember {
            version: Some("3.6.8".to_owned()),
            db_size: Some(20 << 20),
            db_in_use: Some((9 << 20) + 1),
            db_quota: Some(2_147_483_648),
            lag: Some(0),
            ..member("cp-1", "8e9e05c52164694d", EtcdMemberRole::Leader)
        };
        let mut status = EtcdStatus {
            quorum: Some("2 members, 1 of them serves: no quorum, 2 are needed".to_owned()),
            members: vec![leader, member("cp-2", "b1", EtcdMemberRole::Follower)],
            problems: vec!["cp-2: no answer within 2 s".to_owned()],
            defrag: Some(DefragSchedule {
                at: "Sun 03:30".to_owned(),
                above: "45%".to_owned(),
                next: Some("2026-11-29T03:30:00.000Z".parse().unwrap()),
            }),
            ..EtcdStatus::default()
        };
        let shown = |status: &EtcdStatus| overview(status, &Paint { colour: false });
        let expected = "\
2 members, 1 of them serves: no quorum, 2 are needed

MEMBER  ID                ROLE      LAG  DATABASE  IN USE  QUOTA     VERSION
cp-1    8e9e05c52164694d  leader    0    20 MiB    10 MiB  2048 MiB  3.6.8
cp-2    b1                follower  -    -         -       -         -

defragmented Sun 03:30 (next 2026-11-29T03:30:00.000Z), where more than 45% of the database is free

✗ cp-2: no answer within 2 s
";
        assert_eq!(shown(&status), expected);
        status.external = true;
        let first = "2 members, 1 of them serves: no quorum, 2 are needed (external: not this cluster's to change)\n";
        assert!(shown(&status).starts_with(first));
        if let Some(defrag) = &mut status.defrag {
            defrag.at = "never".to_owned();
        }
        let by_hand = "\ndefragmented by `ctl etcd defrag` only\n";
        assert!(shown(&status).contains(by_hand));
    }
}
