import type { OpenQuestions } from "../agent/question-pauses.ts";
import { McpToolbox, type Toolbox, type ToolOrigin } from "../agent/toolbox.ts";
import type { AgentFile } from "../agent-files/agent-file.ts";
import { abortable } from "../base/clock.ts";
import { VERSION } from "../base/version.ts";
import { clientOfHub, connectToHub, type RunningHub } from "../control/running-hubs.ts";
import type { ServerDocument } from "../control/schemas.ts";
import { type AnswerElicitation, HubClient } from "../frontend/hub-client.ts";
import type { Hub } from "../hub/hub.ts";
import { HUB_DEFAULTS, LIMIT_DEFAULTS, type Manifest } from "../manifest/manifest.ts";
import type { CommandLog } from "../operations/load-manifest.ts";
import type { Transport } from "../transport/transport.ts";
import type { HostContext } from "./context.ts";
import { openHub, type OpenHubOptions, openSnapshots } from "./open-hub.ts";
import { readOpenedHub } from "./opened-hub-reader.ts";

/** The tools and servers of a hub. `close` disconnects from it; a hub in this process is closed, too. */
export interface OpenedTools {
  readonly toolbox: Toolbox;
  servers(): Promise<readonly ServerDocument[]>;
  /** Removes from a text the secrets that were resolved for servers so far; a running hub does not tell its own. */
  redact(text: string): string;
  close(): Promise<void>;
}

/** How a hub in this process asks a person about the calls of its only client. */
export interface AskedPerson {
  /** Answers elicitations; undefined if nobody can be asked. */
  readonly elicit: AnswerElicitation | undefined;
  /** Counts the approvals that calls wait for. */
  readonly questions?: OpenQuestions;
  /** See `HubOptions`. */
  readonly howToBeAsked?: string;
  /** Shows the calls of a hub that wait for an approval where a person sees them. @returns a function that ends that */
  readonly forward?: (hub: Hub) => () => void;
}

/**
 * The tools of the servers that an agent file contains. The servers run for this conversation only, and start when an
 * agent first needs its tools.
 * @param userManifest the manifest whose settings of approvals and of telemetry apply to these servers, too
 */
export function openFileTools(
  { servers }: AgentFile,
  userManifest: Pick<Manifest, "approval" | "telemetry">,
  context: HostContext,
  log: CommandLog,
  person: AskedPerson,
): {
  readonly toolbox: Toolbox | undefined;
  /** The servers; none before an agent has needed their tools. */
  servers(): Promise<readonly ServerDocument[]>;
  redact(text: string): string;
  close(): Promise<void>;
} {
  if (servers.length === 0) {
    const none = {
      servers: () => Promise.resolve([]),
      redact: (text: string) => text,
      close: () => Promise.resolve(),
    };
    return { toolbox: undefined, ...none };
  }
  const manifest: Manifest = {
    ...(userManifest.telemetry && { telemetry: userManifest.telemetry }),
    hub: HUB_DEFAULTS,
    defaults: LIMIT_DEFAULTS,
    servers: servers.map((spec) => ({ ...spec, lazy: true })),
    approval: userManifest.approval,
    plugins: [],
    sources: [],
  };
  let opened: Promise<OpenedTools> | undefined;
  let redact = (text: string): string => text;
  const open = (): Promise<OpenedTools> =>
    (opened ??= openOwnHub(manifest, context, log, person, "ofCommand").then((tools) => {
      redact = (text) => tools.redact(text);
      return tools;
    }));
  return {
    toolbox: {
      tools: async (run) => (await abortable(open(), run)).toolbox.tools(run),
      call: async (name, args, options) =>
        (await abortable(open(), options.signal)).toolbox.call(name, args, options),
    },
    servers: async () => (await opened)?.servers() ?? [],
    redact: (text) => redact(text),
    async close() {
      await opened?.then(
        (tools) => tools.close(),
        () => {},
      );
    },
  };
}

