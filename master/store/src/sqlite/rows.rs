//! Conversion of rows to records.

use std::str::FromStr;

use halite_proto::role::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, FromRow, Row as _};

use crate::parts::{OpenPart, StoredPart};
use crate::records::{
    Audit, Certificate, Event, Facts, Job, JobRow, JobStatus, KeyState, MinionBundle, Operator,
    Revocation, RowState, Run, RunStatus, SteadyDeadline, Step, StepStatus, StoredKey, Token,
};
use crate::{Millis, StoreError};

fn list<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<Vec<T>, Error> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|error| Error::Decode(Box::new(error)))
}

fn word<T>(
    row: &SqliteRow,
    column: &str,
    parse: fn(&str) -> Result<T, StoreError>,
) -> Result<T, Error> {
    let text: String = row.try_get(column)?;
    parse(&text).map_err(|error| Error::Decode(Box::new(error)))
}

fn parsed<T: FromStr>(text: &str) -> Result<T, Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|error| Error::Decode(Box::new(error)))
}

/// Parses an identifier.
fn id<T: FromStr>(row: &SqliteRow, column: &str) -> Result<T, Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    parsed(row.try_get(column)?)
}

/// Parses an identifier; `None` if the column is null or empty.
fn optional_id<T: FromStr>(row: &SqliteRow, column: &str) -> Result<Option<T>, Error>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text: Option<&str> = row.try_get(column)?;
    text.filter(|text| !text.is_empty()).map(parsed).transpose()
}

/// Serialises a list for its column.
pub(super) fn json<T: Serialize>(list: &[T]) -> Result<String, Error> {
    serde_json::to_string(list).map_err(|error| Error::Encode(Box::new(error)))
}

impl FromRow<'_, SqliteRow> for StoredKey {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            id: id(row, "id")?,
            state: word(row, "state", KeyState::parse)?,
            fingerprint: row.try_get("fingerprint")?,
            csr_pem: row.try_get("csr_pem")?,
            serial: row.try_get("serial")?,
            certificate_pem: row.try_get("certificate_pem")?,
            roles: list(row, "roles")?,
            grains_json: row.try_get("grains_json")?,
            token: row.try_get("token")?,
            created: row.try_get("created")?,
            changed: row.try_get("changed")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Token {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            id: row.try_get("id")?,
            secret_sha256: row.try_get("secret_sha256")?,
            expires: row.try_get("expires")?,
            uses_left: row.try_get("uses_left")?,
            roles: list(row, "roles")?,
            bound_id: optional_id(row, "bound_id")?,
            created: row.try_get("created")?,
            operator: row.try_get("operator")?,
        })
    }
}

fn role(text: &str) -> Result<Role, StoreError> {
    Role::find(text).ok_or_else(|| StoreError::Unknown {
        what: "role",
        value: text.to_owned(),
    })
}

impl FromRow<'_, SqliteRow> for Operator {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            name: row.try_get("name")?,
            role: word(row, "role", role)?,
            fingerprint: row.try_get("fingerprint")?,
            created: row.try_get("created")?,
            creator: row.try_get("creator")?,
            expires: row.try_get("expires")?,
            revoked: row.try_get("revoked")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Certificate {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            serial: row.try_get("serial")?,
            ca: row.try_get("ca")?,
            subject: row.try_get("subject")?,
            owner: row.try_get("owner")?,
            job: optional_id(row, "job")?,
            tag: row.try_get("tag")?,
            created: row.try_get("created")?,
            not_after: row.try_get("not_after")?,
            pem: row.try_get("pem")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Revocation {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            serial: row.try_get("serial")?,
            owner: row.try_get("owner")?,
            when: row.try_get("time")?,
            reason: row.try_get("reason")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Job {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            job_id: id(row, "jid")?,
            function: row.try_get("function")?,
            args_json: row.try_get("args_json")?,
            test: row.try_get("test")?,
            operator: row.try_get("operator")?,
            target: row.try_get("target")?,
            minions: list(row, "minions")?,
            order: list(row, "minion_order")?,
            created: row.try_get("created")?,
            deadline: row.try_get("deadline")?,
            steady_deadline: steady(row)?,
            request_id: row.try_get("request_id")?,
            status: word(row, "status", JobStatus::parse)?,
            retcode: row.try_get("retcode")?,
            finished: row.try_get("finished")?,
            bundle: optional_id(row, "bundle")?,
        })
    }
}

fn steady(row: &SqliteRow) -> Result<Option<SteadyDeadline>, Error> {
    let boot: Option<String> = row.try_get("boot")?;
    let millis: Option<Millis> = row.try_get("boot_deadline")?;
    let both = boot.zip(millis);
    Ok(both.map(|(boot, millis)| SteadyDeadline { boot, millis }))
}

impl FromRow<'_, SqliteRow> for MinionBundle {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            minion: id(row, "minion")?,
            bundle: id(row, "bundle")?,
            job_id: id(row, "jid")?,
            highstate: optional_id(row, "highstate")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for JobRow {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            job_id: id(row, "jid")?,
            minion: id(row, "minion")?,
            low_json: row.try_get("low_json")?,
            state: word(row, "state", RowState::parse)?,
            return_json: row.try_get("return_json")?,
            retcode: row.try_get("retcode")?,
            error: row.try_get("error")?,
            sent: row.try_get("sent")?,
            started: row.try_get("started")?,
            ended: row.try_get("ended")?,
            bundle: optional_id(row, "bundle")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for OpenPart {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            job_id: id(row, "jid")?,
            minion: id(row, "minion")?,
            state: word(row, "state", RowState::parse)?,
            has_low_state: row.try_get("has_low_state")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for StoredPart {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            minion: id(row, "minion")?,
            state: word(row, "state", RowState::parse)?,
            retcode: row.try_get("retcode")?,
            error: row.try_get("error")?,
            ended: row.try_get("ended")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Run {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            id: id(row, "id")?,
            sls: row.try_get("sls")?,
            pillar_json: row.try_get("pillar_json")?,
            test: row.try_get("test")?,
            operator: row.try_get("operator")?,
            request_id: row.try_get("request_id")?,
            low_json: row.try_get("low_json")?,
            status: word(row, "status", RunStatus::parse)?,
            current: row.try_get("current")?,
            cancelled_by: row.try_get("cancelled_by")?,
            paused_by: row.try_get("paused_by")?,
            created: row.try_get("created")?,
            changed: row.try_get("changed")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Step {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            run: id(row, "run")?,
            index: row.try_get("position")?,
            name: row.try_get("name")?,
            status: word(row, "status", StepStatus::parse)?,
            detail_json: row.try_get("detail_json")?,
            started: row.try_get("started")?,
            ended: row.try_get("ended")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Event {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            seq: row.try_get("seq")?,
            tag: row.try_get("tag")?,
            time: row.try_get("time")?,
            data_json: row.try_get("data_json")?,
            last: row.try_get("last")?,
            retcode: row.try_get("retcode")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Audit {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            time: row.try_get("time")?,
            who: row.try_get("who")?,
            method: row.try_get("method")?,
            what: row.try_get("what")?,
            outcome: row.try_get("outcome")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Facts {
    fn from_row(row: &SqliteRow) -> Result<Self, Error> {
        Ok(Self {
            minion: id(row, "minion")?,
            grains_json: row.try_get("grains_json")?,
            version: row.try_get("version")?,
            last_seen: row.try_get("last_seen")?,
        })
    }
}
