//! `pkgrepo.absent`

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::lines::parts;
use super::paths::{NOTES, join};
use super::pkgrepo::{SOURCES, YUM};
use super::replace::rewritten;
use super::{Failure, Plan, fail};
use crate::host::effect::{Command, Effect};
use crate::host::{Host, PackageManager};

const MAIN: &str = "/etc/apt/sources.list";
/// apt's words for false.
const DISABLED: &[&str] = &["no", "false", "without", "off", "disable", "0"];

pub(super) async fn absent(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = chunk.name.trim();
    let manager = host.package_manager().await?;
    let mut removed = match manager {
        PackageManager::Apt if is_own_name(name) => {
            own(host, &format!("{SOURCES}/{name}.list")).await?
        }
        PackageManager::Apt => entries(host, name).await?,
        PackageManager::Dnf => sections(host, name).await?,
    };
    if removed.is_empty() {
        return Ok(Plan::nothing(format!("Package repo {name} is absent")));
    }
    let mut changes = Map::from_iter([("repo".to_owned(), json!(name))]);
    let mut effects = Vec::new();
    if let Some(key) = args.text("keyid")? {
        if manager == PackageManager::Dnf {
            return fail("Repo key management is not implemented for this platform");
        }
        changes.insert("keyid".to_owned(), json!(key));
        // Before the entry: without it, a second run would not look for the key.
        effects.push(Effect::Run(Command {
            argv: vec!["apt-key".to_owned(), "del".to_owned(), key],
            ..Command::default()
        }));
    }
    let note = format!("{NOTES}/pkgrepo/{name}");
    if is_own_name(name) && host.stat(&note).await?.is_some() {
        removed.push(Effect::Remove { path: note });
    }
    effects.append(&mut removed);
    effects.push(Effect::RefreshPackages { only: None });
    Ok(Plan::change(
        changes,
        effects,
        format!("Package repo '{name}' will be removed"),
        format!("Removed repo {name}"),
    ))
}

/// Tests whether a text may be the name of a `pkgrepo.managed`.
fn is_own_name(name: &str) -> bool {
    name.chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// The removal of a file that `pkgrepo.managed` wrote.
async fn own(host: &dyn Host, path: &str) -> Result<Vec<Effect>, Failure> {
    let path = path.to_owned();
    let exists = host.stat(&path).await?.is_some();
    Ok(exists
        .then_some(Effect::Remove { path })
        .into_iter()
        .collect())
}

/// One entry of a list of sources (sources.list(5), one-line style).
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    kind: String,
    architectures: Vec<String>,
    uri: String,
    suite: String,
    components: Vec<String>,
}

impl Entry {
    fn read(line: &str) -> Option<Self> {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (kind, rest) = line.split_once(char::is_whitespace)?;
        if !matches!(kind, "deb" | "deb-src") {
            return None;
        }
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?,
            None => ("", rest),
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        let architectures = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("arch="))
            .map(|all| all.split(',').map(str::to_owned).collect());
        Some(Self {
            kind: kind.to_owned(),
            architectures: architectures.unwrap_or_default(),
            uri: words.next()?.trim_end_matches('/').to_owned(),
            suite: words.next()?,
            components: words.collect(),
        })
    }

    fn is_of(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.architectures == other.architectures
            && self.uri == other.uri
            && self.suite == other.suite
    }
}

/// The edits that remove an entry from all lists; a file without entries is removed.
async fn entries(host: &dyn Host, name: &str) -> Result<Vec<Effect>, Failure> {
    let Some(wanted) = Entry::read(name) else {
        return fail(format!(
            "Error: repo '{name}' is not a well formatted definition"
        ));
    };
    let mut paths = vec![MAIN.to_owned()];
    for file in host.list(SOURCES).await? {
        paths.push(join(SOURCES, &file));
    }
    let mut effects = Vec::new();
    for path in paths {
        let Some(content) = host.read(&path).await? else {
            continue;
        };
        let text = String::from_utf8_lossy(&content);
        if path.ends_with(".sources") {
            if has_stanza(&text, &wanted) {
                return fail(format!(
                    "cannot remove the repository from {path}: the file has the deb822 format; use file.absent or edit it"
                ));
            }
            continue;
        }
        if !path.ends_with(".list") {
            continue;
        }
        let (text, left) = without(&text, &wanted);
        let Some(text) = text else { continue };
        effects.push(if left || path == MAIN {
            rewritten(&path, &content, text)?
        } else {
            Effect::Remove { path }
        });
    }
    Ok(effects)
}

/// Tests whether an enabled stanza of a text in the deb822 format (sources.list(5)) contains an
/// entry, whatever its architectures.
fn has_stanza(text: &str, wanted: &Entry) -> bool {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .split(|line| line.trim().is_empty())
        .any(|stanza| contains(stanza, wanted))
}

