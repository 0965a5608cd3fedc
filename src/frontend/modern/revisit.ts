import type { Edit, Piece } from "../../base/bytes.ts";
import { HubError } from "../../base/errors.ts";
import { lastMember, type JsonMember, scanObject, parseRange } from "../../base/json.ts";
import { removeMembers } from "../../base/object.ts";
import { parseCapabilityClass } from "../../protocol/capabilities.ts";
import { type Implementation, Method } from "../../protocol/legacy.ts";
import { parseMessage } from "../../jsonrpc/parse.ts";
import {
  buildError,
  buildResult,
  type EncodedMessage,
  type Response,
  joinMessage,
  editMessage,
} from "../../jsonrpc/message.ts";
import { buildInputRequired } from "./input.ts";
import type { Letter } from "./request.ts";
import { digestOf, isBrought, type Parked, type Parking } from "./input-required.ts";
import type { WayBack } from "./wayback.ts";

/** URLElicitationRequiredError (2025-11-25, elicitation): the user has to open a URL before the request can succeed. */
const NEEDS_VISIT = -32042;

/** A request that is sent again, as it first came, when its client sends the retry. */
class Revisit implements Parked {
  readonly digest: string;
  readonly #again: (letter: Letter, way: WayBack) => void;

  constructor(letter: Letter, again: (letter: Letter, way: WayBack) => void) {
    this.digest = digestOf(letter);
    this.#again = again;
  }

  resume(letter: Letter, way: WayBack): void {
    this.#again(unburden(letter), way);
  }

  expire(): void {}
}

export interface RevisitParts {
  readonly letter: Letter;
  /** The id of the client's request. */
  readonly id: Piece;
  readonly server: string;
  readonly serverInfo: Implementation;
  readonly parking: Parking;
  again(letter: Letter, way: WayBack): void;
}

/**
 * Translates a legacy server's URLElicitationRequiredError for a modern client: an `input_required` result with URL
 * elicitations. The client's retry then sends the request again.
 * @returns undefined if the response is another one, or too many calls wait for input
 */
export function buildRevisit(response: Response, parts: RevisitParts): EncodedMessage | undefined {
  const { letter, id, server, serverInfo, parking } = parts;
  const pages = readPages(response);
  if (pages === undefined) return undefined;
  if (parseCapabilityClass(letter.capabilities).elicitation?.url === undefined) {
    const data = { requiredCapabilities: { elicitation: { url: {} } } };
    const text = `Server "${server}" wants a page to be visited, which the client cannot be asked for.`;
    return buildError(id, new HubError("missingCapability", text, { server, data }).toRpc());
  }
  const state = parking.park(new Revisit(letter, (again, way) => parts.again(again, way)));
  if (state === undefined) return undefined;
  const entries = pages.map(({ message, url }, i) => {
    const params = { mode: "url", message: `[${server}] ${message}`, url };
    return [`input-${i + 1}`, { method: Method.elicitationCreate, params }] as const;
  });
  return buildResult(id, buildInputRequired(Object.fromEntries(entries), state, serverInfo));
}

interface Page {
  readonly message: string;
  readonly url: string;
}

function readPages({ bytes, body }: Response): readonly Page[] | undefined {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const read = (member: JsonMember | undefined): unknown => member && parseRange(bytes, member);
  if (read(lastMember(members, "code")) !== NEEDS_VISIT) return undefined;
  const data = lastMember(members, "data");
  const inner = (data && scanObject(bytes, data.start)?.items) ?? [];
  const elicitations = read(lastMember(inner, "elicitations"));
  const pages = Array.isArray(elicitations) ? elicitations.filter(isPage) : [];
  return pages.length > 0 ? pages : undefined;
}

function isPage(value: unknown): value is Page {
  if (typeof value !== "object" || value === null) return false;
  const { message, url } = value as Readonly<Record<string, unknown>>;
  return typeof message === "string" && typeof url === "string";
}

/** The request without `inputResponses` and `requestState`. */
function unburden(letter: Letter): Letter {
  const { request, members } = letter;
  const { bytes, params } = request;
  if (params === undefined) return letter;
  const edits: Edit[] = removeMembers(bytes, params, members, isBrought);
  const frame = parseMessage(joinMessage(editMessage(request, edits)));
  if (frame.kind !== "request") return letter;
  const own = frame.members ?? (frame.params && scanObject(frame.bytes, frame.params.start)?.items);
  return { ...letter, request: frame, members: own ?? [] };
}
