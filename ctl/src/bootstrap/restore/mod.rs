//! `ctl bootstrap --restore`: puts the content of a backup on a bare host before the rest of the
//! bootstrap, which then finds CAs, store, declaration and etcd's data as on a host that it
//! repairs.
//!
//! Until the declaration is written, a run may be interrupted anywhere: a mark records it, no
//! daemon has started yet, and the same command starts over. After that, the same command continues
//! like any bootstrap.

mod etcd;
mod living;
mod origin;
mod place;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_backup::{BackupFile, Identity, Manifest, SNAPSHOT};
use halite_durable::{ScratchDir, files};
use halite_errors::chain;
use halite_pillar::load::{Texts, load};
use halite_pillar::resolve;
use halite_pillar::validate::Context;
use halite_secret_file::SecretFile;
use jiff::Timestamp;

use self::etcd::{RestoredMember, Restorer};
use self::living::LivingPart;
use self::origin::Origin;
use self::place::{Places, Progress};
use super::Preparation;
use super::declaration::Declared;
use crate::backup_file::{identities, open_whole};
use crate::cli::Bootstrap;
use crate::output::Screen;

/// A restore from a backup, of which every byte was compared with its digest.
pub struct Restore {
    backup: BackupFile,
    keys: Vec<Identity>,
    origin: Origin,
    places: Places,
    progress: Progress,
    /// The list of the backup's files; `None` once they are in place.
    manifest: Option<Manifest>,
    /// The files of the backup except etcd's snapshot; empty once they are in place.
    scratch: ScratchDir,
    /// The original texts of the backup's documents that were changed in the scratch directory, by
    /// their paths below the configuration directory.
    original: BTreeMap<String, String>,
}

impl Restore {
    /// Opens the backup that the command line names, if it names one.
    ///
    /// # Errors
    /// The backup is damaged or cannot be decrypted, or this host has a cluster.
    pub fn open(args: &Bootstrap, screen: &mut Screen) -> anyhow::Result<Option<Self>> {
        let Some(path) = &args.restore else {
            if args.key.key.is_some() {
                bail!("--key is the key of a backup; name the backup with --restore");
            }
            return Ok(None);
        };
        let backup = open_whole(path, screen)?;
        let keys = identities(args.key.key.as_deref())?;
        let origin = Origin::from_args(args)?;
        Self::of_backup(backup, keys, origin, Places::of_host()).map(Some)
    }

    fn of_backup(
        backup: BackupFile,
        keys: Vec<Identity>,
        origin: Origin,
        places: Places,
    ) -> anyhow::Result<Self> {
        let progress = places.progress(backup.digest())?;
        let scratch = ScratchDir::new("halite-restore-")?;
        let header = backup.header();
        if keys.is_empty() && !header.recipients.is_empty() && progress != Progress::Placed {
            let recipients: Vec<String> =
                header.recipients.iter().map(ToString::to_string).collect();
            bail!(
                "the backup is encrypted to {}; name the file with the secret key of one of them with --key",
                recipients.join(", ")
            );
        }
        let mut restore = Self {
            backup,
            keys,
            origin,
            places,
            progress,
            manifest: None,
            scratch,
            original: BTreeMap::new(),
        };
        if restore.progress != Progress::Placed {
            let manifest = restore.unpack()?;
            restore.origin.check(&manifest)?;
            restore.manifest = Some(manifest);
            restore.forget_members()?;
        }
        Ok(restore)
    }

    /// Unpacks all files except etcd's snapshot, which is only checked now.
    fn unpack(&self) -> anyhow::Result<Manifest> {
        let scratch = self.scratch.path();
        Ok(self.backup.read(&self.keys, &mut |path, mode, content| {
            if path == SNAPSHOT {
                return Ok(());
            }
            let mut file = files::create(&scratch.join(path), mode).map_err(io::Error::other)?;
            io::copy(content, &mut file).map(drop)
        })?)
    }

