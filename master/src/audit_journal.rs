//! The audit log in the journal of the host, with fields (`systemd.journal-fields(7)`), so that a
//! collector of the site takes it from there.
//!
//! A line goes to journald's own socket, one datagram each. It must not delay its call: a line that
//! the socket does not take at once goes to standard error as text.

use std::fmt;
use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use halite_cli::output;
use halite_store::AUDIT_TARGET;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The socket of journald.
pub const SOCKET: &str = "/run/systemd/journal/socket";
/// The fields of every line. The facility is that of audit logs (RFC 5424, section 6.2.1).
const FIXED: &str = "SYSLOG_IDENTIFIER=halite-audit\nSYSLOG_FACILITY=13\n";
/// Priorities: notice for a refusal, or else information.
const PRIORITIES: (&str, &str) = ("5", "6");
/// The most bytes of a value: a caller chooses its length, and a datagram has a limit.
const LONGEST: usize = 8 << 10;

/// The layer of `tracing` that sends audit lines to journald.
pub struct AuditJournal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl AuditJournal {
    /// A sender to a socket of journald.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn new(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }

    /// Sends a line, or fails at once.
    fn send(&self, line: &AuditFields) -> io::Result<()> {
        self.socket.send_to(&line.datagram(), &self.path).map(drop)
    }
}

impl<S: Subscriber> Layer<S> for AuditJournal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != AUDIT_TARGET {
            return;
        }
        let mut line = AuditFields::default();
        event.record(&mut line);
        if let Err(error) = self.send(&line) {
            output::report(&line.fallback(&error));
        }
    }
}

/// The fields of an audit line.
#[derive(Default)]
struct AuditFields {
    time: String,
    who: String,
    action: String,
    what: String,
    outcome: String,
}

impl AuditFields {
    /// The line for people.
    fn text(&self) -> String {
        let Self {
            who,
            action,
            what,
            outcome,
            ..
        } = self;
        match what.as_str() {
            "" => format!("{who} {action}: {outcome}"),
            what => format!("{who} {action} {what}: {outcome}"),
        }
    }

    /// The line for standard error. A line break in a value begins no further line.
    fn fallback(&self, error: &io::Error) -> String {
        let text = self.text();
        format!(
            "audit: {} (not in the journal: {error})",
            text.escape_debug()
        )
    }

    /// The line in journald's format (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>).
    fn datagram(&self) -> Vec<u8> {
        let priority = match self.outcome.starts_with("refused") {
            true => PRIORITIES.0,
            false => PRIORITIES.1,
        };
        let mut out = FIXED.as_bytes().to_vec();
        add(&mut out, "PRIORITY", priority);
        add(&mut out, "MESSAGE", &self.text());
        add(&mut out, "HALITE_AUDIT_TIME", &self.time);
        add(&mut out, "HALITE_AUDIT_WHO", &self.who);
        add(&mut out, "HALITE_AUDIT_ACTION", &self.action);
        add(&mut out, "HALITE_AUDIT_WHAT", &self.what);
        add(&mut out, "HALITE_AUDIT_OUTCOME", &self.outcome);
        out
    }
}

