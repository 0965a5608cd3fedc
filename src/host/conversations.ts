import {
  clientPrincipal,
  ConversationStore,
  type ConversationStoreOptions,
} from "../agent/conversation-store.ts";
import type { KeptConversations } from "../agent-tools/agent-tools.ts";
import { stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { toHubError } from "../base/errors.ts";
import { openTransportFactory } from "../hub/transport-factory.ts";
import { isExternal, type Manifest } from "../manifest/manifest.ts";
import { conversationLimits, manifestOrigin } from "../operations/conversations.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import { isReservedName } from "../secrets/secret-name.ts";
import { openSecrets } from "../secrets/secrets.ts";
import { Redactor } from "../transport/redact.ts";

/**
 * Opens the conversations of this user and of the clients of this user's hubs, with the limits of the manifest. Before
 * they are written, the secrets of the manifest and the stored ones are removed, and what `mask` removes.
 */
export async function openConversations(
  manifest: Pick<Manifest, "hub" | "servers" | "sources">,
  context: SystemEnvironment,
  { mask, warn }: Pick<ConversationStoreOptions, "mask" | "warn">,
): Promise<ConversationStore> {
  const { hub } = manifest;
  const redact = await knownSecrets(manifest, context);
  return new ConversationStore({
    stateFolder: stateFolder(context.env, context.platform),
    limits: conversationLimits(hub),
    manifest: manifestOrigin(manifest),
    mask: (text) => mask(redact(text)),
    warn,
  });
}

/** How long what was opened is used again, in ms; then changes of the manifest and new secrets are noticed. */
const REUSE_TIME = 30_000;

/** Makes a function that calls `open` again only if the last time is long ago or has failed. */
export function reused<T>(open: () => Promise<T>): () => Promise<T> {
  let last: { readonly at: number; readonly opened: Promise<T> } | undefined;
  return () => {
    const now = performance.now();
    if (last !== undefined && now - last.at < REUSE_TIME) return last.opened;
    const opening = { at: now, opened: open() };
    last = opening;
    opening.opened.catch(() => {
      if (last === opening) last = undefined;
    });
    return opening.opened;
  };
}

/**
 * Makes the function that removes from a text the secrets of the manifest's servers, and all stored secrets: for what
 * agents write to the disk.
 */
export async function knownSecrets(
  { servers }: Pick<Manifest, "servers">,
  context: SystemEnvironment,
): Promise<(text: string) => string> {
  const factory = openTransportFactory(context, () =>
    Promise.reject(new Error("Nothing is authorized here.")),
  );
  // A program that prints a secret may ask the person, so it runs only when its server starts.
  const quiet = servers
    .filter(isExternal)
    .filter((spec) => !JSON.stringify(spec).includes("${cmd:"));
  const [stored] = await Promise.all([
    storedSecrets(context),
    ...quiet.map((spec) => factory.resolveIdentity(spec, new Map())),
  ]);
  const redactor = new Redactor(stored);
  return (text) => factory.redact(redactor.apply(text));
}

async function storedSecrets(context: SystemEnvironment): Promise<readonly string[]> {
  try {
    const { file } = openSecrets(context);
    const names = (await file.list()).filter((name) => !isReservedName(name));
    const values = await Promise.all(names.map((name) => file.get(name)));
    return values.filter((value) => value !== undefined);
  } catch {
    // Without a readable store, no server has got one of its secrets.
    return [];
  }
}

/**
 * Makes the function that finds what is kept of a client over HTTP.
 * @param tokenOf the token of the client with a name; undefined: it has none, so nothing of it is kept
 */
export function conversationsOfClients(
  store: () => Promise<ConversationStore>,
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
      return { store: await store(), principal };
    } catch (error) {
      if (!isWarned) log("warn", `No conversation is kept: ${toHubError(error).message}`);
      isWarned = true;
      return undefined;
    }
  };
}