    /// Removes the records of members from the node documents. The restored etcd has one member, on
    /// the first host, even if that host had given its member away; the other hosts join again.
    fn forget_members(&mut self) -> anyhow::Result<()> {
        let config = self.config();
        let Ok(texts) = Texts::from_dir(&config) else {
            // Reported with all other problems of the documents.
            return Ok(());
        };
        let Ok(declaration) = load(&texts, &Context::default()) else {
            return Ok(());
        };
        for node in declaration.nodes.values() {
            let file = &node.source.file;
            let text = resolve::without_member(&declaration, node)
                .map_err(|problem| anyhow::anyhow!("{problem}"))?;
            if let Some(text) = text {
                std::fs::write(file, text).with_context(|| format!("cannot write {file}"))?;
                if let Ok(name) = Path::new(file).strip_prefix(&config) {
                    let original = node.source.text().to_owned();
                    self.original.insert(name.display().to_string(), original);
                }
            }
        }
        Ok(())
    }

    /// The directory with the declaration: the backup's, or the host's once it has been written.
    pub fn config(&self) -> PathBuf {
        match self.progress {
            Progress::Placed => self.places.config.clone(),
            _ => self.scratch.path().join(halite_backup::CONFIG),
        }
    }

    /// The text of a document by its path below the configuration directory: the backup's, or the
    /// host's once it has been written.
    pub fn document(&self, name: &str) -> Option<String> {
        let original = self.original.get(name).cloned();
        original.or_else(|| std::fs::read_to_string(self.config().join(name)).ok())
    }

    /// `true` as long as this host has no part of the cluster.
    pub fn is_bare(&self) -> bool {
        self.progress != Progress::Placed
    }

    /// Filters the Kubernetes files found on this host: removes those of this restore, because
    /// after an interruption etcd's data may already be in place.
    pub fn foreign(&self, mut found: Vec<String>) -> Vec<String> {
        if self.progress == Progress::Begun {
            let own = self.places.member();
            found.retain(|path| Path::new(path) != own);
        }
        found
    }

    /// The keys of the backup.
    pub fn keys(&self) -> &[Identity] {
        &self.keys
    }

    /// The lines about the backup, for the screen.
    pub fn summary(&self) -> String {
        let header = self.backup.header();
        let mut text = format!(
            "restore      cluster {} as of {}, etcd from {}; later changes are lost",
            header.cluster, header.created, header.etcd.member
        );
        if let Some(manifest) = &self.manifest {
            text.push_str("\n             ");
            text.push_str(&self.origin.summary(manifest));
        }
        text
    }

    /// Refuses to restore a cluster that still runs on other hosts: it would exist twice.
    ///
    /// # Errors
    /// A member of etcd, a control plane or a master answers.
    pub fn refuse_living(&self, declared: &Declared, name: &str) -> anyhow::Result<()> {
        if self.progress == Progress::Placed {
            return Ok(());
        }
        let parts = living::possible(&declared.others(name));
        refuse(&living::living(parts, living::answers))
    }

    /// Puts etcd's data, the master's files and the operator's files in place. The caller writes
    /// the declaration of cluster and first host, and then calls [`Restore::placed`]. `time` is
    /// read from the clock after it was set.
    ///
    /// # Errors
    /// The bundle lacks etcd's program, or the system refuses.
    pub fn place(
        &mut self,
        preparation: &Preparation,
        declared: &Declared,
        time: Timestamp,
        screen: &mut Screen,
    ) -> anyhow::Result<()> {
        if self.progress == Progress::Placed {
            return Ok(());
        }
        if declared.has_external_etcd() {
            screen.line(
                "etcd         is external and is left unchanged: its snapshot in the backup is not restored",
            );
            self.begin()?;
            self.fill_files(time)?;
            self.recover_secrets(screen);
            return Ok(());
        }
        let address = declared.control_plane(&preparation.name);
        let member = RestoredMember {
            name: preparation.name.clone(),
            address: address.context("this host has no control-plane address")?,
        };
        let reference = preparation.manifest.images.get("etcd");
        let reference = reference.context("the bundle has no image of etcd")?;
        let layout = preparation.bundle.join("images");
        screen.progress("restore: etcd");
        let restorer = |to: &Path| Restorer::unpack(&layout, reference, to);
        self.fill(&member, time, restorer)?;
        self.recover_secrets(screen);
        Ok(())
    }

