import { systemClock } from "../../base/clock.ts";
import type { RemoteServer } from "../../manifest/schema.ts";
import type { ResolvedRemote } from "../../manifest/resolve.ts";
import type { AuthChallenge } from "../../transport/http/credentials.ts";
import { openUserAuthorizer, type ShowLoginPage } from "../authorizer.ts";
import { ownConsole } from "../../terminal/console.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { type CommandLog, openLog, loadManifestOnly } from "../load-manifest.ts";
import { usageError } from "../args.ts";
import { formatJson } from "../../terminal/terminal.ts";
import { sanitizeLine, printLine } from "../../terminal/report.ts";
import { describeAuthStatus, authStatusToJson } from "./standing.ts";
import { resolveRemoteSpec, pickRemoteServers } from "./subject.ts";

/** How long nothing need be said while a login is prepared, in ms. */
const PATIENCE = 3000;

/** Has the person at this terminal log in to a server, whatever there is for it. */
export async function runLogin(
  invocation: Invocation,
  world: CommandContext,
  name: string,
): Promise<number> {
  const { json, scope, noBrowser } = invocation;
  const log = openLog(invocation);
  const { spec, resolved } = await findSubject(invocation, world, name, log);
  const challenge = await findChallenge(spec, resolved, world);
  if (challenge === undefined) {
    throw usageError(
      `Server "${name}" lets in whoever comes. To log in all the same, write auth = "oauth" in its table.`,
    );
  }
  const undo = systemClock.after(PATIENCE, () => {
    printLine(`still waiting: another toolmux may be logging in to ${name}, or it is slow`);
  });
  const ask = askHere(world, noBrowser);
  const authorizer = await openUserAuthorizer(world, (url, server) => {
    undo();
    return ask(url, server);
  });
  const proceeding = { signal: world.signal, onProgress: () => {} };
  const scopes = scope?.split(/[\s,]+/).filter((it) => it !== "");
  await authorizer.login(spec, resolved, challenge, proceeding, scopes).finally(undo);
  const standing = await authorizer.stand(spec, resolved);
  if (json !== false) ownConsole.log(formatJson(authStatusToJson(spec, standing)));
  else
    ownConsole.log(
      `logged in to ${sanitizeLine(name)}: ${sanitizeLine(describeAuthStatus(spec, standing, Date.now()))}`,
    );
  return 0;
}

/** Forgets what lets the hub into a server, here and where it came from. */
export async function runLogout(
  invocation: Invocation,
  world: CommandContext,
  name: string,
): Promise<number> {
  const log = openLog(invocation);
  const { spec, resolved } = await findSubject(invocation, world, name, log);
  const authorizer = await openUserAuthorizer(world, () => Promise.resolve());
  const { was, isRevoked } = await authorizer.logout(spec, resolved, world.signal);
  if (invocation.json !== false) {
    ownConsole.log(formatJson({ server: name, loggedOut: was, revoked: isRevoked }));
    return 0;
  }
  if (!was) ownConsole.log(`nobody is logged in to ${sanitizeLine(name)}`);
  else if (isRevoked) ownConsole.log(`logged out of ${sanitizeLine(name)}`);
  else {
    const rest = "its authorization server was not told, and may take the token until it expires";
    ownConsole.log(`logged out of ${sanitizeLine(name)} on this machine; ${rest}`);
  }
  return 0;
}

interface Subject {
  readonly spec: RemoteServer;
  readonly resolved: ResolvedRemote;
}

async function findSubject(
  invocation: Invocation,
  world: CommandContext,
  name: string,
  log: CommandLog,
): Promise<Subject> {
  const manifest = await loadManifestOnly(invocation, world, log);
  const [spec] = pickRemoteServers(manifest, [name]);
  if (spec === undefined) throw usageError(`There is no server "${name}" in the manifest.`);
  return { spec, resolved: await resolveRemoteSpec(spec, world) };
}

/** @returns undefined if it lets in whoever comes, and the manifest does not say otherwise */
async function findChallenge(
  { auth }: RemoteServer,
  { url, headers, ca }: ResolvedRemote,
  { env, signal }: CommandContext,
): Promise<AuthChallenge | undefined> {
  const { makeFetch } = await import("../../transport/http-client/fetch.ts");
  const { requestChallenge } = await import("../../auth/knock.ts");
  const unsaid = auth === "oauth" ? ({ status: 401, header: undefined } as const) : undefined;
  const dial = makeFetch({ ca, env });
  return (await requestChallenge({ url, headers, dial, signal, clock: systemClock })) ?? unsaid;
}

/** On stderr, as stdout is for what comes of it. */
function askHere(desktop: CommandContext, noBrowser: boolean): ShowLoginPage {
  return async (url, server) => {
    printLine(`To log in to ${server}, open this page:`);
    ownConsole.warn(sanitizeLine(url));
    if (noBrowser) return;
    const { openBrowser } = await import("../../auth/browser.ts");
    if (!(await openBrowser(url, desktop))) printLine("No browser could be opened here.");
  };
}
