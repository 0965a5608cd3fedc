import { type ErrorCode, HubError } from "../base/errors.ts";
import { quotePeer, reasonIn, reasonInBody, saidByPeer } from "../base/quote.ts";
import { Redactor } from "../transport/redact.ts";

/** Makes the error of a failed authorization. @param reason a clause without a full stop */
export function unauthorizedError(
  server: string,
  reason: string,
  code: ErrorCode = "unauthorized",
): HubError {
  const text = `Server "${server}" could not be authorized: ${reason}.`;
  return new HubError(code, text, { server, step: "authorize" });
}

/** Makes an error that a login by the user can fix. */
export function loginRequiredError(server: string, reason: string): HubError {
  return unauthorizedError(
    server,
    `${reason}. To log in, run: toolmux auth login ${quoteArgument(server)}`,
  );
}

/** An authorization server has refused a POST: a registration, a token request or a revocation. */
export class RefusedRequest {
  readonly status: number;
  /** What happened, as a clause. */
  readonly message: string;
  /** The error code (RFC 6749, 5.2; RFC 7591, 3.2.2); undefined if the body has none. */
  readonly oauthCode: string | undefined;
  /** What the authorization server said, as the end of a clause; see `saidByPeer`. */
  readonly said: string;

  /** @param secrets the secrets of the request, which the answer may repeat */
  constructor(host: string, status: number, body: string, secrets: readonly string[]) {
    const redactor = new Redactor(secrets);
    const { code, reason } = readRefusal(body, secrets.length > 0);
    const answer = code === undefined ? "" : ` ${quotePeer(code, redactor)}`;
    const said = saidByPeer(reason, redactor);
    this.message = `${host} answered HTTP ${status}${answer}${said}`;
    this.status = status;
    this.oauthCode = code;
    this.said = `${answer}${said}`.replace(/^ /, ": ");
  }
}

/** The error for a refused request; `refusalOf` gets the details from it. */
export function refusedError(refusal: RefusedRequest): HubError {
  return new HubError("unauthorized", `${refusal.message}.`, { cause: refusal });
}

/** The refusal that an error is about; undefined for other errors. */
export function refusalOf(thrown: unknown): RefusedRequest | undefined {
  const cause = thrown instanceof HubError ? thrown.cause : undefined;
  return cause instanceof RefusedRequest ? cause : undefined;
}

interface Refusal {
  readonly code: string | undefined;
  readonly reason: string | undefined;
}

/** A text that is not JSON is not quoted if the request had secrets: it may be a trace of the whole request. */
function readRefusal(body: string, hadSecrets: boolean): Refusal {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return { code: undefined, reason: hadSecrets ? undefined : reasonInBody(body) };
  }
  const isObject = typeof parsed === "object" && parsed !== null;
  const members = isObject ? (parsed as Readonly<Record<string, unknown>>) : {};
  const { error, ...others } = members;
  if (typeof error !== "string" || error === "")
    return { code: undefined, reason: reasonIn(parsed) };
  return { code: error, reason: reasonIn(others) };
}

/**
 * Converts an error of an authorization server, and quotes what it said.
 * @param activity the moment of the error, as a phrase such as "after the login"
 * @param isRetryable whether the authorization may be retried, because the user has not been involved yet
 */
export function oauthErrorOf(
  thrown: unknown,
  server: string,
  activity: string,
  isRetryable: boolean,
): unknown {
  const refusal = refusalOf(thrown);
  if (refusal !== undefined) return unauthorizedError(server, `${activity}, ${refusal.message}`);
  if (thrown instanceof HubError) {
    const { code, message } = thrown;
    if (!NO_RESPONSE_CODES.includes(code) || thrown.step === "authorize") return thrown;
    // Once the user is involved, the code is `unauthorized`, which is never retried: the user would have to log in
    // again.
    const reason = `${activity}: ${message.replace(/\.$/, "")}`;
    return unauthorizedError(server, reason, isRetryable ? code : "unauthorized");
  }
  if (hasProperties(thrown, "expected", "received")) {
    const { expected, received } = thrown as { expected?: unknown; received?: unknown };
    return unauthorizedError(server, `${activity}, ${otherIssuerReason(expected, received)}`);
  }
  return unauthorizedError(
    server,
    `${activity}, the authorization server sent an invalid answer${faultOf(thrown)}`,
  );
}

/** The reason of a refusal because of an issuer, as a clause that names both issuers. */
export function otherIssuerReason(expected: unknown, received: unknown): string {
  return `the answer came from another authorization server: its issuer is ${quoteIssuer(received)}, not ${quoteIssuer(expected)}`;
}

function quoteIssuer(issuer: unknown): string {
  return typeof issuer === "string" ? quotePeer(issuer) : "missing";
}

/** Maximum number of members that the error for an invalid answer names. */
const MAX_NAMED_MEMBERS = 3;

/** What is wrong with an answer, as the end of a clause: the invalid members, if the SDK names them. */
function faultOf(thrown: unknown): string {
  if (thrown instanceof SyntaxError) return ": it is not JSON";
  const { issues, message } = (typeof thrown === "object" ? (thrown as InvalidAnswer) : null) ?? {};
  if (Array.isArray(issues)) {
    const members = (issues as readonly InvalidMember[])
      .slice(0, MAX_NAMED_MEMBERS)
      .map(({ path, message: fault }) => `${path?.join(".") || "the whole"}: ${fault}`);
    return `: ${members.join("; ")}`;
  }
  // This error of the SDK is about metadata, which has no secrets.
  const isKnown = typeof message === "string" && message.startsWith("Incompatible auth server");
  return isKnown ? saidByPeer(message) : "";
}

/** The members of an error for an answer that is not as the SDK's schema demands. */
interface InvalidAnswer {
  readonly issues?: unknown;
  readonly message?: unknown;
}
interface InvalidMember {
  readonly path?: readonly (string | number)[];
  readonly message?: string;
}

/** Error codes that mean that a request got no usable response. */
const NO_RESPONSE_CODES: readonly ErrorCode[] = [
  "unreachable",
  "tlsFailed",
  "answerLost",
  "messageTooLarge",
  "serverFailed",
];

/** Quotes a word for a shell, if necessary. */
export function quoteArgument(name: string): string {
  return /^[\w.:@/-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;
}

/** Errors of the SDK are recognized by their properties, because its classes are loaded only on demand. */
function hasProperties(thrown: unknown, ...properties: readonly string[]): boolean {
  return thrown instanceof Error && properties.every((property) => property in thrown);
}