    /// Encrypts the values of secrets to this host with the key of the backup, which is a recovery
    /// recipient. Without it the restore continues: the master says what is missing.
    fn recover_secrets(&self, screen: &mut Screen) {
        let file = SecretFile::new(&self.places.config, &self.places.state);
        if !file.exists() || file.read().is_ok() {
            return;
        }
        let texts = Texts::from_dir(&self.scratch.path().join(halite_backup::CONFIG));
        let declaration = texts.and_then(|texts| load(&texts, &Context::default()));
        let recovered = file.recover(&self.keys, declaration.ok().as_ref());
        screen.line(match recovered {
            Ok(()) => "secrets      their values are encrypted to this host".to_owned(),
            Err(error) => format!(
                "secrets      {}. Until `ctl secrets recover --key FILE` has run here with such a key, the master applies no states. \
                 If there is none, remove {} and write the values again with `ctl secrets edit`",
                chain(&error),
                file.path().display()
            ),
        });
    }

    fn fill(
        &mut self,
        member: &RestoredMember,
        time: Timestamp,
        restorer: impl FnOnce(&Path) -> anyhow::Result<Restorer>,
    ) -> anyhow::Result<()> {
        self.begin()?;
        if !self.places.has_member() {
            let snapshot = self.places.work.join("etcd.snapshot");
            self.unpack_snapshot(&snapshot)?;
            let restorer = restorer(&self.places.work.join("etcdutl"))?;
            let token = self.backup.digest();
            restorer.restore(&snapshot, &self.places.etcd, member, token)?;
            files::remove_any(&snapshot)?;
        }
        member.record(&self.places.etcd, &self.places.record)?;
        self.fill_files(time)
    }

    /// Records that the host is no longer bare.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.places.begin(self.backup.digest())?;
        self.progress = Progress::Begun;
        Ok(())
    }

    fn fill_files(&self, time: Timestamp) -> anyhow::Result<()> {
        let epoch = place::epoch(self.backup.header(), time);
        self.places.fill(self.scratch.path(), epoch)
    }

    fn unpack_snapshot(&self, to: &Path) -> anyhow::Result<()> {
        files::remove_any(to)?;
        self.backup.read(&self.keys, &mut |path, mode, content| {
            if path != SNAPSHOT {
                return Ok(());
            }
            let mut file = files::create(to, mode).map_err(io::Error::other)?;
            io::copy(content, &mut file)?;
            file.sync_all()
        })?;
        Ok(())
    }

    /// Records that all files are in place: from now on the host has the cluster's newest state.
    ///
    /// # Errors
    /// The system's reason.
    pub fn placed(&mut self) -> anyhow::Result<()> {
        if self.progress != Progress::Placed {
            self.places.placed(self.backup.digest())?;
            self.progress = Progress::Placed;
        }
        Ok(())
    }

    /// Removes the mark of the restore. The same command is then refused: the host has a cluster.
    ///
    /// # Errors
    /// The system's reason.
    pub fn finish(&self) -> anyhow::Result<()> {
        Ok(files::remove_dir(&self.places.work)?)
    }
}

fn refuse(living: &[LivingPart]) -> anyhow::Result<()> {
    if living.is_empty() {
        return Ok(());
    }
    let living: Vec<String> = living.iter().map(ToString::to_string).collect();
    bail!(
        "cannot restore the cluster here: it still runs on other hosts:\n  {}\na restore makes a second cluster beside it, with the same \
         keys. If the others are a quorum, replace this host instead (`ctl node replace`; a standby takes the place of its master); \
         otherwise switch those hosts off, and add them again as bare hosts after the restore. Nothing was changed.",
        living.join("\n  ")
    )
}

#[cfg(test)]
mod tests;
