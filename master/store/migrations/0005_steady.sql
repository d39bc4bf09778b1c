-- The deadline in the time since the host started: the wall clock may be set while a job runs.
ALTER TABLE jobs ADD COLUMN boot TEXT;
ALTER TABLE jobs ADD COLUMN boot_deadline INTEGER;
