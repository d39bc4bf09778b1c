//! Searches the operator's directory for copies of values that were moved.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// The shortest value of one line for which files are searched, in bytes.
const SHORTEST_VALUE: usize = 6;
/// The shortest line of a longer value, in bytes: a shorter one would be found anywhere.
const SHORTEST_LINE: usize = 8;
/// The beginning of the first and last line of a key or certificate, which all of them have.
const ARMOR: &str = "-----";

/// The plain files below a directory that contain one of these values, or a line of one, sorted.
/// Links are not followed, and files that cannot be read are left out.
///
/// # Errors
/// A directory cannot be listed.
pub(super) fn copies<'a>(
    directory: &Path,
    values: impl Iterator<Item = &'a str>,
) -> anyhow::Result<Vec<String>> {
    let searched: Vec<&str> = values.flat_map(searched).collect();
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let cannot = || format!("cannot list {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let kind = entry.file_type().with_context(cannot)?;
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() && contains(&entry.path(), &searched) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The texts that a copy of a value has. Another file may indent the lines of a value otherwise.
fn searched(value: &str) -> Vec<&str> {
    let lines: Vec<&str> = value.trim().lines().map(str::trim).collect();
    let shortest = match lines.len() {
        1 => SHORTEST_VALUE,
        _ => SHORTEST_LINE,
    };
    let lines = lines.into_iter();
    lines
        .filter(|line| line.len() >= shortest && !line.starts_with(ARMOR))
        .collect()
}

fn contains(path: &Path, searched: &[&str]) -> bool {
    let Ok(content) = fs::read(path) else {
        return false;
    };
    let content = String::from_utf8_lossy(&content);
    searched.iter().any(|text| content.contains(text))
}
