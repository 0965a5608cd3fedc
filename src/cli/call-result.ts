import { formatSize } from "../base/format.ts";
import { Buffer } from "node:buffer";
import { writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { ERROR_META_KEY, HubError, readPeerError } from "../base/errors.ts";
import { JsonObject, OPEN_BRACKET, parseRange, scanArray, scanObject } from "../base/json.ts";
import { headOf, MAX_QUOTE, saidByPeer, type TextRedactor } from "../base/quote.ts";
import { bodyOf, type Response } from "../jsonrpc/message.ts";
import { NO_ERROR_MESSAGE } from "../jsonrpc/parse.ts";
import { describeError, sanitizeLine } from "../terminal/log.ts";

/** A part of a result, as it is printed. */
export type ContentPart =
  /** Printed as it is. */
  | { readonly kind: "text"; readonly text: string }
  /** Printed as a line that describes it, and saved to a file if `--output` is given. */
  | Attachment;

export interface Attachment {
  readonly kind: "attachment";
  readonly what: "image" | "audio" | "file";
  /** The media type from the server; empty if it gives none. */
  readonly type: string;
  /** The name or URI from the server; empty if it gives none. */
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** The parts of a tool result's `content`. A block of an unknown type is shown as its JSON. */
function readResultContent(bytes: Uint8Array, content: ByteRange): readonly ContentPart[] {
  return (scanArray(bytes, content.start)?.items ?? []).map((block) => readBlock(bytes, block));
}

function readBlock(bytes: Uint8Array, block: ByteRange): ContentPart {
  const object = JsonObject.at(bytes, block);
  const text = (key: string): string | undefined => object.string(key);
  const json: ContentPart = { kind: "text", text: textOf(bytes, block.start, block.end) };
  switch (text("type")) {
    case "text": {
      const plain = text("text");
      return plain === undefined ? json : { kind: "text", text: plain };
    }
    case "image":
    case "audio": {
      const what = text("type") === "image" ? "image" : "audio";
      return makeAttachment(what, text("mimeType"), "", text("data")) ?? json;
    }
    case "resource_link":
      return text("uri") === undefined ? json : { kind: "text", text: describeLink(text) };
    case "resource":
      return readResource(bytes, block, object.object("resource"));
    default:
      return json;
  }
}

/** Reads one item of a resource's `contents`. If it has neither text nor a blob, the part is the JSON at `range`. */
function readResource(bytes: Uint8Array, range: ByteRange, resource: JsonObject): ContentPart {
  const plain = resource.string("text");
  if (plain !== undefined) return { kind: "text", text: plain };
  const name = resource.string("uri") ?? "";
  const type = resource.string("mimeType");
  const json = textPart(textOf(bytes, range.start, range.end));
  return makeAttachment("file", type, name, resource.string("blob")) ?? json;
}

function makeAttachment(
  what: Attachment["what"],
  type: string | undefined,
  name: string,
  data: string | undefined,
): Attachment | undefined {
  if (data === undefined) return undefined;
  return { kind: "attachment", what, type: type ?? "", name, bytes: Buffer.from(data, "base64") };
}

function describeLink(text: (key: string) => string | undefined): string {
  const about = [text("title") ?? text("name"), text("mimeType")].filter(Boolean).join(", ");
  const more = text("description");
  return `[link: ${text("uri") ?? ""}${about && ` (${about})`}${more === undefined ? "" : `: ${more}`}]`;
}

/**
 * Maximum indent, in spaces; each level has two. JSON nested deeper stays on one line, because indenting scans the text
 * once per level, so the time grows with the depth.
 */
const MAX_INDENT = 32;

/** Formats JSON with indents. Keeps the spelling of values and the order of members. */
function indentJson(bytes: Uint8Array, range: ByteRange, indent = ""): string {
  const isDeep = indent.length >= MAX_INDENT;
  const inner = `${indent}  `;
  const members = isDeep ? undefined : scanObject(bytes, range.start)?.items;
  const elements = isDeep ? undefined : scanArray(bytes, range.start)?.items;
  const lines =
    members?.map(
      (member) => `${inner}${JSON.stringify(member.key)}: ${indentJson(bytes, member, inner)}`,
    ) ?? elements?.map((element) => inner + indentJson(bytes, element, inner));
  if (lines === undefined || lines.length === 0) return textOf(bytes, range.start, range.end);
  const [open, close] = members === undefined ? "[]" : "{}";
  return `${open}\n${lines.join(",\n")}\n${indent}${close}`;
}

/** The output of a call's response, and the exit code. */
export interface CallReport {
  readonly stream: "stdout" | "stderr";
  /** The parts to print, each with a line break after it. */
  readonly parts: readonly ContentPart[];
  readonly code: number;
}

/**
 * The part of a result that is printed: its content for people (`texts`), only its `structuredContent`, or its JSON
 * unchanged (`raw`).
 */
export type ResultView = "texts" | "structured" | "raw";

/** Decides how a response is printed. Errors go to stderr, except a tool result with `isError` if the view is "raw". */
export function describeResult(
  response: Response,
  view: ResultView,
  redactor?: TextRedactor,
): CallReport {
  if (response.outcome === "error") return describeRpcError(response, redactor);
  const { bytes, body } = response;
  const result = bodyOf(response);
  const isError = result.value("isError") === true;
  const code = isError ? failureCode(result) : 0;
  if (view === "raw")
    return { stream: "stdout", parts: [textPart(textOf(bytes, body.start, body.end))], code };
  const structured = presentMember(result, "structuredContent");
  const pretty = structured && textPart(indentJson(bytes, structured));
  if (view === "structured" && !isError) {
    if (pretty !== undefined) return { stream: "stdout", parts: [pretty], code };
    const text =
      "toolmux: The result has no structured content. Omit --structured to print its texts.";
    return { stream: "stderr", parts: [textPart(text)], code: 1 };
  }
  const content = presentMember(result, "content");
  // What is no list of blocks is printed as it is, so that nothing of the answer is lost.
  const parts =
    content === undefined
      ? []
      : bytes[content.start] === OPEN_BRACKET
        ? readResultContent(bytes, content)
        : [textPart(textOf(bytes, body.start, body.end))];
  const isSilent = !parts.some((part) => part.kind === "attachment" || part.text !== "");
  return {
    stream: isError ? "stderr" : "stdout",
    parts: isSilent && pretty !== undefined ? [pretty] : parts,
    code,
  };
}

/**
 * Describes the result of `prompts/get`: for each message its role, then its content.
 * @param isRaw whether to print the result's JSON instead
 */
export function describePrompt(
  response: Response,
  isRaw: boolean,
  redactor?: TextRedactor,
): CallReport {
  return describeParts(response, isRaw, redactor, "messages", (bytes, message) => {
    const object = JsonObject.at(bytes, message);
    const content = object.member("content");
    const role = textPart(`${object.string("role") ?? "?"}:`);
    return content === undefined ? [role] : [role, readBlock(bytes, content)];
  });
}

/**
 * Describes the result of `resources/read`: its texts, and a line for each binary content.
 * @param isRaw whether to print the result's JSON instead
 */
export function describeContents(
  response: Response,
  isRaw: boolean,
  redactor?: TextRedactor,
): CallReport {
  return describeParts(response, isRaw, redactor, "contents", (bytes, content) => [
    readResource(bytes, content, JsonObject.at(bytes, content)),
  ]);
}

/** Describes a result by its items. @param key the member of the result that is the array of items to print */
function describeParts(
  response: Response,
  isRaw: boolean,
  redactor: TextRedactor | undefined,
  key: string,
  read: (bytes: Uint8Array, item: ByteRange) => readonly ContentPart[],
): CallReport {
  if (response.outcome === "error") return describeRpcError(response, redactor);
  const { bytes, body } = response;
  const list = isRaw ? undefined : bodyOf(response).member(key);
  const items = list && scanArray(bytes, list.start)?.items;
  const parts = items?.flatMap((item) => read(bytes, item)) ?? [
    textPart(textOf(bytes, body.start, body.end)),
  ];
  return { stream: "stdout", parts, code: 0 };
}

/** A member that is not null: null is absent. */
function presentMember(object: JsonObject, key: string): ByteRange | undefined {
  return object.value(key) === null ? undefined : object.member(key);
}

function textPart(text: string): ContentPart {
  return { kind: "text", text };
}

function failureCode(result: JsonObject): number {
  const code = result.object("_meta").string(ERROR_META_KEY) ?? "";
  return HubError.isCode(code) ? new HubError(code, "").properties.exit : 1;
}

/** Describes a JSON-RPC error. The server's own text is quoted; its `data` is printed on a line of its own, cut. */
function describeRpcError(response: Response, redactor: TextRedactor | undefined): CallReport {
  const { bytes, body } = response;
  const { code, message, hubError } = readPeerError(parseRange(bytes, body));
  if (hubError !== undefined)
    return {
      stream: "stderr",
      parts: [textPart(describeError(hubError))],
      code: hubError.properties.exit,
    };
  const what = code === undefined ? "an error" : `error ${code}`;
  const own = message === NO_ERROR_MESSAGE ? undefined : message;
  const said = saidByPeer(own, redactor) || ", without a reason.";
  const data = bodyOf(response).member("data");
  const redact = (text: string): string => redactor?.apply(text) ?? text;
  const more = data && `\n  ${cutLine(redact(textOf(bytes, data.start, data.end)))}`;
  const text = `toolmux: The server returned ${what}${said}${more ?? ""}`;
  return { stream: "stderr", parts: [textPart(text)], code: 1 };
}

function cutLine(text: string): string {
  const head = headOf(text, MAX_QUOTE);
  return sanitizeLine(head) + (head.length < text.length ? "…" : "");
}

/** File extensions for media types whose subtype is not a usable extension. */
const EXTENSIONS: Readonly<Record<string, string>> = {
  "image/jpeg": ".jpg",
  "image/svg+xml": ".svg",
  "image/x-icon": ".ico",
  "audio/mpeg": ".mp3",
  "audio/mp4": ".m4a",
  "audio/x-wav": ".wav",
  "text/plain": ".txt",
  "text/markdown": ".md",
  "text/javascript": ".js",
  "application/gzip": ".gz",
  "application/octet-stream": ".bin",
};

/** Maximum length of a file name without its extension, in characters; file systems allow 255 bytes in all. */
const MAX_BASENAME_LENGTH = 80;

/** One line instead of an attachment: `[image: image/png, 12.3 KB]`. */
export function describeAttachment({ what, type, name, bytes }: Attachment): string {
  return `[${what}: ${[name, type, formatSize(bytes.length)].filter(Boolean).join(", ")}]`;
}

/**
 * Saves an attachment in a folder. Never overwrites a file or follows a link: the name has no folder part, and an
 * existing file leads to another name.
 * @returns the file's path
 */
export async function saveAttachment(attachment: Attachment, folder: string): Promise<string> {
  const name = attachmentFileName(attachment);
  const extension = extname(name);
  const baseName = name.slice(0, name.length - extension.length);
  for (let count = 1; ; count++) {
    const path = join(folder, count === 1 ? name : `${baseName}-${count}${extension}`);
    try {
      await writeFile(path, attachment.bytes, { flag: "wx" });
      return path;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    }
  }
}

/**
 * A safe file name from the last part of the name or URI that the server gives, or else from the kind of attachment. It
 * always has an extension.
 */
export function attachmentFileName({ what, type, name }: Attachment): string {
  const [path = ""] = name.split(/[?#]/);
  const last = path.split(/[/\\]/).findLast((part) => part !== "") ?? "";
  const safe = decodePercent(last).replace(/[^A-Za-z0-9._-]+/g, "_");
  const own = /^(?<stem>.+?)(?<extension>\.[A-Za-z0-9]{1,10})?$/.exec(safe)?.groups;
  const extension = own?.["extension"] ?? findExtension(type);
  const baseName = own?.["stem"]
    ?.replace(/^[._-]+|(?<![._-])[._-]+$/g, "")
    .slice(0, MAX_BASENAME_LENGTH);
  return `${baseName || what}${extension}`;
}

function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function findExtension(type: string): string {
  const [plain = ""] = type.toLowerCase().split(";");
  const known = EXTENSIONS[plain.trim()];
  const subtype = /^[a-z]+\/([a-z0-9]{1,10})$/.exec(plain.trim())?.[1];
  return known ?? (subtype === undefined ? ".bin" : `.${subtype}`);
}
