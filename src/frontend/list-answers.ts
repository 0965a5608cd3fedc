import { Buffer } from "node:buffer";
import { applyEdits, type ByteRange, type Edit, joinPieces } from "../base/bytes.ts";
import { JsonObject, removeMembers } from "../base/json.ts";
import type { Catalog } from "../catalog/catalog.ts";
import { KINDS, type Kind } from "../catalog/listing.ts";
import { readCursorParam, type Section } from "../catalog/section.ts";
import {
  buildNotification,
  buildResult,
  type EncodedMessage,
  type Request,
} from "../jsonrpc/message.ts";
import { type Implementation, LIST_CHANGED, LIST_METHODS } from "../protocol/legacy.ts";
import { toModernResultBytes } from "../protocol/modern.ts";
import { wrapOutputSchema } from "../protocol/translate.ts";

/** The kind of items that each list method lists, by method. */
export const LIST_METHOD_KINDS: ReadonlyMap<string, Kind> = new Map(
  KINDS.map((kind) => [LIST_METHODS[kind], kind]),
);

/**
 * Compares the sections that a client knows with those of a catalog, and puts the latter into `known`.
 * @returns the methods of the `list_changed` notifications for the sections that differ, each once
 */
export function updateSections(known: Map<Kind, Section>, catalog: Catalog): ReadonlySet<string> {
  const methods = new Set<string>();
  for (const [kind, section] of known) {
    // The new section is kept even if it is equal, so that all clients refer to one object.
    known.set(kind, catalog[kind]);
    if (!section.equals(catalog[kind])) methods.add(LIST_CHANGED[kind]);
  }
  return methods;
}

const cachedSections = new WeakMap<Section, Section>();

/**
 * Returns the form of a section for legacy clients, which is cached: the output schemas of modern servers' tools are
 * wrapped to be of type object. Entries of legacy servers stay unchanged.
 */
export function sectionForLegacyClients(section: Section): Section {
  const { kind, info: origin } = section;
  if (kind !== "tools" || origin.modernServers.size === 0) return section;
  const cached = cachedSections.get(section);
  if (cached !== undefined) return cached;
  const result = section.withBytes((entry) => {
    if (!origin.modernServers.has(entry.server)) return undefined;
    const { bytes } = entry;
    const wrappedBytes = wrapCached(bytes);
    return wrappedBytes === bytes ? undefined : wrappedBytes;
  });
  cachedSections.set(section, result);
  return result;
}

/**
 * Cache of wrapped tools, keyed by the bytes before wrapping: a new section has the same byte objects for the entries
 * of servers that have not changed.
 */
const wrappedTools = new WeakMap<Uint8Array, Uint8Array>();

function wrapCached(bytes: Uint8Array): Uint8Array {
  const cached = wrappedTools.get(bytes);
  if (cached !== undefined) return cached;
  const result = wrapOutputSchema(bytes);
  wrappedTools.set(bytes, result);
  return result;
}

/**
 * Answers the list requests of one legacy client, and finds the lists that have changed since the client last received
 * them.
 */
export class ListAnswers {
  /** For each kind: the section that the client last received, or was last notified of. */
  readonly #lastSent = new Map<Kind, Section>();

  /**
   * Reads a list request.
   * @returns a function that builds the answer from a catalog
   * @throws {HubError} invalidParams if the cursor is invalid
   */
  prepareAnswer(kind: Kind, request: Request): (catalog: Catalog) => EncodedMessage {
    const { id } = request;
    const after = readCursorParam(kind, request);
    if (after !== undefined) {
      return (catalog) => buildResult(id, sectionForLegacyClients(catalog[kind]).pageAfter(after));
    }
    return (catalog) => {
      this.#lastSent.set(kind, catalog[kind]);
      return buildResult(id, sectionForLegacyClients(catalog[kind]).result);
    };
  }

  /** Takes note that the client was told of a change of a list. */
  wasToldOf(kind: Kind, catalog: Catalog): void {
    if (this.#lastSent.has(kind)) this.#lastSent.set(kind, catalog[kind]);
  }

  /** Returns the `list_changed` notifications for the lists that differ in `catalog` from what the client knows. */
  compare(catalog: Catalog): readonly EncodedMessage[] {
    return [...updateSections(this.#lastSent, catalog)].map((method) => buildNotification(method));
  }
}

/** Answers to list requests in the form of the modern era; a section's first page is encoded once. */
export class ModernListAnswers {
  readonly #cached = new WeakMap<Section, { readonly name: string; readonly bytes: Uint8Array }>();

  /** The first page of a section. @param server becomes the server info in the result's `_meta` */
  firstPage(section: Section, server: Implementation): Uint8Array {
    const cached = this.#cached.get(section);
    // The server's name is a setting that may change while the hub runs.
    if (cached?.name === server.name) return cached.bytes;
    const bytes = toModernList(section, section.result, server);
    this.#cached.set(section, { name: server.name, bytes });
    return bytes;
  }

  /** The page that begins after the entry named `after`. */
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
  const edits = kind === "tools" ? removeAllExecution(bytes) : [];
  const plain = edits.length === 0 ? bytes : joinPieces(applyEdits(bytes, edits));
  return toModernResultBytes(plain, server, origin.cacheHint);
}

/** A tool without `execution`, as modern clients see it. */
export function withoutExecution(tool: Uint8Array): Uint8Array {
  const bytes = Buffer.from(tool.buffer, tool.byteOffset, tool.length);
  if (!bytes.includes(EXECUTION)) return tool;
  return joinPieces(applyEdits(bytes, removeExecution(bytes, { start: 0, end: bytes.length })));
}

const EXECUTION = Buffer.from('"execution"');

/** The edits that remove `execution` (the legacy era's declaration of task support) from a tool. */
function removeExecution(bytes: Buffer, tool: ByteRange): Edit[] {
  return removeMembers(
    bytes,
    tool,
    JsonObject.at(bytes, tool).members,
    (key) => key === "execution",
  );
}

function removeAllExecution(bytes: Buffer): Edit[] {
  if (!bytes.includes(EXECUTION)) return [];
  return JsonObject.of(bytes)
    .elements("tools")
    .flatMap((tool) => removeExecution(bytes, tool));
}
