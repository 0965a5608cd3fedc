import { quoteArgument } from "../auth/errors.ts";
import type { AuthorizationStatus, OAuthAuthorizer } from "../auth/oauth-authorizer.ts";
import { systemClock } from "../base/clock.ts";
import { HubError, usageError } from "../base/errors.ts";
import { formatDuration } from "../base/format.ts";
import { openSchemeResolvers, openUserAuthorizer } from "../hub/transport-factory.ts";
import type { Manifest, RemoteServer } from "../manifest/manifest.ts";
import { suggestName } from "../manifest/problems.ts";
import { type ResolvedRemote, resolveRemote } from "../manifest/resolve.ts";
import type { AuthChallenge } from "../transport/http/target.ts";
import type { ManifestChoice, OperationContext } from "./context.ts";
import type { LoginDocument, LogoutDocument } from "./documents.ts";
import { type CommandLog, loadManifestOnly } from "./load-manifest.ts";

/** Describes the authorization status of a server in a phrase. `now` in ms since the epoch. */
export function describeAuthStatus(
  { name, auth }: Pick<RemoteServer, "name" | "auth">,
  status: AuthorizationStatus,
  now: number,
): string {
  switch (status.kind) {
    case "fixed":
      return status.by === "header" ? "an Authorization header" : "a key file";
    case "none":
      if (auth === "none") return "none";
      if (auth === "auto") return "none yet; login starts when the server asks for it";
      return `login needed: toolmux auth login ${quoteArgument(name)}`;
    case "authorized": {
      const { expires, isRefreshable } = status;
      if (isRefreshable) return "authorized, renewed automatically";
      return expires === undefined
        ? "authorized"
        : `authorized for ${formatDuration(expires - now)}`;
    }
    case "expired":
      if (status.isRefreshable) return "expired, renewed at the next use";
      return `expired; login needed: toolmux auth login ${quoteArgument(name)}`;
  }
}

/** The document of an authorization status. */
function loginDocument(
  { name }: Pick<RemoteServer, "name">,
  status: AuthorizationStatus,
): LoginDocument {
  const { kind: state } = status;
  if (status.kind === "none") return { server: name, state };
  if (status.kind === "fixed") return { server: name, state, by: status.by };
  const { issuer, expires, isRefreshable, scopes } = status;
  return {
    server: name,
    state,
    issuer,
    ...(expires !== undefined && { expires: new Date(expires).toISOString() }),
    refreshable: isRefreshable,
    scopes,
  };
}

/** The HTTP servers of a manifest, or those of the given names. @throws {HubError} usage */
function pickRemoteServers(
  { servers }: Manifest,
  names: readonly string[],
): readonly RemoteServer[] {
  for (const name of names) {
    const found = servers.find((spec) => spec.name === name);
    if (found === undefined) {
      const known = servers.map((spec) => spec.name);
      const near = suggestName(name, known) || " To see all: toolmux list servers";
      throw usageError(`There is no server "${name}" in the manifest.${near}`);
    }
    if (found.kind !== "remote") {
      throw usageError(
        `Server "${name}" is not reached over HTTP, so it has no login; set its credentials in env.`,
      );
    }
  }
  return servers.filter(
    (spec) => spec.kind === "remote" && (names.length === 0 || names.includes(spec.name)),
  ) as readonly RemoteServer[];
}

/** Resolves the `${…}` placeholders of an HTTP server's entry. @throws {HubError} valueMissing, notSupported */
function resolveRemoteSpec(spec: RemoteServer, context: OperationContext): Promise<ResolvedRemote> {
  const { env, cwd } = context;
  return resolveRemote(spec, env, cwd, openSchemeResolvers(context)(spec, new Map()));
}

/** The steps of a login. */
export type LoginStep = "asking" | "preparing" | "waiting";

export interface LoginRequest {
  /** The name of the server. */
  readonly server: string;
  /** The scopes to request; undefined: those that the server names. */
  readonly scopes?: readonly string[] | undefined;
  /** Whether the login page is opened in the user's browser. */
  readonly opensBrowser: boolean;
}

/** Follows a login, which takes as long as a person needs. */
export interface LoginListener {
  onStep(step: LoginStep): void;
  /** The page to log in on; the person has to open it if no browser does. */
  onPage(url: string): void;
  /** A remark to the person. */
  onNote(text: string): void;
}

/** Delay before a message says that the login is still being prepared, in ms. */
const WAIT_NOTICE_DELAY = 3000;

/**
 * Logs in to a server by OAuth, even if there already is a valid token. Ends when the person has logged in.
 * @throws {HubError} usage if the server is not one over HTTP, or does not ask for a login
 */