/// Adds a field. A value with a line break would be read as further fields, so it is preceded by
/// its length instead.
fn add(out: &mut Vec<u8>, name: &str, value: &str) {
    let value = &value[..value.floor_char_boundary(LONGEST)];
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

impl Visit for AuditFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let own = match field.name() {
            "time" => &mut self.time,
            "who" => &mut self.who,
            "action" => &mut self.action,
            "what" => &mut self.what,
            "outcome" => &mut self.outcome,
            _ => return,
        };
        value.clone_into(own);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a String succeeds.
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use halite_store::{Audit, Store};
    use tracing_subscriber::prelude::*;

    use super::*;

    /// Reads a datagram as journald does.
    fn read(mut rest: &[u8]) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
            let line = std::str::from_utf8(&rest[..end]).unwrap();
            rest = &rest[end + 1..];
            if let Some((name, value)) = line.split_once('=') {
                fields.insert(name.to_owned(), value.to_owned());
                continue;
            }
            let (length, value) = rest.split_at(8);
            let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
            let text = String::from_utf8(value[..length].to_vec()).unwrap();
            fields.insert(line.to_owned(), text);
            assert_eq!(value[length], b'\n');
            rest = &value[length + 1..];
        }
        fields
    }

    fn line(what: &str, outcome: &str) -> Audit {
        Audit {
            time: 1_800_000_000_000,
            who: "operator:alice".to_owned(),
            method: "Operator/Run".to_owned(),
            what: what.to_owned(),
            outcome: outcome.to_owned(),
        }
    }

    #[test]
    fn each_line_of_the_audit_reaches_the_journal_with_its_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        journald
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let layer = AuditJournal::new(&path).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer);
        let lines = [
            line("test.ping on *", "ok"),
            line("a\nMESSAGE=forged", "refused: no"),
            line(&"é".repeat(10_000), "ok"),
        ];
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(who = "other", "not of the audit");
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let store = Store::open(&directory.path().join("store.db"))
                    .await
                    .unwrap();
                for line in &lines {
                    store.append_audit(line).await.unwrap();
                }
            });
        });
        let mut buffer = vec![0; 1 << 20];
        let mut next = || {
            let length = journald.recv(&mut buffer).unwrap();
            read(&buffer[..length])
        };
        let first = next();
        let field = |name: &str| first.get(name).map(String::as_str);
        assert_eq!(
            field("MESSAGE"),
            Some("operator:alice Operator/Run test.ping on *: ok")
        );
        assert_eq!(field("SYSLOG_IDENTIFIER"), Some("halite-audit"));
        assert_eq!(field("PRIORITY"), Some("6"));
        assert_eq!(field("HALITE_AUDIT_TIME"), Some("2027-01-15T08:00:00.000Z"));
        assert_eq!(field("HALITE_AUDIT_WHO"), Some("operator:alice"));
        assert_eq!(field("HALITE_AUDIT_ACTION"), Some("Operator/Run"));
        assert_eq!(field("HALITE_AUDIT_WHAT"), Some("test.ping on *"));
        assert_eq!(field("HALITE_AUDIT_OUTCOME"), Some("ok"));
        let second = next();
        assert_eq!(second["HALITE_AUDIT_WHAT"], "a\nMESSAGE=forged");
        assert!(
            second["MESSAGE"].starts_with("operator:alice"),
            "{second:?}"
        );
        assert_eq!(second["PRIORITY"], "5");
        let third = next();
        assert_eq!(
            third["HALITE_AUDIT_WHAT"].len(),
            LONGEST,
            "long values are cut"
        );
    }

    #[test]
    fn a_line_on_standard_error_is_one_line() {
        let line = AuditFields {
            who: "operator:alice".to_owned(),
            action: "Operator/Run".to_owned(),
            what: "a\naudit: forged".to_owned(),
            outcome: "ok".to_owned(),
            ..AuditFields::default()
        };
        assert_eq!(
            line.fallback(&io::Error::other("away")),
            "audit: operator:alice Operator/Run a\\naudit: forged: ok (not in the journal: away)"
        );
    }

    #[test]
    fn a_journal_that_is_away_or_full_delays_no_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (layer, line) = (AuditJournal::new(&path).unwrap(), AuditFields::default());
        let away = layer.send(&line).unwrap_err();
        assert_eq!(away.kind(), io::ErrorKind::NotFound);
        // Nothing reads from it; systemd allows 512 datagrams to wait.
        let full = UnixDatagram::bind(&path).unwrap();
        let refused = (0..2000).find_map(|_| layer.send(&line).err()).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        // It is in use again once journald has read from it.
        full.recv(&mut [0; 1000]).unwrap();
        layer.send(&line).unwrap();
    }
}
