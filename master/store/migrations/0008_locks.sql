-- One change at a time: the run that holds a lock. It holds it until it has ended.
CREATE TABLE locks (
    name  TEXT    NOT NULL PRIMARY KEY,
    run   TEXT    NOT NULL,
    since INTEGER NOT NULL
) STRICT;
