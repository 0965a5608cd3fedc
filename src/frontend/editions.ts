import { Buffer } from "node:buffer";
import { applyEdits, type Edit, joinPieces } from "../base/bytes.ts";
import type { Section } from "../catalog/section.ts";
import { lastMember, scanArray, scanObject } from "../base/json.ts";
import { removeMembers } from "../base/object.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { stampResultBytes } from "../protocol/modern.ts";

/** Answers to list requests in the form of the modern era, each encoded once per section. */
export class ModernListAnswers {
  readonly #cached = new WeakMap<Section, { readonly name: string; readonly bytes: Uint8Array }>();

  /** The first page of a section. @param server goes into the result's `_meta` as server info */
  firstPage(section: Section, server: Implementation): Uint8Array {
    const cached = this.#cached.get(section);
    // The server's name is a setting that may change while the hub runs.
    if (cached?.name === server.name) return cached.bytes;
    const bytes = toModernList(section, section.result, server);
    this.#cached.set(section, { name: server.name, bytes });
    return bytes;
  }

  /** The page that follows the name `after`. */
  page(section: Section, after: string, server: Implementation): Uint8Array {
    return toModernList(section, section.pageAfter(after), server);
  }
}

function toModernList(
  { kind, info: origin }: Section,
  result: Uint8Array,
  server: Implementation,
): Uint8Array {
  const bytes = Buffer.from(result.buffer, result.byteOffset, result.length);
  const edits = kind === "tools" ? removeExecution(bytes) : [];
  const plain = edits.length === 0 ? bytes : joinPieces(applyEdits(bytes, edits));
  return stampResultBytes(plain, server, origin.cacheHint);
}

const EXECUTION = Buffer.from('"execution"');

/** Removes `execution`, the task support of legacy tools. */
function removeExecution(bytes: Buffer): Edit[] {
  if (!bytes.includes(EXECUTION)) return [];
  const list = lastMember(scanObject(bytes, 0)?.items ?? [], "tools");
  const tools = (list && scanArray(bytes, list.start)?.items) ?? [];
  return tools.flatMap((tool) =>
    removeMembers(
      bytes,
      tool,
      scanObject(bytes, tool.start)?.items ?? [],
      (key) => key === "execution",
    ),
  );
}
