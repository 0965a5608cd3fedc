import { basename } from "node:path";
import { ConversationStore, type KeptConversation, USER } from "../../agent/conversation-store.ts";
import { toHubError, usageError } from "../../base/errors.ts";
import { count, formatAge, formatSize } from "../../base/format.ts";
import { stateFolder } from "../../base/paths.ts";
import { conversationLimits } from "../../host/conversations.ts";
import { HUB_DEFAULTS } from "../../manifest/manifest.ts";
import { loadManifestLogged } from "../../operations/load-manifest.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import type { CommandContext, Invocation } from "../command.ts";

/** Number of characters of an id that lists show; whoever names a conversation needs no more of it. */
const SHOWN_ID = 8;

/** The conversations of this user, to list, find and forget them: nothing is written into them. */
export async function openKept(
  invocation: Invocation,
  context: CommandContext,
): Promise<ConversationStore> {
  // Conversations are found and forgotten also where the manifest is broken.
  const hub = await loadManifestLogged(invocation, context, () => {}, true).then(
    ({ manifest }) => manifest.hub,
    () => HUB_DEFAULTS,
  );
  return new ConversationStore({
    stateFolder: stateFolder(context.env, context.platform),
    limits: conversationLimits(hub),
    mask: (text) => text,
    warn: (text) => context.terminal.note(text),
  });
}

/** `toolmux chat list`: the conversations that are kept, the last used first. */
export async function printConversations(
  invocation: Invocation<{ readonly json: boolean }>,
  context: CommandContext,
): Promise<number> {
  const { terminal } = context;
  const kept = await (await openKept(invocation, context)).list(USER);
  if (invocation.options.json) {
    const conversations = kept.map(({ format: _, ...one }) => one);
    terminal.printJson({ conversations });
    return 0;
  }
  if (kept.length === 0) {
    terminal.print("No conversation is kept. Begin one: toolmux chat");
    return 0;
  }
  const now = Date.now();
  terminal.printTable(
    ["ID", "AGENT", "LAST USED", "SIZE", "BEGINS WITH"],
    kept.map(({ id, agent, title, lastUsed, size }) => [
      { text: id.slice(0, SHOWN_ID), isWhole: true },
      sanitizeLine(basename(agent)),
      formatAge(now - lastUsed),
      formatSize(size),
      sanitizeLine(title),
    ]),
  );
  return 0;
}

/** `toolmux chat forget ID`: removes conversations that are kept. */
export async function forgetConversations(
  ids: readonly string[],
  invocation: Invocation,
  context: CommandContext,
): Promise<number> {
  const { terminal, signal } = context;
  if (ids.length === 0) throw usageError("Which conversation? toolmux chat forget ID");
  const store = await openKept(invocation, context);
  const all = await store.list(USER);
  const chosen = ids.map((id) => findById(id, all));
  for (const { id, title } of chosen) {
    try {
      await store.forget(USER, id, signal);
    } catch (error) {
      if (toHubError(error).code !== "storeBusy") throw error;
      const text = `Conversation ${id.slice(0, SHOWN_ID)} is in use. Wait until its agent has answered.`;
      throw usageError(text);
    }
    terminal.print(`forgotten: ${id.slice(0, SHOWN_ID)} ${sanitizeLine(title)}`);
  }
  return 0;
}

/**
 * The conversation to go on with: the one with the id, the last one with the agent of that name, or the last one of all.
 * @param word an id, or the name, the path or the reference of an agent
 * @throws {HubError} usage if there is none
 */
export async function conversationToResume(
  word: string | undefined,
  invocation: Invocation,
  context: CommandContext,
): Promise<KeptConversation> {
  const all = await (await openKept(invocation, context)).list(USER);
  const [last] = all;
  if (last === undefined) throw usageError("No conversation is kept. Begin one: toolmux chat");
  if (word === undefined) return last;
  const ofAgent = all.find(({ agent }) => agent === word || basename(agent) === basename(word));
  return ofAgent ?? findById(word, all);
}

/** @throws {HubError} usage if there is no conversation of that id, or several */
function findById(id: string, all: readonly KeptConversation[]): KeptConversation {
  const found = all.filter((one) => one.id === id || (id.length >= 4 && one.id.startsWith(id)));
  const [first] = found;
  if (first === undefined)
    throw usageError(
      `There is no conversation "${sanitizeLine(id)}". They are listed by: toolmux chat list`,
    );
  if (found.length > 1)
    throw usageError(
      `${count(found.length, "conversation")} begin with "${sanitizeLine(id)}". Write more of the id.`,
    );
  return first;
}
