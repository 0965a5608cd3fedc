import { nameAndIdOfClient, nameOfClient } from "../../base/client-name.ts";
import { HubError, usageError } from "../../base/errors.ts";
import type { ApprovalDecision, ApprovalEvent, ApprovalPrompt } from "../../base/hub-events.ts";
import { formatAge } from "../../base/format.ts";
import { openStoredApprovals } from "../../operations/approvals.ts";
import { openEvents, type RunningHub } from "../../control/running-hubs.ts";
import type { ApprovalDocument, RememberedApprovalDocument } from "../../control/schemas.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { alignTable } from "../../terminal/terminal.ts";
import { ApprovalPrompter, describePrompt } from "../approval-prompter.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { withPrompt } from "../prompt.ts";
import {
  askFor,
  chosenHubs,
  describeHub,
  followHubs,
  type HubOptions,
  servingHubs,
  listInEach,
  refuseInsideHub,
  severalHubs,
  untilInterrupted,
} from "../running-hub.ts";

interface ApprovalsOptions extends HubOptions {
  readonly watch: boolean;
  readonly all: boolean;
  readonly session: boolean;
  readonly always: boolean;
}

/**
 * `toolmux approvals`: shows the calls that wait for an approval, asks about them, and manages remembered approvals.
 */
export async function approvals(
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const [verb, ...words] = invocation.args;
  const { watch, all, session, always } = invocation.options;
  if (watch && verb !== undefined)
    throw usageError("--watch cannot be used together with other arguments.");
  if (all && verb !== "forget")
    throw usageError("--all works only with forget: toolmux approvals forget --all");
  if ((session || always) && verb !== "allow")
    throw usageError("--session and --always work only with allow: toolmux approvals allow ID");
  if (session && always) throw usageError("--always includes --session: leave one of them out.");
  switch (verb) {
    case "allow":
      return decide(words, always ? "always" : session ? "session" : "once", invocation, context);
    case "deny":
      return decide(words, "deny", invocation, context);
    case undefined:
      return watch ? watchQuestions(invocation, context) : showQuestions(invocation, context);
    case "list":
      return showRemembered(invocation, context);
    case "forget":
      return forget(words, invocation, context);
    case "accept":
      return accept(words, invocation, context);
    default:
      throw usageError(`There is no "approvals ${verb}". See toolmux help approvals.`);
  }
}

async function pendingApprovalsOf(
  hub: RunningHub,
  context: CommandContext,
): Promise<readonly ApprovalDocument[]> {
  const answer = await askFor(hub, "GET /approvals", context);
  return answer.approvals;
}

async function showQuestions(
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const hubs = await chosenHubs(invocation, context);
  const pending = await listInEach(hubs, (hub) => pendingApprovalsOf(hub, context));
  const questions = pending.map(({ hub, entry }) => ({ hub: hub.pid, ...entry }));
  if (invocation.options.json) terminal.printJson({ approvals: questions });
  else if (questions.length === 0) terminal.printWrapped("no call waits for an approval");
  else {
    for (const { hub, ...question } of questions) {
      const which = hubs.length === 1 ? "" : ` --hub ${hub}`;
      terminal.print(describePrompt(question as ApprovalPrompt).trimStart());
      terminal.printWrapped(
        `To allow it: toolmux approvals allow ${sanitizeLine(question.id)}${which}\n`,
      );
    }
    const [only, ...more] = hubs;
    const which = more.length === 0 ? ` --hub ${only.pid}` : "";
    terminal.printWrapped(`To decide one after the other: toolmux approvals --watch${which}`);
  }
  return 0;
}

/** Decides calls that wait: `approvals allow ID …` and `approvals deny ID …`. */
async function decide(
  words: readonly string[],
  decision: ApprovalDecision,
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const verb = decision === "deny" ? "deny" : "allow";
  if (words.length === 0)
    throw usageError(`Which call? toolmux approvals ${verb} ID; toolmux approvals shows the ids.`);
  const ids = words.map((word) => readCallId(word, verb));
  const hubs = await chosenHubs(invocation, context);
  await refuseInsideHub(context);
  const decided: { readonly hub: number; readonly id: string; readonly decision: string }[] = [];
  for (const id of ids) {
    const hub = await answerIn(hubs, id, decision, context);
    decided.push({ hub: hub.pid, id, decision });
    if (!invocation.options.json) terminal.printWrapped(`${id}: ${decision}`);
  }
  if (invocation.options.json) terminal.printJson({ decided });
  return 0;
}

