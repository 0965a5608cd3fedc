import { join } from "node:path";
import process from "node:process";
import { utf8 } from "../base/bytes.ts";
import { HubError } from "../base/errors.ts";
import { decodeUtf8, readFileLimited, type FileBytes } from "../base/read-file.ts";
import { isTable, type Table } from "./table.ts";

/**
 * The trust store in the state folder: `{"files": {"<real path>": "<SHA-256 of the content, hex>"}, "agents":
 * {"<digest>": "<reference>"}, "agentFiles": {"<real path or digest>": {"of": "<SHA-256 or digest>", "toolsets": …}}}`.
 * `agents` holds the trusted agents of registries, `agentFiles` what a person was shown of agents' files when they were
 * trusted.
 */
const STORE_FILE = "trusted.json";
const MAX_STORE_SIZE = 4 * 1024 * 1024;

/** The maximum size of a manifest, in bytes. */
export const MAX_MANIFEST_SIZE = 4 * 1024 * 1024;

/** The path of the trust store. @param folder the state folder */
export function trustStorePath(folder: string): string {
  return join(folder, STORE_FILE);
}

/**
 * Whether the user has trusted the file `path` with exactly this `content`. `folder` is the state folder. A missing,
 * damaged or unreadable store trusts nothing.
 */
export async function isTrusted(
  path: string,
  content: FileBytes,
  folder: string,
): Promise<boolean> {
  const { files } = await readStore(folder);
  return files.size > 0 && isListed(files, path, await sha256Hex(content));
}

/**
 * Like `isTrusted`, but for a content whose SHA-256 is known.
 * @param hash in hex
 */
export async function isHashTrusted(path: string, hash: string, folder: string): Promise<boolean> {
  return isListed((await readStore(folder)).files, path, hash);
}

async function isListed(
  files: ReadonlyMap<string, string>,
  path: string,
  hash: string,
): Promise<boolean> {
  const { realpath } = process.getBuiltinModule("node:fs/promises");
  const realPath = await realpath(path).catch(() => undefined);
  return realPath !== undefined && files.get(realPath) === hash;
}

/** Whether the user has trusted the agent that has this digest (`sha256:…`) and comes from a registry. */
export async function isDigestTrusted(digest: string, folder: string): Promise<boolean> {
  return (await readStore(folder)).agents.has(digest);
}

/**
 * Trusts the agent that has this digest and comes from a registry. The caller holds the lock of the state folder
 * `folder`.
 * @param toolsets see `TrustedAgentFile`; undefined: as before
 */
export async function trustDigest(
  digest: string,
  reference: string,
  folder: string,
  toolsets?: Table,
): Promise<void> {
  const store = await readStore(folder);
  store.agents.set(digest, reference);
  grant(store, digest, digest, toolsets);
  await writeStore(folder, store);
}

/**
 * Trusts a file with exactly this `content`, in place of any earlier trusted content. The file is not read again: what
 * is trusted is what the user has seen or written. The caller holds the lock of the state folder `folder`.
 * @param agentFile given if the file is that of agents, and the user has seen what its agents may do. `toolsets`: see
 * `TrustedAgentFile`; undefined: as before
 * @returns the real path of the file
 * @throws {HubError} usage if the file does not exist any more
 */
export async function trust(
  path: string,
  content: FileBytes,
  folder: string,
  agentFile?: { readonly toolsets: Table | undefined },
): Promise<string> {
  const { realpath } = process.getBuiltinModule("node:fs/promises");
  const realPath = await realpath(path).catch(() => undefined);
  if (realPath === undefined) throw new HubError("usage", `${path} does not exist`);
  const store = await readStore(folder);
  const hash = await sha256Hex(content);
  store.files.set(realPath, hash);
  if (agentFile !== undefined) grant(store, realPath, hash, agentFile.toolsets);
  await writeStore(folder, store);
  return realPath;
}

/** What a person has seen and chosen when an agent's file was trusted. */
export interface TrustedAgentFile {
  /** The SHA-256 of the content, in hex, or the digest. */
  readonly of: string;
  /** Servers for toolsets, in the form of `[agentFiles.toolsets]`, that the person has chosen for this file. */
  readonly toolsets: Table;
}

/**
 * What a person has seen and chosen when this content of an agent's file was trusted; undefined if nobody has.
 * @param key the real path of the file, or the digest of an agent from a registry
 * @param of the SHA-256 of the content, in hex, or the digest; undefined: whatever the content was
 */
export async function findTrustedAgentFile(
  key: string,
  of: string | undefined,
  folder: string,
): Promise<TrustedAgentFile | undefined> {
  const found = (await readStore(folder)).agentFiles.get(key);
  return of === undefined || found?.of === of ? found : undefined;
}

function grant(store: TrustStore, key: string, of: string, toolsets: Table | undefined): void {
  const before = store.agentFiles.get(key)?.toolsets ?? {};
  store.agentFiles.set(key, { of, toolsets: toolsets ?? before });
}

interface TrustStore {
  readonly files: Map<string, string>;
  readonly agents: Map<string, string>;
  readonly agentFiles: Map<string, TrustedAgentFile>;
}

async function readStore(folder: string): Promise<TrustStore> {
  const read = await readFileLimited(trustStorePath(folder), MAX_STORE_SIZE);
  if (read.kind !== "read") return { files: new Map(), agents: new Map(), agentFiles: new Map() };
  let store: unknown;
  try {
    store = JSON.parse(decodeUtf8(read.bytes) ?? "");
  } catch {
    // A damaged store trusts nothing, and the next `trust` replaces it.
  }
  const textsOf = (key: string): Map<string, string> => {
    const table = isTable(store) ? store[key] : undefined;
    const entries = Object.entries(isTable(table) ? table : {});
    return new Map(
      entries.flatMap(([name, text]) => (typeof text === "string" ? [[name, text]] : [])),
    );
  };
  const table = isTable(store) ? store["agentFiles"] : undefined;
  const agentFiles = new Map<string, TrustedAgentFile>();
  for (const [key, entry] of Object.entries(isTable(table) ? table : {})) {
    const { of, toolsets } = isTable(entry) ? entry : {};
    if (typeof of === "string" && isTable(toolsets)) agentFiles.set(key, { of, toolsets });
  }
  return { files: textsOf("files"), agents: textsOf("agents"), agentFiles };
}

async function writeStore(
  folder: string,
  { files, agents, agentFiles }: TrustStore,
): Promise<void> {
  const { ensurePrivateFolder, replacePrivate } = await import("../base/private-files.ts");
  await ensurePrivateFolder(folder);
  const document = {
    files: Object.fromEntries(files),
    ...(agents.size > 0 && { agents: Object.fromEntries(agents) }),
    ...(agentFiles.size > 0 && { agentFiles: Object.fromEntries(agentFiles) }),
  };
  const text = JSON.stringify(document, null, 2);
  await replacePrivate(trustStorePath(folder), utf8(`${text}\n`));
}

export async function sha256Hex(content: FileBytes): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
