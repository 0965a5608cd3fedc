import type { RemoteServer } from "../../manifest/schema.ts";
import type { ResolvedRemote } from "../../manifest/secrets.ts";
import type { Challenge } from "../../wire/http/credentials.ts";
import { openOwnAuthorizer, type ShowPage } from "../authorizer.ts";
import { own } from "../console.ts";
import type { Invocation, World } from "../command.ts";
import { type Log, openLog, openManifest } from "../open.ts";
import { usage } from "../parse.ts";
import { formatJson } from "../print.ts";
import { clean, printLine } from "../report.ts";
import { describeStanding, standingToJson } from "./standing.ts";
import { fillIn, pickRemotes } from "./subject.ts";

/** Has the person at this terminal log in to a server, whatever there is for it. */
export async function login(invocation: Invocation, world: World, name: string): Promise<number> {
  const { json, scope, noBrowser } = invocation;
  const log = openLog(invocation);
  const { spec, resolved } = await findSubject(invocation, world, name, log);
  const challenge = await knock(spec, resolved, world);
  if (challenge === undefined) {
    throw usage(
      `Server "${name}" lets in whoever comes. To log in all the same, write auth = "oauth" in its table.`,
    );
  }
  const authorizer = await openOwnAuthorizer(world, askHere(world, noBrowser));
  const proceeding = { signal: world.signal, progressed: () => {} };
  const scopes = scope?.split(/[\s,]+/).filter((it) => it !== "");
  await authorizer.login(spec, resolved, challenge, proceeding, scopes);
  const standing = await authorizer.stand(spec, resolved);
  if (json !== false) own.log(formatJson(standingToJson(spec, standing)));
  else
    own.log(`logged in to ${clean(name)}: ${clean(describeStanding(spec, standing, Date.now()))}`);
  return 0;
}

/** Forgets what lets the hub into a server, here and where it came from. */
export async function logout(invocation: Invocation, world: World, name: string): Promise<number> {
  const log = openLog(invocation);
  const { spec, resolved } = await findSubject(invocation, world, name, log);
  const authorizer = await openOwnAuthorizer(world, () => Promise.resolve());
  const { was, isRevoked } = await authorizer.logout(spec, resolved, world.signal);
  if (invocation.json !== false) {
    own.log(formatJson({ server: name, loggedOut: was, revoked: isRevoked }));
    return 0;
  }
  if (!was) own.log(`nobody is logged in to ${clean(name)}`);
  else if (isRevoked) own.log(`logged out of ${clean(name)}`);
  else {
    const rest = "its authorization server was not told, and may take the token until it expires";
    own.log(`logged out of ${clean(name)} on this machine; ${rest}`);
  }
  return 0;
}

interface Subject {
  readonly spec: RemoteServer;
  readonly resolved: ResolvedRemote;
}

async function findSubject(
  invocation: Invocation,
  world: World,
  name: string,
  log: Log,
): Promise<Subject> {
  const manifest = await openManifest(invocation, world, log);
  const [spec] = pickRemotes(manifest, [name]);
  if (spec === undefined) throw usage(`There is no server "${name}" in the manifest.`);
  return { spec, resolved: await fillIn(spec, world) };
}

/** What a server is asked first, and what it is asked if it knows nothing of that, as those of old do not. */
const KNOCKS = [
  {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/list",
      params: {},
    }),
  },
  { method: "GET", headers: { accept: "text/event-stream" } },
] as const;

/** Asks a server for something without a token. @returns undefined if it answers */
async function knock(
  { auth }: RemoteServer,
  { url, headers, ca }: ResolvedRemote,
  { env, signal }: World,
): Promise<Challenge | undefined> {
  const { dialer } = await import("../../wire/http/dialer.ts");
  const dial = dialer({ ca, env });
  for (const request of KNOCKS) {
    const response = await dial(url, {
      ...request,
      headers: { ...headers, ...request.headers },
      signal,
    });
    const { status } = response;
    await response.body?.cancel();
    const header = response.headers.get("www-authenticate") ?? undefined;
    if (status === 401 || (status === 403 && header !== undefined)) return { status: 401, header };
  }
  return auth === "oauth" ? { status: 401, header: undefined } : undefined;
}

/** On stderr, as stdout is for what comes of it. */
function askHere(desktop: World, noBrowser: boolean): ShowPage {
  return async (url, server) => {
    printLine(`To log in to ${server}, open this page:`);
    own.warn(clean(url));
    if (noBrowser) return;
    const { openBrowser } = await import("../../auth/browser.ts");
    if (!(await openBrowser(url, desktop))) printLine("No browser could be opened here.");
  };
}
