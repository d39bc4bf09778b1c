-- An upgrade that an operator wants to pause before the next host; null: none does.
ALTER TABLE runs ADD COLUMN paused_by TEXT;
