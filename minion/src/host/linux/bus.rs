//! The system bus, connected on first use and again after the connection was lost.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;
use zbus::connection::Builder;
use zbus::{Connection, DynamicType, Message};

use crate::host::{HostError, HostResult};

/// Longest wait for an answer. firewalld reloads within a call.
const DEADLINE: Duration = Duration::from_secs(120);
/// Longest wait for the connection, including its greeting: libdbus waits as long for any answer.
const CONNECT: Duration = Duration::from_secs(25);

/// The object that a call goes to.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// Bus name.
    pub service: &'a str,
    /// Object path.
    pub path: &'a str,
    /// Interface.
    pub interface: &'a str,
}

/// A lazily opened connection.
#[derive(Debug)]
pub struct Bus {
    open: Mutex<Option<Connection>>,
    address: Option<String>,
    limit: Duration,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            address: None,
            limit: CONNECT,
        }
    }
}

impl Bus {
    /// The connection.
    ///
    /// # Errors
    /// There is no system bus, or it accepts the connection and does not answer.
    pub async fn connection(&self) -> HostResult<Connection> {
        // The limit includes the wait for another caller that is connecting.
        let Ok(connected) = tokio::time::timeout(self.limit, self.connect()).await else {
            return Err(HostError::refused(format!(
                "cannot reach the system bus: it did not answer the connection within {} s; see `systemctl status dbus` \
                 and `journalctl -u dbus`",
                self.limit.as_secs()
            )));
        };
        connected
            .map_err(|e| HostError::failed("cannot reach the system bus (is dbus running?)", e))
    }

    async fn connect(&self) -> zbus::Result<Connection> {
        let mut slot = self.open.lock().await;
        if let Some(open) = slot.as_ref().filter(|c| !c.is_closed()) {
            return Ok(open.clone());
        }
        let builder = match &self.address {
            Some(address) => Builder::address(address.as_str()),
            None => Builder::system(),
        };
        let opened = builder.method_timeout(DEADLINE).build().await?;
        *slot = Some(opened.clone());
        Ok(opened)
    }

    /// Has the bus read its rules again (`org.freedesktop.DBus.ReloadConfig`).
    ///
    /// # Errors
    /// There is no bus, or it refuses its rules.
    pub async fn reload_rules(&self) -> HostResult<()> {
        const SELF: Object<'static> = Object {
            service: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
        };
        self.call(SELF, "ReloadConfig", &()).await.map(drop)
    }

    /// Calls a method. The outer error is the bus's, the inner one the service's: its name and
    /// text.
    ///
    /// # Errors
    /// No bus, no such service, or no answer.
    pub async fn try_call<B: Serialize + DynamicType>(
        &self,
        object: Object<'_>,
        method: &str,
        body: &B,
    ) -> HostResult<Result<Message, (String, String)>> {
        let connection = self.connection().await?;
        let Object {
            service,
            path,
            interface,
        } = object;
        match connection
            .call_method(Some(service), path, Some(interface), method, body)
            .await
        {
            Ok(reply) => Ok(Ok(reply)),
            Err(zbus::Error::MethodError(name, text, _)) => {
                Ok(Err((name.to_string(), text.unwrap_or_default())))
            }
            Err(zbus::Error::FDO(error)) => match *error {
                zbus::fdo::Error::ServiceUnknown(_) | zbus::fdo::Error::NameHasNoOwner(_) => Err(
                    HostError::refused(format!("{service} is not running on this host")),
                ),
                other => Ok(Err((
                    "org.freedesktop.DBus.Error".to_owned(),
                    other.to_string(),
                ))),
            },
            Err(e) => Err(HostError::failed(format!("{service}: {method}"), e)),
        }
    }

    /// Calls a method; the service's own error is an error too.
    ///
    /// # Errors
    /// Like [`Bus::try_call`], and the service's own errors.
    pub async fn call<B: Serialize + DynamicType>(
        &self,
        object: Object<'_>,
        method: &str,
        body: &B,
    ) -> HostResult<Message> {
        match self.try_call(object, method, body).await? {
            Ok(reply) => Ok(reply),
            Err((name, text)) => {
                let reason = if text.is_empty() { name } else { text };
                Err(HostError::refused(format!(
                    "{}: {method}: {reason}",
                    object.service
                )))
            }
        }
    }
}

/// An answer of an unexpected shape.
pub fn unreadable(what: &str) -> impl Fn(zbus::Error) -> HostError + '_ {
    move |e| HostError::failed(format!("{what}: unreadable answer"), e)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixListener;

    use super::*;

    /// A bus on a socket of the test.
    fn bus_at(directory: &tempfile::TempDir, limit: Duration) -> (Bus, UnixListener) {
        let path = directory.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let bus = Bus {
            open: Mutex::default(),
            address: Some(format!("unix:path={}", path.display())),
            limit,
        };
        (bus, listener)
    }

    #[tokio::test]
    async fn a_bus_that_accepts_but_never_answers_times_out() {
        let directory = tempfile::tempdir().unwrap();
        let (bus, listener) = bus_at(&directory, Duration::from_secs(1));
        let silent = async {
            let mut accepted = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // The client starts: a zero byte, and its authentication method.
                let mut greeting = [0; 5];
                if stream.read_exact(&mut greeting).await.is_ok() {
                    assert_eq!(&greeting, b"\0AUTH");
                    accepted.push(stream);
                }
            }
        };
        // Two concurrent callers, and one after them, wait no longer than one.
        let call = || async { bus.reload_rules().await.unwrap_err().to_string() };
        let calls = async {
            let (first, second) = tokio::join!(call(), call());
            [first, second, call().await]
        };
        // Only a failure waits so long.
        let limit = Duration::from_secs(60);
        let errors = tokio::select! {
            errors = tokio::time::timeout(limit, calls) => errors.expect("it waits without end"),
            () = silent => unreachable!("it accepts without end"),
        };
        for error in errors {
            assert_eq!(
                error,
                "cannot reach the system bus: it did not answer the connection within 1 s; see `systemctl status dbus` and \
                 `journalctl -u dbus`"
            );
        }
    }

    #[tokio::test]
    async fn a_bus_that_is_not_there_is_an_error_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (bus, listener) = bus_at(&directory, CONNECT);
        drop(listener);
        let error = halite_errors::chain(&bus.connection().await.unwrap_err());
        assert!(
            error.starts_with("cannot reach the system bus (is dbus running?): "),
            "{error}"
        );
    }
}
