//! Licences and their SPDX names, from Debian's machine-readable copyright files (DEP-5,
//! <https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/>) and from the texts of
//! licences.

use std::collections::BTreeMap;

use halite_bundle::sbom::spdx::UNKNOWN;

/// A licence of one document that has no SPDX name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its name in the source.
    pub name: String,
    /// Its text, if known.
    pub text: String,
}

/// The licences without an SPDX name, by their id in the document.
pub type Others = BTreeMap<String, Other>;

/// Names in copyright files, in lower case, with their SPDX names. The versions of the GPL and its
/// relatives are in [`FAMILIES`].
const NAMES: &[(&str, &str)] = &[
    ("apache-2", "Apache-2.0"),
    ("apache-2.0", "Apache-2.0"),
    ("artistic", "Artistic-1.0"),
    ("artistic-2.0", "Artistic-2.0"),
    ("bsd-2-clause", "BSD-2-Clause"),
    ("bsd-3-clause", "BSD-3-Clause"),
    ("bsd-4-clause", "BSD-4-Clause"),
    ("bsl-1.0", "BSL-1.0"),
    ("cc0", "CC0-1.0"),
    ("cc0-1.0", "CC0-1.0"),
    ("curl", "curl"),
    ("expat", "MIT"),
    ("isc", "ISC"),
    ("mpl-1.1", "MPL-1.1"),
    ("mpl-2.0", "MPL-2.0"),
    ("openssl", "OpenSSL"),
    ("unlicense", "Unlicense"),
    ("w3c", "W3C"),
    ("x11", "X11"),
    ("zlib", "Zlib"),
    ("zpl-2.1", "ZPL-2.1"),
];

/// Families of licences whose names end in a version and possibly a `+`, with the versions in SPDX.
const FAMILIES: &[(&str, &str, &[&str])] = &[
    ("gpl-", "GPL", &["1.0", "2.0", "3.0"]),
    ("lgpl-", "LGPL", &["2.0", "2.1", "3.0"]),
    ("agpl-", "AGPL", &["3.0"]),
    ("gfdl-", "GFDL", &["1.1", "1.2", "1.3"]),
];

/// Returns the licences of a Debian package as an SPDX expression: all licences named in its
/// copyright file, joined by `AND`. `None` for a file that is not machine-readable.
#[must_use]
pub fn of_debian(copyright: &str, others: &mut Others) -> Option<String> {
    let stanzas: Vec<BTreeMap<String, String>> = stanzas(copyright);
    let format = stanzas
        .first()?
        .get("format")
        .or_else(|| stanzas.first()?.get("format-specification"))?;
    if !(format.contains("copyright-format") || format.to_lowercase().contains("dep5")) {
        return None;
    }
    let mut texts = BTreeMap::new();
    for field in stanzas.iter().filter_map(|stanza| stanza.get("license")) {
        if let Some((name, text)) = field.split_once('\n') {
            texts
                .entry(name.trim().to_lowercase())
                .or_insert_with(|| text.to_owned());
        }
    }
    let mut named: Vec<String> = Vec::new();
    for stanza in stanzas.iter().filter(|stanza| stanza.contains_key("files")) {
        let Some(field) = stanza.get("license") else {
            continue;
        };
        let expression = expression(field.lines().next().unwrap_or_default(), &texts, others);
        if !expression.is_empty() && !named.contains(&expression) {
            named.push(expression);
        }
    }
    let several = named.len() > 1;
    let grouped = named
        .iter()
        .map(|expression| match several && expression.contains(" OR ") {
            true => format!("({expression})"),
            false => expression.clone(),
        });
    let all = grouped.collect::<Vec<_>>().join(" AND ");
    (!all.is_empty()).then_some(all)
}

/// Parses the stanzas of a control file: field in lower case to value, with line ends before
/// continuation lines.
fn stanzas(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut found: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    let mut last = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.trim().is_empty() {
            found.push(BTreeMap::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some(value) = found.last_mut().and_then(|stanza| stanza.get_mut(&last)) {
                let line = line.trim();
                value.push('\n');
                value.push_str(if line == "." { "" } else { line });
            }
        } else if let Some((field, value)) = line.split_once(':') {
            last = field.to_lowercase();
            if let Some(stanza) = found.last_mut() {
                stanza.insert(last.clone(), value.trim().to_owned());
            }
        }
    }
    found.retain(|stanza| !stanza.is_empty());
    found
}

/// Converts `GPL-2+ or Artistic, and MIT` to SPDX: a comma binds less than `and` and `or`.
fn expression(synopsis: &str, texts: &BTreeMap<String, String>, others: &mut Others) -> String {
    let mut groups = Vec::new();
    for group in synopsis
        .replace(", or ", " or ")
        .replace(", and ", "\u{1}")
        .split(['\u{1}', ','])
    {
        let (mut terms, mut name) = (Vec::new(), Vec::new());
        for word in group.split_whitespace() {
            match word.to_lowercase().as_str() {
                operator @ ("and" | "or") => {
                    terms.push(term(&name.join(" "), texts, others));
                    terms.push(operator.to_uppercase());
                    name.clear();
                }
                "and/or" => {
                    terms.push(term(&name.join(" "), texts, others));
                    terms.push("OR".to_owned());
                    name.clear();
                }
                _ => name.push(word),
            }
        }
        terms.push(term(&name.join(" "), texts, others));
        if terms.iter().all(|term| !term.is_empty()) {
            groups.push(terms.join(" "));
        }
    }
    if groups.len() > 1 {
        groups
            .iter_mut()
            .filter(|group| group.contains(" OR "))
            .for_each(|group| *group = format!("({group})"));
    }
    groups.join(" AND ")
}

