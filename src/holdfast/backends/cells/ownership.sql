-- What a cell knows of itself, in a schema beside the store's own ("@cells"; the store's is "@store").

CREATE SCHEMA "@cells";

-- What this database is: one row.
CREATE TABLE "@cells".cell (
  name       TEXT    NOT NULL PRIMARY KEY,
  number     INT     NOT NULL,                -- of no other cell of the set; never changes
  of_set     TEXT    NOT NULL,                -- which cells belong together: the digest of the plan that founded them
  complete   BOOLEAN NOT NULL DEFAULT FALSE,  -- all cells of the plan were founded
  version    BIGINT  NOT NULL DEFAULT 0,      -- one more whenever a slot changes hands here
  founded_at BIGINT  NOT NULL
);

-- Slots that this cell has, or had. One that has no row was never here.
--   owned    it is here
--   leaving  it is here, workers give its runs back, and a move is about to begin
--   frozen   it is here, nothing of it changes, and it is being copied
--   gone     another cell owns it
CREATE TABLE "@cells".slots (
  slot  INT    NOT NULL PRIMARY KEY,
  state TEXT   NOT NULL CHECK (state IN ('owned', 'leaving', 'frozen', 'gone')),
  epoch BIGINT NOT NULL,                      -- one more at each move
  other TEXT,                                 -- the cell that it goes to, or went to
  since BIGINT NOT NULL
);

-- What came with a move, until it is put into the store: the rows of a table as COPY writes them, in pieces.
CREATE TABLE "@cells".parcels (
  slot    INT    NOT NULL,
  epoch   BIGINT NOT NULL,
  place   INT    NOT NULL,                    -- their order
  "table" TEXT   NOT NULL,
  columns TEXT   NOT NULL,                    -- JSON list
  content BYTEA  NOT NULL,
  PRIMARY KEY (slot, epoch, place)
);
-- Of a parcel that is whole; without this row its pieces are what a dead mover left.
CREATE TABLE "@cells".arrivals (
  slot   INT    NOT NULL PRIMARY KEY,
  epoch  BIGINT NOT NULL,
  origin TEXT   NOT NULL
);

-- Events that came with a move get positions below all that this database gives itself: nobody is told of them again.
CREATE SEQUENCE "@cells".former_positions MINVALUE 1 MAXVALUE 700000000 CACHE 1;

CREATE FUNCTION "@cells".hashed(name TEXT) RETURNS INT IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$
  SELECT get_byte(digest, 0) * 4 + get_byte(digest, 1) / 64 FROM (SELECT sha256(convert_to(name, 'UTF8')) AS digest) AS made
$$;

-- As slots.py computes it.
CREATE FUNCTION "@cells".slot_of(name TEXT) RETURNS INT IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql AS $$
DECLARE
  head TEXT := coalesce(nullif(substring(name FROM '^[^.@]*'), ''), name);
  says TEXT := substring(head FROM '-x([0-3][0-9a-f]{2})-[0-9a-f]{8}$');
BEGIN
  IF says IS NOT NULL THEN
    RETURN ('x00000' || says)::bit(32)::int;
  END IF;
  RETURN "@cells".hashed(head);
END $$;

CREATE INDEX runs_slot ON "@store".runs ("@cells".slot_of(root_id));

-- The fence. A move takes the row of its slot for itself: it waits for those who create runs there, and they for it.
CREATE FUNCTION "@cells".fence() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  here INT := "@cells".slot_of(NEW.root_id);
  held TEXT;
BEGIN
  SELECT state INTO held FROM "@cells".slots WHERE slot = here FOR KEY SHARE;
  IF held IS NULL OR held NOT IN ('owned', 'leaving') THEN
    RAISE EXCEPTION 'slot % is not in this cell', here USING ERRCODE = 'HF001',
      HINT = 'Open the store as cells:FILE; `holdfast cells list` says which cell has it.';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER cell_fence BEFORE INSERT ON "@store".runs FOR EACH ROW EXECUTE FUNCTION "@cells".fence();

-- Slots that are gone and of which rows are still here: they are deleted when there is time.
CREATE TABLE "@cells".leftovers (slot INT NOT NULL PRIMARY KEY);

-- Announcements that were published here, until every other cell has them; and those that came from another, which go no further.
CREATE TABLE "@cells".outbox (
  id    TEXT   NOT NULL PRIMARY KEY,
  name  TEXT   NOT NULL,
  value TEXT,
  run   TEXT,
  sent  TEXT[] NOT NULL DEFAULT '{}',         -- the cells that have it
  at    BIGINT NOT NULL
);
CREATE TABLE "@cells".inbound (
  id TEXT   NOT NULL PRIMARY KEY,
  at BIGINT NOT NULL
);
CREATE INDEX inbound_at ON "@cells".inbound (at);
CREATE FUNCTION "@cells".send_on() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM "@cells".inbound WHERE id = NEW.id) THEN
    INSERT INTO "@cells".outbox (id, name, value, run, at) VALUES (NEW.id, NEW.name, NEW.value, NEW.run, NEW.published_at)
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER cell_announces AFTER INSERT ON "@store".announcements FOR EACH ROW EXECUTE FUNCTION "@cells".send_on();
