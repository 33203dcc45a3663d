// Deeds: what the audit says that somebody did, in words.

const DID = {
  start: "started", approve: "approved", deny: "denied", answer: "answered", delegate: "passed on", pause: "paused", resume: "resumed", cancel: "cancelled", retry: "retried", fork: "forked",
  send: "sent a message to", delete: "deleted", backup: "backed up", restore: "restored", import: "imported", export: "exported", grant: "granted more to", vote: "voted on", prune: "deleted old runs", refused: "was refused",
  create_token: "made a token", revoke_token: "took a token back", sign_in: "signed in", end_sessions: "signed others out", create_link: "made a link to decide for", publish: "published an announcement", notify: "has others told",
  move: "moved", take_back: "took back", confirm_move: "confirmed that it was moved", activate: "let go on", replay_delivery: "took a delivery again", delete_conversation: "deleted a conversation", delete_notification: "no longer has others told",
  delete_schedule: "deleted a schedule", delete_trigger: "deleted a trigger",
};

/** What somebody did, in words; one that is new is said as it is written. */
export const did = (action) => DID[action] ?? String(action).replaceAll("_", " ");
