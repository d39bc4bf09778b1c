//! The declaration in the documents of a standby's copy.

use std::net::IpAddr;
use std::path::Path;

use halite_core::config::Config;
use halite_core::declared::LastValid;
use halite_core::refusal::Refusal;
use halite_core::saved::{CONFIG_PLACE, STATE_PLACE};
use halite_errors::chain;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::validate::Context;
use halite_secret_file::SecretFile;

/// Reads the declaration in force from the files of a copy below this directory: from the
/// documents, or from the last valid ones. So a mistake in a document prevents no backup. Values of
/// secrets that the host with the state directory `own` cannot decrypt are unknown in it.
///
/// # Errors
/// The documents are invalid, and no valid ones are stored.
pub fn declaration(saved: &Path, own: &Path) -> Result<Declaration, Refusal> {
    let config = saved.join(CONFIG_PLACE);
    let read = Texts::from_dir(&config).and_then(|mut texts| {
        let opened = SecretFile::new(&config, own).open_in(&mut texts);
        if let Err(error) = opened {
            let error = chain(&error);
            tracing::warn!(error, "the values of secrets are unknown");
        }
        load(&texts, &Context::default())
    });
    read.or_else(|problems| {
        let last_valid = LastValid::of_copy(&saved.join(STATE_PLACE), &config, own);
        let refused = || Refusal::from_problems(&problems);
        last_valid.declaration().ok_or_else(refused)
    })
}

/// The name of this host, that is, of the declared node with one of its addresses.
#[must_use]
pub fn own_name<'a>(config: &Config, declaration: &'a Declaration) -> Option<&'a str> {
    let is_own = |address| config.advertise.contains(&IpAddr::V4(address));
    let mut nodes = declaration.nodes.values();
    let own = nodes.find(|node| node.control_plane().is_some_and(is_own))?;
    Some(&own.metadata.name)
}

/// The names of the declared standbys on other hosts.
#[must_use]
pub fn other_standbys(config: &Config, declaration: &Declaration) -> Vec<String> {
    let own = own_name(config, declaration);
    let names = declaration.standbys().into_iter();
    let names = names.map(|node| node.metadata.name.clone());
    names.filter(|name| Some(name.as_str()) != own).collect()
}
