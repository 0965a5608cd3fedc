import { lastMember, scanObject, valueOf } from "../json.ts";
import type { Response } from "../wire/jsonrpc.ts";
import type { Attendee } from "./audience.ts";

/** So many are remembered, the last ones; and none whose id is longer, in UTF-16 units. */
const MOST = 256;
const LONGEST = 1024;
/** Longer errors are not read, in bytes. */
const LONGEST_ERROR = 64 * 1024;
/** A request cannot be answered before the client has let its user open a URL (schema, URLElicitationRequiredError). */
const URL_REQUIRED = -32042;

/** The elicitations by URL of one server, by their ids, and the clients that it gave them to. */
export class Elicitations {
  /** The one that was given last comes last. */
  readonly #holders = new Map<string, Set<Attendee>>();

  /** The server has this client open a URL; undefined: somebody whom it cannot tell anything. */
  give(id: string, client: Attendee | undefined): void {
    if (id.length > LONGEST) return;
    const holders = this.#holders.get(id) ?? new Set();
    if (client !== undefined) holders.add(client);
    this.#holders.delete(id);
    this.#holders.set(id, holders);
    const [oldest] = this.#holders.keys();
    if (this.#holders.size > MOST && oldest !== undefined) this.#holders.delete(oldest);
  }

  /** Looks into an error that the client gets: it may say that a URL has to be opened first. */
  learn(response: Response, client: Attendee | undefined): void {
    const { body } = response;
    if (body.end - body.start > LONGEST_ERROR) return;
    const { bytes } = response;
    const members = scanObject(bytes, body.start)?.items ?? [];
    const [code, data] = [lastMember(members, "code"), lastMember(members, "data")];
    if (code === undefined || data === undefined || valueOf(bytes, code) !== URL_REQUIRED) return;
    for (const id of readIds(valueOf(bytes, data))) this.give(id, client);
  }

  /** The client has left. That an elicitation was its own stays known: what becomes of it is of no interest to others. */
  forget(client: Attendee): void {
    for (const holders of this.#holders.values()) holders.delete(client);
  }

  /** An elicitation is complete. @returns whom that concerns; undefined if it is not known. */
  end(id: string): ReadonlySet<Attendee> | undefined {
    const holders = this.#holders.get(id);
    this.#holders.delete(id);
    return holders;
  }
}

function readIds(data: unknown): readonly string[] {
  const list = memberOf(data, "elicitations");
  if (!Array.isArray(list)) return [];
  return list.map((each) => memberOf(each, "elicitationId")).filter((id) => typeof id === "string");
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Readonly<Record<string, unknown>>)[key]
    : undefined;
}
