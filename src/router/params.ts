import type { ByteRange, Piece } from "../base/bytes.ts";
import type { Kind } from "../catalog/listing.ts";
import { SkillMethod } from "../catalog/skills.ts";
import { HubError } from "../base/errors.ts";
import type { JsonMember, JsonObject } from "../base/json.ts";
import { Method } from "../protocol/legacy.ts";
import { LegacyTaskMethod } from "../protocol/tasks.ts";
import { readProgressTokens } from "../protocol/notifications.ts";
import { paramsOf, readId, type Request } from "../jsonrpc/message.ts";

/** The parsed `params` of a request that goes to a server. */
export interface CallParams {
  readonly kind: Kind;
  /** The name or URI that the client uses. */
  readonly name: string;
  /**
   * The key of the member whose value is `name`. `nameMembers`: all members of the object that contains this member,
   * which is `params`, or `ref` for a completion.
   */
  readonly key: "name" | "uri";
  readonly nameMembers: readonly JsonMember[];
  readonly members: readonly JsonMember[];
  /** The ranges of all occurrences of the client's progress token. `token`: its original bytes. */
  readonly tokens: readonly ByteRange[];
  readonly token: Piece | undefined;
}

/** How the params of a relayed method name the item that the request is about. */
export interface MethodSpec {
  readonly kind: Kind;
  readonly key: "name" | "uri";
  /** What the error message calls the member if it is missing. */
  readonly label: string;
}

export const CALL_METHOD: MethodSpec = { kind: "tools", key: "name", label: "the name of a tool" };

const PROMPT_METHOD: MethodSpec = { kind: "prompts", key: "name", label: "the name of a prompt" };
export const RESOURCE_METHOD: MethodSpec = {
  kind: "resources",
  key: "uri",
  label: "the URI of a resource",
};
const SKILL_METHOD: MethodSpec = { kind: "skills", key: "uri", label: "the URI of a skill" };
/** For `resources/directory/read` (ext-skills, Reading Directories). */
const DIRECTORY_METHOD: MethodSpec = {
  kind: "resources",
  key: "uri",
  label: "the URI of a directory",
};
const TEMPLATE_METHOD: MethodSpec = {
  kind: "resourceTemplates",
  key: "uri",
  label: "the URI of a template",
};

/** "reference": the params name the item in `ref` (`completion/complete`). "task": the params have only a task id. */
export type AnyMethodSpec = MethodSpec | "reference" | "task";

/** The relayed methods, except `tools/call`. */
export const METHODS: ReadonlyMap<string, AnyMethodSpec> = new Map<string, AnyMethodSpec>([
  [Method.promptsGet, PROMPT_METHOD],
  [Method.resourcesRead, RESOURCE_METHOD],
  [Method.subscribe, RESOURCE_METHOD],
  [Method.complete, "reference"],
  [LegacyTaskMethod.get, "task"],
  [LegacyTaskMethod.result, "task"],
  [LegacyTaskMethod.cancel, "task"],
  [LegacyTaskMethod.list, "task"],
]);

/** The relayed methods of the skills extension, for clients that may use it. */
export const SKILL_METHODS: ReadonlyMap<string, MethodSpec> = new Map([
  [SkillMethod.get, SKILL_METHOD],
  [SkillMethod.readDirectory, DIRECTORY_METHOD],
]);

/** The members of params that the hub reads. The hub must be sure that servers read them in the same way. */
const READ_MEMBERS: ReadonlySet<string> = new Set([
  "_meta",
  "arguments",
  "inputResponses",
  "name",
  "ref",
  "requestState",
  "task",
  "taskId",
  "type",
  "uri",
]);
/** Matches each of `READ_MEMBERS` in upper, lower or mixed case. */
const READ_MEMBER = new RegExp(`^(?:${[...READ_MEMBERS].join("|")})$`, "iu");

/**
 * Refuses members whose keys differ only in case from a member that the hub reads. A server whose parser ignores case
 * might read such a member instead, and call another tool or use other arguments than the hub has checked.
 * @throws {HubError} invalidParams
 */
export function refuseLookalikes({ members }: Pick<JsonObject, "members">, method: string): void {
  for (const { key } of members) {
    // Most calls have only these three members, and comparing keys costs less than looking them up.
    if (key === "name" || key === "arguments" || key === "_meta") continue;
    if (READ_MEMBERS.has(key) || !READ_MEMBER.test(key)) continue;
    const text = `The params of ${method} have a member ${JSON.stringify(key)}, which differs only in case from one that MCP knows.`;
    throw new HubError("invalidParams", text);
  }
}

/** Reads the params of a request for one item. @throws {HubError} invalidParams */
export function readParams(request: Request, methodSpec: MethodSpec | "reference"): CallParams {
  const { bytes, params, method } = request;
  const object = paramsOf(request);
  if (params === undefined || bytes[params.start] !== OPEN_BRACE) {
    const label = methodSpec === "reference" ? "a ref" : `a ${methodSpec.key}`;
    throw new HubError("invalidParams", `${method} needs params: an object with ${label}.`);
  }
  const { kind, key, label } = methodSpec === "reference" ? completionSpecOf(object) : methodSpec;
  // If there are several members `ref`, all are read: some servers' parsers use the first one, others the last.
  const nameObject = methodSpec === "reference" ? object.everyObject("ref") : object;
  if (methodSpec === "reference") refuseLookalikes(nameObject, method);
  const name = nameObject.string(key);
  if (name === undefined) {
    throw new HubError("invalidParams", `${method} needs ${label} in its params.`);
  }
  const args = key === "name" ? object.member("arguments") : undefined;
  if (args !== undefined && bytes[args.start] !== OPEN_BRACE && bytes[args.start] !== NULL_START) {
    throw new HubError("invalidParams", `The arguments of ${method} must be an object.`);
  }
  const tokens = readProgressTokens(object);
  const last = tokens.at(-1);
  const token = last && readId(bytes, last);
  const { members: nameMembers } = nameObject;
  return { kind, name, key, nameMembers, members: object.members, tokens, token };
}
const OPEN_BRACE = 0x7b;
const NULL_START = 0x6e;

/** Finds out what a completion is for: a prompt or a resource template (schema, CompleteRequest). */
function completionSpecOf(params: JsonObject): MethodSpec {
  const type = params.everyObject("ref").string("type");
  if (type === "ref/prompt") return PROMPT_METHOD;
  if (type === "ref/resource") return TEMPLATE_METHOD;
  const text = 'A completion needs a ref of type "ref/prompt" or "ref/resource".';
  throw new HubError("invalidParams", text);
}
