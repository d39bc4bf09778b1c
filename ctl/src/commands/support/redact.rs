//! Hides secrets that the master does not know: those that programs wrote into their logs.

/// The replacement for a secret.
const HIDDEN: &str = "[redacted]";
/// Endings of the names of secrets, in lower case and with underscores: `HALITE_TOKEN`, `api-key`.
const NAMES: [&str; 15] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "credentials",
    "authorization",
    "cookie",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "key_data",
];
/// Words before a secret that has no name.
const BEFORE: [&str; 3] = ["Bearer ", "bearer ", "AGE-SECRET-KEY-"];
/// The schemes of an Authorization header (RFC 9110), which are not secret.
const SCHEMES: [&str; 4] = ["Basic ", "Bearer ", "Digest ", "Token "];

/// A text without secrets in the usual forms. The lines of private keys are left out.
pub fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    // The indentation of a name whose value is a YAML block.
    let mut block = None;
    for line in text.lines() {
        if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY-----") {
            in_key = !line.contains("-----END ");
            out.push_str(HIDDEN);
            out.push('\n');
            continue;
        }
        if in_key {
            in_key = !line.contains("-----END ");
            continue;
        }
        let indent = indentation(line);
        if block.is_some_and(|outer| line.trim().is_empty() || indent > outer) {
            continue;
        }
        let (line, is_block) = line_without(line);
        block = is_block.then_some(indent);
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The line without secrets, and whether its secret is on the lines below.
fn line_without(line: &str) -> (String, bool) {
    let (mut line, is_block) = without_named(line);
    for word in BEFORE {
        let mut from = 0;
        while let Some(at) = line[from..].find(word) {
            let begin = from + at + word.len();
            let end = begin + word_length(&line[begin..]);
            if &line[begin..end] != HIDDEN {
                line.replace_range(begin..end, HIDDEN);
            }
            from = begin + HIDDEN.len().min(line.len() - begin);
        }
    }
    (without_telling(&without_users(&line)), is_block)
}

/// The length in bytes of a value without quotes.
fn word_length(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || "\"'\\,;&)}".contains(c);
    text.find(ends).unwrap_or(text.len())
}

/// Hides the values of secret names: `name: value`, `name=value`, `"name": "value"`, `--name
/// value`.
fn without_named(line: &str) -> (String, bool) {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find([':', '=', ' ']) {
        let (before, after) = rest.split_at(at);
        let separator = &after[..1];
        let whole = line.len() - rest.len() + at;
        let name = name_before(&line[..whole]);
        out.push_str(before);
        out.push_str(separator);
        rest = &after[1..];
        let is_flag = line[..whole].ends_with(name) && {
            let start = &line[..whole - name.len()];
            name.starts_with("--") && (start.is_empty() || start.ends_with(' '))
        };
        if !is_secret(name) || (separator == " " && !is_flag) {
            continue;
        }
        let value = rest.trim_start_matches([' ', '\t']);
        out.push_str(&rest[..rest.len() - value.len()]);
        let is_whole = separator == ":" && begins_line(&line[..whole], name);
        if is_whole && value.starts_with(['|', '>']) {
            out.push_str(HIDDEN);
            return (out, true);
        }
        rest = hide(value, is_whole, &mut out);
    }
    out.push_str(rest);
    (out, false)
}

/// Hides the value at the start of a text, and returns the text after it.
fn hide<'a>(value: &'a str, is_whole: bool, out: &mut String) -> &'a str {
    let mut rest = value;
    let quote = rest.len() - rest.trim_start_matches('\\').len();
    let quoted = rest[quote..].starts_with(['"', '\'']);
    if quoted {
        let opening = &rest[..=quote];
        out.push_str(opening);
        rest = &rest[opening.len()..];
        for scheme in SCHEMES {
            if let Some(after) = rest.strip_prefix(scheme) {
                out.push_str(scheme);
                rest = after;
            }
        }
        let end = closing(rest, opening);
        if end > 0 {
            out.push_str(HIDDEN);
        }
        return &rest[end..];
    }
    for scheme in SCHEMES {
        if let Some(after) = rest.strip_prefix(scheme) {
            out.push_str(scheme);
            rest = after;
        }
    }
    let end = match is_whole {
        true => rest.trim_end().len(),
        false => word_length(rest),
    };
    if end > 0 {
        out.push_str(HIDDEN);
    }
    &rest[end..]
}

/// The position of the closing quote; the end of the text if the quote is cut off.
fn closing(text: &str, quote: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find(quote) {
        let place = from + at;
        if quote.len() > 1 || !text[..place].ends_with('\\') {
            return place;
        }
        from = place + quote.len();
    }
    text.len()
}

/// The name at the end of a text, which may be in quotes.
fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '"', '\'', '\\']);
    let is_part = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let start = text.rfind(|c| !is_part(c));
    match start {
        None => text,
        Some(at) => &text[at + text[at..].chars().next().map_or(1, char::len_utf8)..],
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    NAMES.iter().any(|end| name.ends_with(end))
}

