-- When a job named the file last.
ALTER TABLE blobs ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
