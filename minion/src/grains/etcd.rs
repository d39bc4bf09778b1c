//! The etcd member of this host: its record and its write-ahead log.

use std::path::Path;

use halite_host_reports::etcd::{DATA, LOG, RECORD, ReportedMember, is_log};
use serde_json::Value;

use crate::host::linux::files;

/// The etcd member of the host below a root, if there are traces of one.
pub(super) fn read(root: &Path) -> Option<Value> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let record = below(RECORD);
    let names = files::utf8_names(&below(DATA).join(LOG)).unwrap_or_default();
    let member = ReportedMember {
        member: files::read(&record).ok().flatten().and_then(|text| {
            let record: Value = serde_json::from_slice(&text).ok()?;
            record["member"].as_str().map(str::to_owned)
        }),
        recorded: record.symlink_metadata().is_ok(),
        log: names.iter().any(|name| is_log(name)),
    };
    (member.recorded || member.log)
        .then(|| serde_json::to_value(&member).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn record_and_log_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("var/lib/etcd/member/wal");
        let record = root.path().join("var/lib/halite/etcd-member.json");
        assert_eq!(read(root.path()), None);
        fs::create_dir_all(&log).unwrap();
        fs::write(log.join("0.tmp"), "").unwrap();
        assert_eq!(read(root.path()), None);
        fs::write(log.join("0-0.wal"), "").unwrap();
        let found = |member: Value, recorded: bool, log: bool| {
            Some(json!({"member": member, "recorded": recorded, "log": log}))
        };
        assert_eq!(read(root.path()), found(Value::Null, false, true));
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, "{\"member\": \"m1\"}").unwrap();
        assert_eq!(read(root.path()), found(json!("m1"), true, true));
        fs::remove_dir_all(log.parent().unwrap()).unwrap();
        assert_eq!(read(root.path()), found(json!("m1"), true, false));
        fs::write(&record, "damaged").unwrap();
        assert_eq!(read(root.path()), found(Value::Null, true, false));
    }
}
