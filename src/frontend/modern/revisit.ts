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
import type { ModernRequest } from "./request.ts";
import {
  requestDigestOf,
  isInputParam,
  type AwaitingCall,
  type AwaitedInputs,
} from "./input-required.ts";
import type { ModernResponder } from "./wayback.ts";

/** URLElicitationRequiredError (2025-11-25, elicitation): the user has to open a URL before the request can succeed. */
const URL_ELICITATION_REQUIRED = -32042;

/** A request that is sent again, as it first came, when its client sends the retry. */
class UrlElicitationCall implements AwaitingCall {
  readonly digest: string;
  readonly #retry: (modernRequest: ModernRequest, responder: ModernResponder) => void;

  constructor(
    modernRequest: ModernRequest,
    retry: (modernRequest: ModernRequest, way: ModernResponder) => void,
  ) {
    this.digest = requestDigestOf(modernRequest);
    this.#retry = retry;
  }

  resume(modernRequest: ModernRequest, responder: ModernResponder): void {
    this.#retry(withoutRetryParams(modernRequest), responder);
  }

  expire(): void {}
}

export interface UrlElicitationOptions {
  readonly modernRequest: ModernRequest;
  /** The id of the client's request. */
  readonly id: Piece;
  readonly server: string;
  readonly serverInfo: Implementation;
  readonly awaitedInputs: AwaitedInputs;
  retry(modernRequest: ModernRequest, responder: ModernResponder): void;
}

/**
 * Translates a legacy server's URLElicitationRequiredError for a modern client: an `input_required` result with URL
 * elicitations. The client's retry then sends the request again.
 * @returns undefined if the response is another one, or too many calls wait for input
 */
export function buildUrlElicitation(
  response: Response,
  options: UrlElicitationOptions,
): EncodedMessage | undefined {
  const { modernRequest, id, server, serverInfo, awaitedInputs } = options;
  const elicitations = readElicitations(response);
  if (elicitations === undefined) return undefined;
  if (parseCapabilityClass(modernRequest.capabilityClass).elicitation?.url === undefined) {
    const data = { requiredCapabilities: { elicitation: { url: {} } } };
    const text = `Server "${server}" wants a page to be visited, which the client cannot be asked for.`;
    return buildError(id, new HubError("missingCapability", text, { server, data }).toRpc());
  }
  const state = awaitedInputs.add(
    new UrlElicitationCall(modernRequest, (retryRequest, responder) =>
      options.retry(retryRequest, responder),
    ),
  );
  if (state === undefined) return undefined;
  const entries = elicitations.map(({ message, url }, i) => {
    const params = { mode: "url", message: `[${server}] ${message}`, url };
    return [`input-${i + 1}`, { method: Method.elicitationCreate, params }] as const;
  });
  return buildResult(id, buildInputRequired(Object.fromEntries(entries), state, serverInfo));
}

interface UrlElicitation {
  readonly message: string;
  readonly url: string;
}

function readElicitations({ bytes, body }: Response): readonly UrlElicitation[] | undefined {
  const members = scanObject(bytes, body.start)?.items ?? [];
  const read = (member: JsonMember | undefined): unknown => member && parseRange(bytes, member);
  if (read(lastMember(members, "code")) !== URL_ELICITATION_REQUIRED) return undefined;
  const data = lastMember(members, "data");
  const inner = (data && scanObject(bytes, data.start)?.items) ?? [];
  const elicitations = read(lastMember(inner, "elicitations"));
  const valid = Array.isArray(elicitations) ? elicitations.filter(isUrlElicitation) : [];
  return valid.length > 0 ? valid : undefined;
}

function isUrlElicitation(value: unknown): value is UrlElicitation {
  if (typeof value !== "object" || value === null) return false;
  const { message, url } = value as Readonly<Record<string, unknown>>;
  return typeof message === "string" && typeof url === "string";
}

/** The request without `inputResponses` and `requestState`. */
function withoutRetryParams(modernRequest: ModernRequest): ModernRequest {
  const { request, members } = modernRequest;
  const { bytes, params } = request;
  if (params === undefined) return modernRequest;
  const edits: Edit[] = removeMembers(bytes, params, members, isInputParam);
  const parsed = parseMessage(joinMessage(editMessage(request, edits)));
  if (parsed.kind !== "request") return modernRequest;
  const ownMembers =
    parsed.members ?? (parsed.params && scanObject(parsed.bytes, parsed.params.start)?.items);
  return { ...modernRequest, request: parsed, members: ownMembers ?? [] };
}