fn term(name: &str, texts: &BTreeMap<String, String>, others: &mut Others) -> String {
    if name.is_empty() {
        return String::new();
    }
    known(name).unwrap_or_else(|| {
        let text = texts
            .get(&name.to_lowercase())
            .filter(|text| !text.trim().is_empty());
        let text = text.map_or_else(|| format!("It is called {name:?}."), Clone::clone);
        other(name, &text, others)
    })
}

/// Returns the SPDX name for a name in a copyright file.
fn known(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    if let Some((_, id)) = NAMES.iter().find(|(known, _)| *known == lower) {
        return Some((*id).to_owned());
    }
    FAMILIES.iter().find_map(|(prefix, family, versions)| {
        let rest = lower.strip_prefix(prefix)?;
        let (version, later) = rest
            .strip_suffix('+')
            .map_or((rest, false), |version| (version, true));
        let version = if version.contains('.') {
            version.to_owned()
        } else {
            format!("{version}.0")
        };
        let known = versions.contains(&version.as_str());
        known.then(|| {
            format!(
                "{family}-{version}-{}",
                if later { "or-later" } else { "only" }
            )
        })
    })
}

/// Returns the id of a licence without an SPDX name.
pub fn other(name: &str, text: &str, others: &mut Others) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    // Two packages may use the same name for different texts.
    let id = format!(
        "LicenseRef-{}-{}",
        plain.trim_matches('-'),
        &halite_durable::digest::sha256(text.as_bytes())[..8]
    );
    others.entry(id.clone()).or_insert_with(|| Other {
        name: name.to_owned(),
        text: text.to_owned(),
    });
    id
}

/// Identifies the text of a licence by phrases that are unique to it.
#[must_use]
pub fn of_text(text: &str) -> Option<&'static str> {
    let text = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase();
    let has = |phrase: &str| text.contains(phrase);
    if has("apache license version 2.0") || has("licensed under the apache license, version 2.0") {
        return Some("Apache-2.0");
    }
    if has("mozilla public license version 2.0") || has("mozilla public license, version 2.0") {
        return Some("MPL-2.0");
    }
    if has("redistribution and use in source and binary forms") {
        let third = has("neither the name")
            || has("may not be used to endorse")
            || has("may be used to endorse");
        return Some(if third {
            "BSD-3-Clause"
        } else {
            "BSD-2-Clause"
        });
    }
    if has("permission to use, copy, modify, and distribute this software for any purpose")
        || has("permission to use, copy, modify, and/or distribute this software for any purpose")
    {
        return Some("ISC");
    }
    let permissive =
        has("permission is hereby granted, free of charge, to any person obtaining a copy");
    permissive.then_some("MIT")
}

/// Converts a crate's licence to an SPDX expression: older crates separate alternatives with `/`.
#[must_use]
pub fn of_crate(expression: &str) -> String {
    if expression.trim().is_empty() {
        UNKNOWN.to_owned()
    } else {
        expression.replace('/', " OR ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian(files: &str) -> (Option<String>, Others) {
        let head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n";
        let mut others = Others::new();
        (of_debian(&format!("{head}{files}"), &mut others), others)
    }

    #[test]
    fn machine_readable_files_become_expressions() {
        let (all, others) = debian(
            "Files: *\nCopyright: a\nLicense: GPL-2+ or Artistic\n\nFiles: b\nLicense: Expat\n text\n\n\
             Files: c\nLicense: LGPL-2.1 and BSD-3-clause, and GPL-3+ or X11\n\nLicense: GPL-2+\n the text\n",
        );
        assert_eq!(
            all.unwrap(),
            "(GPL-2.0-or-later OR Artistic-1.0) AND MIT AND (LGPL-2.1-only AND BSD-3-Clause AND (GPL-3.0-or-later OR X11))"
        );
        assert!(others.is_empty());
    }

    #[test]
    fn what_spdx_has_no_name_for_comes_with_its_text() {
        let (all, others) = debian(
            "Files: *\nLicense: GPL-2+ with OpenSSL exception\n\nFiles: x\nLicense: public-domain\n No one owns it.\n .\n No.\n",
        );
        let ids: Vec<&String> = others.keys().collect();
        assert_eq!(ids.len(), 2);
        assert!(
            all.as_ref()
                .unwrap()
                .contains(" AND LicenseRef-public-domain-"),
            "{all:?}"
        );
        let text = &others
            .values()
            .find(|other| other.name == "public-domain")
            .unwrap()
            .text;
        assert_eq!(text, "No one owns it.\n\nNo.");
        assert!(
            others
                .values()
                .any(|other| other.text == "It is called \"GPL-2+ with OpenSSL exception\".")
        );
    }

    #[test]
    fn what_people_wrote_for_people_is_not_guessed() {
        assert_eq!(
            of_debian(
                "This package was debianized by X.\nLicense: GPL\n",
                &mut Others::new()
            ),
            None
        );
        assert_eq!(of_debian("", &mut Others::new()), None);
    }

    #[test]
    fn texts_are_told_apart() {
        assert_eq!(
            of_text(include_str!("../../../../LICENSE")),
            Some("Apache-2.0")
        );
        assert_eq!(
            of_text(
                "Permission is hereby granted, free of charge, to any\nperson obtaining a copy"
            ),
            Some("MIT")
        );
        let bsd = "Redistribution and use in source and binary forms";
        assert_eq!(of_text(bsd), Some("BSD-2-Clause"));
        assert_eq!(
            of_text(&format!("{bsd} Neither the name of Google")),
            Some("BSD-3-Clause")
        );
        assert_eq!(of_text("All rights reserved."), None);
    }
}