/** Connects to a running hub over MCP, through its control socket. */
export async function openRunningHub(
  hub: RunningHub,
  { signal }: Pick<HostContext, "signal">,
  elicit: AnswerElicitation | undefined,
): Promise<OpenedTools> {
  const info = { name: "toolmux", version: VERSION };
  const client = await connectToHub(hub, info, signal, { elicit });
  const ask = clientOfHub(hub, { signal });
  const origins = async (): Promise<ReadonlyMap<string, ToolOrigin>> => {
    const { tools } = (await ask("GET /tools")).value;
    return new Map(tools.map(({ name, server, tool }) => [name, { server, tool }]));
  };
  return {
    toolbox: new McpToolbox(client, origins),
    servers: async () => (await ask("GET /servers")).value.servers,
    redact: (text) => text,
    close: () => client.close(),
  };
}

/** Opens a hub in this process, which starts the servers, and connects to it. @param telemetry see `OpenHubOptions` */
export async function openOwnHub(
  manifest: Manifest,
  context: HostContext,
  log: CommandLog,
  { elicit, questions, howToBeAsked, forward }: AskedPerson,
  telemetry: OpenHubOptions["telemetry"],
): Promise<OpenedTools> {
  const opened = await openHub(manifest, context, log, {
    telemetry,
    kinds: ["log", "alert"],
    snapshots: openSnapshots(context, log, "exact"),
    howToBeAsked,
    isWatchable: forward !== undefined,
  });
  const { hub, close } = opened;
  const stopForwarding = forward?.(hub);
  try {
    const { toolbox, client } = await connectInside(hub, context.signal, elicit, questions);
    return {
      toolbox,
      servers: () => readOpenedHub(opened, context).servers(),
      redact: opened.redact,
      async close() {
        stopForwarding?.();
        await client.close();
        await close();
      },
    };
  } catch (error) {
    stopForwarding?.();
    await close();
    throw error;
  }
}

/** Wraps `elicit` so that `questions` counts the elicitations that are not answered yet. */
export function countQuestions(
  elicit: AnswerElicitation,
  questions: OpenQuestions,
): AnswerElicitation {
  return async (form, signal) => {
    const end = questions.add();
    try {
      return await elicit(form, signal);
    } finally {
      end();
    }
  };
}

/**
 * Connects agents to a hub in this process. The hub treats them as a client of its operator.
 * @param questions counts the approvals that the calls of this client wait for
 */
export async function connectInside(
  hub: Hub,
  signal: AbortSignal,
  elicit: AnswerElicitation | undefined,
  questions?: OpenQuestions,
): Promise<{
  readonly toolbox: Toolbox;
  readonly client: HubClient;
  /** The client's id in the hub. */
  readonly id: string;
}> {
  const { serverInfo } = hub;
  let id = "";
  const accept = (transport: Transport, ended: AbortSignal): Promise<void> => {
    const open = (): Promise<void> => hub.acceptOperator(transport, ended, (own) => (id = own));
    return questions === undefined ? open() : countApprovals(hub, questions, open);
  };
  const client = await HubClient.connect({ serverInfo, accept }, signal, { elicit });
  const origins = (): Promise<ReadonlyMap<string, ToolOrigin>> => {
    const { entries } = hub.catalog.tools;
    const known = entries.map(
      ({ name, server, remoteName: tool }) => [name, { server, tool }] as const,
    );
    return Promise.resolve(new Map(known));
  };
  return { toolbox: new McpToolbox(client, origins), client, id };
}

/**
 * Runs `accept`, which serves a client until it disconnects. Meanwhile counts the approvals that the client's calls
 * wait for.
 */
async function countApprovals(
  hub: Hub,
  questions: OpenQuestions,
  accept: () => Promise<void>,
): Promise<void> {
  let client: string | undefined;
  const open = new Map<string, () => void>();
  const unsubscribe = hub.subscribe(
    (event) => {
      // The client joins before `accept` returns, so the first client that joins is this one.
      if (event.kind === "client" && event.change === "joined") client ??= event.client;
      if (event.kind !== "approval" || event.client !== client) return;
      open.get(event.id)?.();
      open.delete(event.id);
      if (event.change === "asked") open.set(event.id, questions.add());
    },
    ["client", "approval"],
  );
  try {
    await accept();
  } finally {
    unsubscribe();
    for (const end of open.values()) end();
  }
}
