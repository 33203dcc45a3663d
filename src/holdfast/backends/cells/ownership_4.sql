-- What later versions added to a cell; done again without harm, as that of ownership_2.sql.

-- The fence of schedules and triggers: one that was made where its slot is not would stay there. It finds the name by the column
-- that it is told; the fence of runs reads its own column, because every start passes it.
CREATE OR REPLACE FUNCTION "@cells".fence_name() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  here INT := "@cells".slot_of(to_jsonb(NEW) ->> TG_ARGV[0]);
  held TEXT;
BEGIN
  SELECT state INTO held FROM "@cells".slots WHERE slot = here FOR KEY SHARE;
  IF held IS NULL OR held NOT IN ('owned', 'leaving') THEN
    RAISE EXCEPTION 'slot % is not in this cell', here USING ERRCODE = 'HF001',
      HINT = 'Open the store as cells:FILE; `holdfast cells list` says which cell has it.';
  END IF;
  RETURN NEW;
END $$;
DROP TRIGGER IF EXISTS cell_fence ON "@store".schedules;
CREATE TRIGGER cell_fence BEFORE INSERT ON "@store".schedules
  FOR EACH ROW EXECUTE FUNCTION "@cells".fence_name('name');
DROP TRIGGER IF EXISTS cell_fence ON "@store".triggers;
CREATE TRIGGER cell_fence BEFORE INSERT ON "@store".triggers
  FOR EACH ROW EXECUTE FUNCTION "@cells".fence_name('name');
DROP TRIGGER IF EXISTS cell_fence ON "@store".subscriptions;
CREATE TRIGGER cell_fence BEFORE INSERT ON "@store".subscriptions
  FOR EACH ROW WHEN (NEW.run = '') EXECUTE FUNCTION "@cells".fence_name('topic');

-- Processes that tell the feed have numbers, which are in the positions that they give.
CREATE SEQUENCE IF NOT EXISTS "@cells".readers;

-- The last of these files that it has.
ALTER TABLE "@cells".cell ADD COLUMN IF NOT EXISTS added INT NOT NULL DEFAULT 4;
