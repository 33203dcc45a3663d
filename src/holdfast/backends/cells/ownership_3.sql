-- What later versions added to a cell; done again without harm, as that of ownership_2.sql.

-- The cells of the set and their numbers, as this one knows them. A file that lacks one of them is older than the set.
ALTER TABLE "@cells".cell ADD COLUMN IF NOT EXISTS members JSONB NOT NULL DEFAULT '{}';

-- Those that an operator gave up, because their databases are lost for good. None of them comes back.
ALTER TABLE "@cells".cell ADD COLUMN IF NOT EXISTS lost TEXT[] NOT NULL DEFAULT '{}';
