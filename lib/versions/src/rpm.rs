//! The order of rpm's versions (rpm-version(7)).

use std::cmp::Ordering;

use super::number;

/// Compares two versions or two releases as `rpmvercmp` does.
#[must_use]
pub fn compare(mut a: &str, mut b: &str) -> Ordering {
    loop {
        let separates = |c: char| !c.is_ascii_alphanumeric() && c != '~' && c != '^';
        (a, b) = (
            a.trim_start_matches(separates),
            b.trim_start_matches(separates),
        );
        // A tilde sorts before everything, including the end.
        match (a.strip_prefix('~'), b.strip_prefix('~')) {
            (Some(rest_a), Some(rest_b)) => {
                (a, b) = (rest_a, rest_b);
                continue;
            }
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            (None, None) => {}
        }
        // A caret sorts after the end, and before everything else.
        match (a.strip_prefix('^'), b.strip_prefix('^')) {
            (Some(rest_a), Some(rest_b)) => {
                (a, b) = (rest_a, rest_b);
                continue;
            }
            (Some(_), None) => {
                return if b.is_empty() {
                    Ordering::Greater
                } else {
                    Ordering::Less
                };
            }
            (None, Some(_)) => {
                return if a.is_empty() {
                    Ordering::Less
                } else {
                    Ordering::Greater
                };
            }
            (None, None) => {}
        }
        if a.is_empty() || b.is_empty() {
            return a.len().min(1).cmp(&b.len().min(1));
        }
        let digits = a.starts_with(|c: char| c.is_ascii_digit());
        let belongs = |c: char| {
            if digits {
                c.is_ascii_digit()
            } else {
                c.is_ascii_alphabetic()
            }
        };
        let cut = |text: &'_ str| text.find(|c| !belongs(c)).unwrap_or(text.len());
        let ((part_a, rest_a), (part_b, rest_b)) = (a.split_at(cut(a)), b.split_at(cut(b)));
        if part_b.is_empty() {
            // Numbers are newer than letters.
            return if digits {
                Ordering::Greater
            } else {
                Ordering::Less
            };
        }
        let order = if digits {
            number(part_a, part_b)
        } else {
            part_a.cmp(part_b)
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_order_is_that_of_rpm() {
        let versions = [
            "1.0",
            "1.0~rc1",
            "1.0~rc1~x",
            "1.0^git1",
            "1.0^git1~pre",
            "1.0^",
            "1.0.1",
            "1.0a",
            "1.a",
            "1.10",
            "1.9",
            "1.09",
            "2.el9",
            "2.fc41",
            "10xyz",
            "xyz10",
            "1..0",
            "1_0",
            "1.0.",
            "20240101",
            "2024010",
            "a",
            "Z",
            "1~~",
            "1~^a",
        ];
        let mut script = String::new();
        let mut expected = Vec::new();
        for a in versions {
            for b in versions {
                writeln!(script, "print(rpm.vercmp('{a}', '{b}') .. ' ')").unwrap();
                expected.push((a, b, compare(a, b) as i32));
            }
        }
        let rpm = Command::new("rpm")
            .args(["--eval", &format!("%{{lua:{script}}}")])
            .output();
        let rpm = rpm.expect("rpm runs; install the Debian package rpm");
        let said = String::from_utf8(rpm.stdout).unwrap();
        let said: Vec<i32> = said
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(
            said.len(),
            expected.len(),
            "{}",
            String::from_utf8_lossy(&rpm.stderr)
        );
        for ((a, b, ours), theirs) in expected.into_iter().zip(said) {
            assert_eq!(ours, theirs, "{a} and {b}");
        }
    }
}
