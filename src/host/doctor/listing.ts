import { count } from "../../base/format.ts";
import { textOf } from "../../base/bytes.ts";
import { abortable } from "../../base/clock.ts";
import type { EventBus } from "../../base/hub-events.ts";
import { stateFolder } from "../../base/paths.ts";
import type { ExposureNote } from "../../catalog/exposure.ts";
import type { Catalog } from "../../catalog/catalog.ts";
import { compileFilter, idlePartsOf } from "../../catalog/filter.ts";
import { isIdleRule } from "../../catalog/idle-rules.ts";
import type { Hub } from "../../hub/hub.ts";
import { estimateTokens } from "../../catalog/search/signature.ts";
import {
  type HubSettings,
  isRunnable,
  type Manifest,
  type ServerSpec,
} from "../../manifest/manifest.ts";
import type { ModeSpec } from "../../manifest/modes.ts";
import type { NamedClient } from "../../manifest/named-clients.ts";
import { isTable } from "../../manifest/table.ts";
import { type SnapshotIndex, readSnapshotIndex } from "../../snapshot/disk.ts";
import { formatStartingTime } from "../../terminal/terminal.ts";
import { describeStrayOutput } from "../../upstream/stray-output.ts";
import { availabilityOf, errorOf } from "../../control/hub-reader.ts";
import type { HostContext } from "../context.ts";
import { hintsFor } from "../../operations/hints.ts";
import type { CommandLog } from "../../operations/load-manifest.ts";
import { type ScannedListing, scanListings } from "../../operations/scan.ts";
import { reviewSavedListings } from "../../operations/pins.ts";
import { describeWithheld, type UnacceptedDefinitions } from "../../pins/level.ts";
import { describePlace } from "../../scan/checks.ts";
import { openHub } from "../open-hub.ts";
import { readOpenedHub } from "../opened-hub-reader.ts";
import { readSavedCatalog } from "../../operations/saved-catalog.ts";
import { FINDING_CODES, type FindingCode, type Finding, type Fix } from "./findings.ts";
import { isResolvable, toSentence } from "./servers.ts";
import { lintTool } from "./tool-schema.ts";

/** Maximum number of servers named in a finding. */
const MAX_SERVER_NAMES = 10;

/**
 * The catalog that clients see (undefined without a manifest), and the findings that were made while obtaining it.
 */
export interface VisibleListing {
  readonly catalog: Catalog | undefined;
  readonly findings: readonly Finding[];
  /** What the scan has found in the definitions of servers. */
  readonly scanned: readonly ScannedListing[];
  /** What is not accepted of each server. */
  readonly pins: readonly UnacceptedDefinitions[];
  /** Removes the resolved secrets of started servers from a text; absent if no server was started. */
  readonly redact?: (text: string) => string;
}

/**
 * Builds the catalog from snapshots, which contain what servers listed in earlier runs.
 * @param now ms since the epoch
 */
export async function savedListing(
  manifest: Manifest | undefined,
  context: HostContext,
  now: number,
): Promise<VisibleListing> {
  const index = await readSnapshotIndex(stateFolder(context.env, context.platform), now);
  const findings = [...checkSnapshotFiles(index)];
  if (manifest === undefined) return { catalog: undefined, findings, scanned: [], pins: [] };
  const saved = await readSavedCatalog(manifest, context, index, isResolvable);
  const { catalog, listings, unknown } = saved;
  if (unknown.length > 0) {
    const names = unknown.slice(0, MAX_SERVER_NAMES).join(", ");
    const more =
      unknown.length > MAX_SERVER_NAMES ? ` and ${unknown.length - MAX_SERVER_NAMES} more` : "";
    const text = `The tools of these servers are not known yet, so they were not checked: ${names}${more}.`;
    const advice = "To start the servers and check their tools: toolmux doctor --connect";
    findings.push({ code: "TM803", subject: "snapshots", text, advice });
  }
  const pins = await reviewSavedListings(saved, manifest, context);
  return { catalog, findings, scanned: scanListings(listings, manifest), pins };
}

