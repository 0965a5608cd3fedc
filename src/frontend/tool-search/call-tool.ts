import { Buffer } from "node:buffer";
import {
  type ByteRange,
  type Edit,
  joinPieces,
  makeSlice,
  type Piece,
  piecesOfEdited,
  pieceSize,
  startsWithAt,
  utf8,
} from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import {
  JsonObject,
  OPEN_BRACE,
  QUOTE,
  readString,
  scanObject,
  skipWhitespace,
} from "../../base/json.ts";
import { signatureOf } from "../../catalog/search/signature.ts";
import { ToolNames } from "../../catalog/search/tool-names.ts";
import type { ListedRoute, Section, SectionEntry } from "../../catalog/section.ts";
import { toolsForModels } from "../../catalog/tool-visibility.ts";
import { paramsOf, type Request } from "../../jsonrpc/message.ts";
import type { CallVia } from "../../router/call.ts";
import { refuseLookalikes } from "../../router/params.ts";
import { type CallingToolName, HUB_TOOLS, type HubToolName } from "./definitions.ts";

/** A call of `call_tool` as the call of the tool that it names. */
export interface NamedCall {
  /** The same request for the tool that the arguments name, with the arguments for it, byte for byte. */
  readonly request: Request;
  readonly via: CallVia;
}

const NO_ARGUMENTS = "{}";
/** Maximum number of objects of the form `{name, arguments}` in each other. */
const MAX_NESTING = 4;

/**
 * Turns a call of `call_tool` into the call of the tool that it names, before the request is routed: everything after
 * that treats it like any other call.
 * @param tools the tools that the client's models may call
 * @throws {HubError} invalidParams
 */
export function readNamedCall(tool: CallingToolName, request: Request, tools: Section): NamedCall {
  const params = paramsOf(request);
  refuseLookalikes(params, request.method);
  const outer = params.member("arguments");
  if (outer === undefined || request.bytes[outer.start] !== OPEN_BRACE)
    throw new HubError("invalidParams", `${tool} needs arguments: an object with a name.`);
  const given = readArguments(tool, JsonObject.at(request.bytes, outer), tools);
  const via = new HubToolCall(tool, given.name, given.refusal);
  return { request: withParams(request, params, given), via };
}

interface GivenCall {
  readonly name: string;
  /** The name as JSON. */
  readonly nameJson: Piece;
  /** The arguments for the tool, a JSON object. */
  readonly args: Piece;
  /** Why the tool is not called. */
  readonly refusal?: HubError;
}

/** Reads the arguments of `call_tool`, in all forms in which models write them. */
function readArguments(tool: CallingToolName, given: JsonObject, tools: Section): GivenCall {
  let object = given;
  let name = object.string("name");
  for (let depth = 1; depth < MAX_NESTING; depth++) {
    const inner = nestedCallIn(object, name, tools);
    if (inner === undefined) break;
    object = inner;
    name = inner.string("name");
  }
  if (name === undefined) {
    const text = `${tool} needs the member name in its arguments: the name of a tool.`;
    throw new HubError("invalidParams", text);
  }
  const { bytes } = object;
  const { start = 0, end = 0 } = object.member("name") ?? {};
  const named = { name, nameJson: makeSlice(bytes, start, end) };
  const args = object.member("arguments");
  if (args === undefined || bytes[args.start] === NULL_START) {
    // Arguments beside the name would get lost.
    const isFlat = object.members.some(({ key }) => key !== "name" && key !== "arguments");
    const refusal = isFlat ? argumentsError(name, tools) : undefined;
    return { ...named, args: NO_ARGUMENTS, ...(refusal && { refusal }) };
  }
  if (bytes[args.start] === OPEN_BRACE)
    return { ...named, args: makeSlice(bytes, args.start, args.end) };
  const text = bytes[args.start] === QUOTE ? readString(bytes, args)?.trim() : undefined;
  if (text === "") return { ...named, args: NO_ARGUMENTS };
  const parsed = text === undefined ? undefined : objectIn(text);
  if (parsed !== undefined) return { ...named, args: parsed };
  return { ...named, args: NO_ARGUMENTS, refusal: argumentsError(name, tools) };
}
const NULL_START = 0x6e;

/** The bytes of a text that is one JSON object; undefined if it is none. */
function objectIn(text: string): Buffer | undefined {
  // A line end is white space here, and would end a message that is written as a line.
  const bytes = Buffer.from(text.replaceAll(/[\r\n]/g, " "));
  return scanObject(bytes, 0)?.end === bytes.length ? bytes : undefined;
}

/**
 * The object in `arguments`, if it has the form `{name, arguments}` of a call again: models repeat the name of the tool,
 * or call `call_tool` by `call_tool`. It is not taken for that if a tool with such arguments is meant.
 */
