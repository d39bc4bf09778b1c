//! `ctl bundle key`: a new key pair that signs bundles.

use std::path::Path;

use anyhow::Context as _;
use halite_api::{NewSigningKey, to_value};
use halite_seal::keys::{Password, PublicKey, generate};

use crate::output::Screen;
use crate::site::own_keys;

/// Runs `ctl bundle key`.
///
/// # Errors
/// A file already exists, or cannot be written.
pub fn key(
    file: &Path,
    password_file: Option<&Path>,
    unencrypted: bool,
    not_after: Option<jiff::civil::Date>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let password = match password_file {
        _ if unencrypted => None,
        Some(file) => Some(Password::from_file(file)?),
        None => Some(Password::ask_twice("Password of the new key: ")?),
    };
    let end = not_after
        .map(|date| {
            date.tomorrow()?
                .to_zoned(jiff::tz::TimeZone::UTC)
                .map(|next| next.timestamp())
        })
        .transpose()
        .context("cannot use the value of --not-after")?;
    let key = generate(file, password.as_ref(), end)?;
    let public = file.with_extension("pub");
    let note = match own_keys() {
        Some(dir) => {
            let path = PublicKey::load(&public)?.keep(&dir)?;
            format!("  {} lets you verify your own bundles\n", path.display())
        }
        None => String::new(),
    };
    let document = NewSigningKey {
        key: key.id().to_string(),
        secret: file.display().to_string(),
        public: public.display().to_string(),
        line: key.line(),
    };
    screen.answer(&to_value(&document), |_| {
        format!(
            "key {}\n  {} signs; keep it on machines that build bundles, and nowhere else\n  {} is for the sites; take it there separately \
            from the bundles:\n    {}\n{note}",
            key.id(),
            file.display(),
            public.display(),
            key.line()
        )
    })?;
    Ok(0)
}
