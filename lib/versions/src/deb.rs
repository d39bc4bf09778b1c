//! The order of Debian's versions (deb-version(7)).

use std::cmp::Ordering;

use super::number;

/// Tests whether `dpkg --compare-versions` takes a text for a version. It has a warning for signs
/// that deb-version(7) does not allow, and compares them.
#[must_use]
pub fn is_version(text: &str) -> bool {
    let blanks = [' ', '\t'];
    let text = text.trim_matches(blanks);
    let (epoch, rest) = text
        .split_once(':')
        .map_or((None, text), |(epoch, rest)| (Some(epoch), rest));
    let is_epoch = |epoch: &str| {
        epoch
            .parse::<i64>()
            .is_ok_and(|number| (0..=i64::from(i32::MAX)).contains(&number))
    };
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    !text.contains(blanks)
        && epoch.is_none_or(is_epoch)
        && !upstream.is_empty()
        && !revision.is_empty()
}

/// Compares two versions as `dpkg --compare-versions` does.
#[must_use]
pub fn compare(a: &str, b: &str) -> Ordering {
    let ((epoch_a, up_a, rev_a), (epoch_b, up_b, rev_b)) = (split(a), split(b));
    epoch_a
        .cmp(&epoch_b)
        .then_with(|| part(up_a, up_b))
        .then_with(|| part(rev_a, rev_b))
}

/// Epoch, upstream version, revision.
fn split(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, ""));
    (epoch.parse().unwrap_or(0), upstream, revision)
}

fn part(mut a: &str, mut b: &str) -> Ordering {
    while !(a.is_empty() && b.is_empty()) {
        let (text_a, rest_a) = cut(a, |c| !c.is_ascii_digit());
        let (text_b, rest_b) = cut(b, |c| !c.is_ascii_digit());
        // The end of a text sorts before letters, letters before other characters, and a tilde
        // before everything, including the end.
        let weights = |text: &str| {
            text.bytes()
                .map(weight)
                .chain(std::iter::once(0))
                .collect::<Vec<_>>()
        };
        let (number_a, rest_a) = cut(rest_a, |c| c.is_ascii_digit());
        let (number_b, rest_b) = cut(rest_b, |c| c.is_ascii_digit());
        let order = weights(text_a)
            .cmp(&weights(text_b))
            .then_with(|| number(number_a, number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

fn cut(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn weight(byte: u8) -> i32 {
    match byte {
        b'~' => -1,
        byte if byte.is_ascii_alphabetic() => i32::from(byte),
        byte => i32::from(byte) + 256,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_order_is_that_of_dpkg() {
        let versions = [
            "1",
            "1.0",
            "1.0-1",
            "1.0-1+b1",
            "1.0~rc1",
            "1.0~rc1~",
            "1.0~~",
            "1.0a",
            "1.0+dfsg",
            "1:0.1",
            "1.10",
            "1.9",
            "1.09",
            "2.36-9+deb12u14",
            "2.36-9+deb12u9",
            "0",
            "0-0",
            "1.0.",
            "1.a.1",
            "1.-1",
            "1.0-2-1",
            "1.0-0",
            "1.0+b1",
            "0001",
            "1.0-1+deb12u2",
            "1.0-1+deb12u10",
        ];
        for a in versions {
            for b in versions {
                let holds = |operator: &str| {
                    let dpkg = Command::new("dpkg")
                        .args(["--compare-versions", a, operator, b])
                        .output();
                    dpkg.expect("dpkg runs; install the Debian package dpkg")
                        .status
                        .success()
                };
                let expected = match compare(a, b) {
                    Ordering::Less => "lt",
                    Ordering::Equal => "eq",
                    Ordering::Greater => "gt",
                };
                assert!(holds(expected), "{a} {expected} {b}");
            }
        }
    }

    #[test]
    fn dpkg_refuses_the_same_texts() {
        for text in [
            "1",
            " 1\t",
            "1 0",
            "",
            " ",
            "a",
            "~",
            "1-",
            "-1",
            "1-1-",
            "1:",
            ":1",
            "x:1",
            "1:-1",
            "1:1-",
            "+1:1",
            "-0:1",
            "-1:1",
            "00:1",
            "1:2:3",
            "2147483647:1",
            "2147483648:1",
            "99999999999999999999:1",
            "1_0",
            "=1",
            "1:\t1",
        ] {
            let dpkg = Command::new("dpkg")
                .args(["--compare-versions", "1", "eq", text])
                .output();
            let status = dpkg
                .expect("dpkg runs; install the Debian package dpkg")
                .status;
            // An empty text is the version of a package that is not installed.
            let is_refused = status.code() == Some(2);
            assert_eq!(is_version(text) || text.is_empty(), !is_refused, "{text:?}");
        }
    }
}
