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
import { OFFERED_TOOLSETS } from "../agent-files/toolsets.ts";
import { HubError } from "../base/errors.ts";
import { expandHome, stateFolder, type SystemEnvironment } from "../base/paths.ts";
import { readFileLimited } from "../base/read-file.ts";
import { loadManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { fileProblem } from "../manifest/problems.ts";
import { resolveHttpToken } from "../manifest/resolve.ts";
import type { Table } from "../manifest/table.ts";
import { findTrustedAgentFile, trust, trustDigest } from "../manifest/trust.ts";
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

/** An agent's file, or an agent from a registry, that the user may trust. */
export interface TrustableAgent {
  /** The file as it was read. */
  readonly file: AgentFile;
  /** Servers for toolsets that the user has chosen for it before, in the form of `[agentFiles.toolsets]`. */
  readonly toolsets: Table;
  /** The file with all that its agents may use once it is trusted. */
  provide(toolsets: Table): AgentFile;
  /**
   * Trusts exactly the content that was read.
   * @throws {HubError} what `withManifestLock` throws
   */
  trust(toolsets: Table): Promise<TrustedAgent>;
}

/**
 * Trusts an agent file with its current content, or a pulled agent with its digest; see `findTrustable`.
 * @returns undefined if `text` names neither an agent file nor an agent of a registry
 */
export async function trustAgent(
  text: string,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<TrustedAgent | undefined> {
  const found = await findTrustable(text, choice, context);
  return found?.trust(found.toolsets);
}

/**
 * Finds an agent file or a pulled agent by a name, path or reference that `toolmux run` takes. A TOML or JSON file counts
 * as an agent file only if it is in a folder for agents; elsewhere it is a manifest.
 * @returns undefined if `text` names neither an agent file nor an agent of a registry
 * @throws {HubError} agentInvalid, agentNotFound, storeBroken
 */
export async function findTrustable(
  text: string,
  choice: ManifestChoice,
  context: OperationContext,
): Promise<TrustableAgent | undefined> {
  const { env, cwd, platform } = context;
  const path = resolve(cwd, expandHome(text, env));
  const state = stateFolder(env, platform);
  const isYaml = /\.ya?ml$/i.test(path);
  const atPath = await realpath(path).catch(() => undefined);
  if (atPath === undefined && !isYaml && (isAgentPath(text) || text.startsWith(".")))
    return undefined;
  const { library, manifest } = await openLibrary(choice, context);
  const trustable = async (
    file: AgentFile,
    key: string,
    digest: string | undefined,
    write: (toolsets: Table) => Promise<unknown>,
  ): Promise<TrustableAgent> => {
    const provide = (toolsets: Table): AgentFile => library.provide(file, { toolsets });
    return {
      file,
      toolsets: (await findTrustedAgentFile(key, undefined, state))?.toolsets ?? {},
      provide,
      async trust(toolsets) {
        await withManifestLock(context, () => write(toolsets));
        return { file: provide(toolsets), digest };
      },
    };
  };
  // A name means the same file as for `toolmux run`, but a TOML or JSON file here is rather a manifest.
  const named = await library.locate(text);
  const real = isYaml ? (named ?? atPath) : (atPath ?? named);
  const isAgentFile = real !== undefined && (isYaml || (await library.isInFolders(real)));
  if (isAgentFile) {
    const read = await readFileLimited(real, MAX_AGENT_FILE);
    if (read.kind !== "read") {
      const reason = read.kind === "absent" ? "does not exist" : read.reason;
      throw agentInvalidError([fileProblem(real, reason)]);
    }
    const near = siblingFileReader(dirname(real), () => {});
    const result = await readAgentText(read.bytes, real, dirname(real), near);
    if (!result.ok) throw agentInvalidError(result.problems);
    return trustable(result.file, real, undefined, (toolsets) =>
      trust(real, read.bytes, state, { toolsets }),
    );
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
  const { digest, reference } = stored;
  return trustable(await library.readTrusted(stored), digest, digest, (toolsets) =>
    trustDigest(digest, reference, state, toolsets),
  );
}

/** A toolset of a file without a server, and what could provide it. */
export interface ToolsetOffer {
  readonly type: string;
  /** In the form of `[agentFiles.toolsets]`; undefined: toolmux knows none. */
  readonly settings: Table | undefined;
}

/**
 * What could provide the toolsets of a file that have no server: a server of the manifest that has such tools, else one
 * that toolmux knows.
 */
export function offersFor(
  agent: TrustableAgent,
  manifest: Pick<Manifest, "servers" | "agentFiles"> | undefined,
): readonly ToolsetOffer[] {
  const { file, toolsets } = agent;
  const types = new Set((file.toolsets ?? []).map(({ type }) => type));
  const isMapped = (type: string): boolean =>
    manifest?.agentFiles?.toolsets?.has(type) === true || Object.hasOwn(toolsets, type);
  const provided = new Set([...(agent.provide(toolsets).toolsetsByServer?.values() ?? [])].flat());
  return [...types]
    .filter((type) => !isMapped(type) && !provided.has(type))
    .map((type) => {
      const known = Object.hasOwn(OFFERED_TOOLSETS, type) ? OFFERED_TOOLSETS[type] : undefined;
      const like = manifest?.servers.find((server) => providesToolset(server, type));
      return { type, settings: like === undefined ? known : { server: like.name } };
    });
}

/** Whether a server of the manifest seems to provide a toolset: it has its name, or runs the package that does. */
function providesToolset(spec: Manifest["servers"][number], type: string): boolean {
  if (spec.name === type) return true;
  if (spec.kind !== "stdio") return false;
  const known = Object.hasOwn(OFFERED_TOOLSETS, type) ? OFFERED_TOOLSETS[type] : undefined;
  const args: readonly unknown[] = Array.isArray(known?.["args"]) ? known["args"] : [];
  const name = args.find((arg) => typeof arg === "string" && /server/.test(arg));
  return typeof name === "string" && spec.args.some((arg) => arg.startsWith(name));
}
