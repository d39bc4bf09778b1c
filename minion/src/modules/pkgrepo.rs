//! `pkgrepo.managed`

use halite_durable::digest::sha256;
use halite_states::args::{Args, Show};
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::lines::{EditedLines, parts};
use super::paths::{NOTES, join, parents};
use super::{Failure, Plan, diff, fail, replace};
use crate::host::effect::{Effect, Meta};
use crate::host::{Host, PackageManager};

pub(super) const SOURCES: &str = "/etc/apt/sources.list.d";
pub(super) const YUM: &str = "/etc/yum.repos.d";
/// The prefix of each line that `exclusive` has switched off.
const OFF: &str = "# halite: ";

pub(super) async fn managed(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = &chunk.name;
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        return fail(format!(
            "pkgrepo.managed: {name}: a repository's name has letters, digits, '-', '_' and '.' only"
        ));
    }
    let manager = host.package_manager().await?;
    let (own, wanted) = match manager {
        PackageManager::Apt => (format!("{SOURCES}/{name}.list"), apt(&args)?),
        PackageManager::Dnf => (format!("{YUM}/{name}.repo"), yum(&args, name)?),
    };
    let mut files = vec![(own.clone(), wanted.clone())];
    if args.flag("exclusive", false)? {
        files.extend(others(host, manager, &own).await?);
    }
    let mut changes = Map::new();
    let mut effects = Vec::new();
    for (path, wanted) in files {
        let (found, room) = replace::read(host, &path).await?;
        if found.as_deref() == Some(wanted.as_bytes()) {
            continue;
        }
        let text = match &found {
            None => "New file".to_owned(),
            Some(found) if path != own && has_access(found) => {
                "<hidden: switched off; it may hold a password>".to_owned()
            }
            Some(found) => diff::describe(found, wanted.as_bytes(), Show::Yes),
        };
        changes.insert(path.clone(), json!({"diff": text}));
        effects.extend(room);
        effects.extend(parents(host, &path, true, &Meta::default()).await?);
        effects.push(Effect::Write {
            path,
            content: wanted.into_bytes(),
            meta: Meta::default(),
        });
    }
    // The record is written after the refresh: a run that was interrupted between file and refresh
    // refreshes again.
    let note = format!("{NOTES}/pkgrepo/{name}");
    let content = sha256(wanted.as_bytes()) + "\n";
    if !effects.is_empty() || host.read(&note).await?.as_deref() != Some(content.as_bytes()) {
        changes.insert("refreshed".into(), json!(true));
        effects.push(Effect::RefreshPackages {
            only: Some(name.clone()),
        });
        effects.extend(parents(host, &note, true, &Meta::default()).await?);
        effects.push(Effect::Write {
            path: note,
            content: content.into_bytes(),
            meta: Meta::default(),
        });
    }
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "Package repo '{name}' already configured"
        )));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("Package repo '{name}' would be configured"),
        format!("Configured package repo '{name}'"),
    ))
}

/// `sources.list(5)`, one line for each address.
fn apt(args: &Args<'_>) -> Result<String, Failure> {
    let mut options = Vec::new();
    let architectures = args.list("architectures")?;
    if !architectures.is_empty() {
        options.push(format!("arch={}", architectures.join(",")));
    }
    if let Some(keyring) = args.text("signed_by")? {
        options.push(format!("signed-by={keyring}"));
    }
    let options = if options.is_empty() {
        String::new()
    } else {
        format!("[{}] ", options.join(" "))
    };
    let suite = args.text("suite")?.unwrap_or_else(|| "stable".to_owned());
    let components = args
        .maybe_list("components")?
        .unwrap_or_else(|| vec!["main".to_owned()]);
    // A suite that ends with a slash is a path: a flat repository, which has no components.
    let components = if suite.ends_with('/') {
        String::new()
    } else {
        format!(" {}", components.join(" "))
    };
    let lines = addresses(args)?
        .into_iter()
        .map(|uri| format!("deb {options}{uri} {suite}{components}\n"));
    Ok(lines.collect())
}

/// `dnf.conf(5)`, "Repo options".
fn yum(args: &Args<'_>, name: &str) -> Result<String, Failure> {
    let title = args.text("humanname")?.unwrap_or_else(|| name.to_owned());
    let uris = addresses(args)?.join("\n        ");
    let mut text = format!("[{name}]\nname={title}\nbaseurl={uris}\nenabled=1\n");
    let check = u8::from(args.flag("gpgcheck", true)?);
    text.push_str(&format!("gpgcheck={check}\n"));
    if let Some(key) = args.text("signed_by")? {
        text.push_str(&format!("gpgkey=file://{key}\n"));
    }
    if args.flag("signed_index", false)? {
        text.push_str("repo_gpgcheck=1\n");
    }
    if let Some(ca) = args.text("sslcacert")? {
        text.push_str(&format!("sslcacert={ca}\n"));
    }
    if let Some(proxy) = args.text("proxy")? {
        text.push_str(&format!("proxy={proxy}\n"));
    }
    Ok(text)
}

