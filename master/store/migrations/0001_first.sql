-- Times are milliseconds since the Unix epoch, UTC. Lists and documents are JSON text.

CREATE TABLE keys (
    id              TEXT    NOT NULL PRIMARY KEY,
    state           TEXT    NOT NULL,
    fingerprint     TEXT    NOT NULL,
    csr_pem         TEXT    NOT NULL,
    serial          TEXT,
    certificate_pem TEXT,
    roles           TEXT    NOT NULL,
    grains_json     TEXT    NOT NULL,
    created         INTEGER NOT NULL,
    changed         INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    id            TEXT    NOT NULL PRIMARY KEY,
    secret_sha256 TEXT    NOT NULL,
    expires       INTEGER NOT NULL,
    uses_left     INTEGER NOT NULL,
    roles         TEXT    NOT NULL,
    bound_id      TEXT,
    created       INTEGER NOT NULL,
    operator      TEXT    NOT NULL
) STRICT;

CREATE TABLE certificates (
    serial    TEXT    NOT NULL,
    ca        TEXT    NOT NULL,
    subject   TEXT    NOT NULL,
    owner     TEXT    NOT NULL,
    job       TEXT    NOT NULL,
    tag       TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    not_after INTEGER NOT NULL,
    pem       TEXT    NOT NULL,
    PRIMARY KEY (ca, serial)
) STRICT;

CREATE TABLE revocations (
    serial TEXT    NOT NULL PRIMARY KEY,
    owner  TEXT    NOT NULL,
    time   INTEGER NOT NULL,
    reason TEXT    NOT NULL
) STRICT;

CREATE TABLE jobs (
    jid        TEXT    NOT NULL PRIMARY KEY,
    function   TEXT    NOT NULL,
    args_json  TEXT    NOT NULL,
    test       INTEGER NOT NULL,
    operator   TEXT    NOT NULL,
    target     TEXT    NOT NULL,
    minions    TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    deadline   INTEGER,
    request_id TEXT    UNIQUE,
    status     TEXT    NOT NULL,
    retcode    INTEGER,
    finished   INTEGER
) STRICT;
CREATE INDEX jobs_open ON jobs (status) WHERE status = 'running';

CREATE TABLE job_rows (
    jid         TEXT    NOT NULL REFERENCES jobs (jid) ON DELETE CASCADE,
    minion      TEXT    NOT NULL,
    low_json    TEXT,
    state       TEXT    NOT NULL,
    return_json TEXT,
    retcode     INTEGER,
    error       TEXT    NOT NULL,
    sent        INTEGER,
    started     INTEGER,
    ended       INTEGER,
    PRIMARY KEY (jid, minion)
) STRICT;
CREATE INDEX job_rows_open ON job_rows (minion, jid) WHERE state IN ('queued', 'sent', 'started');

CREATE TABLE runs (
    id          TEXT    NOT NULL PRIMARY KEY,
    sls         TEXT    NOT NULL,
    pillar_json TEXT    NOT NULL,
    test        INTEGER NOT NULL,
    operator    TEXT    NOT NULL,
    request_id  TEXT    UNIQUE,
    low_json    TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    current     INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    changed     INTEGER NOT NULL
) STRICT;

CREATE TABLE steps (
    run         TEXT    NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    position    INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    detail_json TEXT    NOT NULL,
    started     INTEGER,
    ended       INTEGER,
    PRIMARY KEY (run, position)
) STRICT;

-- AUTOINCREMENT: a number is never given twice, even after old events were removed.
CREATE TABLE events (
    seq       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tag       TEXT    NOT NULL,
    time      INTEGER NOT NULL,
    data_json TEXT    NOT NULL,
    last      INTEGER NOT NULL,
    retcode   INTEGER NOT NULL
) STRICT;
CREATE INDEX events_by_tag ON events (tag, seq);

CREATE TABLE audit (
    seq     INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    time    INTEGER NOT NULL,
    who     TEXT    NOT NULL,
    method  TEXT    NOT NULL,
    what    TEXT    NOT NULL,
    outcome TEXT    NOT NULL
) STRICT;

CREATE TABLE facts (
    minion      TEXT    NOT NULL PRIMARY KEY,
    grains_json TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    last_seen   INTEGER NOT NULL
) STRICT;

CREATE TABLE blobs (
    sha256  TEXT NOT NULL PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;
