-- An orchestration that an operator wants to end before its steps are done; null: none does.
ALTER TABLE runs ADD COLUMN cancelled_by TEXT;