fn addresses(args: &Args<'_>) -> Result<Vec<String>, Failure> {
    let uris = args.list("uris")?;
    if uris.is_empty() {
        return fail("pkgrepo.managed: `uris` is missing: the address of the repository");
    }
    Ok(uris)
}

/// The files of all other repositories, switched off.
async fn others(
    host: &dyn Host,
    manager: PackageManager,
    own: &str,
) -> Result<Vec<(String, String)>, Failure> {
    let (directory, mut paths) = match manager {
        PackageManager::Apt => (SOURCES, vec!["/etc/apt/sources.list".to_owned()]),
        PackageManager::Dnf => (YUM, Vec::new()),
    };
    paths.extend(
        host.list(directory)
            .await?
            .iter()
            .map(|file| join(directory, file)),
    );
    let mut files = Vec::new();
    for path in paths.into_iter().filter(|path| path != own) {
        let Some(content) = host.read(&path).await? else {
            continue;
        };
        let Ok(text) = String::from_utf8(content) else {
            continue;
        };
        let off = match path.rsplit('.').next() {
            Some("list") => without_lines(&text),
            Some("sources") => disabled(
                &text,
                "Enabled:",
                "Enabled: no",
                |line| line.trim().is_empty(),
                false,
            ),
            Some("repo") => disabled(
                &text,
                "enabled",
                "enabled=0",
                |line| line.starts_with('['),
                true,
            ),
            _ => continue,
        };
        if off != text {
            files.push((path, off));
        }
    }
    Ok(files)
}

/// Returns whether a foreign repository's file may contain a password, which none of our secrets
/// hides in the changes.
fn has_access(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content).to_ascii_lowercase();
    text.contains("password") || text.contains('@')
}

/// A one-line-style list with every entry commented out.
fn without_lines(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| {
            if line.trim_start().starts_with("deb") {
                format!("{OFF}{line}")
            } else {
                line.to_owned()
            }
        })
        .collect()
}

/// Stanzas (`Types:` ones, or `[name]` ones), each with `setting` for its `key`.
fn disabled(
    text: &str,
    key: &str,
    setting: &str,
    border: fn(&str) -> bool,
    header: bool,
) -> String {
    let is_key = |line: &str| {
        line.strip_prefix(key)
            .is_some_and(|rest| key.ends_with(':') || rest.trim_start().starts_with('='))
    };
    let mut out = EditedLines::like(text);
    let mut open = false;
    for (line, end) in parts(text) {
        if border(line) {
            if open && !header {
                out.push(setting.to_owned());
            }
            open = false;
            out.keep(line.to_owned(), end);
            if header {
                out.push(setting.to_owned());
            }
            continue;
        }
        if is_key(line) {
            continue;
        }
        open |= !line.starts_with('#');
        out.keep(line.to_owned(), end);
    }
    if open && !header {
        out.push(setting.to_owned());
    }
    out.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_file_with_access_data_is_recognised() {
        for text in [
            "[a]\nproxy_password = x\n",
            "deb https://u:p@a.example b c\n",
        ] {
            assert!(has_access(text.as_bytes()), "{text}");
        }
        assert!(!has_access(b"deb https://a.example b c\n"));
    }

    #[test]
    fn other_sources_are_switched_off_once() {
        let list = without_lines("# main\ndeb http://a b c\n\ndeb-src http://a b c\n");
        assert_eq!(
            list,
            "# main\n# halite: deb http://a b c\n\n# halite: deb-src http://a b c\n"
        );
        assert_eq!(without_lines(&list), list);
        let blank = |line: &str| line.trim().is_empty();
        let sources = disabled(
            "Types: deb\nEnabled: yes\n\n# x\n\nTypes: deb\n",
            "Enabled:",
            "Enabled: no",
            blank,
            false,
        );
        assert_eq!(
            sources,
            "Types: deb\nEnabled: no\n\n# x\n\nTypes: deb\nEnabled: no\n"
        );
        assert_eq!(
            disabled(&sources, "Enabled:", "Enabled: no", blank, false),
            sources
        );
        let section = |line: &str| line.starts_with('[');
        let repo = disabled(
            "[a]\nenabled = 1\nname=x\n[b]\nname=y\n",
            "enabled",
            "enabled=0",
            section,
            true,
        );
        assert_eq!(repo, "[a]\nenabled=0\nname=x\n[b]\nenabled=0\nname=y\n");
        assert_eq!(disabled(&repo, "enabled", "enabled=0", section, true), repo);
        let dos = "[a]\r\nenabled = 1\r\nname=x";
        assert_eq!(
            disabled(dos, "enabled", "enabled=0", section, true),
            "[a]\r\nenabled=0\r\nname=x"
        );
    }
}
