-- What tells the input of a run from another: its digest without what is at its default. Null for runs that were begun
-- when inputs were kept without their defaults, so that the digest of the input itself is the same.
ALTER TABLE runs ADD COLUMN identity TEXT;
