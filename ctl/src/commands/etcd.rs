//! `ctl etcd`: the members of etcd.

use halite_proto::v1;
use serde_json::Value;

use crate::cli::Global;
use crate::client;
use crate::client::document;
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

/// Formats the quorum, the members as a table, and all problems.
fn overview(status: &Value, paint: &Paint) -> String {
    let mut text = format!("{}\n\n{}", table::cell(&status["quorum"]), members(status));
    for problem in status["problems"].as_array().into_iter().flatten() {
        text.push_str(&format!("\n{} {}\n", paint.bad("✗"), table::cell(problem)));
    }
    text
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
    use serde_json::json;

    use super::*;

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
        });
        let text = overview(&status, &Paint { colour: false });
        let expected = "\
2 members, 1 of them serves: no quorum, 2 are needed

MEMBER  ID                ROLE      LAG  DATABASE  IN USE  QUOTA     VERSION
cp-1    8e9e05c52164694d  leader    0    20 MiB    10 MiB  2048 MiB  3.6.8
cp-2    b1                follower  -    -         -       -         -

✗ cp-2: no answer within 2 s
";
        assert_eq!(text, expected);
    }
}
