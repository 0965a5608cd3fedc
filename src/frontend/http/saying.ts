import { isModernVersion } from "../../protocol/modern.ts";
import type { Answer } from "./answer.ts";
import { type Guard, refuseStranger, refuseUnknown } from "./guard.ts";
import type { Fields, QueryHead } from "./query.ts";
import { readWants, type Wants } from "./reply.ts";

/** What the head of a request says, as far as that is the same whenever it is said. */
export interface Saying {
  /** Why its client is not let in. */
  readonly refusal: Answer | undefined;
  readonly session: string | null;
  readonly version: string | null;
  /** Whether it is of the modern era. */
  readonly isStateless: boolean;
  /** Undefined: nothing that there is. */
  readonly wants: Wants | undefined;
  readonly isJson: boolean;
}

/** What heads say, each read once: clients have one head for nearly all that they ask. */
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
