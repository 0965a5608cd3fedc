import { systemClock } from "../../base/clock.ts";
import { HubError, usageError } from "../../base/errors.ts";
import {
  authStatusDocument,
  describeAuthStatus,
  login,
  type LoginStep,
  logout,
  readAuthStatus,
  type ServerAuthStatus,
} from "../../operations/login.ts";
import { sanitizeLine } from "../../terminal/log.ts";
import { showWaiting } from "../../terminal/terminal.ts";
import type { CommandContext, Invocation } from "../command.ts";
import { openLog } from "../command-log.ts";

interface AuthOptions {
  readonly "no-browser": boolean;
  readonly scope: string | undefined;
  readonly json: boolean;
}

/** What a status line says at each step of a login, before the name of the server. */
const WAITING_TEXTS: Readonly<Record<LoginStep, string>> = {
  asking: "asking",
  preparing: "preparing the login to",
  waiting: "waiting for the login in the browser to",
};

/** Logs in to a server by OAuth in the user's browser, even if there already is a valid token. */
async function runLogin(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
  name: string,
): Promise<number> {
  const { json, scope, "no-browser": noBrowser } = invocation.options;
  const { terminal } = context;
  const line = terminal.openStatusLine();
  let endWaiting: (() => void) | undefined;
  let waitingText = "";
  const wait = (): void => {
    endWaiting = line && showWaiting(line, `${waitingText} ${name}`, systemClock);
  };
  const request = {
    server: name,
    scopes: scope?.split(/[\s,]+/).filter((it) => it !== ""),
    opensBrowser: !noBrowser,
  };
  const { document, text } = await login(request, invocation, context, openLog(invocation), {
    onStep(step) {
      endWaiting?.();
      waitingText = WAITING_TEXTS[step];
      wait();
    },
    // The page goes to stderr, because stdout is for the result.
    onPage(url) {
      endWaiting?.();
      terminal.note(`To log in to ${name}, open this page:`);
      terminal.printStderr(sanitizeLine(url));
    },
    onNote(note) {
      endWaiting?.();
      terminal.note(note);
      wait();
    },
  }).finally(() => endWaiting?.());
  if (json) terminal.printJson(document);
  else terminal.printWrapped(`logged in to ${sanitizeLine(name)}: ${sanitizeLine(text)}`);
  return 0;
}

/** Deletes a server's tokens here and revokes them at the authorization server. */
async function runLogout(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
  name: string,
): Promise<number> {
  const document = await logout(name, invocation, context, openLog(invocation));
  if (invocation.options.json) {
    context.terminal.printJson(document);
    return 0;
  }
  const { loggedOut: wasLoggedIn, revoked: isRevoked, reason: failure } = document;
  if (!wasLoggedIn) context.terminal.printWrapped(`not logged in to ${sanitizeLine(name)}`);
  else if (isRevoked) context.terminal.printWrapped(`logged out of ${sanitizeLine(name)}`);
  else {
    const reason =
      failure !== undefined
        ? `the token was not revoked (${sanitizeLine(failure)})`
        : "the authorization server does not revoke tokens";
    const rest = `${reason} and may be accepted until it expires`;
    context.terminal.printWrapped(`logged out of ${sanitizeLine(name)} on this machine; ${rest}`);
  }
  return 0;
}

/**
 * Prints the authorization status of all HTTP servers, or of the named ones. Sends no request and prints no
 * secret.
 */
async function printAuthStatus(
  invocation: Invocation<AuthOptions>,
  context: CommandContext,
  names: readonly string[],
): Promise<number> {
  const rows = await readAuthStatus(names, invocation, context, openLog(invocation));
  if (invocation.options.json)
    context.terminal.printJson({ servers: rows.map(authStatusDocument) });
  else if (rows.length === 0)
    context.terminal.printWrapped("no server in the manifest is reached over HTTP");
  else context.terminal.printTable(["SERVER", "AUTHORIZATION", "ISSUER"], rows.map(toCells));
  return 0;
}

function toCells({ spec, status }: ServerAuthStatus): readonly string[] {
  if (status instanceof HubError) return [spec.name, `unknown: ${status.message}`, ""];
  const issuer = "issuer" in status ? status.issuer : "";
  return [spec.name, describeAuthStatus(spec, status, Date.now()), issuer];
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
