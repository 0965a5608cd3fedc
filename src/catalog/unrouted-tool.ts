import { type Piece, utf8 } from "../base/bytes.ts";
import { type ListedItem, readItem } from "./listing.ts";
import type { ListedRoute, SectionEntry } from "./section.ts";

/** The item of a tool's definition. @param bytes the definition as JSON, which this program has made */
export function toolItemOf(name: string, bytes: Uint8Array): ListedItem {
  return readItem(bytes, "tools") ?? { key: name, bytes, keys: [], meta: undefined };
}

type Tool = Pick<SectionEntry, "name" | "server" | "remoteName" | "isReadOnly" | "item">;

/** A tool in a section to which no request is routed: calls of it are handled before that, or elsewhere. */
export class UnroutedTool implements SectionEntry {
  readonly name: string;
  readonly server: string;
  readonly remoteName: string;
  readonly isReadOnly: boolean;
  readonly item: ListedItem;
  #route: ListedRoute | undefined;

  constructor({ name, server, remoteName, isReadOnly, item }: Tool) {
    this.name = name;
    this.server = server;
    this.remoteName = remoteName;
    this.isReadOnly = isReadOnly;
    this.item = item;
  }

  get bytes(): Uint8Array {
    return this.item.bytes;
  }

  get route(): ListedRoute {
    const { server, name, remoteName, item } = this;
    const limits = { timeout: Infinity, maxTimeout: Infinity };
    const remoteNameJson = utf8(JSON.stringify(remoteName));
    this.#route ??= { kind: "tools", server, name, remoteName, remoteNameJson, item, limits };
    return this.#route;
  }

  appendTo(pieces: Piece[]): void {
    pieces.push(this.bytes);
  }
}
