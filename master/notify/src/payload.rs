//! The bodies of requests.
//!
//! - `alertmanager`: `POST /api/v2/alerts` of an Alertmanager (its `api/v2/openapi.yaml`).
//! - `webhook`: the message of an Alertmanager to a webhook, version 4 (its `template.Data`).
//! - `plain`: a document ([`Notification`]) with `text` for people, which chats print.

use halite_api::{CheckState, FindingNews, Notification, NotifiedFinding, Time, to_value};
use halite_pillar::notify::{NoticeSeverity, SinkForm};
use halite_store::Millis;
use serde_json::{Map, Value, json};

use crate::ledger::{Batch, BatchItem, News};
use crate::notice::Notice;

/// The path of an Alertmanager's API.
pub const ALERTS: &str = "/api/v2/alerts";
/// The time after which an Alertmanager counts an alert as resolved if the master does not send it
/// again. Long enough for a master that is moved or promoted.
const VALID: Millis = 60 * 60 * 1000;
/// The same for a test.
const TEST_VALID: Millis = 5 * 60 * 1000;
/// The check of a test.
const TEST: &str = "test";
/// The time in a webhook's message for an alert that has not ended (Go's zero time).
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The sender and the receiver of a request.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    /// The name of the cluster.
    pub cluster: &'a str,
    /// The name of the sink.
    pub sink: &'a str,
    /// The time of the request.
    pub now: Millis,
}

/// The body of a request in the form of a sink.
#[must_use]
pub fn body(form: SinkForm, envelope: Envelope<'_>, batch: &Batch) -> Value {
    match form {
        SinkForm::Alertmanager => alerts(envelope, batch),
        SinkForm::Webhook => webhook(envelope, batch),
        SinkForm::Plain => plain(envelope, batch),
    }
}

/// A batch that only shows that requests arrive.
#[must_use]
pub fn test_batch(operator: &str, now: Millis) -> Batch {
    let notice = Notice {
        check: TEST.to_owned(),
        title: "Notifications arrive".to_owned(),
        severity: NoticeSeverity::Warning,
        host: None,
        message: format!("this is a test by {operator}, and not a finding"),
        remedy: None,
        since: now,
    };
    vec![BatchItem {
        fingerprint: notice.fingerprint(),
        notice,
        news: News::New,
    }]
}

fn time(millis: Millis) -> String {
    Time::from_millis(millis).to_string()
}

/// Prometheus' words for severities.
const fn severity(severity: NoticeSeverity) -> &'static str {
    match severity {
        NoticeSeverity::Failure => "critical",
        NoticeSeverity::Warning => "warning",
    }
}

/// The labels of a finding: the same for each request about it.
fn labels(cluster: &str, item: &BatchItem) -> Map<String, Value> {
    let notice = &item.notice;
    let mut labels = Map::new();
    let mut add = |name: &str, value: &str| labels.insert(name.to_owned(), value.into());
    add("alertname", &alert_name(&notice.check));
    add("check", &notice.check);
    add("cluster", cluster);
    add("severity", severity(notice.severity));
    add("finding", &item.fingerprint);
    if let Some(host) = &notice.host {
        add("host", host);
    }
    labels
}

