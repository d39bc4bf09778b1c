-- From which bundle a job was made.
ALTER TABLE jobs ADD COLUMN bundle TEXT;
UPDATE jobs SET bundle = json_extract(args_json, '$.bundle') WHERE json_valid(args_json);

-- Of which bundles a minion may have something. Jobs are removed after a while; this stays.
CREATE TABLE minion_bundles (
    minion    TEXT NOT NULL,
    bundle    TEXT NOT NULL,
    -- The last job for the minion that was made from the bundle.
    jid       TEXT NOT NULL,
    -- The last highstate from it that succeeded there.
    highstate TEXT,
    PRIMARY KEY (minion, bundle)
) STRICT;
INSERT INTO minion_bundles
    SELECT job_rows.minion, jobs.bundle, max(jobs.jid),
           max(CASE WHEN jobs.function = 'state.highstate' AND job_rows.state = 'returned' AND job_rows.retcode = 0
               THEN jobs.jid END)
    FROM job_rows JOIN jobs ON jobs.jid = job_rows.jid
    WHERE jobs.test = 0 AND jobs.bundle IS NOT NULL
    GROUP BY job_rows.minion, jobs.bundle;
DELETE FROM minion_bundles WHERE EXISTS (
    SELECT 1 FROM minion_bundles AS later
    WHERE later.minion = minion_bundles.minion AND later.highstate > minion_bundles.jid);
