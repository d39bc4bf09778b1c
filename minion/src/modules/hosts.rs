//! `host.*`: `/etc/hosts`, edited in place.

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::lines::EditedLines;
use super::replace::rewritten;
use super::{Failure, Plan, fail};
use crate::host::Host;

const HOSTS: &str = "/etc/hosts";

/// `host.present`.
pub(super) async fn present(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = &chunk.name;
    let wanted = addresses(&args, chunk)?;
    let content = host.read(HOSTS).await?.unwrap_or_default();
    let text = String::from_utf8_lossy(&content).into_owned();
    let Edited {
        text: new,
        added,
        removed,
        others,
    } = edit(&text, name, &wanted, args.flag("clean", false)?);
    let list = wanted.join(", ");
    let remark = if others.is_empty() {
        String::new()
    } else {
        format!(
            "; it is at {} too, which `clean: True` removes",
            others.join(", ")
        )
    };
    if new == text {
        return Ok(Plan::nothing(format!(
            "Host {name} ({list}) already present{remark}"
        )));
    }
    Ok(Plan::change(
        changes(name, [("added", added), ("removed", removed)]),
        vec![rewritten(HOSTS, &content, new)?],
        format!("Host {name} ({list}) would be added{remark}"),
        format!("Added host {name} ({list}){remark}"),
    ))
}

/// `host.absent`: removes the name from these addresses, and keeps it at all others.
pub(super) async fn absent(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let name = &chunk.name;
    let unwanted = addresses(&Args::new(chunk), chunk)?;
    let content = host.read(HOSTS).await?.unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let mut removed = Vec::new();
    let mut lines = EditedLines::read(&text);
    lines.retain_mut(|line| match entry(line) {
        Some((ip, names))
            if names.iter().any(|n| n.eq_ignore_ascii_case(name))
                && unwanted.iter().any(|unwanted| same(unwanted, &ip)) =>
        {
            let stays = take(line, &ip, &names, name);
            removed.push(ip);
            stays
        }
        _ => true,
    });
    if removed.is_empty() {
        let list = unwanted.join(", ");
        return Ok(Plan::nothing(format!(
            "Host {name} ({list}) already absent"
        )));
    }
    let list = removed.join(", ");
    Ok(Plan::change(
        changes(name, [("removed", removed)]),
        vec![rewritten(HOSTS, &content, lines.to_string())?],
        format!("Host {name} ({list}) would be removed"),
        format!("Removed host {name} ({list})"),
    ))
}

/// The addresses of a state, at least one.
fn addresses(args: &Args<'_>, chunk: &Chunk) -> Result<Vec<String>, Failure> {
    let (function, name) = (chunk.function(), &chunk.name);
    let all = args.list("ip")?;
    if all.is_empty() {
        return fail(format!("{function}: {name}: `ip` is missing"));
    }
    if let Some(bad) = all
        .iter()
        .find(|ip| ip.parse::<std::net::IpAddr>().is_err())
    {
        return fail(format!("{function}: {name}: `{bad}` is not an IP address"));
    }
    Ok(all)
}

/// The changes of a name, by kind of change and addresses.
fn changes<const N: usize>(name: &str, all: [(&str, Vec<String>); N]) -> Map<String, Value> {
    let some = all.into_iter().filter(|(_, ips)| !ips.is_empty());
    some.map(|(key, ips)| {
        let ips = ips.into_iter().map(|ip| (ip, json!([name])));
        (key.to_owned(), ips.collect())
    })
    .collect()
}

/// Removes a name from a line with this address and these names; returns `false` if nothing is left
/// of the line. A comment stays.
fn take(line: &mut String, ip: &str, names: &[String], name: &str) -> bool {
    let left: Vec<&str> = names
        .iter()
        .filter(|n| !n.eq_ignore_ascii_case(name))
        .map(String::as_str)
        .collect();
    let comment = line
        .split_once('#')
        .map(|(_, comment)| format!("#{comment}"));
    if left.is_empty() {
        *line = comment.unwrap_or_default();
        return !line.is_empty();
    }
    let comment = comment.map(|c| format!(" {c}")).unwrap_or_default();
    *line = format!("{ip}\t{}{comment}", left.join(" "));
    true
}

