//! The system bus, connected to when first needed and again when the connection was lost.

use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;
use zbus::{Connection, DynamicType, Message};

use crate::host::{HostError, HostResult};

/// Longest wait for an answer. firewalld reloads within a call.
const DEADLINE: Duration = Duration::from_secs(120);

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
#[derive(Debug, Default)]
pub struct Bus(Mutex<Option<Connection>>);

impl Bus {
    /// The connection.
    ///
    /// # Errors
    /// There is no system bus.
    pub async fn connection(&self) -> HostResult<Connection> {
        let mut slot = self.0.lock().await;
        if let Some(open) = slot.as_ref().filter(|c| !c.is_closed()) {
            return Ok(open.clone());
        }
        let opened = zbus::connection::Builder::system()
            .method_timeout(DEADLINE)
            .build()
            .await;
        let opened = opened
            .map_err(|e| HostError::failed("cannot reach the system bus (is dbus running?)", e))?;
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
    /// As [`Bus::try_call`], and the service's own errors.
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
