import process from "node:process";
import { buildCatalog, type Catalog, type CatalogSource } from "../../catalog/catalog.ts";
import type { Finding, Fix } from "./findings.ts";
import { InProcessClient } from "../../frontend/in-process-client.ts";
import type { Hub } from "../../hub/hub.ts";
import { nameRulesOf } from "../../hub/options.ts";
import { stateFolder } from "../../base/paths.ts";
import {
  type Manifest,
  type ExternalServer,
  type ServerSpec,
  isRunnable,
} from "../../manifest/schema.ts";
import { readCapabilities, withoutTasks, capabilityClassOf } from "../../protocol/capabilities.ts";
import type { SnapshotKey } from "../../snapshot/snapshots.ts";
import { type SnapshotSurvey, surveySnapshots } from "../../snapshot/survey.ts";
import { describeStrayOutput } from "../../upstream/stray-output.ts";
import { untilAborted } from "../../base/grace.ts";
import type { CommandContext } from "../command.ts";
import type { CommandLog } from "../load-manifest.ts";
import { openHub } from "../open-hub.ts";
import { openTransportFactory } from "../transport-factory.ts";
import { countNoun, describeStarting } from "../../terminal/terminal.ts";
import { hintsFor } from "../hints.ts";
import { describeFailure } from "../../terminal/report.ts";
import { serverStatesOf } from "../server-state.ts";
import { isResolvable, toSentence } from "./servers.ts";

/** As many servers are named in a finding. */
const MAX_TOOL_NAMES = 10;

/** What clients would see, and what there is to be said of how that is known. */
export interface VisibleListing {
  readonly catalog: Catalog | undefined;
  readonly findings: readonly Finding[];
  /** Takes out of a text what was filled in for servers that were started; absent: none was. */
  readonly redact?: (text: string) => string;
}

/** Looks at what servers listed last. @param now ms since the epoch */
export async function savedListing(
  manifest: Manifest | undefined,
  world: CommandContext,
  now: number,
): Promise<VisibleListing> {
  const survey = await surveySnapshots(stateFolder(world.env, world.platform), now);
  const findings = [...examineFiles(survey)];
  if (manifest === undefined) return { catalog: undefined, findings };
  const sources: CatalogSource[] = [];
  const unknown: string[] = [];
  for (const spec of manifest.servers) {
    if (!spec.enabled || !(spec.kind === "stdio" || spec.kind === "remote")) continue;
    const source = isResolvable(spec) ? await recall(spec, survey, world) : undefined;
    if (source !== undefined) sources.push(source);
    else unknown.push(spec.name);
  }
  if (unknown.length > 0) {
    const names = unknown.slice(0, MAX_TOOL_NAMES).join(", ");
    const more = unknown.length > MAX_TOOL_NAMES ? ` and ${unknown.length - MAX_TOOL_NAMES} more` : "";
    const text = `Nothing is known of what these list, so their tools were not looked at: ${names}${more}.`;
    const advice = "toolmux doctor --connect starts the servers and looks.";
    findings.push({ code: "TM803", subject: "snapshots", text, advice });
  }
  return { catalog: buildCatalog(sources, nameRulesOf(manifest.hub), digest), findings };
}

function examineFiles({ files }: SnapshotSurvey): readonly Finding[] {
  const group = (state: "old" | "broken"): readonly Fix[] =>
    files.filter((file) => file.state === state).map(({ path }) => ({ kind: "remove", path }));
  const [broken, old] = [group("broken"), group("old")];
  const advice = "toolmux doctor --fix removes them; servers list again when they are started.";
  const of = (fixes: readonly Fix[]): string => countNoun(fixes.length, "snapshot");
  return [
    ...(broken.length === 0
      ? []
      : [
          {
            code: "TM801",
            subject: "snapshots",
            text: `${of(broken)} cannot be read.`,
            advice,
            fixes: broken,
          } as const,
        ]),
    ...(old.length === 0
      ? []
      : [
          {
            code: "TM802",
            subject: "snapshots",
            text: `${of(old)} of more than 30 days ago, or of another version of toolmux.`,
            advice,
            fixes: old,
          } as const,
        ]),
  ];
}

async function recall(
  spec: ExternalServer,
  survey: SnapshotSurvey,
  world: CommandContext,
): Promise<CatalogSource | undefined> {
  const { identify } = openTransportFactory(world, () =>
    Promise.reject(new Error("Nobody logs in here.")),
  );
  const identity = await identify(spec, new Map());
  const kept = identity && (await survey.find(listSubjects(identity)));
  if (kept === undefined) return undefined;
  const { name: server, prefix, tools, prompts, skills, callTimeout, maxCallTimeout } = spec;
  return {
    server,
    listing: kept.offer,
    rules: { tools: { prefix, ...tools }, prompts: { prefix, ...prompts } },
    skills,
    limits: () => ({ timeout: callTimeout, maxTimeout: maxCallTimeout }),
  };
}