/// Returns whether nothing but a list's dash is before a name, as in YAML and in headers.
fn begins_line(before: &str, name: &str) -> bool {
    let before = before.trim_end().trim_end_matches(['"', '\'']);
    let start = before.strip_suffix(name).unwrap_or(before);
    start
        .trim_start_matches([' ', '\t', '-', '>', '<'])
        .is_empty()
}

/// Hides user and password in `https://user:password@host`.
fn without_users(line: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/\"'<>".contains(c));
        let authority = &after[..end.unwrap_or(after.len())];
        rest = match authority.rsplit_once('@') {
            Some((user, _)) => {
                out.push_str(HIDDEN);
                &after[user.len()..]
            }
            None => after,
        };
    }
    out.push_str(rest);
    out
}

/// Hides words that look like a secret: tokens of Halite, and JSON Web Tokens.
fn without_telling(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let (mut out, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find(is_part) {
        let (before, after) = rest.split_at(at);
        let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
        let word = &after[..end];
        out.push_str(before);
        out.push_str(if is_token(word) { HIDDEN } else { word });
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

fn is_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    let hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_secret = |part: &str| hex(part, 32) || hex(part, 64);
    match parts[..] {
        [id, secret] | [id, secret, _] if hex(id, 16) && is_secret(secret) => true,
        [head, claims, _] => head.starts_with("eyJ") && claims.starts_with("eyJ"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_usual_forms_are_hidden_and_the_rest_stays() {
        let token = format!("0123456789abcdef.{}.{}", "a".repeat(64), "b".repeat(64));
        // In the command for a new host, a token is without the CA's digest.
        let short = format!("0123456789abcdef.{}", "a".repeat(32));
        for (before, after) in [
            ("nothing here", "nothing here"),
            (
                "Authorization: Bearer abc.def, next",
                "Authorization: Bearer [redacted]",
            ),
            ("got Bearer abc.def, next", "got Bearer [redacted], next"),
            (
                "a token=1 b token='2' c",
                "a token=[redacted] b token='[redacted]' c",
            ),
            ("GET /x?password=p&y=z", "GET /x?password=[redacted]&y=z"),
            (
                "    client-key-data: LS0t",
                "    client-key-data: [redacted]",
            ),
            (
                "key AGE-SECRET-KEY-1ABC end",
                "key AGE-SECRET-KEY-[redacted] end",
            ),
            (
                r#"{"token": "x y", "n": 1}"#,
                r#"{"token": "[redacted]", "n": 1}"#,
            ),
            (
                r#"{"token":"x\"y","n":1}"#,
                r#"{"token":"[redacted]","n":1}"#,
            ),
            (
                r#"msg="{\"apiKey\":\"x\",\"n\":1}""#,
                r#"msg="{\"apiKey\":\"[redacted]\",\"n\":1}""#,
            ),
            ("- password: x y", "- password: [redacted]"),
            ("  - Password: 'x y'", "  - Password: '[redacted]'"),
            ("TOKEN=x", "TOKEN=[redacted]"),
            (
                "export HALITE_TOKEN=x; y",
                "export HALITE_TOKEN=[redacted]; y",
            ),
            (
                "Authorization: Basic dTpw",
                "Authorization: Basic [redacted]",
            ),
            (
                "-H 'Authorization: Basic dTpw' -v",
                "-H 'Authorization: Basic [redacted]' -v",
            ),
            ("secret: x", "secret: [redacted]"),
            (
                "pull https://u:p@host/v2 x",
                "pull https://[redacted]@host/v2 x",
            ),
            (
                "proxy=http://u:p%40@10.0.0.1:3128",
                "proxy=http://[redacted]@10.0.0.1:3128",
            ),
            (
                "run ctl --token x --password=y z",
                "run ctl --token [redacted] --password=[redacted] z",
            ),
            (
                "aws_secret_access_key = x",
                "aws_secret_access_key = [redacted]",
            ),
            ("Set-Cookie: session=x; Path=/", "Set-Cookie: [redacted]"),
            (&format!("enrol {token}, next"), "enrol [redacted], next"),
            (&format!("enrol {short}, next"), "enrol [redacted], next"),
            ("jwt eyJhbGciOi.eyJpc3Mi.c2ln end", "jwt [redacted] end"),
            // Text that only resembles a secret.
            ("secretName: tls", "secretName: tls"),
            (
                "tokens    void: make new ones",
                "tokens    void: make new ones",
            ),
            ("the token of cp-1 is void", "the token of cp-1 is void"),
            ("secret:", "secret:"),
            ("https://host:6443/a@b", "https://host:6443/a@b"),
            (
                "registry.k8s.io/pause:3.10 v1.2.3",
                "registry.k8s.io/pause:3.10 v1.2.3",
            ),
            ("ümlaut: é token=ö, ß", "ümlaut: é token=[redacted], ß"),
        ] {
            assert_eq!(redacted(before), format!("{after}\n"), "{before}");
        }
        let pem =
            "a\n-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQEE\n-----END EC PRIVATE KEY-----\nb\n";
        assert_eq!(redacted(pem), "a\n[redacted]\nb\n");
        let block = "a:\n  password: |\n    x\n\n    y\n  user: z\n";
        assert_eq!(redacted(block), "a:\n  password: [redacted]\n  user: z\n");
    }
}
