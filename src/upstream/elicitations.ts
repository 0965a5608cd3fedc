import { lastMember, scanObject, parseRange } from "../base/json.ts";
import type { Response } from "../jsonrpc/message.ts";
import type { ClientChannel } from "./audience.ts";

/**
 * How many elicitations are remembered, the latest ones; ids longer than `MAX_ELICITATION_ID_LENGTH` UTF-16 units are
 * not.
 */
const MAX_ELICITATIONS = 256;
const MAX_ELICITATION_ID_LENGTH = 1024;
/** Errors longer than this are not read, in bytes. */
const MAX_ERROR_BYTES = 64 * 1024;
/** The JSON-RPC error code of URLElicitationRequiredError (schema): the request needs the user to open a URL first. */
const URL_ELICITATION_REQUIRED = -32042;

/** The URL elicitations of one server by `elicitationId`, and the clients that got them. */
export class UrlElicitations {
  /** In the order in which they were last sent. */
  readonly #recipients = new Map<string, Set<ClientChannel>>();

  /** The server asks a client to open a URL. @param client undefined: one that cannot be sent notifications */
  add(id: string, client: ClientChannel | undefined): void {
    if (id.length > MAX_ELICITATION_ID_LENGTH) return;
    const recipients = this.#recipients.get(id) ?? new Set();
    if (client !== undefined) recipients.add(client);
    this.#recipients.delete(id);
    this.#recipients.set(id, recipients);
    const [oldest] = this.#recipients.keys();
    if (this.#recipients.size > MAX_ELICITATIONS && oldest !== undefined)
      this.#recipients.delete(oldest);
  }

  /** Remembers the elicitations that an error response to a client contains (URLElicitationRequiredError). */
  addFromError(response: Response, client: ClientChannel | undefined): void {
    const { body } = response;
    if (body.end - body.start > MAX_ERROR_BYTES) return;
    const { bytes } = response;
    const members = scanObject(bytes, body.start)?.items ?? [];
    const [code, data] = [lastMember(members, "code"), lastMember(members, "data")];
    if (
      code === undefined ||
      data === undefined ||
      parseRange(bytes, code) !== URL_ELICITATION_REQUIRED
    )
      return;
    for (const id of readElicitationIds(parseRange(bytes, data))) this.add(id, client);
  }

  /** The client has left. The ids stay known, so that a completion is not taken for another client's. */
  removeClient(client: ClientChannel): void {
    for (const recipients of this.#recipients.values()) recipients.delete(client);
  }

  /** An elicitation is complete. @returns the clients that got it; undefined if the id is not known */
  complete(id: string): ReadonlySet<ClientChannel> | undefined {
    const recipients = this.#recipients.get(id);
    this.#recipients.delete(id);
    return recipients;
  }
}

function readElicitationIds(data: unknown): readonly string[] {
  const list = memberOf(data, "elicitations");
  if (!Array.isArray(list)) return [];
  return list.map((each) => memberOf(each, "elicitationId")).filter((id) => typeof id === "string");
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null
    ? (value as Readonly<Record<string, unknown>>)[key]
    : undefined;
}
