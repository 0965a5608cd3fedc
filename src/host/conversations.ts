import {
  clientPrincipal,
  ConversationStore,
  type ConversationStoreOptions,
} from "../agent/conversation-store.ts";
import type { KeptConversations } from "../agent-tools/agent-tools.ts";
import { stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { toHubError } from "../base/errors.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";

const DAY = 24 * 60 * 60_000;

/** Opens the conversations of this user and of the clients of this user's hubs, with the limits of the manifest. */
export function openConversations(
  { hub }: Pick<Manifest, "hub">,
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  options: Pick<ConversationStoreOptions, "mask" | "warn">,
): ConversationStore {
  return new ConversationStore({
    stateFolder: stateFolder(env, platform),
    limits: { maxAge: hub.conversationDays * DAY, maxSize: hub.conversationSize },
    ...options,
  });
}

/**
 * Makes the function that finds what is kept of a client over HTTP.
 * @param tokenOf the token of the client with a name; undefined: it has none, so nothing of it is kept
 */
export function conversationsOfClients(
  store: () => ConversationStore,
  { env, platform }: Pick<SystemEnvironment, "env" | "platform">,
  tokenOf: (principal: string) => string | undefined,
  log: CommandLog,
): (principal: string) => Promise<KeptConversations | undefined> {
  const principals = new Map<string, string>();
  let isWarned = false;
  return async (name) => {
    const token = tokenOf(name);
    if (token === undefined) return undefined;
    try {
      const key = JSON.stringify([name, token]);
      const principal =
        principals.get(key) ?? (await clientPrincipal(stateFolder(env, platform), name, token));
      principals.set(key, principal);
      return { store: store(), principal };
    } catch (error) {
      if (!isWarned) log("warn", `No conversation is kept: ${toHubError(error).message}`);
      isWarned = true;
      return undefined;
    }
  };
}
