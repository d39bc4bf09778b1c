-- The knowledge of the receivers of notifications: one text, which only its writer reads.
CREATE TABLE notifications (
    id     INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    ledger TEXT    NOT NULL
) STRICT;
