import {
  applyEdits,
  type Edit,
  type Piece,
  type ByteRange,
  makeSlice,
  utf8,
} from "../base/bytes.ts";
import { type ErrorCode, HubError } from "../base/errors.ts";
import { lastMember, type JsonMember, scanObject, readString } from "../base/json.ts";
import type { Capabilities } from "../protocol/capabilities.ts";
import { type ServerRequestMethod, isServerRequestMethod, Method } from "../protocol/legacy.ts";
import { TaskMethod, type TaskMethodName } from "../protocol/tasks.ts";
import { editsOf, type Request } from "../jsonrpc/message.ts";
import { readProgressTokens } from "../protocol/notifications.ts";

/** What a server's own request asks of a client. */
export interface ServerRequestContent {
  readonly method: ServerRequestMethod | TaskMethodName;
  /** The server would have it made a task. */
  readonly isTask: boolean;
  /** The server's progress token as it spelled it, if it gave one. */
  readonly token: Piece | undefined;
  /** The id of the elicitation, if it is one by URL. */
  readonly elicitation: string | undefined;
  /** The request's params with another progress token. */
  params(token: Piece): readonly Piece[] | undefined;
}

/**
 * Reads a server's own request. What people are shown says which server asks.
 * @throws {HubError} methodNotFound or invalidParams if clients that can do only this cannot be asked that
 */
export function readServerRequest(
  server: string,
  request: Pick<Request, "method" | "params"> & { readonly bytes: Uint8Array },
  capabilities: Capabilities,
): ServerRequestContent {
  const { method, bytes, params } = request;
  if (!isServerRequestMethod(method)) {
    throw new HubError("methodNotFound", `toolmux cannot answer "${method}".`);
  }
  const members = (params && scanObject(bytes, params.start)?.items) ?? [];
  const lack = findLack(method, bytes, members, capabilities);
  if (lack !== undefined) throw lack;
  const tokens = readProgressTokens(bytes, members);
  const last = tokens.at(-1);
  const edits = method === Method.elicitationCreate ? prefixServerName(server, bytes, members) : [];
  return {
    method,
    isTask: lastMember(members, "task") !== undefined,
    token: last && makeSlice(bytes, last.start, last.end),
    elicitation: isByUrl(method, bytes, members)
      ? readString(bytes, lastMember(members, "elicitationId"))
      : undefined,
    params: (token) => params && cut(bytes, params, [...edits, ...editsOf(tokens, token)]),
  };
}

/** @throws {HubError} methodNotFound if clients that can do only this cannot be asked that about tasks */
export function checkTaskCapability(method: string, { tasks }: Capabilities): void {
  const can =
    method === TaskMethod.list ? tasks?.list : method === TaskMethod.cancel ? tasks?.cancel : tasks;
  if (can !== undefined) return;
  throw new HubError("methodNotFound", `The client cannot be asked for "${method}".`);
}

function findLack(
  method: ServerRequestMethod,
  bytes: Uint8Array,
  members: readonly JsonMember[],
  { roots, sampling, elicitation }: Capabilities,
): HubError | undefined {
  const lacks = (what: string, needed: Capabilities): HubError =>
    lackError("invalidParams", `The client cannot be asked for ${what}.`, needed);
  const cannot = (needed: Capabilities): HubError =>
    lackError("methodNotFound", `The client cannot be asked for "${method}".`, needed);
  switch (method) {
    case Method.rootsList:
      return roots === undefined ? cannot({ roots: {} }) : undefined;
    case Method.createMessage: {
      if (sampling === undefined) return cannot({ sampling: {} });
      const usesTools = members.some(({ key }) => key === "tools" || key === "toolChoice");
      return usesTools && sampling.tools === undefined
        ? lacks("sampling with tools", { sampling: { tools: {} } })
        : undefined;
    }
    case Method.elicitationCreate: {
      const mode = readString(bytes, lastMember(members, "mode")) ?? "form";
      if (elicitation === undefined) {
        return cannot({ elicitation: mode === "url" ? { url: {} } : { form: {} } });
      }
      if (mode === "url" && elicitation.url === undefined) {
        return lacks("an elicitation by URL", { elicitation: { url: {} } });
      }
      if (mode === "form" && elicitation.form === undefined) {
        return lacks("an elicitation by form", { elicitation: { form: {} } });
      }
      return undefined;
    }
  }
}

function isByUrl(
  method: ServerRequestMethod,
  bytes: Uint8Array,
  members: readonly JsonMember[],
): boolean {
  return (
    method === Method.elicitationCreate && readString(bytes, lastMember(members, "mode")) === "url"
  );
}

function lackError(code: ErrorCode, text: string, needed: Capabilities): HubError {
  return new HubError(code, text, { data: { requiredCapabilities: needed } });
}

/** What the client would have to be able to do, if it is for that that a question was refused. */
export function missingCapabilityOf({ data }: HubError): object | undefined {
  const needed = data?.["requiredCapabilities"];
  return typeof needed === "object" && needed !== null ? needed : undefined;
}

/** Puts the server's name in front of the message: whoever answers has to know who asks. */
export function prefixServerName(
  server: string,
  bytes: Uint8Array,
  members: readonly JsonMember[],
): Edit[] {
  const name = JSON.stringify(`[${server}] `).slice(0, -1);
  return members.flatMap(({ key, start }) =>
    key === "message" && bytes[start] === QUOTE
      ? [{ start, end: start + 1, replacement: utf8(name) }]
      : [],
  );
}
const QUOTE = 0x22;

/** A part of the bytes, with edits that are in it. */
function cut(
  bytes: Uint8Array,
  { start, end }: ByteRange,
  edits: readonly Edit[],
): readonly Piece[] {
  return applyEdits(bytes.subarray(0, end), [{ start: 0, end: start, replacement: "" }, ...edits]);
}
