import { type ErrorCode, HubError } from "../base/errors.ts";

/** Maximum length of quoted text, in characters. */
const MAX_QUOTE = 200;

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

/**
 * Converts an error of an authorization server. Leaves out texts that may repeat a request's secrets.
 * @param activity the moment of the error, as a phrase such as "after the login"
 * @param isRetryable whether the authorization may be retried, because the user has not been involved yet
 */
export function oauthErrorOf(
  thrown: unknown,
  server: string,
  activity: string,
  isRetryable: boolean,
): unknown {
  if (thrown instanceof HubError) {
    const { code, message } = thrown;
    if (!NO_RESPONSE_CODES.includes(code) || thrown.step === "authorize") return thrown;
    // Once the user is involved, the code is `unauthorized`, which is never retried: the user would have to log in
    // again.
    const reason = `${activity}: ${message.replace(/\.$/, "")}`;
    return unauthorizedError(server, reason, isRetryable ? code : "unauthorized");
  }
  const code = oauthErrorCodeOf(thrown);
  if (code !== undefined) {
    return unauthorizedError(server, `${activity}, the authorization server answered "${code}"`);
  }
  if (hasProperties(thrown, "expected", "received")) {
    return unauthorizedError(
      server,
      `${activity}, the answer came from another authorization server`,
    );
  }
  if (hasProperties(thrown, "submittedMetadata")) {
    return unauthorizedError(
      server,
      "its authorization server does not register clients: write oauth.clientId in the manifest",
    );
  }
  const message = thrown instanceof Error ? thrown.message : "";
  // Errors of the SDK about metadata repeat no secrets and may be quoted. Errors about tokens are OAuth errors, handled
  // above.
  const quoted = /^Incompatible auth server|^HTTP \d+ trying/.test(message)
    ? `: ${quoteText(message)}`
    : "";
  return unauthorizedError(
    server,
    `${activity}, the authorization server sent an invalid answer${quoted}`,
  );
}

/** Error codes that mean that a request got no usable response. */
const NO_RESPONSE_CODES: readonly ErrorCode[] = [
  "unreachable",
  "tlsFailed",
  "answerLost",
  "messageTooLarge",
  "serverFailed",
];

/** The error code of an OAuth error (RFC 6749, 5.2); undefined for other errors. */
export function oauthErrorCodeOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || thrown.name !== "OAuthError") return undefined;
  const { code } = thrown as { code?: unknown };
  return typeof code === "string" ? quoteText(code) : undefined;
}

/** Quotes untrusted text: without line breaks and control characters, and of limited length. */
export function quoteText(text: string): string {
  return text.replace(/[^\x20-\x7e\xa0-\uffff]+/g, " ").slice(0, MAX_QUOTE);
}

/** Quotes a word for a shell, if necessary. */
export function quoteArgument(name: string): string {
  return /^[\w.:@/-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;
}

/** Errors of the SDK are recognized by their properties, because its classes are loaded only on demand. */
function hasProperties(thrown: unknown, ...properties: readonly string[]): boolean {
  return thrown instanceof Error && properties.every((property) => property in thrown);
}
