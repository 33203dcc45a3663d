-- Tokens end by themselves, and show when they were used.
ALTER TABLE tokens ADD COLUMN expires_at BIGINT;  -- null: never, as those made before there was this column
ALTER TABLE tokens ADD COLUMN used_at BIGINT;     -- about when it was shown last; null: never since there is this column
-- Who may not decide a question although it is theirs.
ALTER TABLE approvals ADD COLUMN not_by TEXT;     -- JSON list of names; null: nobody is left out
