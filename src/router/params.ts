import type { Piece, ByteRange } from "../base/bytes.ts";
import type { Kind } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import { lastMember, type JsonMember, scanObject, readString } from "../base/json.ts";
import { Method } from "../protocol/legacy.ts";
import { TaskMethod } from "../protocol/tasks.ts";
import { readTokens } from "../protocol/notifications.ts";
import { readId } from "../jsonrpc/id.ts";
import type { Request } from "../jsonrpc/message.ts";

/** The parsed `params` of a request that goes to a server. */
export interface Wanted {
  readonly kind: Kind;
  /** The name or URI that the client uses. */
  readonly name: string;
  /** The key of the member with that name or URI, and the object's members. */
  readonly key: "name" | "uri";
  readonly spots: readonly JsonMember[];
  /** Of `params`. */
  readonly members: readonly JsonMember[];
  /** The client's progress token: all its ranges, and its original bytes. */
  readonly tokens: readonly ByteRange[];
  readonly token: Piece | undefined;
}

/** How the params of a relayed method name their subject. */
export interface Manner {
  readonly kind: Kind;
  readonly key: "name" | "uri";
  /** What error messages call the missing member. */
  readonly what: string;
}

export const CALL: Manner = { kind: "tools", key: "name", what: "the name of a tool" };

const PROMPT: Manner = { kind: "prompts", key: "name", what: "the name of a prompt" };
export const RESOURCE: Manner = { kind: "resources", key: "uri", what: "the URI of a resource" };
/** A skill (ext-skills, Getting a Skill) and a directory of resources (ext-skills, Reading Directories). */
export const SKILL: Manner = { kind: "skills", key: "uri", what: "the URI of a skill" };
export const DIRECTORY: Manner = {
  kind: "resources",
  key: "uri",
  what: "the URI of a directory",
};
const TEMPLATE: Manner = { kind: "resourceTemplates", key: "uri", what: "the URI of a template" };

/** `completion/complete` has a `ref`; task requests have only a task id. */
export type AnyManner = Manner | "reference" | "task";

/** The relayed methods, except `tools/call`. */
export const MANNERS: ReadonlyMap<string, AnyManner> = new Map<string, AnyManner>([
  [Method.promptsGet, PROMPT],
  [Method.resourcesRead, RESOURCE],
  [Method.subscribe, RESOURCE],
  [Method.complete, "reference"],
  [TaskMethod.get, "task"],
  [TaskMethod.result, "task"],
  [TaskMethod.cancel, "task"],
  [TaskMethod.list, "task"],
]);

/** @throws {HubError} invalidParams */
export function readWanted(request: Request, manner: Manner | "reference"): Wanted {
  const { bytes, params, method } = request;
  const members = request.members ?? (params && scanObject(bytes, params.start)?.items);
  if (members === undefined) {
    const what = manner === "reference" ? "a ref" : `a ${manner.key}`;
    throw new HubError("invalidParams", `${method} needs params: an object with ${what}.`);
  }
  const { kind, key, what } = manner === "reference" ? readManner(bytes, members) : manner;
  const spots = manner === "reference" ? readReference(bytes, members) : members;
  const name = readString(bytes, lastMember(spots, key));
  if (name === undefined) {
    throw new HubError("invalidParams", `${method} needs ${what} in its params.`);
  }
  const args = key === "name" ? lastMember(members, "arguments") : undefined;
  if (args !== undefined && bytes[args.start] !== OPEN_BRACE && bytes[args.start] !== NULL_START) {
    throw new HubError("invalidParams", `The arguments of ${method} must be an object.`);
  }
  const tokens = readTokens(bytes, members);
  const last = tokens.at(-1);
  const token = last && readId(bytes, last);
  return { kind, name, key, spots, members, tokens, token };
}
const OPEN_BRACE = 0x7b;
const NULL_START = 0x6e;

/** The subject of a completion: a prompt or a resource template (schema, CompleteRequest). */
function readManner(bytes: Uint8Array, members: readonly JsonMember[]): Manner {
  const type = readString(bytes, lastMember(readReference(bytes, members), "type"));
  if (type === "ref/prompt") return PROMPT;
  if (type === "ref/resource") return TEMPLATE;
  const text = 'A completion needs a ref of type "ref/prompt" or "ref/resource".';
  throw new HubError("invalidParams", text);
}

/** The members of every `ref`: servers' parsers differ on which duplicate counts. */
function readReference(bytes: Uint8Array, members: readonly JsonMember[]): readonly JsonMember[] {
  return members
    .filter(({ key }) => key === "ref")
    .flatMap((ref) => scanObject(bytes, ref.start)?.items ?? []);
}
