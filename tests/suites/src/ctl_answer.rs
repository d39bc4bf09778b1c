//! Answers of `ctl` as documents of `halite-api`.

use anyhow::{Context as _, Result, ensure};
use halite_api::{Document, from_text};
use halite_lab::cluster::CTL;
use halite_lab::host::Host;

/// The exit code and the document of a command that prints one in any case.
pub(crate) fn in_any_case<T: Document>(host: &Host, words: &[&str]) -> Result<(Option<i32>, T)> {
    let (code, text, said) = run(host, words)?;
    let document = from_text(&text).with_context(|| failed(host, words, &text, &said))?;
    Ok((code, document))
}

/// The document of a command that must succeed.
pub(crate) fn of<T: Document>(host: &Host, words: &[&str]) -> Result<T> {
    let (code, text, said) = run(host, words)?;
    ensure!(code == Some(0), "{}", failed(host, words, &text, &said));
    from_text(&text).with_context(|| failed(host, words, &text, &said))
}

/// Exit code, standard output and standard error.
fn run(host: &Host, words: &[&str]) -> Result<(Option<i32>, String, String)> {
    // First, because everything after `--` is the command for the hosts.
    let all = [&[CTL, "-o", "json"], words].concat();
    let output = host.output(&all)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

fn failed(host: &Host, words: &[&str], text: &str, said: &str) -> String {
    format!(
        "ctl {} on {}: {text}{said}",
        words.join(" "),
        host.spec.name
    )
}
