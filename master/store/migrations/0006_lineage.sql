-- One row, by which a store is recognised that has gone back to an earlier state.
CREATE TABLE lineage (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Grows with each way back.
    epoch   INTEGER NOT NULL,
    -- Grows with each start of the master.
    starts  INTEGER NOT NULL,
    -- True in the good copy.
    is_copy INTEGER NOT NULL
) STRICT;
INSERT INTO lineage VALUES (1, 1, 0, 0);
