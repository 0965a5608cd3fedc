import { lastMember, scanObject, parseRange } from "../base/json.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { Attendee } from "./audience.ts";

/**
 * How many elicitations are remembered, the latest ones; ids longer than `MAX_ELICITATION_ID_LENGTH` UTF-16 units are
 * not.
 */
const MOST = 256;
const LONGEST = 1024;
/** Errors longer than this are not read, in bytes. */
const LONGEST_ERROR = 64 * 1024;
/** The JSON-RPC error code of URLElicitationRequiredError (schema): the request needs the user to open a URL first. */
const URL_REQUIRED = -32042;

/** The URL elicitations of one server by `elicitationId`, and the clients that got them. */
export class Elicitations {
  /** In the order in which they were last sent. */
  readonly #holders = new Map<string, Set<Attendee>>();

  /** The server asks a client to open a URL. @param client undefined: one that cannot be sent notifications */
  give(id: string, client: Attendee | undefined): void {
    if (id.length > LONGEST) return;
    const holders = this.#holders.get(id) ?? new Set();
    if (client !== undefined) holders.add(client);
    this.#holders.delete(id);
    this.#holders.set(id, holders);
    const [oldest] = this.#holders.keys();
    if (this.#holders.size > MOST && oldest !== undefined) this.#holders.delete(oldest);
  }

  /** Remembers the elicitations that an error response to a client contains (URLElicitationRequiredError). */
  learn(response: Response, client: Attendee | undefined): void {
    const { body } = response;
    if (body.end - body.start > LONGEST_ERROR) return;
    const { bytes } = response;
    const members = scanObject(bytes, body.start)?.items ?? [];
    const [code, data] = [lastMember(members, "code"), lastMember(members, "data")];
    if (code === undefined || data === undefined || parseRange(bytes, code) !== URL_REQUIRED)
      return;
    for (const id of readIds(parseRange(bytes, data))) this.give(id, client);
  }

  /** The client has left. The ids stay known, so that a completion is not taken for another client's. */
  forget(client: Attendee): void {
    for (const holders of this.#holders.values()) holders.delete(client);
  }

  /** An elicitation is complete. @returns the clients that got it; undefined if the id is not known */
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
