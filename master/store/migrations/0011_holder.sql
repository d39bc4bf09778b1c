-- Which of two masters with the same epoch: the host, and a part of its own for each epoch.
ALTER TABLE lineage ADD COLUMN holder TEXT NOT NULL DEFAULT '';
-- The epoch of that holder. A promotion raises the epoch alone, also in a store without these columns.
ALTER TABLE lineage ADD COLUMN holder_epoch INTEGER NOT NULL DEFAULT 0;
