import { Buffer } from "node:buffer";
import { applyEdits, type Edit, joinPieces } from "../base/bytes.ts";
import type { Section } from "../catalog/section.ts";
import { lastMember, scanArray, scanObject } from "../base/json.ts";
import { removeMembers } from "../base/object.ts";
import type { Implementation } from "../protocol/legacy.ts";
import { stampResultBytes } from "../protocol/modern.ts";

/** Answers to list requests in the form of the modern era, each encoded once per section. */
export class Editions {
  readonly #known = new WeakMap<Section, { readonly name: string; readonly bytes: Uint8Array }>();

  /** The first page of a section. @param server goes into the result's `_meta` as server info */
  of(section: Section, server: Implementation): Uint8Array {
    const known = this.#known.get(section);
    // The server's name is a setting that may change while the hub runs.
    if (known?.name === server.name) return known.bytes;
    const bytes = edit(section, section.result, server);
    this.#known.set(section, { name: server.name, bytes });
    return bytes;
  }

  /** The page that follows the name `after`. */
  page(section: Section, after: string, server: Implementation): Uint8Array {
    return edit(section, section.pageAfter(after), server);
  }
}

function edit(
  { kind, info: origin }: Section,
  result: Uint8Array,
  server: Implementation,
): Uint8Array {
  const bytes = Buffer.from(result.buffer, result.byteOffset, result.length);
  const edits = kind === "tools" ? dropExecutions(bytes) : [];
  const plain = edits.length === 0 ? bytes : joinPieces(applyEdits(bytes, edits));
  return stampResultBytes(plain, server, origin.cacheHint);
}

const EXECUTION = Buffer.from('"execution"');

/** Removes `execution`, the task support of legacy tools. */
function dropExecutions(bytes: Buffer): Edit[] {
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
