import { textOf } from "../bytes.ts";
import type { Remark } from "../catalog/shape.ts";
import type { Hub } from "../hub.ts";
import { untilAborted } from "../wire/grace.ts";
import { LocalClient } from "../frontend/local.ts";
import { own } from "./console.ts";
import { type Invocation, LISTS, type World } from "./command.ts";
import { openHub, openLog, openManifest } from "./open.ts";
import { suggest, usage } from "./parse.ts";
import { alignTable, count, findPaper } from "./print.ts";
import { describeFailure, printLine } from "./report.ts";
import { type Standing, standingsOf } from "./standing.ts";

type Kind = (typeof LISTS)[number];

/** Starts every server, waits until each has connected or failed, and prints what there is. */
export async function list(invocation: Invocation, world: World): Promise<number> {
  const kind = readKind(invocation.words[0] ?? "tools");
  const log = openLog(invocation);
  const whole = await openManifest(invocation, world, log);
  const { hub, manifest, close } = await openHub(whole, world, log);
  try {
    const client = await LocalClient.connect(hub, world.signal);
    await untilAborted(hub.settled(), world.signal);
    const standings = standingsOf(manifest, hub);
    const code = exitCode(standings);
    if (kind === "servers") printServers(standings, invocation, world);
    else await printTools(client, hub, invocation, world);
    if (kind === "tools") tellFailures(standings);
    if (code === 0 && invocation.json === false) {
      const remarks = hub.catalog.remarks.filter(({ list }) => list === "tools");
      const total = kind === "servers" ? countServers(standings) : countTools(standings, remarks);
      own.log(total);
    }
    return code;
  } finally {
    await close();
  }
}

function readKind(word: string): Kind {
  const kind = LISTS.find((one) => one === word);
  if (kind !== undefined) return kind;
  throw usage(
    `There is no list of "${word}", only of ${LISTS.join(" and ")}.${suggest(word, LISTS)}`,
  );
}

async function printTools(
  client: LocalClient,
  hub: Hub,
  { json, all }: Invocation,
  { env }: World,
): Promise<void> {
  const items = await client.listTools();
  const remarks = all ? hub.catalog.remarks.filter(({ list }) => list === "tools") : [];
  if (json !== false) {
    // As clients get them, byte for byte: parsing would change numbers.
    const tools = `"tools":[${items.map(({ bytes }) => `\n${textOf(bytes)}`).join(",")}\n]`;
    const more = all ? `,\n"remarks":${JSON.stringify(remarks.map(remarkToJson), null, 2)}` : "";
    own.log(`{${tools}${more}}`);
    return;
  }
  const rows = items.map(({ key: name, bytes }) => {
    const server = hub.catalog.tools.find(name)?.server ?? "";
    return [name, server, firstLine(JSON.parse(textOf(bytes)) as Described)];
  });
  if (rows.length > 0) own.log(alignTable(["TOOL", "SERVER", "DESCRIPTION"], rows, findPaper(env)));
  const asides = remarks.map(({ remoteName, server, kind, text }) => {
    const state = kind === "shortened" ? "renamed" : "hidden";
    return [remoteName, server, state, text];
  });
  if (rows.length > 0 && asides.length > 0) own.log();
  if (asides.length > 0)
    own.log(alignTable(["OWN NAME", "SERVER", "STATE", "WHY"], asides, findPaper(env)));
}

/** `{server, tool, kind, text}`; the tool by the name that its server gives it. */
function remarkToJson({ server, remoteName, kind, text }: Remark): object {
  return { server, tool: remoteName, kind, text };
}

function countTools(standings: readonly Standing[], remarks: readonly Remark[]): string {
  const known = standings.filter((standing) => "tools" in standing);
  const tools = known.reduce((sum, standing) => sum + standing.tools, 0);
  const hidden = remarks.filter(({ kind }) => kind !== "shortened").length;
  const more = hidden === 0 ? "" : `; ${hidden} hidden`;
  return `${count(tools, "tool")} of ${count(known.length, "server")}${more}`;
}

function countServers(standings: readonly Standing[]): string {
  const states = ["connected", "idle", "failed", "disabled"].map((state) => {
    const some = standings.filter(({ at }) => at === state).length;
    return some === 0 ? "" : `${some} ${state}`;
  });
  return [count(standings.length, "server"), ...states.filter(Boolean)].join(", ");
}

interface Described {
  readonly description?: unknown;
  readonly title?: unknown;
}

/** Of a tool's description, or of its title if it has none. */
function firstLine({ description, title }: Described): string {
  const text = typeof description === "string" && description.trim() !== "" ? description : title;
  return typeof text === "string" ? text.trim().replace(/\n[^]*/, "") : "";
}

function printServers(standings: readonly Standing[], { json }: Invocation, { env }: World): void {
  if (json !== false) {
    own.log(JSON.stringify({ servers: standings.map(toJson) }, null, 2));
    return;
  }
  const rows = standings.map((standing) => [
    standing.server,
    standing.at,
    "tools" in standing ? String(standing.tools) : "",
    standing.at === "failed" ? describeFailure(standing.cause) : "",
  ]);
  if (rows.length > 0)
    own.log(alignTable(["SERVER", "STATE", "TOOLS", "ERROR"], rows, findPaper(env)));
}

/** `{name, state, tools?, error?: {code, message, step?, stderr?}}` */
function toJson(standing: Standing): object {
  const { server: name, at: state } = standing;
  if ("tools" in standing) return { name, state, tools: standing.tools };
  if (standing.at === "disabled") return { name, state };
  const { message, code, step, stderr } = standing.cause;
  const words = stderr.length > 0 ? { stderr } : {};
  return { name, state, error: { code, message, ...(step !== undefined && { step }), ...words } };
}

function tellFailures(standings: readonly Standing[]): void {
  for (const standing of standings) {
    if (standing.at === "failed") printLine(describeFailure(standing.cause));
  }
}

/** It is a failure if servers are wanted and none is there. */
function exitCode(standings: readonly Standing[]): number {
  const wanted = standings.filter(({ at }) => at !== "disabled");
  return wanted.length === 0 || wanted.some((standing) => "tools" in standing) ? 0 : 3;
}
