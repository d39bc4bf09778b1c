//! Secrets that the master does not know: those of programs that wrote them into their logs.

/// What stands for a secret.
const HIDDEN: &str = "[redacted]";
/// Words before a secret; it ends with the next space, quote or comma.
const BEFORE: [&str; 7] = [
    "Bearer ",
    "bearer ",
    "token=",
    "password=",
    "passwd=",
    "secret=",
    "AGE-SECRET-KEY-",
];
/// Beginnings of lines with a key, as in kubeconfig files and in PEM.
const KEYS: [&str; 3] = ["client-key-data:", "token:", "password:"];

/// A text without secrets of usual forms. The lines of private keys are left out.
pub fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
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
        out.push_str(&line_without(line));
        out.push('\n');
    }
    out
}

fn line_without(line: &str) -> String {
    let start = line.trim_start();
    if let Some(key) = KEYS.iter().find(|key| start.starts_with(**key)) {
        let indent = &line[..line.len() - start.len()];
        return format!("{indent}{key} {HIDDEN}");
    }
    let mut line = line.to_owned();
    for word in BEFORE {
        let mut from = 0;
        while let Some(at) = line[from..].find(word) {
            let begin = from + at + word.len();
            let ends = |c: char| c.is_whitespace() || "\"',;&".contains(c);
            let end = line[begin..]
                .find(ends)
                .map_or(line.len(), |end| begin + end);
            line.replace_range(begin..end, HIDDEN);
            from = begin + HIDDEN.len();
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_usual_forms_are_hidden_and_the_rest_stays() {
        for (before, after) in [
            ("nothing here", "nothing here"),
            (
                "Authorization: Bearer abc.def, next",
                "Authorization: Bearer [redacted], next",
            ),
            (
                "a token=1 b token='2' c",
                "a token=[redacted] b token=[redacted]'2' c",
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
        ] {
            assert_eq!(redacted(before), format!("{after}\n"), "{before}");
        }
        let pem =
            "a\n-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQEE\n-----END EC PRIVATE KEY-----\nb\n";
        assert_eq!(redacted(pem), "a\n[redacted]\nb\n");
    }
}
