import { type ErrorCode, HubError } from "../base/errors.ts";

/** What is quoted of others, in characters. */
const MAX_QUOTE = 200;

/** An authorization that did not come about. `why` is half a sentence. */
export function unauthorizedError(
  server: string,
  why: string,
  code: ErrorCode = "unauthorized",
): HubError {
  const text = `Server "${server}" could not be authorized: ${why}.`;
  return new HubError(code, text, { server, step: "authorize" });
}

/** One that a person can bring about. */
export function loginRequiredError(server: string, why: string): HubError {
  return unauthorizedError(
    server,
    `${why}. To log in, run: toolmux auth login ${quoteArgument(server)}`,
  );
}

/**
 * What went wrong at an authorization server, without what it may have repeated of what it was sent.
 * @param doing half a sentence: `getting a token`
 * @param isRetryable nobody has been asked for anything yet, so all of it may be done again
 */
export function oauthErrorOf(
  thrown: unknown,
  server: string,
  doing: string,
  isRetryable: boolean,
): unknown {
  if (thrown instanceof HubError) {
    const { code, message } = thrown;
    if (!UNANSWERED.includes(code) || thrown.step === "authorize") return thrown;
    // Whoever was asked to log in already is not to be asked again without having wanted it.
    const why = `${doing}: ${message.replace(/\.$/, "")}`;
    return unauthorizedError(server, why, isRetryable ? code : "unauthorized");
  }
  const code = oauthCode(thrown);
  if (code !== undefined) {
    return unauthorizedError(server, `${doing}, the authorization server answered "${code}"`);
  }
  if (has(thrown, "expected", "received")) {
    return unauthorizedError(
      server,
      `${doing}, another authorization server answered than the one asked`,
    );
  }
  if (has(thrown, "submittedMetadata")) {
    return unauthorizedError(
      server,
      "its authorization server registers no clients: write oauth.clientId in the manifest",
    );
  }
  const message = thrown instanceof Error ? thrown.message : "";
  // What the SDK says of metadata; what it says of tokens comes as an OAuth error.
  const quoted = /^Incompatible auth server|^HTTP \d+ trying/.test(message)
    ? `: ${quoteText(message)}`
    : "";
  return unauthorizedError(
    server,
    `${doing}, the authorization server did not answer as it should${quoted}`,
  );
}

/** What is thrown where a request brings no answer. */
const UNANSWERED: readonly ErrorCode[] = [
  "unreachable",
  "tlsFailed",
  "answerLost",
  "messageTooLarge",
  "serverFailed",
];

/** The code of an error as OAuth has them (RFC 6749, 5.2); undefined if it is none. */
export function oauthCode(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || thrown.name !== "OAuthError") return undefined;
  const { code } = thrown as { code?: unknown };
  return typeof code === "string" ? quoteText(code) : undefined;
}

/** Text of others in one line, of a bearable length. */
export function quoteText(text: string): string {
  return text.replace(/[^\x20-\x7e\xa0-\uffff]+/g, " ").slice(0, MAX_QUOTE);
}

/** A name as it has to be typed. */
export function quoteArgument(name: string): string {
  return /^[\w.:@/-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;
}

/** Errors of the SDK are known by their members: their classes belong to what is loaded only when it is needed. */
function has(thrown: unknown, ...members: readonly string[]): boolean {
  return thrown instanceof Error && members.every((member) => member in thrown);
}
