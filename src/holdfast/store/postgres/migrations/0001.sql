-- Added to every transaction's number to make a position; more than nothing only after a dump was restored.
CREATE TABLE positions (base BIGINT NOT NULL);
INSERT INTO positions VALUES (0);
-- Every step updates its run's row. Room in the page lets the new version lie beside the old one, with no index touched.
ALTER TABLE runs SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
