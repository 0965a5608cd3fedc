import { applyEdits, type Edit, joinPieces, utf8 } from "../bytes.ts";
import { skipSpace } from "../json.ts";
import type { Item } from "./item.ts";
import type { Digest, NameRules } from "./names.ts";
import { type Remark, shape, type Shaped, type ShapeRules } from "./shape.ts";

/** Where a call of an exposed name goes, precomputed. */
export interface Route {
  readonly kind: "tool";
  readonly server: string;
  /** The exposed name. */
  readonly name: string;
  readonly remoteName: string;
  /** The remote name as JSON, ready to be put into a request. */
  readonly remoteNameJson: Uint8Array;
  readonly item: Item;
  readonly limits: Limits;
}

/** How long a call may take, in ms. */
export interface Limits {
  /** From its start, and again from each progress notification. */
  readonly timeout: number;
  /** In all. */
  readonly maxTimeout: number;
}

/** One server's part of a catalog. */
export interface Source {
  readonly server: string;
  limits(remoteName: string): Limits;
  readonly rules: ShapeRules;
  readonly items: readonly Item[];
  /** What plugins make of those items that the rules let through. */
  revise?(items: readonly Item[]): readonly Item[];
}

/** An immutable snapshot of all that clients can see; replaced as a whole. */
export interface Catalog {
  find(name: string): Route | undefined;
  /** Sorted by exposed name. */
  readonly routes: readonly Route[];
  /** The result of `tools/list`, ready to be sent: `{"tools":[…]}`. */
  readonly toolsResult: Uint8Array;
  /** What is hidden, or shown under another name, and why. */
  readonly remarks: readonly Remark[];
}

/**
 * Builds the catalog from the servers' listings, in manifest order. Every exposed name has one owner: a
 * prefixed name comes before an unprefixed one, then the manifest's order decides, then within a server a
 * renamed tool comes before one that is called so by itself. The others are hidden and remarked on.
 */
export function buildCatalog(
  sources: readonly Source[],
  names: NameRules,
  digest: Digest,
): Catalog {
  const routes = new Map<string, { route: Route; bytes: Uint8Array }>();
  const remarks: Remark[] = [];
  const ordered = [
    ...sources.filter((source) => source.rules.prefix !== ""),
    ...sources.filter((source) => source.rules.prefix === ""),
  ];
  for (const source of ordered) {
    const { server } = source;
    const shaped = shape(source, names, digest);
    remarks.push(...shaped.remarks);
    const { tools } = shaped;
    for (const tool of [...tools.filter((t) => t.renamed), ...tools.filter((t) => !t.renamed)]) {
      const owner = routes.get(tool.name)?.route;
      if (owner === undefined) {
        routes.set(tool.name, { route: toRoute(source, tool), bytes: toolBytes(tool) });
        continue;
      }
      const text = `"${tool.name}" is already ${owner.remoteName} of server "${owner.server}".`;
      remarks.push({ server, remoteName: tool.item.key, kind: "clash", text });
    }
  }
  const sorted = [...routes.values()].sort((a, b) => (a.route.name < b.route.name ? -1 : 1));
  return {
    find: (name) => routes.get(name)?.route,
    routes: sorted.map(({ route }) => route),
    toolsResult: listResult(sorted.map(({ bytes }) => bytes)),
    remarks,
  };
}

function toRoute(source: Source, { item, name }: Shaped): Route {
  return {
    kind: "tool",
    server: source.server,
    name,
    remoteName: item.key,
    remoteNameJson: utf8(JSON.stringify(item.key)),
    item,
    limits: source.limits(item.key),
  };
}

/** The tool as the server wrote it, but for its name and, if that was cut, a word on what it was. */
function toolBytes({ item, name, full }: Shaped): Uint8Array {
  if (name === full && name === item.key) return item.bytes;
  const json = utf8(JSON.stringify(name));
  const edits: Edit[] = item.keys.map(({ start, end }) => ({ start, end, by: json }));
  if (name !== full) edits.push(metaEdit(item, full));
  return joinPieces(applyEdits(item.bytes, edits));
}

/** `_meta` key for the full name of a tool whose exposed name was shortened. */
const FULL_NAME_KEY = "toolmux/fullName";

function metaEdit({ bytes, meta }: Item, full: string): Edit {
  const member = `${JSON.stringify(FULL_NAME_KEY)}:${JSON.stringify(full)}`;
  if (meta !== undefined) {
    const at = meta.start + 1;
    const empty = skipSpace(bytes, at) === meta.end - 1;
    return { start: at, end: at, by: utf8(empty ? member : `${member},`) };
  }
  const close = bytes.length - 1;
  return { start: close, end: close, by: utf8(`,"_meta":{${member}}`) };
}

const LIST_START = utf8('{"tools":[');
const LIST_END = utf8("]}");
const COMMA = utf8(",");

function listResult(tools: readonly Uint8Array[]): Uint8Array {
  return joinPieces([
    LIST_START,
    ...tools.flatMap((tool, i) => (i === 0 ? [tool] : [COMMA, tool])),
    LIST_END,
  ]);
}