struct Edited {
    text: String,
    added: Vec<String>,
    removed: Vec<String>,
    /// Addresses that are kept although they were not requested.
    others: Vec<String>,
}

/// Gives `name` exactly (with `clean`) or at least the wanted addresses.
fn edit(text: &str, name: &str, wanted: &[String], clean: bool) -> Edited {
    let mut lines = EditedLines::read(text);
    let (mut removed, mut others) = (Vec::new(), Vec::new());
    let mut have: Vec<&String> = Vec::new();
    lines.retain_mut(|line| {
        let Some((ip, names)) = entry(line) else {
            return true;
        };
        if !names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
            return true;
        }
        if let Some(ip) = wanted.iter().find(|w| same(w, &ip)) {
            have.push(ip);
            return true;
        }
        if !clean {
            others.push(ip);
            return true;
        }
        let stays = take(line, &ip, &names, name);
        removed.push(ip);
        stays
    });
    let mut added = Vec::new();
    for ip in wanted.iter().filter(|ip| !have.contains(ip)) {
        added.push(ip.clone());
        let there = lines
            .iter_mut()
            .find(|line| entry(line).is_some_and(|(found, _)| same(ip, &found)));
        match there {
            Some(line) => {
                *line = match line.split_once('#') {
                    Some((names, comment)) => format!("{} {name} #{comment}", names.trim_end()),
                    None => format!("{} {name}", line.trim_end()),
                };
            }
            None => lines.push(format!("{ip}\t{name}")),
        }
    }
    if added.is_empty() && removed.is_empty() {
        return Edited {
            text: text.to_owned(),
            added,
            removed,
            others,
        };
    }
    Edited {
        text: lines.to_string(),
        added,
        removed,
        others,
    }
}

/// Address and names of a line; see hosts(5).
fn entry(line: &str) -> Option<(String, Vec<String>)> {
    let mut words = line
        .split('#')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned);
    Some((words.next()?, words.collect()))
}

/// Returns whether two texts are the same address, however it is written.
fn same(a: &str, b: &str) -> bool {
    match (a.parse::<std::net::IpAddr>(), b.parse::<std::net::IpAddr>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "127.0.0.1 localhost # loop\n\n# foreign\n10.0.0.1 api old.example  # vip\n10.0.0.9 other api\n";

    fn to(ips: &[&str]) -> String {
        let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
        edit(TEXT, "api", &ips, true).text
    }

    #[test]
    fn a_name_moves_and_everything_else_stays() {
        let moved = to(&["10.0.0.2"]);
        assert_eq!(
            moved,
            "127.0.0.1 localhost # loop\n\n# foreign\n10.0.0.1\told.example # vip\n10.0.0.9\tother\n10.0.0.2\tapi\n"
        );
        assert_eq!(
            edit(&moved, "API", &["10.0.0.2".to_owned()], true).text,
            moved
        );
    }

    #[test]
    fn an_address_with_a_line_gets_the_name_there() {
        assert!(to(&["127.0.0.1"]).starts_with("127.0.0.1 localhost api # loop\n"));
        assert!(to(&["::1"]).ends_with("::1\tapi\n"));
    }

    #[test]
    fn lines_keep_their_ends() {
        let dos = TEXT.replace('\n', "\r\n");
        let ips = ["10.0.0.2".to_owned()];
        let wanted = edit(TEXT, "api", &ips, true).text.replace('\n', "\r\n");
        assert_eq!(edit(&dos, "api", &ips, true).text, wanted);
        let unfinished = edit("127.0.0.1 localhost", "api", &ips, false).text;
        assert_eq!(unfinished, "127.0.0.1 localhost\n10.0.0.2\tapi\n");
    }
}
