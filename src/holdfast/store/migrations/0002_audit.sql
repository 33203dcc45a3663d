-- The audit says through which door a deed came, and keeps what was approved; values can be erased while their rows stay.
ALTER TABLE audit ADD COLUMN via TEXT;          -- null: written before there was this column
ALTER TABLE audit ADD COLUMN value TEXT;        -- what was decided about, or the answer; a large one as its question names it
ALTER TABLE audit ADD COLUMN erased_at BIGINT;  -- when the value and all free text were taken out
CREATE INDEX audit_with_blob ON audit (id) WHERE instr(value, '"$blob"') > 0;
