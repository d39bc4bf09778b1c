//! The guide's page about certificates: the commands that replace and import CAs, as they are
//! written.

use anyhow::{Context as _, Result};
use halite_lab::host::Host;
use halite_lab::wait;

use crate::cluster::PODS;
use crate::guide::GuideWalk;

/// The page.
const PAGE: &str = "certificates.md";

/// A section of the page.
pub(super) struct PageSection {
    /// The heading.
    heading: &'static str,
    /// A part of each of its blocks of commands, in order.
    parts: &'static [&'static str],
}

pub(super) const ROTATE: PageSection = PageSection {
    heading: "## Rotate a CA",
    parts: &[WITH_RESTARTS, LIST],
};
pub(super) const IDENTITIES: PageSection = PageSection {
    heading: "### The CA of identities",
    parts: &["ctl certs rotate halite --yes"],
};
pub(super) const COMPROMISED: PageSection = PageSection {
    heading: "### A CA whose key is known to others",
    parts: &["ctl certs rotate kubernetes --compromised"],
};
pub(super) const AGGREGATED: PageSection = PageSection {
    heading: "### Aggregated API servers",
    parts: &["delete configmap extension-apiserver-authentication"],
};
pub(super) const OWN_CA: PageSection = PageSection {
    heading: "## Use your own CA",
    parts: &[REQUEST, SIGN, IMPORT, LIST, WITH_RESTARTS, WITH_KEY],
};

/// The block that lists the certificates. It fails while a host does not answer.
const LIST: &str = "ctl certs list";
/// The block that rotates the CA of Kubernetes, and restarts pods.
pub(super) const WITH_RESTARTS: &str = "ctl certs rotate kubernetes --restart-pods --yes";
/// The blocks about an own CA: its request, its signature, its import, and an import with a key.
pub(super) const REQUEST: &str = "ctl certs csr kubernetes --out kubernetes.csr";
pub(super) const SIGN: &str = "openssl x509 -req -in kubernetes.csr";
pub(super) const IMPORT: &str = "ctl certs import kubernetes --cert kubernetes.crt";
pub(super) const WITH_KEY: &str = "--key front-proxy.key";

impl PageSection {
    /// The blocks of commands.
    ///
    /// # Errors
    /// The page has no such section.
    pub(super) fn walk(&self) -> Result<GuideWalk> {
        GuideWalk::new(PAGE, &[self.heading])
    }

    /// The script of each block.
    ///
    /// # Errors
    /// The page has other blocks.
    pub(super) fn scripts(&self) -> Result<Vec<String>> {
        let mut page = self.walk()?;
        let scripts = self.parts.iter().map(|part| page.next(part));
        let scripts = scripts.collect::<Result<Vec<String>>>()?;
        page.end()?;
        Ok(scripts)
    }

    /// The script of the block with this part.
    ///
    /// # Errors
    /// The page has other blocks, or none of them has the part.
    pub(super) fn script(&self, part: &str) -> Result<String> {
        let mut scripts = self.parts.iter().zip(self.scripts()?);
        let found = scripts.find(|(own, _)| **own == part);
        let (_, script) = found.with_context(|| format!("{} has no {part:?}", self.heading))?;
        Ok(script)
    }

    /// Runs all blocks on a host. Returns their output.
    ///
    /// # Errors
    /// The page has other blocks, or a command fails.
    pub(super) fn run(&self, host: &Host) -> Result<String> {
        let mut page = self.walk()?;
        let said = self.parts.iter().map(|part| match *part {
            LIST => list(&mut page, host),
            part => page.run(host, part),
        });
        let said = said.collect::<Result<String>>()?;
        page.end()?;
        Ok(said)
    }
}

/// Runs the next block, which lists the certificates, on a host until all hosts answer. Returns its
/// output.
///
/// # Errors
/// It is another block, or a host does not answer.
pub(super) fn list(page: &mut GuideWalk, host: &Host) -> Result<String> {
    let script = page.next(LIST)?;
    wait::until("all hosts to answer `ctl certs list`", PODS, || {
        host.sh(&script)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_commands_that_replace_and_import_cas() {
        for section in [ROTATE, IDENTITIES, COMPROMISED, AGGREGATED, OWN_CA] {
            let scripts = section.scripts().unwrap();
            assert_eq!(scripts.len(), section.parts.len(), "{}", section.heading);
        }
    }
}
