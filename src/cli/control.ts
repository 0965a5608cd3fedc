import process from "node:process";
import { HubError } from "../base/errors.ts";
import { VERSION } from "../base/version.ts";
import type { ControlledHub, ManifestEdit } from "../control/api.ts";
import type { HubIdentity } from "../control/documents.ts";
import { EventRing } from "../control/event-ring.ts";
import { openHubSocket } from "../control/hub-socket.ts";
import type { Hub } from "../hub/hub.ts";
import type { ManifestChange } from "../manifest/edit/edit.ts";
import { isRunnable, type Manifest, type RunnableServer } from "../manifest/manifest.ts";
import { formatProblem } from "../manifest/problems.ts";
import type { CommandContext, Invocation } from "./command.ts";
import { manifestIdentity } from "./hub-loop.ts";
import { type CommandLog, loadOptions } from "./load-manifest.ts";

export interface ControlOptions {
  readonly hub: Hub;
  readonly manifest: Manifest;
  readonly invocation: Invocation;
  readonly context: CommandContext;
  readonly log: CommandLog;
  /** In ms since the epoch. */
  readonly startedAt: number;
  readonly redact: (text: string) => string;
  /** `stdio`, and the URL of the HTTP server. */
  readonly endpoints: () => readonly string[];
  /** Reads the manifest again. Settles when that is done. */
  readonly reload: () => Promise<void>;
  /** Ends the hub. */
  readonly stop: () => void;
}

/** Serves the control API of a running hub on its socket. Never rejects: a hub without a socket serves all the same. */
export async function openControl(options: ControlOptions): Promise<() => Promise<void>> {
  const { hub, context, log, redact } = options;
  const { env, platform } = context;
  const events = new EventRing(hub, redact);
  const manifestId = await manifestIdentity(options.manifest, env);
  let app: Promise<{ fetch(request: Request): Response | Promise<Response> }> | undefined;
  const load = async () => {
    const { makeControlApi } = await import("../control/api.ts");
    return makeControlApi(await controlledHub(options, events));
  };
  try {
    const socket = await openHubSocket({
      env,
      platform,
      file: () => ({ ...identityOf(options), manifestId }),
      // The API is loaded with the first request: most hubs get none.
      fetch: async (request) => (await (app ??= load())).fetch(request),
      warn: (text) => log("warn", redact(text)),
    });
    return async () => {
      events.close();
      await socket.close();
    };
  } catch (error) {
    events.close();
    const reason = error instanceof Error ? error.message : String(error);
    log("warn", `toolmux ps, status and logs will not find this hub: ${reason}`);
    return () => Promise.resolve();
  }
}

function identityOf({ manifest, context, startedAt, endpoints }: ControlOptions): HubIdentity {
  return {
    pid: process.pid,
    version: VERSION,
    name: manifest.hub.name,
    startedAt,
    cwd: context.cwd,
    manifest: [...manifest.sources],
    endpoints: [...endpoints()],
  };
}

async function controlledHub(options: ControlOptions, events: EventRing): Promise<ControlledHub> {
  const { hub, invocation, context, redact, reload, stop } = options;
  const { describeServer } = await import("./server-description.ts");
  return {
    hub,
    events,
    redact,
    identity: () => identityOf(options),
    describe: describeServer,
    readServer: (name, entry) => readServer(name, entry, options),
    async edit(change) {
      const { editManifestFile, manifestToEdit } = await import("./manifest-file.ts");
      const file = await manifestToEdit(invocation.config.at(-1), context);
      await editManifestFile(file, manifestChangeOf(change), context);
    },
    async reload() {
      let problems: string | undefined;
      const unsubscribe = hub.subscribe(
        (event) => {
          if (event.kind === "manifest" && event.outcome === "refused") ({ problems } = event);
        },
        ["manifest"],
      );
      await reload();
      unsubscribe();
      if (problems !== undefined) throw new HubError("manifestInvalid", problems);
    },
    stop,
  };
}

function manifestChangeOf(change: ManifestEdit): ManifestChange {
  if (change.kind !== "enable") return change;
  const { name, enabled } = change;
  return { kind: "set", name, key: "enabled", value: enabled };
}

/**
 * Reads an entry for a server as if the manifest had it, with the manifest's defaults and rules.
 * @throws {HubError} manifestInvalid; usage if the manifest has a server of that name
 */
async function readServer(
  name: string,
  entry: Readonly<Record<string, unknown>>,
  { hub, invocation, context }: ControlOptions,
): Promise<RunnableServer> {
  const { loadManifest } = await import("../manifest/load.ts");
  const loading = loadOptions(invocation, context);
  const present = await loadManifest(loading);
  if (present.ok && present.manifest.servers.some((spec) => spec.name === name)) {
    const text = `The manifest has a server "${name}": change it there, or use another name.`;
    throw new HubError("usage", text);
  }
  const variable = JSON.stringify({ servers: { [name]: entry } });
  const loaded = await loadManifest({
    ...loading,
    env: { ...context.env, TOOLMUX_SERVERS: variable },
    runningPrefixes: () => hub.prefixes,
  });
  const own = loaded.problems.filter(({ file }) => file === "TOOLMUX_SERVERS");
  const spec = loaded.ok ? loaded.manifest.servers.find((one) => one.name === name) : undefined;
  if (own.length === 0 && spec !== undefined && isRunnable(spec)) return spec;
  const problems = own.length > 0 ? own : loaded.problems;
  const text = problems.map(formatProblem).join("\n");
  throw new HubError("manifestInvalid", text || `Server "${name}" cannot be used.`);
}
