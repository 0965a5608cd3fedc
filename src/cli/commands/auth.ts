import { openLog } from "../command-log.ts";
import { suggestName } from "../../manifest/problems.ts";
import { formatDuration } from "../../base/format.ts";
import { quoteArgument } from "../../auth/errors.ts";
import type { AuthorizationStatus, OAuthAuthorizer } from "../../auth/oauth-authorizer.ts";
import { systemClock } from "../../base/clock.ts";
import { HubError, usageError } from "../../base/errors.ts";
import { type ResolvedRemote, resolveRemote } from "../../manifest/resolve.ts";
import type { Manifest, RemoteServer } from "../../manifest/manifest.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { showWaiting } from "../../terminal/terminal.ts";
import type { AuthChallenge } from "../../transport/http/target.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { type CommandLog, loadManifestOnly } from "../../operations/load-manifest.ts";
import {
  openSchemeResolvers,
  openUserAuthorizer,
  type ShowLoginPage,
} from "../../hub/transport-factory.ts";

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

/** The authorization status as JSON: `{server, state, by?, issuer?, expires?: ISO, refreshable?, scopes?}`. */
export function authStatusToJson(
  { name }: Pick<RemoteServer, "name">,
  status: AuthorizationStatus,
): object {
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
export function pickRemoteServers(
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
export function resolveRemoteSpec(
  spec: RemoteServer,
  context: CommandContext,
): Promise<ResolvedRemote> {
  const { env, cwd } = context;
  return resolveRemote(spec, env, cwd, openSchemeResolvers(context)(spec, new Map()));
}

/** Delay before a message says that the login is still being prepared, in ms. */
const WAIT_NOTICE_DELAY = 3000;

interface AuthOptions {
  readonly "no-browser": boolean;
  readonly scope: string | undefined;
  readonly json: boolean;
}

/** Logs in to a server by OAuth in the user's browser, even if there already is a valid token. */
export async function runLogin(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
  name: string,
): Promise<number> {
  const { json, scope, "no-browser": noBrowser } = invocation.options;
  const log = openLog(invocation);
  const { spec, resolved } = await resolveNamedServer(invocation, context, name, log);
  const line = context.terminal.openStatusLine();
  const wait = (text: string): (() => void) | undefined =>
    line && showWaiting(line, `${text} ${name}`, systemClock);
  let endWaiting = wait("asking");
  const challenge = await findChallenge(spec, resolved, context).finally(endWaiting);
  if (challenge === undefined) {
    throw usageError(
      `Server "${name}" does not ask for a login. To log in anyway, write auth = "oauth" in its table.`,
    );
  }
  const cancelNotice = systemClock.after(WAIT_NOTICE_DELAY, () => {
    endWaiting?.();
    context.terminal.note(
      `Still preparing the login to ${name}: it is slow, or another toolmux is logging in to it.`,
    );
    endWaiting = wait("preparing the login to");
  });
  endWaiting = wait("preparing the login to");
  const showPage = showPageInTerminal(context, noBrowser);
  const authorizer = await openUserAuthorizer(context, async (url, server) => {
    cancelNotice();
    endWaiting?.();
    await showPage(url, server);
    endWaiting = wait("waiting for the login in the browser to");
  });
  const options = { signal: context.signal, onProgress: () => {} };
  const scopes = scope?.split(/[\s,]+/).filter((it) => it !== "");
  await authorizer.login(spec, resolved, challenge, options, scopes).finally(() => {
    cancelNotice();
    endWaiting?.();
  });
  const status = await authorizer.getStatus(spec, resolved);
  if (json) context.terminal.printJson(authStatusToJson(spec, status));
  else
    context.terminal.print(
      `logged in to ${sanitizeLine(name)}: ${sanitizeLine(describeAuthStatus(spec, status, Date.now()))}`,
    );
  return 0;
}

/** Deletes a server's tokens here and revokes them at the authorization server. */
export async function runLogout(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
  name: string,
): Promise<number> {
  const log = openLog(invocation);
  const { spec, resolved } = await resolveNamedServer(invocation, context, name, log);
  const authorizer = await openUserAuthorizer(context, () => Promise.resolve());
  const { existed: wasLoggedIn, isRevoked } = await authorizer.logout(
    spec,
    resolved,
    context.signal,
  );
  if (invocation.options.json) {
    context.terminal.printJson({ server: name, loggedOut: wasLoggedIn, revoked: isRevoked });
    return 0;
  }
  if (!wasLoggedIn) context.terminal.print(`not logged in to ${sanitizeLine(name)}`);
  else if (isRevoked) context.terminal.print(`logged out of ${sanitizeLine(name)}`);
  else {
    const rest =
      "the authorization server was not reached and may accept the token until it expires";
    context.terminal.print(`logged out of ${sanitizeLine(name)} on this machine; ${rest}`);
  }
  return 0;
}

interface ResolvedServer {
  readonly spec: RemoteServer;
  readonly resolved: ResolvedRemote;
}

async function resolveNamedServer(
  invocation: Invocation,
  context: CommandContext,
  name: string,
  log: CommandLog,
): Promise<ResolvedServer> {
  const manifest = await loadManifestOnly(invocation, context, log);
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
  { env, signal }: CommandContext,
): Promise<AuthChallenge | undefined> {
  const { makeFetch } = await import("../../transport/http-client/fetch.ts");
  const { requestChallenge } = await import("../../auth/discovery.ts");
  const assumed = auth === "oauth" ? ({ status: 401, header: undefined } as const) : undefined;
  const fetch = makeFetch({ ca, env });
  return (await requestChallenge({ url, headers, fetch, signal, clock: systemClock })) ?? assumed;
}

/**
 * Makes the function that shows a login page: it prints the URL to stderr, because stdout is for the result, and opens
 * a browser unless `noBrowser` is set.
 */
function showPageInTerminal(context: CommandContext, noBrowser: boolean): ShowLoginPage {
  return async (url, server) => {
    context.terminal.note(`To log in to ${server}, open this page:`);
    context.terminal.printStderr(sanitizeLine(url));
    if (noBrowser) return;
    const { openBrowser } = await import("../../auth/browser.ts");
    if (!(await openBrowser(url, context)))
      context.terminal.note("toolmux could not open a browser.");
  };
}

interface Row {
  readonly spec: RemoteServer;
  readonly status: AuthorizationStatus | HubError;
}

/**
 * Prints the authorization status of all HTTP servers, or of the named ones. Sends no request and prints no
 * secret.
 */
export async function printAuthStatus(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
  names: readonly string[],
): Promise<number> {
  const manifest = await loadManifestOnly(invocation, context, openLog(invocation));
  const specs = pickRemoteServers(manifest, names);
  const authorizer = await openUserAuthorizer(context, () => Promise.resolve());
  const rows = await Promise.all(specs.map((spec) => statusRowOf(spec, authorizer, context)));
  if (invocation.options.json) context.terminal.printJson({ servers: rows.map(toJson) });
  else if (rows.length === 0)
    context.terminal.print("no server in the manifest is reached over HTTP");
  else context.terminal.printTable(["SERVER", "AUTHORIZATION", "ISSUER"], rows.map(toCells));
  return 0;
}

async function statusRowOf(
  spec: RemoteServer,
  authorizer: OAuthAuthorizer,
  context: CommandContext,
): Promise<Row> {
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

function toCells({ spec, status }: Row): readonly string[] {
  if (status instanceof HubError) return [spec.name, `unknown: ${status.message}`, ""];
  const issuer = "issuer" in status ? status.issuer : "";
  return [spec.name, describeAuthStatus(spec, status, Date.now()), issuer];
}

function toJson({ spec, status }: Row): object {
  if (!(status instanceof HubError)) return authStatusToJson(spec, status);
  const { code, message } = status;
  return { server: spec.name, state: "unknown", error: { code, message } };
}

/** `toolmux auth`: logs in to an HTTP server, logs out, or prints the authorization status. */
export async function runAuth(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
): Promise<number> {
  const [verb, ...names] = invocation.args;
  const [name] = names;
  if (verb === "status") {
    return printAuthStatus(invocation, context, names);
  }
  if (verb !== "login" && verb !== "logout") {
    throw usageError(`The first argument of auth must be login, logout or status, not "${verb}".`);
  }
  if (name === undefined || names.length > 1) {
    throw usageError(`toolmux auth ${verb} needs the name of one server.`);
  }
  return verb === "login"
    ? runLogin(invocation, context, name)
    : runLogout(invocation, context, name);
}
