import { realpath } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { type AgentFile, agentInvalidError, MAX_AGENT_FILE } from "../agent-files/agent-file.ts";
import {
  AGENT_FILE_DEFAULTS,
  AgentLibrary,
  type AgentFileSettings,
  isAgentPath,
  siblingFileReader,
  readAgentText,
} from "../agent-files/agent-library.ts";
import { readDockerCredentials } from "../agent-files/docker-config.ts";
import { parseReferenceOrThrow } from "../agent-files/reference.ts";
import type { RegistryCredentials, RegistryOptions } from "../agent-files/registry.ts";
import { HubError } from "../base/errors.ts";
import { expandHome, stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { readFileLimited } from "../base/read-file.ts";
import { loadManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { fileProblem } from "../manifest/problems.ts";
import { resolveHttpToken } from "../manifest/resolve.ts";
import { trust, trustDigest } from "../manifest/trust.ts";
import { openSecrets } from "../secrets/secrets.ts";
import { makeFetch } from "../transport/http-client/fetch.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import { loadOptions } from "./load-manifest.ts";
import { withManifestLock } from "./manifest-file.ts";

/**
 * Opens the library of agents: those of the manifest, those in files, and those pulled from registries.
 * @param baseDir the folder that relative paths of agents start from
 */
export function openAgentLibrary(
  manifest: Pick<Manifest, "agents" | "agentFiles"> | undefined,
  { env, cwd, platform }: SystemEnvironment,
  baseDir: string,
): AgentLibrary {
  const { agents = new Map<string, never>(), agentFiles } = manifest ?? {};
  const settings: AgentFileSettings = { ...AGENT_FILE_DEFAULTS, ...agentFiles };
  return new AgentLibrary({ agents, settings, baseDir, env, cwd, platform });
}

/**
 * Opens the library of agents of the chosen manifests. Relative paths are resolved against the working directory. The
 * agents of an invalid manifest are left out, and the user is told so.
 */
export async function openLibrary(
  choice: ManifestChoice,
  context: OperationContext,
): Promise<{ readonly library: AgentLibrary; readonly manifest: Manifest | undefined }> {
  const loaded = await loadManifest(loadOptions(choice, context));
  const manifest = loaded.ok ? loaded.manifest : undefined;
  if (!loaded.ok && loaded.files.length > 0) {
    const text = "the manifest has errors, so its agents, models and agentFiles are ignored";
    context.note?.(`${text}; to see the errors: toolmux check`);
  }
  return { library: openAgentLibrary(manifest, context, context.cwd), manifest };
}

/**
 * Options for requests to registries of agents: the environment's proxies and certificates, and the user's
 * credentials.
 */
export function registryOptions(
  manifest: Pick<Manifest, "agentFiles"> | undefined,
  context: Pick<OperationContext, "env" | "platform">,
): RegistryOptions {
  const { env } = context;
  return {
    fetch: makeFetch({ ca: undefined, env }),
    credentialsFor: async (host) =>
      (await manifestCredentials(host, manifest, context)) ?? readDockerCredentials(host, env),
  };
}

async function manifestCredentials(
  host: string,
  manifest: Pick<Manifest, "agentFiles"> | undefined,
  { env, platform }: Pick<OperationContext, "env" | "platform">,
): Promise<RegistryCredentials | undefined> {
  const { agentFiles } = manifest ?? {};
  const text = agentFiles?.credentials?.[host];
  if (agentFiles === undefined || text === undefined) return undefined;
  const secret = (name: string): Promise<string> => openSecrets({ env, platform }).require(name);
  const { file, baseDir } = agentFiles;
  const where = `agentFiles.credentials.${host}`;
  const schemes = new Map([["secret", secret]]);
  const value = await resolveHttpToken({ text, file, baseDir }, env, schemes, where);
  const colon = value.indexOf(":");
  // A value without a colon is a token. It is sent as the password; most registries ignore the user name.
  return colon < 0
    ? { username: "token", password: value.trim() }
    : { username: value.slice(0, colon), password: value.slice(colon + 1).trim() };
}

/** An agent that the user has just trusted. */
export interface TrustedAgent {
  readonly file: AgentFile;
  /** Digest of an agent from a registry; undefined for a file. */
  readonly digest: string | undefined;
}

/**
 * Trusts an agent file with its current content, or a pulled agent with its digest, by a name, path or reference that
 * `toolmux run` takes. A TOML or JSON file counts as an agent file only if it is in a folder for agents; elsewhere it is
 * a manifest.
 * @returns undefined if `text` names neither an agent file nor an agent of a registry
 * @throws {HubError} agentInvalid, agentNotFound, storeBroken, and what `withManifestLock` throws
 */
export async function trustAgent(
  text: string,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<TrustedAgent | undefined> {
  const { env, cwd, platform } = context;
  const path = resolve(cwd, expandHome(text, env));
  const state = stateFolder(env, platform);
  const isYaml = /\.ya?ml$/i.test(path);
  const atPath = await realpath(path).catch(() => undefined);
  if (atPath === undefined && !isYaml && (isAgentPath(text) || text.startsWith(".")))
    return undefined;
  const { library, manifest } = await openLibrary(choice, context);
  // A name means the same file as for `toolmux run`, but a TOML or JSON file here is rather a manifest.
  const named = await library.locate(text);
  const real = isYaml ? (named ?? atPath) : (atPath ?? named);
  const isAgentFile = real !== undefined && (isYaml || (await library.isInFolders(real)));
  if (isAgentFile) {
    return withManifestLock(context, async () => {
      const read = await readFileLimited(real, MAX_AGENT_FILE);
      if (read.kind !== "read") {
        const reason = read.kind === "absent" ? "does not exist" : read.reason;
        throw agentInvalidError([fileProblem(real, reason)]);
      }
      const near = siblingFileReader(dirname(real), () => {});
      const result = await readAgentText(read.bytes, real, dirname(real), near);
      if (!result.ok) throw agentInvalidError(result.problems);
      await trust(real, read.bytes, state);
      return { file: result.file, digest: undefined };
    });
  }
  if (real !== undefined) return undefined;
  const stored = await library.store.find(text);
  if (stored === undefined) {
    if (manifest?.agents?.has(text) === true) {
      const message = `"${text}" is an agent of the manifest. To trust a manifest, name its file: toolmux trust FILE`;
      throw new HubError("usage", message);
    }
    if (!isYaml && !/^[\w.-]+\//.test(text)) return undefined;
    const advice = isYaml ? "" : ` Get it first: toolmux agents pull ${text}`;
    if (!isYaml) parseReferenceOrThrow(text);
    throw new HubError("agentNotFound", `There is no agent "${text}".${advice}`);
  }
  const file = await library.readTrusted(stored);
  await withManifestLock(context, () => trustDigest(stored.digest, stored.reference, state));
  return { file, digest: stored.digest };
}