function checkSnapshotFiles({ files }: SnapshotIndex): readonly Finding[] {
  const group = (state: "old" | "broken"): readonly Fix[] =>
    files.filter((file) => file.state === state).map(({ path }) => ({ kind: "remove", path }));
  const [broken, old] = [group("broken"), group("old")];
  const advice =
    "To remove them: toolmux doctor --fix. The next start of a server writes a new one.";
  const of = (fixes: readonly Fix[]): string => count(fixes.length, "snapshot");
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
            text: `${of(old)} older than 30 days, or from another version of toolmux.`,
            advice,
            fixes: old,
          } as const,
        ]),
  ];
}

/** Shows the progress of starting servers. @returns a function that ends that */
export type ShowStarts = (manifest: Manifest, bus: EventBus) => () => void;

/**
 * Starts every server and builds the catalog that clients would see now.
 * @throws {HubError} manifestInvalid if a plugin cannot be set up
 */
export async function connectAndList(
  loaded: Manifest,
  context: HostContext,
  log: CommandLog,
  showStarts: ShowStarts | undefined,
): Promise<VisibleListing> {
  const opened = await openHub(loaded, context, log, {
    authorizes: false,
    choose: (all) => ({ ...all, servers: all.servers.map(withoutRetries) }),
  });
  const { hub, bus, manifest, redact, close } = opened;
  const endProgress = showStarts?.(manifest, bus);
  try {
    const reader = readOpenedHub(opened, context);
    await reader.client();
    await abortable(hub.settled(), context.signal);
    await abortable(hub.diagnosed(), context.signal);
    endProgress?.();
    const findings = (await reader.servers()).flatMap((server): readonly Finding[] => {
      const spec = manifest.servers.find(({ name }) => name === server.name);
      const availability = availabilityOf(server);
      if (availability === "starting") {
        const text = `It is ${formatStartingTime(server.late ?? 0)}.`;
        const advice = "Try again later: the first start may have to download packages.";
        return [{ code: "TM961", subject: server.name, text, advice }];
      }
      if (availability !== "failed" || spec === undefined || !isRunnable(spec)) return [];
      const cause = errorOf(server);
      const text = toSentence(cause.message);
      if (cause.code === "unauthorized" || isAuthenticating(hub, spec.name)) {
        const loginText = cause.code === "unauthorized" ? text : "It needs a login.";
        const login = `Log in: toolmux auth login ${spec.name}`;
        return [{ code: "TM401", subject: spec.name, text: loginText, advice: login }];
      }
      const { remedies = hintsFor(cause, spec, context.env) } = server;
      const [advice = "Details: toolmux status"] = remedies;
      return [{ code: "TM961", subject: spec.name, text, stderr: cause.stderr, advice }];
    });
    return {
      catalog: hub.catalog,
      scanned: await reader.findings(),
      pins: await reader.pins(),
      findings: [...findings, ...checkStrayOutput(hub), ...checkCapabilities(hub)],
      redact,
    };
  } finally {
    endProgress?.();
    await close();
  }
}

/** Finds servers that print text to stdout that is not an MCP message. */
function checkStrayOutput(hub: Hub): readonly Finding[] {
  return hub.status().flatMap(({ server: subject, connections }): readonly Finding[] => {
    const strayOutput = connections.find(
      (connection) => connection.strayOutput !== undefined,
    )?.strayOutput;
    if (strayOutput === undefined) return [];
    const text = `It ${describeStrayOutput(strayOutput)}`;
    const advice = "Change the server's settings so that it logs to stderr, or not at all.";
    return [{ code: "TM964", subject, text, advice }];
  });
}

/** Finds servers that declare their capabilities in another form, or have tools without declaring them. */
function checkCapabilities(hub: Hub): readonly Finding[] {
  return hub.status().flatMap(({ server: subject, connections }): readonly Finding[] => {
    const faults = connections.flatMap(({ capabilityFaults = [] }) => capabilityFaults);
    if (faults.length === 0) return [];
    const text = [...new Set(faults)].map((fault) => `It ${fault}.`).join(" ");
    const advice = "Look for a newer version of the server, or report this to its author.";
    return [{ code: "TM965", subject, text, advice }];
  });
}