function nestedCallIn(
  object: JsonObject,
  name: string | undefined,
  tools: Section,
): JsonObject | undefined {
  const { bytes } = object;
  const args = object.member("arguments");
  if (args === undefined || bytes[args.start] !== OPEN_BRACE) return undefined;
  // Most arguments do not begin like this, and are not scanned a second time.
  const key = skipWhitespace(bytes, args.start + 1);
  if (!startsWithAt(bytes, key, NAME_KEY) && !startsWithAt(bytes, key, ARGUMENTS_KEY))
    return undefined;
  const inner = JsonObject.at(bytes, args);
  const innerName = inner.string("name");
  if (innerName === undefined) return undefined;
  if (!inner.members.every((member) => member.key === "name" || member.key === "arguments"))
    return undefined;
  if (name === undefined) return inner;
  const names = ToolNames.of(tools);
  const found = names.resolve(name);
  if (found.kind !== "found") return isCallingName(name) ? inner : undefined;
  const again = names.resolve(innerName);
  const isRepeated = again.kind === "found" && again.entry === found.entry;
  const properties = JsonObject.of(found.entry.item.bytes)
    .object("inputSchema")
    .object("properties");
  const takesThem = properties.member("arguments") !== undefined;
  return isRepeated && !takesThem && inner.member("arguments") !== undefined ? inner : undefined;
}

const NAME_KEY = utf8('"name"');
const ARGUMENTS_KEY = utf8('"arguments"');

function isCallingName(name: string): boolean {
  return name === "call_tool" || name === "call_read_only_tool";
}

function argumentsError(name: string, tools: Section): HubError {
  const found = ToolNames.of(tools).resolve(name);
  if (found.kind !== "found") return unknownToolError(name, tools);
  const { entry } = found;
  const signature = signatureOf(JsonObject.of(entry.item.bytes).value("inputSchema"));
  const text = `"${entry.name}" was not called: its arguments must be an object in the member arguments: ${signature}`;
  return new HubError("invalidParams", text);
}

/** The error for a name that stands for none of the tools, or for several of them. */
export function unknownToolError(name: string, tools: Section): HubError {
  const names = ToolNames.of(tools);
  const resolution = names.resolve(name);
  if (resolution.kind === "ambiguous") {
    const meant = resolution.entries.map((entry) => `"${entry.name}"`).join(", ");
    return new HubError("unknownTool", `There are several tools "${shown(name)}": ${meant}.`);
  }
  if (isHubTool(name))
    return new HubError("unknownTool", `"${name}" is called by its own name, not by another tool.`);
  const similar = names.similar(name).map((each) => `"${each}"`);
  const hint = similar.length === 0 ? "" : ` Similar: ${similar.join(", ")}.`;
  const text = `There is no tool "${shown(name)}".${hint} search_tools finds tools by what they do.`;
  return new HubError("unknownTool", text);
}

function isHubTool(name: string): name is HubToolName {
  return Object.hasOwn(HUB_TOOLS, name);
}

/** Maximum length of a name in a message, in UTF-16 units. */
const MAX_SHOWN = 200;

function shown(name: string): string {
  return name.length <= MAX_SHOWN ? name : `${name.slice(0, MAX_SHOWN).toWellFormed()}…`;
}

/** A call of a server's tool that was made by a tool of the hub. */
class HubToolCall implements CallVia {
  readonly tool: CallingToolName;
  readonly refusal: HubError | undefined;
  readonly #name: string;

  /** @param name as the model wrote it */
  constructor(tool: CallingToolName, name: string, refusal: HubError | undefined) {
    this.tool = tool;
    this.#name = name;
    this.refusal = refusal;
  }

  get isReadOnly(): boolean {
    return this.tool === "call_read_only_tool";
  }

  find(all: Section): ListedRoute | undefined {
    const tools = toolsForModels(all);
    const exact: SectionEntry | undefined = tools.entry(this.#name);
    if (exact !== undefined) return exact.route;
    const resolution = ToolNames.of(tools).resolve(this.#name);
    if (resolution.kind === "ambiguous") throw unknownToolError(this.#name, tools);
    return resolution.kind === "found" ? resolution.entry.route : undefined;
  }

  notFoundError(all: Section): HubError {
    return unknownToolError(this.#name, toolsForModels(all));
  }

  notReadOnlyError(name: string): HubError {
    return new HubError("notReadOnly", `"${name}" may change things: use call_tool.`);
  }
}

/**
 * A copy of a request `tools/call` for another tool, with other arguments. All its other bytes stay the same. The
 * arguments are copied without being scanned.
 */
function withParams(request: Request, params: JsonObject, { nameJson, args }: GivenCall): Request {
  const edits: Edit[] = [];
  for (const { key, start, end } of params.members) {
    if (key === "name") edits.push({ start, end, replacement: nameJson });
    else if (key === "arguments") edits.push({ start, end, replacement: args });
  }
  const bytes = joinPieces(piecesOfEdited({ ...request, edits }));
  /** The index in the copy of what begins or ends at this index in the request. */
  const moved = (at: number): number => {
    let index = at - request.start;
    for (const { start, end, replacement } of edits)
      if (start < at) index += pieceSize(replacement) - (end - start);
    return index;
  };
  const range = ({ start, end }: ByteRange): ByteRange => ({
    start: moved(start),
    end: moved(end),
  });
  const { kind, method, id, duplicateIds, params: paramsRange } = request;
  return {
    kind,
    method,
    bytes,
    start: 0,
    end: bytes.length,
    id: { key: id.key, bytes, ...range(id) },
    duplicateIds: duplicateIds.map(range),
    params: paramsRange && range(paramsRange),
    members: params.members.map((member) => ({ key: member.key, ...range(member) })),
  };
}
