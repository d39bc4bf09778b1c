//! The parts of a backup, from the master or from this standby's own copy.

use halite_proto::tonic::Streaming;
use halite_proto::v1;
use halite_proto::v1::backup_part::Part;
use tokio::sync::mpsc::Sender;

use super::own;
use super::own::Saving;
use crate::cli::Global;
use crate::client;
use crate::client::refused;
use crate::output::Screen;

/// A stream of parts.
pub enum PartSource {
    /// The master's answer.
    Master(Streaming<v1::BackupPart>),
    /// The program of this standby.
    Own(Saving),
}

impl PartSource {
    /// Starts a backup: on a standby, if `local`, from its own copy; otherwise from the master.
    ///
    /// # Errors
    /// The master refuses or does not answer, or the program cannot be started.
    pub async fn open(global: &Global, local: bool, screen: &mut Screen) -> anyhow::Result<Self> {
        if let Some(program) = own::program().filter(|_| local) {
            screen.progress("reading this standby's copy of the master");
            return Saving::start(&program).map(Self::Own);
        }
        screen.progress("asking the master for the files");
        let mut operator = client::operator(global).await?;
        let answer = operator.backup(v1::BackupRequest {}).await;
        let stream = answer.map_err(|status| refused(&status))?.into_inner();
        Ok(Self::Master(stream))
    }

    /// The next part; `None` after the last one.
    ///
    /// # Errors
    /// The stream broke, or its sender failed.
    pub async fn next(&mut self) -> anyhow::Result<Option<Part>> {
        match self {
            Self::Master(stream) => {
                let part = stream.message().await;
                let part = part.map_err(|status| refused(&status))?;
                Ok(part.and_then(|part| part.part))
            }
            Self::Own(saving) => saving.next(),
        }
    }

    /// Passes the parts to their writer. If the writer has stopped, its own error counts.
    ///
    /// # Errors
    /// The stream broke, or its sender failed.
    pub async fn pass_on(mut self, to: Sender<Part>) -> anyhow::Result<()> {
        if let Self::Own(mut saving) = self {
            // The reads block, so they run in a separate thread.
            let reading = tokio::task::spawn_blocking(move || {
                while let Some(part) = saving.next()? {
                    if to.blocking_send(part).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            return reading.await?;
        }
        while let Some(part) = self.next().await? {
            if to.send(part).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}