/** Whether a server waits for the user to log in. The doctor does not wait for that. */
function isAuthenticating(hub: Hub, server: string): boolean {
  const connections = hub.status().find((it) => it.server === server)?.connections ?? [];
  return connections.some(({ state }) => state === "authenticating");
}

/** A copy of a server's specification that makes the hub start it at once, only once, and keep it running. */
function withoutRetries(spec: ServerSpec): ServerSpec {
  if (!isRunnable(spec)) return spec;
  return { ...spec, lazy: false, idleStop: 0, reconnect: { ...spec.reconnect, policy: "none" } };
}

/**
 * Maximum number of tools that clients accept, according to their makers or users; further tools are dropped or
 * rejected, or cause a warning.
 */
const CLIENT_TOOL_LIMITS: readonly { readonly client: string; readonly max: number }[] = [
  { client: "Cursor", max: 80 },
  { client: "Windsurf", max: 100 },
  { client: "Antigravity", max: 100 },
  { client: "VS Code", max: 128 },
  { client: "OpenAI's API", max: 128 },
];

/** Maximum number of tools named in a finding. */
const MAX_NAMES_IN_FINDING = 5;

/** Checks the catalog as the clients of a manifest see it. */
export function checkListing(
  catalog: Catalog,
  {
    modes = [],
    clients = [],
    hub,
    plugins,
  }: Pick<Manifest, "modes" | "clients" | "hub" | "plugins">,
): readonly Finding[] {
  const isRepaired = plugins.some(({ use }) => use === "schema-repair");
  const tokens = estimateTokens(catalog.tools.byteLength);
  const isLong = hub.expose === "direct" || (hub.expose === "auto" && tokens <= hub.exposeBudget);
  return [
    ...modes.flatMap((mode) => checkMode(mode, catalog)),
    ...checkExposureNotes(catalog.notes),
    ...(isRepaired ? [] : checkToolSchemas(catalog)),
    ...(isLong ? checkToolCount(catalog.tools.size) : []),
    ...checkListSize(catalog, hub, clients),
    ...checkSelect(hub, clients),
  ];
}

/** Maximum number of suspicious texts named in a finding. */
const MAX_TEXTS = 5;

/** Tells what the scan has found in the definitions of servers. */
export function checkScannedListings(scanned: readonly ScannedListing[]): readonly Finding[] {
  return scanned.flatMap(({ server, findings }) =>
    ([true, false] as const).flatMap((isHard): readonly Finding[] => {
      const found = findings.filter(({ hard }) => hard === isHard);
      if (found.length === 0) return [];
      const named = found
        .slice(0, MAX_TEXTS)
        .map((each) => `${describePlace(each)}: ${each.check}: ${each.excerpt}`);
      const rest = found.length - named.length;
      const more = rest > 0 ? ` … and ${rest} more.` : "";
      const kind = isHard
        ? "text that no harmless server is known to have"
        : "text that may be meant to mislead a model";
      return [
        {
          code: isHard ? "TM931" : "TM932",
          subject: server,
          text: `Its definitions have ${kind}. ${named.join(" | ")}${more}`,
          advice: `Look at it: toolmux scan ${server}. If it is harmless, name the check in scanIgnore of the server.`,
        },
      ];
    }),
  );
}

/** Tells what clients do not see because a person has not accepted it. */
export function checkPins(pins: readonly UnacceptedDefinitions[]): readonly Finding[] {
  return pins.flatMap((each): readonly Finding[] => {
    const withheld = describeWithheld(each);
    return withheld === undefined ? [] : [{ code: "TM933", subject: each.server, ...withheld }];
  });
}

