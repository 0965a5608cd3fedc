import { isFailing } from "../../control/state-text.ts";
import { countServers } from "../../upstream/verdict.ts";
import type { AlertDocument, ServerDocument } from "./documents.ts";
import { count, statusText, type Tone } from "./format.ts";

/** A server or client that needs a person, and why. */
export interface Trouble {
  readonly key: string;
  /** The name of the server; undefined if the trouble is about a client or the hub. */
  readonly server: string | undefined;
  readonly title: string;
  readonly tone: Tone;
  readonly reason: string;
  /** What helps, in a sentence; undefined if nothing is known. */
  readonly remedy: string | undefined;
  /** What a person can do about it here. */
  readonly cure: "retry" | "login" | "edit" | "secret" | "manifest" | undefined;
  /** The alert that a person can dismiss. */
  readonly alert: string | undefined;
}

/** The health of a hub: one sentence, and the reasons for it. */
export interface Health {
  readonly tone: Tone;
  readonly sentence: string;
  /** The servers that nothing is wrong with, but that do not run; empty if there are none. */
  readonly note: string;
  readonly troubles: readonly Trouble[];
}

/**
 * The health of a hub.
 * @param alerts those that nobody has dismissed. An alert about a server that is in trouble is not told twice
 * @param now in ms since the epoch
 * @param rejected the problems of the manifest, if the hub goes on with the one before
 */
export function healthOf(
  servers: readonly ServerDocument[],
  alerts: readonly AlertDocument[],
  now: number,
  rejected?: string,
): Health {
  const ofServers = servers.flatMap((server) => troubleOf(server, now));
  const told = new Set(ofServers.map(({ server }) => server));
  const ofAlerts = alerts
    .filter(({ server }) => server === undefined || !told.has(server))
    .toReversed()
    .map(troubleOfAlert);
  const ofManifest = rejected === undefined ? [] : [troubleOfManifest(rejected)];
  const troubles = [...ofManifest, ...ofServers, ...ofAlerts];
  const { resting, stopped, disabled, total } = countServers(servers);
  const wanted = total - stopped - disabled;
  const broken = ofServers.length;
  const isStarting = ({ state }: ServerDocument): boolean =>
    state === "connecting" || state === "stopping" || state === "notStarted";
  const starting = servers.filter(
    (server) => server.goal !== "down" && isStarting(server) && !told.has(server.name),
  ).length;
  const notes = [
    ...(starting > 0
      ? [`${count(starting, "server")} ${starting === 1 ? "is" : "are"} starting`]
      : []),
    ...(resting > 0
      ? [`${resting} ${resting === 1 ? "starts when it is" : "start when they are"} called`]
      : []),
    ...(stopped + disabled > 0 ? [`${stopped + disabled} switched off`] : []),
  ];
  const note = notes.length === 0 ? "" : `${capital(notes.join(", "))}.`;
  const health = (tone: Tone, sentence: string): Health => {
    if (rejected === undefined) return { tone, sentence, note, troubles };
    const joined = `${sentence.slice(0, -1)}${broken > 0 ? ", and" : ", but"} the changed manifest has errors.`;
    return { tone: "bad", sentence: joined, note, troubles };
  };
  if (total === 0) return health("quiet", "This hub has no servers yet.");
  if (wanted === 0) return health("quiet", "All servers are switched off.");
  if (broken > 0) {
    const isBad = ofServers.some(({ tone }) => tone === "bad");
    const which =
      broken < wanted
        ? `${broken} of ${wanted} servers ${broken === 1 ? "does" : "do"} not work.`
        : wanted === 1
          ? "The only server does not work."
          : `None of the ${wanted} servers works.`;
    return health(isBad ? "bad" : "busy", which);
  }
  const tone = starting > 0 || ofAlerts.length > 0 ? "busy" : "good";
  if (starting > 0)
    return health(tone, `${wanted - starting} of ${count(wanted, "server")} ready.`);
  return health(tone, wanted === 1 ? "The server works." : `All ${wanted} servers work.`);
}

function troubleOf(server: ServerDocument, now: number): readonly Trouble[] {
  const { name, title, state, lastError, failing, remedies = [], responsive } = server;
  const isUnresponsive = state === "connected" && responsive === false;
  const isInTrouble =
    state === "failed" ||
    state === "reconnecting" ||
    state === "authenticating" ||
    isUnresponsive ||
    // Between two attempts, too: the trouble stays where it is until one succeeds.
    (failing !== undefined && (state === "connecting" || state === "stopping"));
  if (!isInTrouble) return [];
  const needsLogin = state === "authenticating" || lastError?.code === "unauthorized";
  const code = lastError?.code;
  return [
    {
      key: `server ${name}`,
      server: name,
      title: title ?? name,
      tone: state === "failed" || isFailing(server) ? "bad" : "busy",
      reason: statusText(server, now),
      remedy: remedies[0],
      cure: needsLogin
        ? "login"
        : code === "valueMissing"
          ? "secret"
          : code === "serverInvalid"
            ? "edit"
            : "retry",
      alert: undefined,
    },
  ];
}

function troubleOfManifest(problems: string): Trouble {
  return {
    key: "manifest",
    server: undefined,
    title: "Manifest",
    tone: "bad",
    reason: problems,
    remedy: "Correct the file. Until then, the hub goes on with the manifest before the change.",
    cure: "manifest",
    alert: undefined,
  };
}

function troubleOfAlert({ id, server, client, kind, text }: AlertDocument): Trouble {
  const isLogin = kind === "authRequired" || kind === "authExpired";
  const isConnection = kind === "connectionFailed" || kind === "disconnected";
  return {
    key: `alert ${id}`,
    server,
    title: server ?? (client === undefined ? "Hub" : `Client ${client}`),
    tone: "busy",
    reason: text,
    remedy: undefined,
    cure: server === undefined ? undefined : isLogin ? "login" : isConnection ? "retry" : undefined,
    alert: id,
  };
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
