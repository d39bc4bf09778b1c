//! An upgrade does not wait for another one to the same bundle: it joins it, or is refused if its
//! options differ. If it waited, it would start with steps for hosts that the other one has changed
//! since.

use halite_core::refusal::Refusal;
use halite_proto::ids::JobId;
use halite_states::shipped::UPGRADE;
use halite_store::Run;
use serde_json::{Value, json};

use super::{BACK, without_plan};

/// Places in the pillar of an upgrade, with the options of `ctl upgrade` that set their values.
const OPTIONS: [(&str, &str); 5] = [
    ("/backup", "--no-backup"),
    ("/batch", "--batch"),
    ("/drain/force", "--force"),
    ("/drain/timeout", "--drain-timeout"),
    ("/pause_after", "--pause-after"),
];
/// The option without which hosts are drained, and the place of the values of drains.
const NO_DRAIN: &str = "--no-drain";
const DRAIN: &str = "/drain";

/// The open run of an upgrade or a return with this pillar (JSON), which a request for it joins;
/// `None` if there is none. Plans are not compared.
///
/// # Errors
/// An open run leads to the same bundle with other options.
pub fn open_upgrade(open: &[Run], pillar_json: &str) -> Result<Option<JobId>, Refusal> {
    let wanted = without_plan(pillar_json);
    let mut other = None;
    for run in open.iter().filter(|run| run.sls == UPGRADE && !run.test) {
        let own = without_plan(&run.pillar_json);
        if own == wanted {
            return Ok(Some(run.id.clone()));
        }
        if (bundle(&own), is_back(&own)) == (bundle(&wanted), is_back(&wanted)) {
            other = other.or(Some((&run.id, own)));
        }
    }
    let Some((id, own)) = other else {
        return Ok(None);
    };
    let bundle = bundle(&wanted).unwrap_or_default();
    let (what, runs, command) = match is_back(&wanted) {
        true => (
            "return to the previous bundle",
            "return",
            "ctl upgrade back".to_owned(),
        ),
        false => (
            "upgrade the cluster",
            "upgrade",
            format!("ctl upgrade {bundle}"),
        ),
    };
    let differing = differing(&own, &wanted).join(", ");
    Err(Refusal::conflict(format!(
        "cannot {what}: the {runs} to the bundle {bundle} is in progress ({id}) with other options ({differing}); `{command}` with \
         its options joins it, and `ctl upgrade status` shows its progress; `ctl upgrade pause` ends it before its next host, \
         `ctl orchestrate cancel {id}` at once"
    )))
}

fn bundle(values: &Value) -> Option<&str> {
    values.get("bundle")?.as_str()
}

fn is_back(values: &Value) -> bool {
    values.get(BACK) == Some(&json!(true))
}

/// The options that differ.
fn differing(own: &Value, wanted: &Value) -> Vec<&'static str> {
    let differs = |place: &str| own.pointer(place) != wanted.pointer(place);
    let drains = |values: &Value| values.pointer(DRAIN).is_some();
    let only_one_drains = drains(own) != drains(wanted);
    let options = OPTIONS.into_iter().filter(|(place, _)| {
        let is_of_drains = place.starts_with(DRAIN);
        differs(place) && !(is_of_drains && only_one_drains)
    });
    let mut found: Vec<&str> = options.map(|(_, option)| option).collect();
    if only_one_drains {
        found.push(NO_DRAIN);
    }
    if found.is_empty() {
        // Such as those of `ctl orchestrate`, or of another version.
        found.push("values of the pillar");
    }
    found
}

#[cfg(test)]
mod tests {
    use halite_store::RunStatus;

    use super::*;

    fn run(number: u64, pillar: &Value) -> Run {
        Run {
            id: JobId::from_number(number),
            sls: UPGRADE.to_owned(),
            pillar_json: pillar.to_string(),
            test: false,
            operator: "root".to_owned(),
            request_id: None,
            low_json: "{}".to_owned(),
            status: RunStatus::Running,
            current: 0,
            cancelled_by: None,
            paused_by: None,
            created: 0,
            changed: 0,
        }
    }

    /// The usual options.
    fn usual() -> Value {
        json!({"bundle": "1.1", "batch": "25%", "backup": true, "drain": {"force": false, "timeout": 900}})
    }

    /// The usual options with this one.
    fn with(key: &str, value: Value) -> Value {
        let mut pillar = usual();
        pillar[key] = value;
        pillar
    }

    fn refusal(open: &[Run], pillar: &Value) -> String {
        open_upgrade(open, &pillar.to_string()).unwrap_err().message
    }

    #[test]
    fn the_same_upgrade_is_joined_and_one_to_another_bundle_starts() {
        let planned = with("plan", json!({"id": "0123"}));
        let tests = Run {
            test: true,
            ..run(4, &usual())
        };
        let other = Run {
            sls: "custom.roll".to_owned(),
            ..run(5, &usual())
        };
        let open = [
            tests,
            other,
            run(6, &with("batch", json!("1"))),
            run(7, &planned),
        ];
        let joined = |pillar: &Value| open_upgrade(&open, &pillar.to_string()).unwrap();
        assert_eq!(joined(&usual()), Some(JobId::from_number(7)));
        assert_eq!(
            joined(&with("batch", json!("1"))),
            Some(JobId::from_number(6))
        );
        assert_eq!(joined(&with("bundle", json!("1.2"))), None);
        assert_eq!(joined(&with("back", json!(true))), None);
        assert_eq!(open_upgrade(&open[..2], &usual().to_string()), Ok(None));
    }

    #[test]
    fn the_options_that_differ_are_named() {
        let open = [run(7, &usual())];
        for (pillar, options) in [
            (with("batch", json!("1")), "(--batch)"),
            (
                json!({"bundle": "1.1", "batch": "1", "backup": false}),
                "(--no-backup, --batch, --no-drain)",
            ),
            (
                with("drain", json!({"force": true, "timeout": 60})),
                "(--force, --drain-timeout)",
            ),
            (
                with("pause_after", json!("control-plane")),
                "(--pause-after)",
            ),
            (with("custom", json!(1)), "(values of the pillar)"),
        ] {
            let said = refusal(&open, &pillar);
            assert!(said.contains(options), "{options}: {said}");
        }
        let id = JobId::from_number(7);
        let said = refusal(&open, &with("batch", json!("1")));
        for part in [
            format!("the upgrade to the bundle 1.1 is in progress ({id}) with other options"),
            "`ctl upgrade 1.1` with its options joins it".to_owned(),
            "`ctl upgrade status`".to_owned(),
            "`ctl upgrade pause`".to_owned(),
            format!("`ctl orchestrate cancel {id}`"),
        ] {
            assert!(said.contains(&part), "{part}: {said}");
        }
    }

    #[test]
    fn a_return_with_other_options_is_refused() {
        let open = [run(7, &with("back", json!(true)))];
        let mut other = with("back", json!(true));
        other["batch"] = json!("1");
        let said = refusal(&open, &other);
        let wanted =
            "cannot return to the previous bundle: the return to the bundle 1.1 is in progress";
        assert!(
            said.contains(wanted) && said.contains("`ctl upgrade back` with its options"),
            "{said}"
        );
    }
}