/** Finds clients that get all tools in a list that is above the budget. */
function checkListSize(
  { tools }: Catalog,
  { expose, exposeBudget }: HubSettings,
  clients: readonly NamedClient[],
): readonly Finding[] {
  const finding = (subject: string, who: string, tokens: number, where: string): Finding => ({
    code: "TM922",
    subject,
    text: `${who} a list of tools of about ${tokens} tokens, which is more than exposeBudget (${exposeBudget}).`,
    advice: `To let models search for tools instead, add to ${where}: expose = "auto"`,
  });
  const all = estimateTokens(tools.byteLength);
  const ofNamed = clients.flatMap((client): readonly Finding[] => {
    if (client.kind === "invalid" || client.expose !== "direct") return [];
    const { name, servers } = client;
    const own = tools.filter(({ server }) => servers?.includes(server) ?? true);
    const tokens = estimateTokens(own.byteLength);
    if (tokens <= exposeBudget) return [];
    return [finding(`client ${name}`, "It gets", tokens, "its table in [[clients]]")];
  });
  return expose === "direct" && all > exposeBudget
    ? [finding("tools", "Clients get", all, "[hub]"), ...ofNamed]
    : ofNamed;
}

/** Finds settings that clients of protocol 2026-07-28, which have no session, do not get as they are. */
function checkSelect({ expose }: HubSettings, clients: readonly NamedClient[]): readonly Finding[] {
  const named = clients.flatMap((client) =>
    client.kind === "client" && client.expose === "select" ? [`client ${client.name}`] : [],
  );
  const subjects = expose === "select" ? ["hub.expose", ...named] : named;
  return subjects.map((subject) => ({
    code: "TM923",
    subject,
    text: 'Clients of protocol 2026-07-28 have no session that could keep selected tools: for them, "select" is "search".',
  }));
}

/** Finds a mode without tools, and parts of its filter that match nothing. */
function checkMode({ name, tools, problems }: ModeSpec, catalog: Catalog): readonly Finding[] {
  if (problems.length > 0) return [];
  const { entries } = catalog.tools;
  const idle = idlePartsOf(tools, entries);
  const advice = `Correct the filter of modes.${name}; to see what the mode shows: toolmux list --mode ${name}`;
  const finding = { code: "TM909", subject: `mode ${name}`, advice } as const;
  const parts = idle.slice(0, MAX_NAMES_IN_FINDING).map((part) => `tools.${part}`);
  const rest = idle.length - parts.length;
  const more = rest > 0 ? ` and ${rest} more` : "";
  const text = `These parts of its filter match no tool that is known: ${parts.join(", ")}${more}.`;
  return [
    ...(entries.some(compileFilter(tools))
      ? []
      : [{ ...finding, text: "It shows no tool that is known." }]),
    ...(parts.length === 0 ? [] : [{ ...finding, text }]),
  ];
}

const NOTE_CODES: Readonly<Partial<Record<ExposureNote["kind"], FindingCode>>> = {
  shortened: "TM901",
  clash: "TM902",
  duplicate: "TM903",
  conformed: "TM904",
  unreadable: "TM905",
  idleFilter: "TM908",
  idleOverride: "TM906",
  conflict: "TM907",
};

const ADVICE: Readonly<Partial<Record<FindingCode, string>>> = {
  TM901: "Set a shorter prefix for the server, or rename the tools (tools.rename).",
  TM902: "Set a prefix for one of the servers, or rename one of the tools (tools.rename).",
  TM906:
    "Correct the name in the manifest, or remove it. It is the server's own name of the tool or prompt.",
  TM908:
    "Correct the pattern in the manifest, or remove it. Patterns match the server's own names.",
  TM907: "Clients see the values from the manifest; remove them there if the server is right.",
  TM903: "Look for a newer version of the server: only the first of these tools can be called.",
  TM904: "Look for a newer version of the server; toolmux list --all shows the changes.",
  TM905: "Look for a newer version of the server; toolmux list --all shows why.",
};

/**
 * Kinds of the catalog's notes (why an entry is hidden, renamed or changed) that are reported for all kinds of entries.
 * Notes of other kinds are reported only for tools and prompts.
 */
const NOTES_OF_ALL_LISTS: ReadonlySet<ExposureNote["kind"]> = new Set([
  "conformed",
  "unreadable",
  "idleFilter",
]);

