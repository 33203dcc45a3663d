-- Rows of deleted runs whose events are kept for forks (`lineage`): what they were called with, and how they ended. A fork shows
-- children of the run that it was made from as they were.
CREATE TABLE archived (
  name   TEXT   NOT NULL PRIMARY KEY,         -- under which their events are kept
  input  TEXT   NOT NULL,
  data   TEXT   NOT NULL                      -- JSON: the other columns that are shown
);
