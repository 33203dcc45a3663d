// What was said and done in a run, in the order in which it happened. Nothing here touches the page.

const BODIES = new Set(["step", "model", "child"]);
const bare = (key) => (key ?? "").replace(/^@[^/]*\//, ""); // a checkpoint between a wish and its tool changes nothing

/**
 * The turns of a conversation: [{at, key, …}], with what each is: `call` (of a model, where its last attempt began, with `tools`: what it wished for, by the ids of
 * the tool calls), `tool`, `question`, `message`, `tear` or `fold`. What a tool did stands beside the wish for it; where a person decided or
 * a process went in between, it is `apart`: a turn of its own, where it happened.
 */
export function turnsOf(journal, folds = []) {
  const found = [], agents = new Map(), rest = [];
  for (const call of journal.each()) {
    if (call.dropped !== null) continue;
    if (call.sort === "model") {
      const turn = { at: call.began ?? call.start, key: call.key, call, tools: new Map() }, agent = agentOf(call.key);
      found.push(turn);
      if (agent !== null && !agents.get(agent)?.push(turn)) agents.set(agent, [turn]);
    } else if (call.sort === "question" && call.question?.decision) found.push({ at: call.ended, key: `q ${call.key}`, question: call });
    else if (call.sort === "message") found.push({ at: call.began, key: `m ${call.seq}`, message: call });
    if (BODIES.has(call.sort) || call.sort === "question") rest.push(call);
  }
  for (const tear of journal.tears) found.push({ at: tear.to, key: `tear ${tear.seq}`, tear });
  const between = found.filter((each) => each.question || each.tear);
  for (const { turns, id, step, question } of toolsOf(rest, agents)) {
    const done = step?.began ?? step?.last ?? null, wish = turns.findLast(({ call }) => call.ended !== null && call.ended <= (question?.began ?? done));
    if (!wish) continue;
    const apart = step !== null && step.sort !== "model" && between.some(({ at }) => at > wish.call.ended && at <= done);
    wish.tools.set(id, { step, question, apart });
    if (apart) found.push({ at: done, key: `t ${step.key}`, tool: step });
  }
  for (const fold of folds) found.push({ at: fold.from + 1, key: `fold ${fold.from}`, fold });
  return found.sort((one, other) => one.at - other.at);
}

/** What stands above the words that a model was given. Whose they are nobody records: mostly a customer's or a user's, which the agent passed on. */
export const promptName = (kinds) => (kinds.length && kinds.every((kind) => kind === "retry-prompt") ? "The model is asked again" : "The model is given");

/** The place of an agent of Pydantic AI whose request to a model this is: `answer#0/clerk-0` of `answer#0/clerk-0:model/clerk.model#1`. */
function agentOf(key) {
  const at = bare(key).lastIndexOf(":model/");
  return at < 0 ? null : bare(key).slice(0, at);
}

/** The tools that agents called: the first body and the first question of each, by the agent's place and the id of the tool call. */
function toolsOf(calls, agents) {
  const found = new Map();
  for (const call of calls) {
    const key = bare(call.key);
    for (let at = key.indexOf(":"); at >= 0; at = key.indexOf(":", at + 1)) {
      const turns = agents.get(key.slice(0, at)), id = key.slice(at + 1).split("/")[0];
      if (!turns || id === "model") continue;
      const tool = found.get(key.slice(0, at + 1) + id) ?? { turns, id, step: null, question: null };
      if (call.sort === "question") tool.question ??= call;
      else tool.step ??= call;
      found.set(key.slice(0, at + 1) + id, tool);
      break;
    }
  }
  return found.values();
}
