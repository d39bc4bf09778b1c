//! Images of charts, by digest. Only the value of an `image:` is changed, in place: the rest of the
//! text stays as Helm wrote it.

use std::collections::BTreeMap;

/// The key of an image in a pod, and in most of the custom resources from which pods are made.
const KEY: &str = "image";

/// Returns the objects of a chart with the digest appended to each image that is named by its tag.
/// `digests` maps the reference of each image of the bundle to its digest. A name that already has
/// a digest, or is not in the bundle, stays unchanged: the check of completeness reports it.
pub fn pin(text: &str, digests: &BTreeMap<&str, &str>) -> String {
    let mut pinned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(KEY) {
        let (before, found) = rest.split_at(at);
        pinned.push_str(before);
        let value = value_at(pinned.chars().next_back(), found);
        match value.and_then(|(start, value)| Some((start, value, digest_of(value, digests)?))) {
            Some((start, value, digest)) => {
                let end = start + value.len();
                pinned.push_str(&found[..end]);
                pinned.push('@');
                pinned.push_str(digest);
                rest = &found[end..];
            }
            None => {
                pinned.push_str(KEY);
                rest = &found[KEY.len()..];
            }
        }
    }
    pinned.push_str(rest);
    pinned
}

/// The digest of the image that containerd pulls for a name: one without a registry is of Docker
/// Hub.
fn digest_of<'d>(value: &str, digests: &BTreeMap<&str, &'d str>) -> Option<&'d str> {
    let on_hub = |folder: &str| {
        let full = format!("docker.io/{folder}{value}");
        digests.get(full.as_str()).copied()
    };
    let named = digests.get(value).copied();
    named.or_else(|| on_hub("")).or_else(|| on_hub("library/"))
}

/// The value of the key with which `text` begins, and its position; `None` if it is part of a word,
/// or not a key. `before` is the preceding character.
fn value_at(before: Option<char>, text: &str) -> Option<(usize, &str)> {
    let quote = before.filter(|quote| ['"', '\''].contains(quote));
    let begins = before.is_none_or(|c| c.is_whitespace() || ['{', ','].contains(&c));
    if quote.is_none() && !begins {
        return None;
    }
    let mut rest = &text[KEY.len()..];
    if let Some(quote) = quote {
        rest = rest.strip_prefix(quote)?;
    }
    rest = rest.strip_prefix(':')?;
    let value = rest.trim_start_matches([' ', '\t']);
    // A colon without a space ends a key only in JSON.
    if value.len() == rest.len() && quote.is_none() {
        return None;
    }
    let value = value.strip_prefix(['"', '\'']).unwrap_or(value);
    let part = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    let end = value.find(|c| !part(c)).unwrap_or(value.len());
    Some((text.len() - value.len(), &value[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(text: &str) -> String {
        pin(
            text,
            &BTreeMap::from([
                ("a.b/web:1", "sha256:11"),
                ("a.b:5000/db:2", "sha256:22"),
                ("docker.io/library/busybox:1", "sha256:44"),
                ("docker.io/team/app:2", "sha256:55"),
            ]),
        )
    }

    #[test]
    fn an_image_is_pinned_wherever_a_pod_names_it() {
        for (text, expected) in [
            ("  - image: a.b/web:1\n", "  - image: a.b/web:1@sha256:11\n"),
            (
                "image:  \"a.b:5000/db:2\"",
                "image:  \"a.b:5000/db:2@sha256:22\"",
            ),
            (
                "image: 'a.b/web:1' # web",
                "image: 'a.b/web:1@sha256:11' # web",
            ),
            (
                "- {name: i, image: a.b/web:1}\n- {image: a.b:5000/db:2, name: image}",
                "- {name: i, image: a.b/web:1@sha256:11}\n- {image: a.b:5000/db:2@sha256:22, name: image}",
            ),
            (
                r#"{"image":"a.b/web:1","images":["a.b/web:1"]}"#,
                r#"{"image":"a.b/web:1@sha256:11","images":["a.b/web:1"]}"#,
            ),
            ("image: busybox:1\n", "image: busybox:1@sha256:44\n"),
            ("image: \"team/app:2\"", "image: \"team/app:2@sha256:55\""),
        ] {
            assert_eq!(pinned(text), expected);
        }
    }

    #[test]
    fn everything_else_stays_as_helm_wrote_it() {
        for text in [
            "image: a.b/web:1@sha256:33\n",
            "image: a.b/web:10\n",
            "image: a.b/other:1\n",
            "image: busybox:2\n",
            "image:\n  repository: a.b/web\n  tag: \"1\"\n",
            "imagePullPolicy: a.b/web:1\n",
            "my-image: a.b/web:1\n",
            "args: [--image=a.b/web:1, image:a.b/web:1]\n",
            "text: the image",
            "mode: 0644\nb: yes\n",
        ] {
            assert_eq!(pinned(text), text);
        }
    }
}
