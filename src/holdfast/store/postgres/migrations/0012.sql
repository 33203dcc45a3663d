-- An event stays in one piece as long as it fits on a page, compressed if that helps. Otherwise PostgreSQL would move whatever makes a
-- row longer than 2 KiB into a second table, in pieces that leave a third of its pages empty, and write two more indexes.
ALTER TABLE events
  ALTER COLUMN run_id SET STORAGE MAIN, ALTER COLUMN kind SET STORAGE MAIN, ALTER COLUMN key SET STORAGE MAIN,
  ALTER COLUMN data SET STORAGE MAIN, ALTER COLUMN value SET STORAGE MAIN, ALTER COLUMN blob SET STORAGE MAIN;
