-- The order of what happens to keys, tokens and operators. A clock that is set changes their times, and not
-- this. What is there already has the order of its times.
CREATE TABLE turns (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;
-- Of the first request with an id, and of the last change.
ALTER TABLE keys ADD COLUMN first_turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE keys ADD COLUMN last_turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
-- Of the revocation; null: the operator is not revoked.
ALTER TABLE operators ADD COLUMN revoked_turn INTEGER;
UPDATE keys SET first_turn = created, last_turn = changed;
UPDATE tokens SET turn = created;
UPDATE operators SET revoked_turn = revoked;
INSERT INTO turns SELECT 1, coalesce(max(turn), 0) FROM (
    SELECT max(first_turn, last_turn) AS turn FROM keys
    UNION ALL SELECT turn FROM tokens
    UNION ALL SELECT revoked_turn FROM operators);
