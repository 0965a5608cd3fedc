import { readFile, stat } from "node:fs/promises";
import { errorOf, isDown } from "../../control/hub-reader.ts";
import { clientOfHub, findRunningHubs, type RunningHub } from "../../control/running-hubs.ts";
import { findSharingOffers } from "../../control/sharing.ts";
import type { AlertDocument, ServerDocument } from "../../control/schemas.ts";
import { loadManifest } from "../../manifest/load.ts";
import { SERVERS_VARIABLE } from "../../manifest/manifest.ts";
import { loadOptions } from "../../operations/load-manifest.ts";
import type { HostContext } from "../context.ts";
import { sharedHubLog } from "../daemon.ts";
import type { Finding } from "./findings.ts";
import { findingsOfFleet } from "./fleet.ts";
import { toSentence } from "./servers.ts";

/** Time that a hub may take to answer, in ms. */
const ANSWER_WAIT = 3000;

/** Asks all running hubs of this user what is wrong: failed servers, alerts, refused clients, a rejected manifest. */
export async function checkHubs(context: HostContext): Promise<readonly Finding[]> {
  const hubs = await findRunningHubs(context).catch(() => []);
  // A hub that does not answer may be ending.
  const [found, offers, unshared] = await Promise.all([
    Promise.all(hubs.map((hub) => checkHub(hub, context).catch((): readonly Finding[] => []))),
    findSharingOffers(hubs, context),
    findUnshared(hubs, context),
  ]);
  const offered = offers.map(({ manifest, figures, advice }): Finding => ({
    code: "TM605",
    subject: manifest.at(-1) ?? SERVERS_VARIABLE,
    text: `Several hubs serve one manifest: ${figures}.`,
    advice,
  }));
  return [...found.flat(), ...offered, ...unshared];
}

/** The log of a shared hub is written at most this time before a client that cannot attach opens its own hub, in ms. */
const START_LIMIT = 60_000;
/** Number of lines of that log that a finding has. */
const LOG_LINES = 5;
/** Maximum size of that log, in bytes: it is renamed at 1 MiB. */
const MAX_LOG = 4 * 1024 * 1024;

/**
 * The private hubs that run because the shared hub of their manifest could not be started: its log was written just
 * before.
 */
async function findUnshared(
  hubs: readonly RunningHub[],
  context: HostContext,
): Promise<readonly Finding[]> {
  const privates = hubs.filter(({ endpoints }) => endpoints.includes("stdio"));
  const found = await Promise.all(
    privates.map(async ({ pid, manifest, startedAt }): Promise<readonly Finding[]> => {
      const path = await sharedHubLog(manifest, context);
      const { mtimeMs, size } = await stat(path).catch(() => ({ mtimeMs: 0, size: 0 }));
      const isFresh = mtimeMs > startedAt - START_LIMIT && mtimeMs < startedAt + ANSWER_WAIT;
      if (!isFresh || size === 0 || size > MAX_LOG) return [];
      const loaded = await loadManifest(loadOptions({ config: manifest }, context));
      if (!loaded.ok || !loaded.manifest.hub.shared) return [];
      const lines = (await readFile(path, "utf8")).trimEnd().split("\n").slice(-LOG_LINES);
      const text =
        "This hub is private although the manifest is shared, because the shared hub could not be started.";
      const advice = `Its log is ${path}. To see why it fails: toolmux daemon start`;
      return [{ code: "TM605", subject: `toolmux ${pid}`, text, stderr: lines, advice }];
    }),
  );
  return found.flat();
}

async function checkHub(hub: RunningHub, context: HostContext): Promise<readonly Finding[]> {
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(ANSWER_WAIT)]);
  const ask = clientOfHub(hub, { signal });
  const [{ value: about }, { value: listed }, { value: raised }] = await Promise.all([
    ask("GET /hub"),
    ask("GET /servers"),
    ask("GET /alerts"),
  ]);
  // A hub of an earlier version has no fleet.
  const fleet = await ask("GET /fleet").then(
    ({ value }) => findingsOfFleet(`toolmux ${hub.pid}`, value),
    (): readonly Finding[] => [],
  );
  const own = findingsOfHub(hub.pid, about.rejected !== undefined, listed.servers, raised.alerts);
  return [...own, ...fleet];
}

/** Finds what is wrong with a running hub. @param isRejected whether it has rejected its manifest */
export function findingsOfHub(
  pid: number,
  isRejected: boolean,
  servers: readonly ServerDocument[],
  alerts: readonly AlertDocument[],
): readonly Finding[] {
  const place = `toolmux ${pid}`;
  const text = "This hub goes on with the manifest from before, because the new one has problems.";
  const rejected: readonly Finding[] = isRejected
    ? [{ code: "TM974", subject: place, text, advice: "To see them: toolmux check" }]
    : [];
  const failed = servers.filter(isDown);
  const names = new Set(failed.map(({ name }) => name));
  return [
    ...rejected,
    ...failed.map((server): Finding => {
      const [remedy] = server.remedies ?? [];
      const retry = `To try again: toolmux reconnect ${server.name}`;
      return {
        code: "TM971",
        subject: `${place}, ${server.name}`,
        text: toSentence(errorOf(server).message),
        advice: remedy === undefined ? retry : `${toSentence(remedy)} ${retry}`,
      };
    }),
    ...alerts.flatMap((alert): readonly Finding[] => {
      const { server, client, dismissed } = alert;
      // The content of a failed server's alerts is reported already.
      if (dismissed === true || (server !== undefined && names.has(server))) return [];
      const code = client === undefined ? "TM972" : "TM973";
      const subject = `${place}, ${server ?? `client ${client ?? ""}`}`;
      return [{ code, subject, text: alert.text.replaceAll("\n", " ") }];
    }),
  ];
}
