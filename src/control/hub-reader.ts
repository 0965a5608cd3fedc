import { HubError } from "../base/errors.ts";
import type { Kind, ListedItem } from "../catalog/listing.ts";
import type { HubClient, HubClientOptions } from "../frontend/hub-client.ts";
import type {
  CatalogDocument,
  ExposureCostsDocument,
  FoundToolsDocument,
  PinsDocument,
  ServerDocument,
  ServerFindingsDocument,
  ToolDefinitionDocument,
} from "./schemas.ts";

/**
 * A hub as a command reads it: one that runs in another process (`running-hub-reader.ts`), or one of this process
 * (`local-hub-reader.ts`). Documents are those of the control API, without secrets. The methods throw the signal's reason
 * when the command is interrupted, and `hubNotRunning` when the other process has ended.
 */
export interface HubReader {
  /** The servers, in the order of the manifest. */
  servers(): Promise<readonly ServerDocument[]>;
  /**
   * What clients see. If the reader has a mode: what clients in that mode see, with a note of kind `mode` about each
   * entry that the mode hides.
   * @throws {HubError} notFound if there is no such mode
   */
  catalog(): Promise<CatalogDocument>;
  /** A tool that clients see, by its exposed name; undefined if there is none of that name at present. */
  tool(name: string): Promise<ToolDefinitionDocument | undefined>;
  /**
   * Finds tools that clients see by what they do. If the reader has a mode: those that clients in that mode see.
   * @throws {HubError} notFound if there is no such mode or server; usage if the query is empty or too long
   */
  find(query: string, options: FindRequest): Promise<FoundToolsDocument>;
  /**
   * What clients get with each exposure, in tokens. If the reader has a mode: clients in that mode.
   * @throws {HubError} notFound if there is no such mode
   */
  exposureCosts(): Promise<ExposureCostsDocument>;
  /**
   * The items of a kind as the reader's client gets them, sorted by name.
   * @throws {HubError} notSupported for skills of a hub in another process: only modern clients list them
   */
  list(kind: Kind): Promise<readonly ListedItem[]>;
  /**
   * What the scan has found in the definitions of all servers, or of one.
   * @throws {HubError} notFound if there is no such server
   */
  findings(server?: string): Promise<readonly ServerFindingsDocument[]>;
  /**
   * What all servers, or one, list that is not accepted.
   * @throws {HubError} notFound if there is no such server
   */
  pins(server?: string): Promise<readonly PinsDocument[]>;
  /** The reader's own MCP client, which is connected when it is first asked for. */
  client(): Promise<HubClient>;
  /** Disconnects the client. The hub goes on. */
  close(): Promise<void>;
}

export interface FindRequest {
  readonly server?: string | undefined;
  /** Maximum number of tools; undefined: `toolSearch.limit` of the manifest. */
  readonly limit?: number | undefined;
  /** Whether each tool has the words that counted for it. */
  readonly explain?: boolean | undefined;
}

export interface HubReaderOptions extends HubClientOptions {
  /** A mode that limits what the reader sees; undefined: no limit. */
  readonly mode?: string | undefined;
  /** When it is aborted, all that is pending rejects with its reason. */
  readonly signal: AbortSignal;
}

/**
 * Whether a server can be used, once its start has succeeded, has failed or has taken too long. `idle`: it does not run
 * until it is called, and its listing is known. `starting`: its start has taken longer than `connectTimeout`, and goes
 * on. `disabled`: it is switched off, or was stopped.
 */
export type Availability = "connected" | "idle" | "starting" | "failed" | "disabled";

export function availabilityOf(server: ServerDocument): Availability {
  const { goal, state, late, tools, listedAt, lastError, unavailable } = server;
  if (goal === "down") return "disabled";
  if (state === "connected") return "connected";
  if (late !== undefined) return "starting";
  // An earlier failure counts only if the listing was saved by an earlier run and the server has not listed since.
  const isListed = tools !== undefined && (listedAt === undefined || lastError === undefined);
  const isWaiting = state === "idle" || state === "notStarted" || state === "stopping";
  return isWaiting && unavailable === undefined && isListed ? "idle" : "failed";
}

/**
 * Whether a server should be up and is not: it has failed, waits for its next attempt or for a login, or does not
 * respond. One that is starting, or that waits for a call or a client, is not down.
 */
export function isDown({ state, responsive }: ServerDocument): boolean {
  if (state === "connected") return responsive === false;
  return state === "failed" || state === "reconnecting" || state === "authenticating";
}

/** Why a server cannot be used, as an error without the data of the original one. */
export function errorOf({ name: server, state, lastError, responsive }: ServerDocument): HubError {
  if (state === "connected" && responsive === false) {
    const text = `Server "${server}" is connected, but does not respond.`;
    return new HubError("notResponding", text, { server });
  }
  if (lastError === undefined) {
    return state === "authenticating"
      ? new HubError("unauthorized", `Server "${server}" waits for its authorization.`, { server })
      : new HubError("serverStopped", `Server "${server}" does not run.`, { server });
  }
  const { code, message, step, stderr } = lastError;
  return new HubError(HubError.isCode(code) ? code : "internal", message, {
    server,
    stderr,
    step,
  });
}
