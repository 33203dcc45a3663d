-- What later versions added to a cell. It is done again without harm: a database that is a cell already gets it when it is opened.

-- Large values that left with a slot: each is deleted here when nothing names it any more.
CREATE TABLE IF NOT EXISTS "@cells".waste (digest TEXT NOT NULL PRIMARY KEY);

-- The set that this database belongs to: random, made when the set was founded, and the same in all of its cells.
ALTER TABLE "@cells".cell ADD COLUMN IF NOT EXISTS identity TEXT;
