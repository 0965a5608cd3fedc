/**
 * attach/: how a process attaches its client to a hub that it shares with others. `handshake.ts` has the first line in
 * either direction, `attach-name.ts` the name of the socket. After the handshake, the connection carries the client's
 * JSON-RPC messages, one a line, as stdin and stdout of a hub of its own would. Start here.
 */
import type { Env } from "../base/paths.ts";
import { isJsonObject } from "../base/json.ts";
import { HubError } from "../base/errors.ts";

/** The version of the handshake, in its first line and in the name of the socket. */
export const ATTACH_PROTOCOL = 1;

/** `maxBytes`: maximum length of the first line; `timeout`: time until it has arrived, and until it is answered, in ms. */
export const HANDSHAKE_LIMITS = { maxBytes: 256 * 1024, timeout: 2000 };

/**
 * The first line that an attaching process sends. A process that does not know the manifest leaves `env` out: the answer
 * then names the variables that the hub needs, and if there are any, a second line has them: `{"env":{…}}`.
 */
export interface AttachRequest {
  /** The version of toolmux that attaches. */
  readonly version: string;
  readonly pid: number;
  /** The working directory of the client's process: an absolute path. */
  readonly cwd: string;
  /** The variables that the manifest names and that the client's process has. */
  readonly env?: Env | undefined;
  /** The PATH of the client's process. */
  readonly path?: string | undefined;
  /** As `serve --mode`, `--servers`, `--approval` and `--approve-all` (`all`), `--expose`. */
  readonly mode?: string | undefined;
  readonly servers?: readonly string[] | undefined;
  readonly approval?: (typeof APPROVALS)[number] | undefined;
  readonly expose?: string | undefined;
  /** TOOLMUX_HUBS of the client's process. */
  readonly hubs?: string | undefined;
}

const APPROVALS = ["auto", "always", "all"] as const;

/** The line that answers it. */
export type AttachAnswer =
  | ({
      readonly ok: true;
      readonly hub: { readonly pid: number; readonly version: string };
    } & Partial<ManifestFacts>)
  | { readonly ok: false; readonly error: { readonly code: string; readonly message: string } };

/** What the answer to a line without `env` says of the hub's manifest. */
export interface ManifestFacts {
  /** The names of the variables that the hub's servers take from a client. If there are any, the second line follows. */
  readonly variables: readonly string[];
  /** Maximum length of a message, in bytes. */
  readonly maxMessage: number;
}

/** @returns the line, without its end */
export function formatAttachRequest(request: AttachRequest): string {
  return JSON.stringify({ toolmux: `attach/${ATTACH_PROTOCOL}`, ...request });
}

/** Reads the first line of an attaching process. @throws {HubError} invalidRequest */
export function parseAttachRequest(line: string): AttachRequest {
  const value = parseJson(line);
  if (!isJsonObject(value)) throw invalid("it is not a JSON object");
  if (value["toolmux"] !== `attach/${ATTACH_PROTOCOL}`)
    throw invalid(`"toolmux" is not "attach/${ATTACH_PROTOCOL}"`);
  const { version, pid, cwd, env, path, mode, servers, approval, expose, hubs } = value;
  const isText = (it: unknown): it is string | undefined =>
    it === undefined || typeof it === "string";
  if (typeof version !== "string") throw invalid('"version" is not a text');
  if (typeof pid !== "number" || !Number.isSafeInteger(pid) || pid < 1)
    throw invalid('"pid" is not the id of a process');
  if (typeof cwd !== "string" || !cwd.startsWith("/")) throw invalid('"cwd" is no absolute path');
  if (env !== undefined && !isEnv(env)) throw invalid('"env" is not an object of texts');
  if (!isText(path) || !isText(mode) || !isText(expose) || !isText(hubs))
    throw invalid('one of "path", "mode", "expose" and "hubs" is not a text');
  if (servers !== undefined && !(Array.isArray(servers) && servers.every((it) => isText(it))))
    throw invalid('"servers" is not an array of texts');
  if (!(approval === undefined || APPROVALS.some((level) => level === approval)))
    throw invalid('"approval" is not "auto", "always" or "all"');
  return {
    version,
    pid,
    cwd,
    env,
    path,
    mode,
    servers: servers as readonly string[] | undefined,
    approval: approval as AttachRequest["approval"],
    expose,
    hubs,
  };
}

/** @returns the second line, without its end */
export function formatVariables(env: Env): string {
  return JSON.stringify({ env });
}

/** Reads the second line. @throws {HubError} invalidRequest */
export function parseVariables(line: string): Env {
  const value = parseJson(line);
  if (isJsonObject(value) && isEnv(value["env"])) return value["env"];
  throw new HubError("invalidRequest", "The variables of an attached client are not texts.");
}

function isEnv(value: unknown): value is Env {
  return isJsonObject(value) && Object.values(value).every((it) => typeof it === "string");
}

/** Reads the answer of a hub. @returns undefined if it is none */
export function parseAttachAnswer(line: string): AttachAnswer | undefined {
  const value = parseJson(line);
  if (!isJsonObject(value)) return undefined;
  const { ok, hub, error, variables, maxMessage } = value;
  if (ok === true && isJsonObject(hub)) {
    const { pid, version } = hub;
    return {
      ok,
      hub: { pid: Number(pid), version: String(version) },
      ...(Array.isArray(variables) && { variables: variables.map(String) }),
      ...(Number.isSafeInteger(maxMessage) && { maxMessage: Number(maxMessage) }),
    };
  }
  if (ok !== false || !isJsonObject(error) || typeof error["code"] !== "string") return undefined;
  return { ok, error: { code: error["code"], message: String(error["message"]) } };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function invalid(reason: string): HubError {
  return new HubError(
    "invalidRequest",
    `The first line of an attached client is wrong: ${reason}.`,
  );
}
