//! The reports of scheduled work on this host about its last runs (`halite_proto::reports`).

use std::fs;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

/// Largest report, in bytes; longer files are not reports.
const LONGEST: u64 = 64 << 10;
/// The maximum number of files that are read; all scheduled work together leaves fewer.
const MOST: usize = 64;

/// The reports in a directory by the names of their files, if there are any.
pub(super) fn read(dir: &Path) -> Option<Value> {
    let names = crate::host::linux::files::utf8_names(dir).unwrap_or_default();
    let files = names.into_iter().take(MOST).filter_map(|name| {
        // A writer creates the file under another name first; such names are skipped.
        let (work, kind) = name.rsplit_once('.')?;
        let path = dir.join(&name);
        let value = match kind {
            _ if work.is_empty() => None,
            "json" => content(&path),
            "since" | "failed" => changed(&path),
            _ => None,
        };
        Some((name, value?))
    });
    let files: Map<String, Value> = files.collect();
    (!files.is_empty()).then_some(Value::Object(files))
}

fn content(path: &Path) -> Option<Value> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(LONGEST)
        .read_to_string(&mut text)
        .ok()?;
    serde_json::from_str(&text).ok()
}

/// The time of a file's last change, in milliseconds since 1970.
fn changed(path: &Path) -> Option<Value> {
    let time = fs::symlink_metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(json!(u64::try_from(since).ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_kind_of_report_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&dir.path().join("not-there")), None);
        assert_eq!(read(dir.path()), None);
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put("b.json", "{\"ended\": 7}");
        put("b.json.new", "{\"ended\": 8}");
        put("broken.json", "{");
        put("huge.json", &format!("\"{}\"", "x".repeat(70_000)));
        put(".json", "1");
        put("notes", "of an operator");
        for (name, time) in [("b.failed", 5), ("b.since", 3)] {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_micros(time * 1000 + 999))
                .unwrap();
        }
        let expected = json!({"b.failed": 5, "b.json": {"ended": 7}, "b.since": 3});
        assert_eq!(read(dir.path()), Some(expected));
    }
}
