import { applyEdits, type Edit, joinPieces, type Piece, makeSlice, utf8 } from "../base/bytes.ts";
import { skipWhitespace } from "../base/json.ts";
import type { ListedItem, Kind } from "./listing.ts";
import type { SectionEntry, RouteLimits, ListedRoute } from "./section.ts";
import { isNamed } from "./shape.ts";

/** The server of an entry, and the time limits of requests for it. */
interface EntryOwner {
  readonly server: string;
  limits(kind: Kind, remoteName: string): RouteLimits;
}

/**
 * A section entry whose route and bytes are made on first use: of a long list, most clients read the first page and
 * call few of its tools.
 */
export class LazyEntry implements SectionEntry {
  readonly name: string;
  readonly #kind: Kind;
  readonly #owner: EntryOwner;
  readonly #item: ListedItem;
  readonly #fullName: string;
  readonly #edits: readonly Edit[] | undefined;
  #route: ListedRoute | undefined;
  #bytes: Uint8Array | undefined;

  /**
   * @param name the exposed name
   * @param fullName the name before it was shortened or made safe
   * @param edits further edits beside the name
   */
  constructor(
    kind: Kind,
    owner: EntryOwner,
    item: ListedItem,
    name: string,
    fullName: string,
    edits?: readonly Edit[],
  ) {
    this.name = name;
    this.#kind = kind;
    this.#owner = owner;
    this.#item = item;
    this.#fullName = fullName;
    this.#edits = edits;
  }

  get server(): string {
    return this.#owner.server;
  }

  get route(): ListedRoute {
    return (this.#route ??= this.#makeRoute());
  }

  get bytes(): Uint8Array {
    return (this.#bytes ??= this.#makeBytes());
  }

  /** Does not cache: pieces that only the list result needs are not worth their memory. */
  appendTo(pieces: Piece[]): void {
    const { bytes, keys } = this.#item;
    const [keyRange, secondKeyRange] = keys;
    if (this.#isUnchanged) pieces.push(bytes);
    else if (this.#bytes !== undefined) pieces.push(this.#bytes);
    else if (this.#isOnlyRenamed && keyRange !== undefined && secondKeyRange === undefined) {
      pieces.push(
        makeSlice(bytes, 0, keyRange.start),
        this.#nameJson,
        makeSlice(bytes, keyRange.end, bytes.length),
      );
    } else pieces.push(this.bytes);
  }

  /** Whether nothing but its name is replaced. */
  get #isOnlyRenamed(): boolean {
    return this.name === this.#fullName && this.#edits === undefined;
  }

  get #isUnchanged(): boolean {
    return this.#isOnlyRenamed && this.name === this.#item.key;
  }

  /** Exposed names need no escaping; URIs may contain anything. */
  get #nameJson(): Piece {
    return isNamed(this.#kind) ? `"${this.name}"` : utf8(JSON.stringify(this.name));
  }

  #makeBytes(): Uint8Array {
    const item = this.#item;
    if (this.#isUnchanged) return item.bytes;
    const edits: Edit[] = item.keys.map(({ start, end }) => ({
      start,
      end,
      replacement: this.#nameJson,
    }));
    if (this.#edits !== undefined) edits.push(...this.#edits);
    if (this.name !== this.#fullName) edits.push(fullNameEdit(item, this.#fullName));
    return joinPieces(applyEdits(item.bytes, edits));
  }

  #makeRoute(): ListedRoute {
    const [kind, item, owner] = [this.#kind, this.#item, this.#owner];
    return {
      kind,
      server: owner.server,
      name: this.name,
      remoteName: item.key,
      remoteNameJson: utf8(JSON.stringify(item.key)),
      item,
      limits: owner.limits(kind, item.key),
    };
  }
}

/** The `_meta` key that holds the full name of an entry whose exposed name was shortened. */
const FULL_NAME_KEY = "toolmux/fullName";

function fullNameEdit({ bytes, meta }: ListedItem, fullName: string): Edit {
  const member = `${JSON.stringify(FULL_NAME_KEY)}:${JSON.stringify(fullName.toWellFormed())}`;
  if (meta !== undefined) {
    const at = meta.start + 1;
    const empty = skipWhitespace(bytes, at) === meta.end - 1;
    return { start: at, end: at, replacement: utf8(empty ? member : `${member},`) };
  }
  const close = bytes.length - 1;
  return { start: close, end: close, replacement: utf8(`,"_meta":{${member}}`) };
}
