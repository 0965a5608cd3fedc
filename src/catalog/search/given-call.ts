/** The request of a model to `call_tool`, in all forms in which models write it. Pure. */

import { Buffer } from "node:buffer";
import { type ByteRange, makeSlice, type Piece, startsWithAt, utf8 } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import {
  JsonObject,
  OPEN_BRACE,
  QUOTE,
  readString,
  scanObject,
  skipWhitespace,
} from "../../base/json.ts";
import type { Section } from "../section.ts";
import { type CallingToolName, type HubToolName, isCallingTool } from "./hub-tools.ts";
import { signatureOf } from "./signature.ts";
import { ToolNames } from "./tool-names.ts";

const NO_ARGUMENTS = "{}";
/** Maximum number of objects of the form `{name, arguments}` in each other. */
const MAX_NESTING = 4;

/** The tool that a call of `call_tool` names, as the model wrote it, and the arguments for that tool. */
export interface GivenCall {
  readonly name: string;
  /** The name as JSON. */
  readonly nameJson: Piece;
  /** The arguments for the tool, a JSON object. */
  readonly args: Piece;
  /** The reason for which the tool is not called. */
  readonly refusal?: HubError;
}

/** The tools that a model can call. */
export interface CallableTools {
  /** The tools of servers. */
  readonly tools: Section;
  /** The hub's tools, which are called by their own names only. */
  readonly hubTools: readonly HubToolName[];
}

/**
 * Reads the arguments of `call_tool`, in all forms in which models write them.
 * @throws {HubError} invalidParams if there is no name
 */
export function readGivenCall(
  tool: CallingToolName,
  given: JsonObject,
  callable: CallableTools,
): GivenCall {
  const { tools } = callable;
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
  return { ...named, args: NO_ARGUMENTS, refusal: argumentsError(name, callable) };
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
  if (found.kind !== "found") return isCallingTool(name) ? inner : undefined;
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

function argumentsError(name: string, callable: CallableTools): HubError {
  const found = ToolNames.of(callable.tools).resolve(name);
  if (found.kind !== "found") return unknownToolError(name, callable);
  const { entry } = found;
  const signature = signatureOf(JsonObject.of(entry.item.bytes).value("inputSchema"));
  const text = `"${entry.name}" was not called: its arguments must be an object in the member arguments: ${signature}`;
  return new HubError("invalidParams", text);
}

/** The error for a name that stands for none of the tools, or for several of them. */
export function unknownToolError(name: string, { tools, hubTools }: CallableTools): HubError {
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