fn contains(stanza: &[&str], wanted: &Entry) -> bool {
    let is_disabled = words(stanza, "Enabled")
        .iter()
        .any(|word| DISABLED.contains(&word.to_ascii_lowercase().as_str()));
    let components = words(stanza, "Components");
    let has_component = |component: &String| components.contains(&component.as_str());
    !is_disabled
        && words(stanza, "Types").contains(&wanted.kind.as_str())
        && words(stanza, "URIs")
            .iter()
            .any(|uri| uri.trim_end_matches('/') == wanted.uri)
        && words(stanza, "Suites").contains(&wanted.suite.as_str())
        && (wanted.components.iter().any(has_component)
            || components.is_empty() && wanted.components.is_empty())
}

/// The words of a field, whose further lines are indented.
fn words<'a>(stanza: &[&'a str], field: &str) -> Vec<&'a str> {
    let (mut words, mut is_inside) = (Vec::new(), false);
    for &line in stanza {
        let value = if line.starts_with([' ', '\t']) {
            line
        } else {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            is_inside = name.trim_end().eq_ignore_ascii_case(field);
            value
        };
        if is_inside {
            words.extend(value.split_whitespace());
        }
    }
    words
}

/// A list without an entry, if it has that; and whether it still has others.
fn without(text: &str, wanted: &Entry) -> (Option<String>, bool) {
    let (mut kept, mut is_changed, mut left) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        let Some(entry) = Entry::read(line) else {
            kept.push_str(line);
            continue;
        };
        let is_wanted = |component: &String| wanted.components.contains(component);
        let all = entry.components.iter().all(is_wanted);
        let any = entry.components.iter().any(is_wanted);
        if !entry.is_of(wanted) || !any && entry.components != wanted.components {
            left = true;
            kept.push_str(line);
            continue;
        }
        is_changed = true;
        if all {
            continue;
        }
        left = true;
        // The components are the last words of the line.
        let mut words: Vec<&str> = line.trim_end().split(' ').collect();
        let from = words.len().saturating_sub(entry.components.len());
        let mut at = 0;
        words.retain(|word| {
            at += 1;
            at <= from || !is_wanted(&(*word).to_owned())
        });
        kept.push_str(&words.join(" "));
        let (_, end) = parts(line).next().unwrap_or_default();
        kept.push_str(end);
    }
    (is_changed.then_some(kept), left)
}

/// The edits that remove the section of a repository; a file without sections is removed.
async fn sections(host: &dyn Host, name: &str) -> Result<Vec<Effect>, Failure> {
    let mut effects = Vec::new();
    for file in host.list(YUM).await? {
        let path = join(YUM, &file);
        let Some(content) = host.read(&path).await?.filter(|_| file.ends_with(".repo")) else {
            continue;
        };
        let text = String::from_utf8_lossy(&content).into_owned();
        let (mut kept, mut inside, mut left) = (String::new(), false, false);
        for line in text.split_inclusive('\n') {
            if let Some(section) = line.trim().strip_prefix('[') {
                inside = section.strip_suffix(']') == Some(name);
                left |= !inside;
            }
            if !inside {
                kept.push_str(line);
            }
        }
        if kept == text {
            continue;
        }
        effects.push(if left {
            rewritten(&path, &content, kept)?
        } else {
            Effect::Remove { path }
        });
    }
    Ok(effects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_removed_by_its_components() {
        let wanted = Entry::read("deb http://a.example/debian/ stable main").unwrap();
        let list = "# x\ndeb http://a.example/debian stable main contrib\ndeb [arch=amd64] http://a.example/debian stable main\n";
        let (text, left) = without(list, &wanted);
        let text = text.unwrap();
        assert_eq!(
            text,
            "# x\ndeb http://a.example/debian stable contrib\ndeb [arch=amd64] http://a.example/debian stable main\n"
        );
        assert!(left && without(&text, &wanted).0.is_none());
        let one = "deb http://a.example/debian stable main # x\n";
        assert_eq!(without(one, &wanted), (Some(String::new()), false));
        assert_eq!(Entry::read("main"), None);
    }

    #[test]
    fn a_stanza_has_an_entry_if_its_fields_do() {
        let wanted = Entry::read("deb http://a.example/debian/ stable main").unwrap();
        let stanza = "# x\nTypes: deb deb-src\nuris: http://b.example\n http://a.example/debian/\n\
                      # y\nSuites: stable stable-updates\nComponents: main contrib\n";
        assert!(has_stanza(stanza, &wanted));
        assert!(has_stanza(&format!("Types: deb\n\n{stanza}"), &wanted));
        for (old, new) in [
            ("deb deb-src", "deb-src"),
            ("debian/", "debian-security/"),
            ("stable stable-updates", "stable-updates"),
            ("main contrib", "contrib"),
            ("# x\n", "Enabled: No\n"),
            ("# y\n", "\n"),
        ] {
            let other = stanza.replacen(old, new, 1);
            assert!(other != stanza && !has_stanza(&other, &wanted), "{other}");
        }
        let flat = Entry::read("deb http://a.example ./").unwrap();
        let stanza = "Types: deb\nURIs: http://a.example\nSuites: ./\n";
        assert!(has_stanza(stanza, &flat));
        assert!(!has_stanza(&format!("{stanza}Components: main\n"), &flat));
    }
}
