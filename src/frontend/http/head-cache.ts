import { isModernVersion } from "../../protocol/modern.ts";
import type { Answer } from "./http1/answer.ts";
import { type Guard, refuseStranger, refuseUnknown } from "./guard.ts";
import type { Fields, QueryHead } from "./http1/messages.ts";
import { readWants, type Wants } from "./post-response.ts";

/** What a request head means; the same for every request with that head. */
export interface Saying {
  /** The answer that refuses the request: wrong host, origin or token. */
  readonly refusal: Answer | undefined;
  readonly session: string | null;
  readonly version: string | null;
  /** The version header names a revision of the modern era. */
  readonly isStateless: boolean;
  /** Undefined: neither JSON nor an event stream. */
  readonly wants: Wants | undefined;
  readonly isJson: boolean;
}

/** Cache of parsed heads: nearly all requests of a client share one head object. */
export class Sayings {
  readonly #guard: Guard;
  readonly #read = new WeakMap<QueryHead, Saying>();

  constructor(guard: Guard) {
    this.#guard = guard;
  }

  of(head: QueryHead): Saying {
    const known = this.#read.get(head);
    if (known !== undefined) return known;
    const saying = readSaying(head.fields, this.#guard);
    this.#read.set(head, saying);
    return saying;
  }
}

function readSaying(fields: Fields, guard: Guard): Saying {
  const version = fields.get("MCP-Protocol-Version");
  return {
    refusal: refuseStranger(fields, guard) ?? refuseUnknown(fields, guard),
    session: fields.get("Mcp-Session-Id"),
    version,
    isStateless: isModernVersion(version),
    wants: readWants(fields.get("Accept")),
    isJson: /^application\/json\s*(?:;|$)/i.test(fields.get("Content-Type") ?? ""),
  };
}
