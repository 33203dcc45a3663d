-- With how many others a run may be carried after its process died twice; 0: it was alone when it died. Null: nobody counted.
ALTER TABLE runs ADD COLUMN company BIGINT;