/** The id of a call that waits, from `call:7`, or from the call's number alone. @throws {HubError} usage */
function readCallId(word: string, verb: string): string {
  const [, number] = /^(?:call:)?([1-9]\d*)$/.exec(word) ?? [];
  if (number !== undefined) return `call:${number}`;
  throw usageError(
    `"${word}" is no call that waits: toolmux approvals ${verb} call:N; toolmux approvals shows them.`,
  );
}

/**
 * Answers the question of that id.
 * @returns the hub whose call it was
 * @throws {HubError} notFound; conflict if it is over; invalidParams if the decision is not offered; usage if several
 * hubs have such a question
 */
async function answerIn(
  hubs: readonly [RunningHub, ...RunningHub[]],
  id: string,
  decision: ApprovalDecision,
  context: CommandContext,
): Promise<RunningHub> {
  const answer = async (hub: RunningHub): Promise<RunningHub> => {
    const input = { params: { id }, body: { decision, by: "terminal" } } as const;
    await askFor(hub, "POST /approvals/:id", context, input);
    return hub;
  };
  if (hubs.length === 1) return answer(hubs[0]);
  const pending = await listInEach(hubs, (hub) => pendingApprovalsOf(hub, context));
  const [only, ...others] = pending.filter(({ entry }) => entry.id === id);
  if (only !== undefined && others.length > 0) throw severalHubs(`${id} waits`, [only, ...others]);
  if (only !== undefined) return answer(only.hub);
  // The hub in which the call has waited says who has decided it.
  let missing: unknown;
  for (const hub of hubs) {
    try {
      return await answer(hub);
    } catch (error) {
      if (!(error instanceof HubError) || error.code !== "notFound") throw error;
      missing = error;
    }
  }
  throw missing;
}

/** Asks in the terminal about each call that needs an approval, until Ctrl-C. */
async function watchQuestions(
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal, signal } = context;
  if (invocation.options.json)
    throw usageError("--watch asks a person: it cannot be used together with --json.");
  await refuseInsideHub(context);
  const hubs = await chosenHubs(invocation, context);
  const followed = new Map<string, RunningHub>();
  const code = await withPrompt(signal, (askLine) =>
    untilInterrupted(context, async () => {
      const prompt = new ApprovalPrompter({
        ask: askLine,
        print: (text) => terminal.printStderr(text),
        answer: async ({ id }, decision) => {
          const [pid = "", own = ""] = id.split("/");
          const hub = followed.get(pid);
          const input = { params: { id: own }, body: { decision, by: "terminal" } } as const;
          if (hub !== undefined) await askFor(hub, "POST /approvals/:id", context, input);
        },
      });
      const ended = new AbortController();
      const either = AbortSignal.any([signal, ended.signal]);
      try {
        const follow = (hub: RunningHub): Promise<void> => {
          followed.set(String(hub.pid), hub);
          return followQuestions(hub, prompt, context, either);
        };
        await Promise.race([followHubs(invocation, context, hubs, follow), prompt.run(either)]);
      } finally {
        ended.abort();
      }
    }),
  );
  if (code !== undefined) return code;
  throw usageError("--watch needs a terminal.");
}

/** Passes the questions of a hub to the prompt, until the hub has ended or the signal is aborted. */
async function followQuestions(
  hub: RunningHub,
  prompt: ApprovalPrompter,
  context: CommandContext,
  signal: AbortSignal,
): Promise<void> {
  const keyOf = (id: string): string => `${hub.pid}/${id}`;
  const events = await openEvents(hub, "kinds=approval&watch=approvals", signal);
  context.terminal.note(`watching ${describeHub(hub)}; Ctrl-C ends this`);
  for (const question of await pendingApprovalsOf(hub, context))
    prompt.add({ ...(question as ApprovalPrompt), id: keyOf(question.id) });
  for await (const item of events) {
    if (item.kind === "gap") continue;
    const event = item.event as unknown as ApprovalEvent;
    const id = keyOf(event.id);
    if (event.change === "asked") prompt.add({ ...event, id });
    else if (event.change === "withdrawn") prompt.remove(id, "the call has ended");
    else prompt.remove(id, `${event.decision} (${event.by})`);
  }
}