function checkExposureNotes(notes: readonly ExposureNote[]): readonly Finding[] {
  const named = notes.filter(
    ({ list, kind }) => list === "tools" || list === "prompts" || NOTES_OF_ALL_LISTS.has(kind),
  );
  return groupFindings(
    named.flatMap((note) => {
      const { kind, server, remoteName } = note;
      const text = isIdleRule(note) ? note.text : undefined;
      const code = NOTE_CODES[kind];
      return code === undefined ? [] : [{ server, code, tool: remoteName, text }];
    }),
    (code) => ADVICE[code],
  );
}

const REPAIR_ADVICE = 'add a table [[plugins]] with use = "schema-repair" to the manifest.';

function checkToolSchemas({ tools }: Catalog): readonly Finding[] {
  const found = tools.routes.flatMap(({ server, remoteName, item }) => {
    const tool = parseJson(item.original ?? item.bytes);
    const flaws = isTable(tool) ? [...lintTool(tool)] : [];
    return flaws.map((code) => ({ server, code, tool: remoteName }));
  });
  const older = found.filter(({ code }) => code === "TM911");
  const others = found.filter(({ code }) => code !== "TM911");
  return [
    ...describeOlderDrafts(older),
    ...groupFindings(others, (code) =>
      code === "TM917"
        ? "Hide the tool (tools.deny), or look for a newer version of the server."
        : `To correct it, ${REPAIR_ADVICE}`,
    ),
  ];
}

/**
 * Makes one finding about schemas of older drafts for all servers together, because most servers have such schemas
 * and most clients accept them.
 */
function describeOlderDrafts(found: readonly ToolFinding[]): readonly Finding[] {
  if (found.length === 0) return [];
  const servers = [...new Set(found.map(({ server }) => server))].join(", ");
  const text = `${count(found.length, "tool")} of ${servers} have schemas with keywords of older JSON Schema drafts. Most clients accept them.`;
  const advice = `If a client refuses them: ${REPAIR_ADVICE}`;
  return [{ code: "TM911", subject: "tools", text, advice }];
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(textOf(bytes, 0, bytes.length));
  } catch {
    return undefined;
  }
}

function checkToolCount(tools: number): readonly Finding[] {
  const exceeded = CLIENT_TOOL_LIMITS.filter(({ max }) => tools > max);
  if (exceeded.length === 0) return [];
  const list = exceeded.map(({ client, max }) => `${client} (${max})`).join(", ");
  const text = `Clients see ${tools} tools, which is more than these accept: ${list}.`;
  const advice =
    "Show fewer tools (tools.allow, tools.deny), or connect such a client to some of the servers over HTTP: /mcp?servers=a,b";
  return [{ code: "TM921", subject: "tools", text, advice }];
}

interface ToolFinding {
  readonly server: string;
  readonly code: FindingCode;
  readonly tool: string;
  /** The whole text of the finding. If undefined, the text is made of the code's title and the names of the tools. */
  readonly text?: string | undefined;
}

/** Makes one finding of all items that have the same server and the same code. */
function groupFindings(
  found: readonly ToolFinding[],
  adviceFor: (code: FindingCode) => string | undefined,
): readonly Finding[] {
  const groups = new Map<string, ToolFinding[]>();
  for (const one of found) {
    const key = `${one.code} ${one.server}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  return [...groups.values()].flatMap((each) => {
    const [first] = each;
    if (first === undefined) return [];
    const { code, server: subject } = first;
    const more =
      each.length > MAX_NAMES_IN_FINDING ? ` and ${each.length - MAX_NAMES_IN_FINDING} more` : "";
    const named = each.slice(0, MAX_NAMES_IN_FINDING);
    const texts = named.flatMap((one) => one.text ?? []);
    if (texts.length > 0) {
      const text = texts.join(" ") + (more && ` And${more.slice(4)}.`);
      return [{ code, subject, text, advice: adviceFor(code) }];
    }
    const names = named.map(({ tool }) => `"${tool.slice(0, 80)}"`);
    const { title } = FINDING_CODES[code];
    const text = `${title.charAt(0).toUpperCase()}${title.slice(1)}: ${names.join(", ")}${more}.`;
    return [{ code, subject, text, advice: adviceFor(code) }];
  });
}
