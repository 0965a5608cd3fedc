/** What a model asks `call_tool` to do, in all forms in which models write it. Pure. */

import { Buffer } from "node:buffer";
import { makeSlice, type Piece, startsWithAt, utf8 } from "../../base/bytes.ts";
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
import { type CallingToolName, HUB_TOOLS, type HubToolName } from "./hub-tools.ts";
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
  /** Why the tool is not called. */
  readonly refusal?: HubError;
}

/**
 * Reads the arguments of `call_tool`, in all forms in which models write them.
 * @param tools the tools that the models may call
 * @throws {HubError} invalidParams if there is no name
 */
export function readGivenCall(tool: CallingToolName, given: JsonObject, tools: Section): GivenCall {
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
