import { Buffer } from "node:buffer";
import { type ByteRange, textOf } from "../base/bytes.ts";
import { lastMember, type JsonMember, scanArray, scanObject, readString } from "../base/json.ts";

/** A part of a result as a person gets it. */
export type ContentPart =
  /** Printed as it is. */
  | { readonly kind: "text"; readonly text: string }
  /** Described in a line, or saved. */
  | Attachment;

export interface Attachment {
  readonly kind: "attachment";
  readonly what: "image" | "audio" | "file";
  /** The media type as the server says it; empty if it does not. */
  readonly type: string;
  /** What the server calls it, a URI for one; empty if it has no name. */
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** The parts of a result's `content`. What is of no known kind is its JSON. */
export function readResultContent(bytes: Uint8Array, content: ByteRange): readonly ContentPart[] {
  return (scanArray(bytes, content.start)?.items ?? []).map((block) => readBlock(bytes, block));
}

function readBlock(bytes: Uint8Array, block: ByteRange): ContentPart {
  const members = membersOf(bytes, block);
  const text = (key: string, of = members): string | undefined =>
    readString(bytes, lastMember(of, key));
  const json: ContentPart = { kind: "text", text: textOf(bytes, block.start, block.end) };
  switch (text("type")) {
    case "text": {
      const plain = text("text");
      return plain === undefined ? json : { kind: "text", text: plain };
    }
    case "image":
    case "audio": {
      const what = text("type") === "image" ? "image" : "audio";
      return attach(what, text("mimeType"), "", text("data")) ?? json;
    }
    case "resource_link":
      return text("uri") === undefined ? json : { kind: "text", text: describeLink(text) };
    case "resource": {
      const resource = lastMember(members, "resource");
      const inner = resource === undefined ? [] : membersOf(bytes, resource);
      const plain = text("text", inner);
      if (plain !== undefined) return { kind: "text", text: plain };
      const name = text("uri", inner) ?? "";
      return attach("file", text("mimeType", inner), name, text("blob", inner)) ?? json;
    }
    default:
      return json;
  }
}

function membersOf(bytes: Uint8Array, range: ByteRange): readonly JsonMember[] {
  return scanObject(bytes, range.start)?.items ?? [];
}

function attach(
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

/** Deeper than this, JSON stays in one line: each level is scanned anew. */
const MAX_INDENT = 32;

/** JSON text over several lines. Its values stay as they are spelled, and its members in their order. */
export function indentJson(bytes: Uint8Array, range: ByteRange, indent = ""): string {
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