const MARK = {};
const ROOTS = [undefined, { listChanged: true }, MARK];
const SAMPLING = [
  undefined,
  MARK,
  { tools: MARK },
  { context: MARK, tools: MARK },
  { context: MARK },
];
const ELICITATION = [undefined, { form: MARK }, { form: MARK, url: MARK }, { url: MARK }];
const TASKS = [
  undefined,
  {
    list: MARK,
    cancel: MARK,
    requests: { sampling: { createMessage: MARK }, elicitation: { create: MARK } },
  },
];

/** Those that clients are known to declare. */
const EXTENSIONS = [[], ["io.modelcontextprotocol/ui"]];

/** Whatever kind of client it may have been started for. */
function* listSubjects(identity: Omit<SnapshotKey, "era" | "capabilities">): Iterable<SnapshotKey> {
  for (const tasks of TASKS) {
    for (const roots of ROOTS) {
      for (const sampling of SAMPLING) {
        for (const elicitation of ELICITATION) {
          const all = readCapabilities({ roots, sampling, elicitation, tasks });
          for (const names of EXTENSIONS) {
            yield { ...identity, era: "legacy", capabilities: capabilityClassOf(all, names) };
            const capabilities = capabilityClassOf(withoutTasks(all), names);
            yield { ...identity, era: "modern", capabilities };
          }
        }
      }
    }
  }
}

/** Starts every server and looks at what clients would see now. @throws {HubError} manifestInvalid if a plugin cannot be set up */
export async function readListing(
  whole: Manifest,
  world: CommandContext,
  log: CommandLog,
): Promise<VisibleListing> {
  const { hub, manifest, redact, close } = await openHub(whole, world, log, {
    authorizes: false,
    choose: (all) => ({ ...all, servers: all.servers.map(askOnce) }),
  });
  try {
    await InProcessClient.connect(hub, world.signal);
    await untilAborted(hub.settled(), world.signal);
    const findings = serverStatesOf(manifest, hub).flatMap((standing): readonly Finding[] => {
      const spec = manifest.servers.find(({ name }) => name === standing.server);
      if (standing.at === "starting") {
        const text = `It is ${describeStarting(standing.elapsed)}.`;
        const advice = "Look again later: its first start may have to download what it needs.";
        return [{ code: "TM961", subject: standing.server, text, advice }];
      }
      if (standing.at !== "failed" || spec === undefined || !isRunnable(spec)) return [];
      const { cause } = standing;
      const text = toSentence(describeFailure(cause));
      if (cause.code === "unauthorized" || isWaiting(hub, spec.name)) {
        const wish = cause.code === "unauthorized" ? text : "It wants somebody to log in.";
        const login = `toolmux auth login ${spec.name}`;
        return [{ code: "TM401", subject: spec.name, text: wish, advice: login }];
      }
      const [advice = "toolmux status says more."] = hintsFor(cause, spec, world.env);
      return [{ code: "TM961", subject: spec.name, text, advice }];
    });
    return { catalog: hub.catalog, findings: [...findings, ...examineOutput(hub)], redact };
  } finally {
    await close();
  }
}

/** Looks at what servers wrote to stdout beside messages. */
function examineOutput(hub: Hub): readonly Finding[] {
  return hub.status().flatMap(({ server: subject, connections }): readonly Finding[] => {
    const stray = connections.find(({ strayOutput }) => strayOutput !== undefined)?.strayOutput;
    if (stray === undefined) return [];
    const text = `It ${describeStrayOutput(stray)}`;
    const advice =
      "Look for a setting of the server that sends its logging to stderr or turns it off.";
    return [{ code: "TM964", subject, text, advice }];
  });
}

/** An authorization is not waited for by those who only look. */
function isWaiting(hub: Hub, server: string): boolean {
  const connections = hub.status().find((it) => it.server === server)?.connections ?? [];
  return connections.some(({ state }) => state === "authenticating");
}

/** Each is tried once. */
function askOnce(spec: ServerSpec): ServerSpec {
  if (!isRunnable(spec)) return spec;
  return { ...spec, lazy: false, idleStop: 0, reconnect: { ...spec.reconnect, policy: "none" } };
}

/** Needed only for names that have to be shortened. */
function digest(text: string): Uint8Array {
  return process.getBuiltinModule("node:crypto").createHash("sha256").update(text).digest();
}
