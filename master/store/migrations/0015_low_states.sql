-- The low state of a minion's part of a job. It is written once; in the part's own row, each change of
-- the part's state wrote all of it again. Rows of earlier versions keep theirs in job_rows.low_json
-- until it is removed, a day after their part has ended: moving them would take long in a large store.
CREATE TABLE low_states (
    jid      TEXT NOT NULL REFERENCES jobs (jid) ON DELETE CASCADE,
    minion   TEXT NOT NULL,
    low_json TEXT NOT NULL,
    PRIMARY KEY (jid, minion)
) STRICT;
