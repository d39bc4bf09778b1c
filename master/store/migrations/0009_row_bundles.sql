-- Minions of one job may have different bundles; null: that of the job.
ALTER TABLE job_rows ADD COLUMN bundle TEXT;
