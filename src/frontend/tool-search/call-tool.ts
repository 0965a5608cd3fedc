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
import type { ClientExposure } from "./client-exposure.ts";
import type { CallingToolName, HubToolName } from "./definitions.ts";

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
 * @throws {HubError} invalidParams
 */
export function readNamedCall(
  tool: CallingToolName,
  request: Request,
  exposure: Pick<ClientExposure, "tools" | "hubTools">,
): NamedCall {
  const params = paramsOf(request);
  refuseLookalikes(params, request.method);
  const outer = params.member("arguments");
  if (outer === undefined || request.bytes[outer.start] !== OPEN_BRACE)
    throw new HubError("invalidParams", `${tool} needs arguments: an object with a name.`);
  const given = readArguments(tool, JsonObject.at(request.bytes, outer), exposure);
  const via = new HubToolCall(tool, given, exposure.hubTools);
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
function readArguments(
  tool: CallingToolName,
  given: JsonObject,
  exposure: Pick<ClientExposure, "tools" | "hubTools">,
): GivenCall {
  const { tools } = exposure;
  let object = given;
  let name = object.string("name");
  let args = argumentsOf(object);
  for (let depth = 1; depth < MAX_NESTING; depth++) {
    const inner = args.kind === "object" ? nestedCallIn(args.value, name, tools) : undefined;
    if (inner === undefined) break;
    object = inner;
    name = inner.string("name");
    args = argumentsOf(inner);
  }
  if (name === undefined) {
    const text = `${tool} needs the member name in its arguments: the name of a tool.`;
    throw new HubError("invalidParams", text);
  }
  const { start = 0, end = 0 } = object.member("name") ?? {};
  const named = { name, nameJson: makeSlice(object.bytes, start, end) };
  if (args.kind === "object") {
    const { bytes, range } = args.value;
    return { ...named, args: makeSlice(bytes, range.start, range.end) };
  }
  // Arguments beside the name would get lost.
  const isFlat = object.members.some(({ key }) => key !== "name" && key !== "arguments");
  if (args.kind === "none" && !isFlat) return { ...named, args: NO_ARGUMENTS };
  return { ...named, args: NO_ARGUMENTS, refusal: argumentsError(name, exposure) };
}

/** JSON text of an object. */
interface ObjectText {
  readonly bytes: Uint8Array;
  readonly range: ByteRange;
}

/** The member `arguments` of a call: an object, as itself or as a JSON string; nothing; or neither. */
type GivenArguments =
  { readonly kind: "object"; readonly value: ObjectText } | { readonly kind: "none" | "other" };

function argumentsOf(call: JsonObject): GivenArguments {
  const { bytes } = call;
  const range = call.member("arguments");
  if (range === undefined || bytes[range.start] === NULL_START) return { kind: "none" };
  if (bytes[range.start] === OPEN_BRACE) return { kind: "object", value: { bytes, range } };
  const text = bytes[range.start] === QUOTE ? readString(bytes, range)?.trim() : undefined;
  if (text === "") return { kind: "none" };
  const value = text === undefined ? undefined : objectIn(text);
  return value === undefined ? { kind: "other" } : { kind: "object", value };
}
const NULL_START = 0x6e;

/** A text that is one JSON object; undefined if it is none. */
function objectIn(text: string): ObjectText | undefined {
  // A line end is white space here, and would end a message that is written as a line.
  const bytes = Buffer.from(text.replaceAll(/[\r\n]/g, " "));
  const range = { start: 0, end: bytes.length };
  return scanObject(bytes, 0)?.end === range.end ? { bytes, range } : undefined;
}

/**
 * The arguments of a call, if they have the form `{name, arguments}` of a call again: models repeat the name of the
 * tool, or call `call_tool` by `call_tool`. They are not taken for that if a tool with such arguments is meant.
 */
function nestedCallIn(
  { bytes, range: args }: ObjectText,
  name: string | undefined,
  tools: Section,
): JsonObject | undefined {
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

function argumentsError(
  name: string,
  { tools, hubTools }: Pick<ClientExposure, "tools" | "hubTools">,
): HubError {
  const found = ToolNames.of(tools).resolve(name);
  if (found.kind !== "found") return unknownToolError(name, tools, hubTools);
  const { entry } = found;
  const signature = signatureOf(JsonObject.of(entry.item.bytes).value("inputSchema"));
  const text = `"${entry.name}" was not called: its arguments must be an object in the member arguments: ${signature}`;
  return new HubError("invalidParams", text);
}

/**
 * The error for a name that stands for none of the tools, or for several of them.
 * @param hubTools the hub's tools that the client has
 */
function unknownToolError(
  name: string,
  tools: Section,
  hubTools: readonly HubToolName[],
): HubError {
  const names = ToolNames.of(tools);
  const resolution = names.resolve(name);
  if (resolution.kind === "ambiguous") {
    const meant = resolution.entries.map((entry) => `"${entry.name}"`).join(", ");
    return new HubError("unknownTool", `There are several tools "${shownName(name)}": ${meant}.`);
  }
  if (hubTools.some((each) => each === name))
    return new HubError("unknownTool", `"${name}" is called by its own name, not by another tool.`);
  const similar = names.similar(name).map((each) => `"${each}"`);
  const hint = similar.length === 0 ? "" : ` Similar: ${similar.join(", ")}.`;
  const text = `There is no tool "${shownName(name)}".${hint} search_tools finds tools by what they do.`;
  return new HubError("unknownTool", text);
}

/** Maximum length of a name in a message, in UTF-16 units. */
const MAX_SHOWN = 200;

/** A name that a client gave, as it is shown to the client again. */
export function shownName(name: string): string {
  const start = name.slice(0, MAX_SHOWN).toWellFormed();
  return name.length <= MAX_SHOWN ? start : `${start}…`;
}

/** A call of a server's tool that was made by a tool of the hub. */
class HubToolCall implements CallVia {
  readonly tool: CallingToolName;
  readonly refusal: HubError | undefined;
  /** The name as the model wrote it. */
  readonly #name: string;
  readonly #hubTools: readonly HubToolName[];

  constructor(
    tool: CallingToolName,
    { name, refusal }: GivenCall,
    hubTools: readonly HubToolName[],
  ) {
    this.tool = tool;
    this.#name = name;
    this.refusal = refusal;
    this.#hubTools = hubTools;
  }

  get isReadOnly(): boolean {
    return this.tool === "call_read_only_tool";
  }

  find(all: Section): ListedRoute | undefined {
    const tools = toolsForModels(all);
    const exact: SectionEntry | undefined = tools.entry(this.#name);
    if (exact !== undefined) return exact.route;
    const resolution = ToolNames.of(tools).resolve(this.#name);
    if (resolution.kind === "ambiguous") throw unknownToolError(this.#name, tools, this.#hubTools);
    return resolution.kind === "found" ? resolution.entry.route : undefined;
  }

  notFoundError(all: Section): HubError {
    return unknownToolError(this.#name, toolsForModels(all), this.#hubTools);
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
