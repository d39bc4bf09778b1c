//! `ctl notify`: the receivers of notifications.

use anyhow::ensure;
use halite_api::{NotificationSink, SinkList, SinkTest, SinkTests, to_value};
use halite_proto::v1;

use crate::cli::{Global, Notify};
use crate::client::document;
use crate::output::{Paint, Screen, or_dash, table};
use crate::{FAILED, client};

/// Runs `ctl notify`.
///
/// # Errors
/// The master does not answer or refuses, or no receiver is declared.
pub async fn run(global: &Global, command: Notify, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    match command {
        Notify::List => {
            let answer = operator.list_sinks(v1::ListSinksRequest {}).await;
            let sinks: SinkList = document(answer)?;
            screen.answer(&to_value(&sinks), |_| list(&sinks))?;
            Ok(0)
        }
        Notify::Test { sink } => {
            let sink = sink.unwrap_or_default();
            let answer = operator.test_sinks(v1::TestSinksRequest { sink }).await;
            let tests: SinkTests = document(answer)?;
            ensure!(
                !tests.sinks.is_empty(),
                "no receiver is declared; declare one below `notify.sinks` in the cluster document"
            );
            screen.answer(&to_value(&tests), |paint| results(&tests, paint))?;
            let all = tests.sinks.iter().all(|test| test.delivered);
            Ok(if all { 0 } else { FAILED })
        }
    }
}

/// Formats sinks as a table, then the reasons of those that fail, and what they refuse.
pub fn list(sinks: &SinkList) -> String {
    let heading = [
        "name",
        "form",
        "origin",
        "severity",
        "findings",
        "last success",
        "failing since",
    ];
    let row = |sink: &NotificationSink| {
        vec![
            sink.name.clone(),
            sink.form.clone(),
            sink.origin.clone(),
            sink.severity.to_string(),
            sink.findings.to_string(),
            or_dash(sink.last_success),
            or_dash(sink.failure.as_ref().map(|failure| failure.since)),
        ]
    };
    let mut text = table::rows(&heading, sinks.sinks.iter().map(row));
    for sink in &sinks.sinks {
        if let Some(failure) = &sink.failure {
            text.push_str(&format!(
                "{}: {}; next attempt {}\n",
                sink.name, failure.error, failure.next
            ));
        }
        for refused in &sink.refused {
            text.push_str(&format!(
                "{} refuses this finding of the check {}: {}: {}; last attempt {}\n",
                sink.name, refused.check, refused.message, refused.error, refused.last
            ));
        }
    }
    text
}

/// Formats the results of a test, one on each line.
pub fn results(tests: &SinkTests, paint: &Paint) -> String {
    let line = |test: &SinkTest| match &test.error {
        None => format!("{} {}\n", paint.good("✓"), test.name),
        Some(error) => format!("{} {}: {error}\n", paint.bad("✗"), test.name),
    };
    tests.sinks.iter().map(line).collect()
}
