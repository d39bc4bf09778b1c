-- Which of two masters with the same epoch: the host, and a part of its own for each epoch. Empty until the next start.
ALTER TABLE lineage ADD COLUMN holder TEXT NOT NULL DEFAULT '';
