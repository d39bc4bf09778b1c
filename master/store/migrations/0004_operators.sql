-- The operators, by name. A certificate of another key than the recorded one is refused.
CREATE TABLE operators (
    name        TEXT    NOT NULL PRIMARY KEY,
    role        TEXT    NOT NULL,
    -- Null: any key with a certificate of this name, for operators from before there was a record.
    fingerprint TEXT,
    created     INTEGER NOT NULL,
    creator     TEXT    NOT NULL,
    -- Null: `halite-master init` renews the certificate.
    expires     INTEGER,
    revoked     INTEGER
) STRICT;
-- The operator of `halite-master init`, and those that this master has seen: all could do everything.
INSERT INTO operators VALUES ('root', 'admin', NULL, 0, 'halite-master init', NULL, NULL);
INSERT OR IGNORE INTO operators
    SELECT substr(who, 10), 'admin', NULL, min(time), 'an earlier version', NULL, NULL
    FROM audit WHERE who LIKE 'operator:_%' GROUP BY who;

-- The token that a key came in with: it is taken back with the key.
ALTER TABLE keys ADD COLUMN token TEXT;
UPDATE keys SET token = (
    SELECT json_extract(data_json, '$.token') FROM events
    WHERE tag = 'halite/key/' || keys.id AND json_valid(data_json) AND json_type(data_json, '$.token') = 'text'
    ORDER BY seq DESC LIMIT 1);
