import { basename } from "node:path";
import {
  type ConversationLimits,
  ConversationStore,
  type KeptConversation,
  USER,
} from "../agent/conversation-store.ts";
import { toHubError, usageError } from "../base/errors.ts";
import { count } from "../base/format.ts";
import { stateFolder } from "../base/paths.ts";
import { HUB_DEFAULTS, type Manifest } from "../manifest/manifest.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { loadManifestLogged } from "./load-manifest.ts";

const DAY = 24 * 60 * 60_000;
/** Number of characters of an id that lists show; whoever names a conversation needs no more of it. */
const SHOWN_ID = 8;

/** How much is kept, as the manifest says. */
export function conversationLimits(hub: Manifest["hub"]): ConversationLimits {
  return { maxAge: hub.conversationDays * DAY, maxSize: hub.conversationSize };
}

/** A manifest as headers of conversations have it. */
export function manifestOrigin({ sources }: Pick<Manifest, "sources">): string {
  return `manifest ${sources.join(" ")}`;
}

/** The part of a conversation's id that people see. */
export function shownId({ id }: Pick<KeptConversation, "id">): string {
  return id.slice(0, SHOWN_ID);
}

/** The conversations of this user, to list, find and forget them: nothing is written into them. */
async function openKept(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<ConversationStore> {
  // Conversations are found and forgotten also where the manifest is broken.
  const manifest = await loadManifestLogged(choice, context, () => {}, true).then(
    (loaded) => loaded.manifest,
    () => undefined,
  );
  return new ConversationStore({
    stateFolder: stateFolder(context.env, context.platform),
    limits: conversationLimits(manifest?.hub ?? HUB_DEFAULTS),
    ...(manifest && { manifest: manifestOrigin(manifest) }),
    mask: (text) => text,
    warn: () => {},
  });
}

/** The conversations of this user that are kept, the last used first. */
export async function listConversations(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<readonly KeptConversation[]> {
  return (await openKept(choice, context)).list(USER);
}

/**
 * Removes a conversation that is kept.
 * @param id its id, or the beginning of it
 * @throws {HubError} usage if there is none, or if it is in use
 */
export async function forgetConversation(
  id: string,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<KeptConversation> {
  const store = await openKept(choice, context);
  const found = findById(id, await store.list(USER));
  try {
    await store.forget(USER, found.id, context.signal);
  } catch (error) {
    if (toHubError(error).code !== "storeBusy") throw error;
    const text = `Conversation ${shownId(found)} is in use. Wait until its agent has answered.`;
    throw usageError(text);
  }
  return found;
}

/**
 * The conversation to go on with: the one with the id, the last one with the agent of that name, or the last one of all.
 * @param word an id, or the name, the path or the reference of an agent
 * @throws {HubError} usage if there is none
 */
export async function conversationToResume(
  word: string | undefined,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<KeptConversation> {
  const all = await listConversations(choice, context);
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
    throw usageError(`There is no conversation "${id}". They are listed by: toolmux chat list`);
  if (found.length === 1) return first;
  const many = count(found.length, "conversation");
  throw usageError(`The ids of ${many} begin with "${id}". Write more of the id.`);
}