export async function login(
  { server: name, scopes, opensBrowser }: LoginRequest,
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
  listener: LoginListener,
): Promise<{ readonly document: LoginDocument; readonly text: string }> {
  const { spec, resolved } = await resolveNamedServer(name, choice, context, log);
  listener.onStep("asking");
  const challenge = await findChallenge(spec, resolved, context);
  if (challenge === undefined) {
    throw usageError(
      `Server "${name}" does not ask for a login. To log in anyway, write auth = "oauth" in its table.`,
    );
  }
  const cancelNotice = systemClock.after(WAIT_NOTICE_DELAY, () =>
    listener.onNote(
      `Still preparing the login to ${name}: it is slow, or another toolmux is logging in to it.`,
    ),
  );
  listener.onStep("preparing");
  const authorizer = await openUserAuthorizer(context, async (url) => {
    cancelNotice();
    listener.onPage(url);
    if (opensBrowser) {
      const { openBrowser } = await import("../auth/browser.ts");
      if (!(await openBrowser(url, context))) listener.onNote("toolmux could not open a browser.");
    }
    listener.onStep("waiting");
  });
  const options = { signal: context.signal, onProgress: () => {} };
  await authorizer.login(spec, resolved, challenge, options, scopes).finally(cancelNotice);
  const status = await authorizer.getStatus(spec, resolved);
  return {
    document: loginDocument(spec, status),
    text: describeAuthStatus(spec, status, Date.now()),
  };
}

/** Deletes a server's tokens here and revokes them at the authorization server. @throws {HubError} usage */
export async function logout(
  name: string,
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<LogoutDocument> {
  const { spec, resolved } = await resolveNamedServer(name, choice, context, log);
  const authorizer = await openUserAuthorizer(context, () => Promise.resolve());
  const revocation = await authorizer.logout(spec, resolved, context.signal);
  return {
    server: name,
    loggedOut: revocation !== undefined,
    revoked: revocation?.kind === "revoked",
    ...(revocation?.kind === "failed" && { reason: revocation.reason }),
  };
}

/**
 * Reads the authorization status of all HTTP servers, or of the named ones. Sends no request, and returns no secret.
 * @throws {HubError} usage
 */
export async function readAuthStatus(
  names: readonly string[],
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<readonly ServerAuthStatus[]> {
  const manifest = await loadManifestOnly(choice, context, log);
  const specs = pickRemoteServers(manifest, names);
  const authorizer = await openUserAuthorizer(context, () => Promise.resolve());
  return Promise.all(specs.map((spec) => statusRowOf(spec, authorizer, context)));
}

/** A server over HTTP and its authorization status, or why the status is unknown. */
export interface ServerAuthStatus {
  readonly spec: RemoteServer;
  readonly status: AuthorizationStatus | HubError;
}

async function statusRowOf(
  spec: RemoteServer,
  authorizer: OAuthAuthorizer,
  context: OperationContext,
): Promise<ServerAuthStatus> {
  try {
    return {
      spec,
      status: await authorizer.getStatus(spec, await resolveRemoteSpec(spec, context)),
    };
  } catch (error) {
    if (!(error instanceof HubError)) throw error;
    return { spec, status: error };
  }
}

/** The status of a login; `unknown`: it cannot be read. */
export type AuthStatusDocument =
  | LoginDocument
  | {
      readonly server: string;
      readonly state: "unknown";
      readonly error: { readonly code: string; readonly message: string };
    };

/** The document of a server's authorization status: that of a login, or `{server, state: "unknown", error}`. */
export function authStatusDocument({ spec, status }: ServerAuthStatus): AuthStatusDocument {
  if (!(status instanceof HubError)) return loginDocument(spec, status);
  const { code, message } = status;
  return { server: spec.name, state: "unknown", error: { code, message } };
}

interface ResolvedServer {
  readonly spec: RemoteServer;
  readonly resolved: ResolvedRemote;
}

async function resolveNamedServer(
  name: string,
  choice: ManifestChoice,
  context: OperationContext,
  log: CommandLog,
): Promise<ResolvedServer> {
  const manifest = await loadManifestOnly(choice, context, log);
  const [spec] = pickRemoteServers(manifest, [name]);
  if (spec === undefined) throw usageError(`There is no server "${name}" in the manifest.`);
  return { spec, resolved: await resolveRemoteSpec(spec, context) };
}

/**
 * Asks the server how it wants to be authorized; undefined if it needs no authorization and the manifest does not set
 * `auth = "oauth"`.
 */
async function findChallenge(
  { auth }: RemoteServer,
  { url, headers, ca }: ResolvedRemote,
  { env, signal }: OperationContext,
): Promise<AuthChallenge | undefined> {
  const { makeFetch } = await import("../transport/http-client/fetch.ts");
  const { requestChallenge } = await import("../auth/discovery.ts");
  const assumed = auth === "oauth" ? ({ status: 401, header: undefined } as const) : undefined;
  const fetch = makeFetch({ ca, env });
  return (await requestChallenge({ url, headers, fetch, signal, clock: systemClock })) ?? assumed;
}