/// `etcd-quorum` as `HaliteEtcdQuorum`.
fn alert_name(check: &str) -> String {
    let mut name = "Halite".to_owned();
    for word in check.split('-') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

fn annotations(notice: &Notice) -> Value {
    let mut annotations = json!({"summary": notice.message, "description": notice.title});
    if let Some(remedy) = &notice.remedy {
        annotations["remedy"] = remedy.as_str().into();
    }
    annotations
}

fn alerts(envelope: Envelope<'_>, batch: &Batch) -> Value {
    let alert = |item: &BatchItem| {
        let ends = match item.news {
            News::New | News::Persists if item.notice.check == TEST => envelope.now + TEST_VALID,
            News::New | News::Persists => envelope.now + VALID,
            News::Resolved(ended) => ended,
        };
        // An alert that ends before it starts is refused: the clock may have been set back.
        let ends = ends.max(item.notice.since);
        json!({
            "labels": labels(envelope.cluster, item),
            "annotations": annotations(&item.notice),
            "startsAt": time(item.notice.since),
            "endsAt": time(ends),
        })
    };
    batch.iter().map(alert).collect()
}

fn webhook(envelope: Envelope<'_>, batch: &Batch) -> Value {
    let alert = |item: &BatchItem| {
        let (status, ends) = match item.news {
            News::New | News::Persists => ("firing", NEVER.to_owned()),
            News::Resolved(ended) => ("resolved", time(ended)),
        };
        json!({
            "status": status,
            "labels": labels(envelope.cluster, item),
            "annotations": annotations(&item.notice),
            "startsAt": time(item.notice.since),
            "endsAt": ends,
            "generatorURL": "",
            "fingerprint": item.fingerprint,
        })
    };
    let is_over = |item: &BatchItem| matches!(item.news, News::Resolved(_));
    let status = match batch.iter().all(is_over) {
        true => "resolved",
        false => "firing",
    };
    let common = json!({"cluster": envelope.cluster});
    json!({
        "version": "4",
        "groupKey": format!("{{}}:{{cluster=\"{}\"}}", envelope.cluster),
        "truncatedAlerts": 0,
        "status": status,
        "receiver": envelope.sink,
        "groupLabels": common,
        "commonLabels": common,
        "commonAnnotations": {},
        "externalURL": "",
        "alerts": batch.iter().map(alert).collect::<Vec<Value>>(),
    })
}

fn plain(envelope: Envelope<'_>, batch: &Batch) -> Value {
    let finding = |item: &BatchItem| {
        let notice = item.notice.clone();
        let (news, ended) = match item.news {
            News::New => (FindingNews::New, None),
            News::Persists => (FindingNews::Persists, None),
            News::Resolved(ended) => (FindingNews::Resolved, Some(Time::from_millis(ended))),
        };
        NotifiedFinding {
            news,
            check: notice.check,
            severity: match notice.severity {
                NoticeSeverity::Failure => CheckState::Failure,
                NoticeSeverity::Warning => CheckState::Warning,
            },
            host: notice.host,
            message: notice.message,
            remedy: notice.remedy,
            since: Time::from_millis(notice.since),
            ended,
            fingerprint: item.fingerprint.clone(),
        }
    };
    to_value(&Notification {
        text: text(envelope.cluster, batch),
        cluster: envelope.cluster.to_owned(),
        findings: batch.iter().map(finding).collect(),
    })
}

/// The findings as lines of text.
fn text(cluster: &str, batch: &Batch) -> String {
    let line = |item: &BatchItem| {
        let notice = &item.notice;
        let head = match item.news {
            News::Resolved(_) => "resolved".to_owned(),
            News::New => notice.severity.as_str().to_owned(),
            News::Persists => format!("{} (persists)", notice.severity.as_str()),
        };
        let remedy = match (&notice.remedy, item.news) {
            (Some(remedy), News::New | News::Persists) => format!("; {remedy}"),
            _ => String::new(),
        };
        format!("\n{head} {}: {}{remedy}", notice.check, notice.message)
    };
    let lines: String = batch.iter().map(line).collect();
    format!("Halite cluster {cluster}:{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::sample;

    const NOW: Millis = 1_800_000_000_000;

    fn batch() -> Batch {
        let item = |host: &str, news| {
            let mut notice = sample("etcd-quorum", host, "no member answers");
            notice.since = NOW - 60_000;
            BatchItem {
                fingerprint: notice.fingerprint(),
                notice,
                news,
            }
        };
        vec![
            item("", News::Resolved(NOW - 1000)),
            item("cp-1", News::New),
            item("cp-2", News::Persists),
        ]
    }

    fn made(form: SinkForm, batch: &Batch) -> Value {
        let envelope = Envelope {
            cluster: "prod",
            sink: "ops",
            now: NOW,
        };
        body(form, envelope, batch)
    }

    #[test]
    fn an_alertmanager_gets_alerts_that_end_in_an_hour_unless_they_are_sent_again() {
        let body = made(SinkForm::Alertmanager, &batch());
        let new = &body[1];
        assert_eq!(
            new["labels"],
            json!({
                "alertname": "HaliteEtcdQuorum", "check": "etcd-quorum", "cluster": "prod",
                "severity": "critical", "finding": batch()[1].fingerprint, "host": "cp-1",
            })
        );
        assert_eq!(
            new["annotations"],
            json!({
                "summary": "no member answers", "description": "etcd-quorum is sound",
                "remedy": "`ctl highstate`",
            })
        );
        assert_eq!(new["startsAt"], "2027-01-15T07:59:00.000Z");
        assert_eq!(new["endsAt"], "2027-01-15T09:00:00.000Z");
        assert_eq!(body[0]["endsAt"], "2027-01-15T07:59:59.000Z");
        assert_eq!(body[0]["labels"].get("host"), None);
        assert_eq!(body[2]["labels"]["host"], "cp-2");
    }

    #[test]
    fn a_webhook_gets_the_message_of_an_alertmanager() {
        let body = made(SinkForm::Webhook, &batch());
        assert_eq!(
            (&body["version"], &body["status"], &body["receiver"]),
            (&json!("4"), &json!("firing"), &json!("ops"))
        );
        assert_eq!(body["commonLabels"], json!({"cluster": "prod"}));
        let states: Vec<(&Value, &Value)> = body["alerts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|alert| (&alert["status"], &alert["endsAt"]))
            .collect();
        let (firing, zero) = (json!("firing"), json!(NEVER));
        let resolved = (json!("resolved"), json!("2027-01-15T07:59:59.000Z"));
        assert_eq!(
            states,
            [
                (&resolved.0, &resolved.1),
                (&firing, &zero),
                (&firing, &zero)
            ]
        );
        let body = made(SinkForm::Webhook, &batch()[..1].to_vec());
        assert_eq!(body["status"], "resolved");
    }

    #[test]
    fn the_plain_form_is_a_text_and_the_findings() {
        let body = made(SinkForm::Plain, &batch());
        assert_eq!(
            body["text"],
            "Halite cluster prod:\nresolved etcd-quorum: no member answers\nfailure etcd-quorum: no member answers; \
             `ctl highstate`\nfailure (persists) etcd-quorum: no member answers; `ctl highstate`"
        );
        assert_eq!(body["kind"], "Notification");
        assert_eq!(body["findings"][0]["news"], "resolved");
        assert_eq!(body["findings"][0]["ended"], "2027-01-15T07:59:59.000Z");
        assert_eq!(body["findings"][1]["host"], "cp-1");
        // The example of the reference.
        let body = made(SinkForm::Plain, &batch()[1..2].to_vec());
        let example = include_str!("../../../lib/api/contract/notification.json");
        assert_eq!(format!("{body:#}\n"), example);
    }

    #[test]
    fn a_test_ends_soon_by_itself() {
        let body = made(SinkForm::Alertmanager, &test_batch("alice", NOW));
        assert_eq!(body[0]["labels"]["alertname"], "HaliteTest");
        assert_eq!(body[0]["endsAt"], "2027-01-15T08:05:00.000Z");
    }

    #[test]
    fn no_alert_ends_before_it_starts() {
        let mut batch = batch();
        batch[0].news = News::Resolved(0);
        let body = made(SinkForm::Alertmanager, &batch);
        assert_eq!(body[0]["endsAt"], body[0]["startsAt"]);
    }
}