/** The words for the place at which a person has decided. */
const SOURCE_WORDS: Readonly<Record<string, string>> = {
  terminal: "terminal",
  dashboard: "page",
  client: "client",
};

/** The approvals for the sessions of clients, which running hubs remember until the clients leave. */
async function sessionApprovals(
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<readonly { readonly hub: RunningHub; readonly entry: RememberedApprovalDocument }[]> {
  const hubs = await servingHubs(invocation, context);
  const all = await listInEach(
    hubs,
    async (hub) => (await askFor(hub, "GET /approvals/remembered", context)).remembered,
  );
  return all.filter(({ entry }) => entry.decision === "session");
}

async function showRemembered(
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const stored = (await openStoredApprovals(context).list()).map((entry) => ({
    ...entry,
    decision: "always" as const,
  }));
  const ofSessions = (await sessionApprovals(invocation, context)).map(({ hub, entry }) => ({
    ...entry,
    hub: hub.pid,
  }));
  const remembered = [...stored, ...ofSessions];
  if (invocation.options.json) terminal.printJson({ remembered });
  else if (remembered.length === 0) terminal.printWrapped("no tool is always allowed");
  else {
    const rows = remembered.map((entry) => {
      const { id, server, tool, clientName, decision, by, at } = entry;
      const client = "client" in entry ? entry.client : undefined;
      return [
        id,
        sanitizeLine(server),
        sanitizeLine(tool),
        decision === "always"
          ? "all clients"
          : sanitizeLine(nameAndIdOfClient({ id: client, name: clientName })),
        SOURCE_WORDS[by ?? ""] ?? "unknown",
        sanitizeLine(nameOfClient({ name: clientName })),
        formatAge(Date.now() - at),
      ];
    });
    const heads = ["ID", "SERVER", "TOOL", "FOR", "DECIDED AT", "CALLER", "ALLOWED"];
    terminal.print(alignTable(heads, rows, terminal.stdout));
  }
  return 0;
}

async function forget(
  ids: readonly string[],
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const { options } = invocation;
  const { terminal } = context;
  if (options.all === ids.length > 0)
    throw usageError("Which approval? toolmux approvals forget ID …, or --all.");
  const store = openStoredApprovals(context);
  const known = (await store.list()).map(({ id }) => id);
  const sessions = await sessionApprovals(invocation, context);
  const missing = ids.find(
    (id) => !known.includes(id) && !sessions.some(({ entry }) => entry.id === id),
  );
  if (missing !== undefined)
    throw usageError(`No approval ${missing} is remembered: toolmux approvals list shows them.`);
  const ofSessions = sessions.filter(({ entry }) => options.all || ids.includes(entry.id));
  await Promise.all(
    ofSessions.map(({ hub, entry: { id } }) =>
      askFor(hub, "DELETE /approvals/remembered/:id", context, { params: { id } }),
    ),
  );
  const forgotten = [
    ...(await store.forget(options.all ? undefined : ids)),
    ...ofSessions.map(({ entry }) => entry.id),
  ];
  if (options.json) terminal.printJson({ forgotten });
  else terminal.printWrapped(`forgotten: ${forgotten.join(", ") || "none"}`);
  return 0;
}

/**
 * `approvals accept`: makes approvals rely on the current annotations of a server's tools, instead of those seen
 * first.
 */
async function accept(
  words: readonly string[],
  invocation: Invocation<ApprovalsOptions>,
  context: CommandContext,
): Promise<number> {
  const [server, ...more] = words;
  if (server === undefined || more.length > 0)
    throw usageError("Which server? toolmux approvals accept SERVER");
  const { terminal } = context;
  // Running hubs know the current annotations. If none runs, those in the server's next listing count.
  await refuseInsideHub(context);
  const hubs = await servingHubs(invocation, context);
  const accepted = await Promise.all(
    hubs.map(async (hub) => {
      try {
        await askFor(hub, "POST /approvals/accept", context, { body: { server } });
        return true;
      } catch (error) {
        if (error instanceof HubError && error.code === "notFound") return false;
        throw error;
      }
    }),
  );
  const isKnown =
    accepted.includes(true) || (await openStoredApprovals(context).forgetFirstHints(server));
  if (!isKnown) throw usageError(`No tools of a server "${server}" are known.`);
  if (invocation.options.json) terminal.printJson({ accepted: server });
  else terminal.printWrapped(`the current annotations of the tools of ${server} are accepted`);
  return 0;
}
