import type { ByteRange, Piece } from "../base/bytes.ts";
import type { Kind } from "../catalog/listing.ts";
import { HubError } from "../base/errors.ts";
import { type JsonMember, lastMember, readString, scanObject } from "../base/json.ts";
import { Method } from "../protocol/legacy.ts";
import { TaskMethod } from "../protocol/tasks.ts";
import { readProgressTokens } from "../protocol/notifications.ts";
import { readId, type Request } from "../jsonrpc/message.ts";

/** The parsed `params` of a request that goes to a server. */
export interface CallParams {
  readonly kind: Kind;
  /** The name or URI that the client uses. */
  readonly name: string;
  /** `key`: the key of the member that holds `name`; `nameMembers`: the members of the object that contains it. */
  readonly key: "name" | "uri";
  readonly nameMembers: readonly JsonMember[];
  /** The members of `params`. */
  readonly members: readonly JsonMember[];
  /** The client's progress token: `tokens` are the ranges of all its occurrences, `token` is its original bytes. */
  readonly tokens: readonly ByteRange[];
  readonly token: Piece | undefined;
}

/** How the params of a relayed method name the item that the request is about. */
export interface MethodSpec {
  readonly kind: Kind;
  readonly key: "name" | "uri";
  /** The name of the missing member in error messages. */
  readonly label: string;
}

export const CALL_METHOD: MethodSpec = { kind: "tools", key: "name", label: "the name of a tool" };

const PROMPT_METHOD: MethodSpec = { kind: "prompts", key: "name", label: "the name of a prompt" };
export const RESOURCE_METHOD: MethodSpec = {
  kind: "resources",
  key: "uri",
  label: "the URI of a resource",
};
/** `skills/get` (ext-skills, Getting a Skill) and `resources/directory/read` (ext-skills, Reading Directories). */
export const SKILL_METHOD: MethodSpec = { kind: "skills", key: "uri", label: "the URI of a skill" };
export const DIRECTORY_METHOD: MethodSpec = {
  kind: "resources",
  key: "uri",
  label: "the URI of a directory",
};
const TEMPLATE_METHOD: MethodSpec = {
  kind: "resourceTemplates",
  key: "uri",
  label: "the URI of a template",
};

/** "reference": `completion/complete`, whose params have a `ref`; "task": task requests, which have only a task id. */
export type AnyMethodSpec = MethodSpec | "reference" | "task";

/** The relayed methods, except `tools/call`. */
export const METHODS: ReadonlyMap<string, AnyMethodSpec> = new Map<string, AnyMethodSpec>([
  [Method.promptsGet, PROMPT_METHOD],
  [Method.resourcesRead, RESOURCE_METHOD],
  [Method.subscribe, RESOURCE_METHOD],
  [Method.complete, "reference"],
  [TaskMethod.get, "task"],
  [TaskMethod.result, "task"],
  [TaskMethod.cancel, "task"],
  [TaskMethod.list, "task"],
]);

/** @throws {HubError} invalidParams */
export function readParams(request: Request, methodSpec: MethodSpec | "reference"): CallParams {
  const { bytes, params, method } = request;
  const members = request.members ?? (params && scanObject(bytes, params.start)?.items);
  if (members === undefined) {
    const label = methodSpec === "reference" ? "a ref" : `a ${methodSpec.key}`;
    throw new HubError("invalidParams", `${method} needs params: an object with ${label}.`);
  }
  const { kind, key, label } =
    methodSpec === "reference" ? completionSpecOf(bytes, members) : methodSpec;
  const nameMembers = methodSpec === "reference" ? refMembersOf(bytes, members) : members;
  const name = readString(bytes, lastMember(nameMembers, key));
  if (name === undefined) {
    throw new HubError("invalidParams", `${method} needs ${label} in its params.`);
  }
  const args = key === "name" ? lastMember(members, "arguments") : undefined;
  if (args !== undefined && bytes[args.start] !== OPEN_BRACE && bytes[args.start] !== NULL_START) {
    throw new HubError("invalidParams", `The arguments of ${method} must be an object.`);
  }
  const tokens = readProgressTokens(bytes, members);
  const last = tokens.at(-1);
  const token = last && readId(bytes, last);
  return { kind, name, key, nameMembers, members, tokens, token };
}
const OPEN_BRACE = 0x7b;
const NULL_START = 0x6e;

/** Whether a completion is for a prompt or for a resource template (MCP schema, CompleteRequest). */
function completionSpecOf(bytes: Uint8Array, members: readonly JsonMember[]): MethodSpec {
  const type = readString(bytes, lastMember(refMembersOf(bytes, members), "type"));
  if (type === "ref/prompt") return PROMPT_METHOD;
  if (type === "ref/resource") return TEMPLATE_METHOD;
  const text = 'A completion needs a ref of type "ref/prompt" or "ref/resource".';
  throw new HubError("invalidParams", text);
}

/** The members of every `ref`, even if it is duplicate: servers' parsers differ on which duplicate counts. */
function refMembersOf(bytes: Uint8Array, members: readonly JsonMember[]): readonly JsonMember[] {
  return members
    .filter(({ key }) => key === "ref")
    .flatMap((ref) => scanObject(bytes, ref.start)?.items ?? []);
}
