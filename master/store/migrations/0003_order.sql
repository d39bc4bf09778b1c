-- The groups of an ordered highstate, which were an argument of the job.
ALTER TABLE jobs ADD COLUMN minion_order TEXT NOT NULL DEFAULT '[]';
UPDATE jobs SET minion_order = json_extract(args_json, '$.order'), args_json = json_remove(args_json, '$.order')
    WHERE function = 'state.highstate' AND json_valid(args_json) AND json_type(args_json, '$.order') = 'array';
