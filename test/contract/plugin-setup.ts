import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { EventBus } from "../../src/base/hub-events.ts";
import { formatProblem } from "../../src/manifest/problems.ts";
import type { PluginSpec } from "../../src/manifest/manifest.ts";
import { type LoadedPlugin, loadPlugin, type PluginLoaders } from "../../src/plugin/load.ts";
import type { Host, Next, Parts, Plugin, Tool, ToolInfo } from "../../src/plugin/plugin.ts";
import type { PluginSet } from "../../src/plugin/plugin-set.ts";
import { type PreparedManifest, setUpPlugins } from "../../src/plugin/setup.ts";
import {
  initialize,
  recordEvents,
  listToolNames,
  manifestFor,
  type Peer,
  ScriptedServer,
  type HubSetupOptions,
  setUpHub,
} from "../fixtures/memory-hub.ts";
import { poll } from "../harness/wait.ts";

export type Options = Readonly<Record<string, unknown>>;

/** What a plugin may change in calls. */
export type PluginChange = "arguments" | "results";

/** The plugin under test, as data: it is also loaded in another process. */
export interface PluginUnderTest {
  /** As in a manifest: a built-in plugin, a package, or a path. */
  readonly use: string;
  /** Absolute path of that manifest's folder. */
  readonly folder: string;
  readonly options?: Options;
  /** Options that must be rejected, each on its own; by default an unknown one. */
  readonly wrong?: readonly Options[];
  /** What it may change, even in small and correct calls and answers; by default nothing. */
  readonly changes?: readonly PluginChange[];
  /** Time limit for what it has to do by itself, in ms; by default `PATIENCE`. */
  readonly patience?: number;
  /** The values it resolves for `${scheme:path}`, by scheme and path. */
  readonly secrets?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

const PATIENCE = 3000;

/** How long to wait for a plugin, in ms. */
export function patienceWith({ patience = PATIENCE }: PluginUnderTest): number {
  return patience;
}

/** A plugin that is set up, with counters of its calls. */
export interface TestedPlugin {
  readonly hooks: Parts;
  readonly host: Host;
  /** Number of calls that it has not settled. */
  readonly openCallCount: number;
  /** Number of times that it called `next` after the call was over. */
  readonly callsAfterEnd: number;
}

/** A hub over one scripted server `s` with the plugin under test outermost. */
export interface PluginTestHub extends ReturnType<typeof setUpHub> {
  readonly instance: TestedPlugin;
  readonly plugins: PluginSet;
  readonly script: ScriptedServer;
  readonly bus: EventBus;
  readonly subject: PluginUnderTest;
  /** The exposed names of the tools of `s`. */
  readonly tools: readonly string[];
  /** Those of them whose calls the plugin does not leave alone. */
  readonly wrapped: readonly string[];
  readonly stateFolder: string;
}

/** The server's tools: one without hints, a read-only one, one with an output schema, and unusual ones. */
export const TOOLS = [
  '{"name":"plain","inputSchema":{"type":"object"}}',
  '{"name":"reader","description":"Reads.","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},"annotations":{"readOnlyHint":true}}',
  '{"name":"structured","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}',
  '{"name":"bare"}',
  '{"name":"odd","description":null,"inputSchema":[],"annotations":"none","_meta":1,"n":1234567890123456789}',
];

export function testedPluginSpec(
  subject: PluginUnderTest,
  options = subject.options,
  at = 0,
): PluginSpec {
  const { use, folder } = subject;
  const path = /^(?:\.{0,2}|~)\//.test(use) ? resolve(folder, use) : undefined;
  const origin = { file: join(folder, "toolmux.toml"), path: ["plugins", at] };
  return { use, path, options, servers: undefined, tools: undefined, baseDir: folder, origin };
}

/** Loads the plugin under test; throws if it is not found or rejects its options. */
export async function loadTestedPlugin(subject: PluginUnderTest): Promise<LoadedPlugin> {
  const result = await loadPlugin(testedPluginSpec(subject));
  if (result.ok) return result.loaded;
  const texts = result.problems.map(({ path, message }) => `${path.join(".")}: ${message}`);
  return assert.fail(texts.join("; "));
}

export function formatProblems(equipped: PreparedManifest): string {
  return equipped.ok ? "" : equipped.problems.map(formatProblem).join("; ");
}

/** Runs `run` with a temporary folder. */
export async function withFolder<T>(run: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "plugin-"));
  try {
    return await run(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export interface PluginTestHubOptions extends HubSetupOptions {
  /** A plugin between the plugin under test and the server. */
  readonly inner?: Plugin<undefined>;
}

/**
 * Runs `run` with a hub that has the plugin, and closes the hub afterwards. The plugin must not have failed, its
 * `dispose` must end in time, and no call may stay unsettled.
 */
export async function withPluginHub<T>(
  subject: PluginUnderTest,
  run: (testHub: PluginTestHub) => Promise<T>,
  settings: PluginTestHubOptions = {},
): Promise<T> {
  return withPlugin(subject, await loadTestedPlugin(subject), run, settings);
}

/** The same with a loaded plugin: one that is set up several times is loaded once. */
export function withPlugin<T>(
  subject: PluginUnderTest,
  loaded: LoadedPlugin,
  run: (testHub: PluginTestHub) => Promise<T>,
  settings: PluginTestHubOptions = {},
): Promise<T> {
  return withFolder(async (stateFolder) => {
    const testHub = await makePluginHub(subject, loaded, stateFolder, settings);
    const { hub, plugins, events } = testHub;
    let value: T;
    try {
      value = await run(testHub);
    } finally {
      await hub.close();
      await plugins.dispose();
    }
    const [status] = plugins.status;
    assert.equal(status?.lastError?.message, undefined);
    await waitForOpenCalls(testHub);
    const late = "its dispose() did not finish";
    assert.ok(!events.some((event) => event.kind === "log" && event.text.includes(late)), late);
    return value;
  });
}

/** Waits until the plugin has settled all calls. */
export async function waitForOpenCalls({ instance, subject }: PluginTestHub): Promise<void> {
  const what = (): string =>
    `the plugin, which holds ${instance.openCallCount} calls that are over`;
  const isDone = (): true | undefined => (instance.openCallCount === 0 ? true : undefined);
  await poll(patienceWith(subject), what, isDone);
}

async function makePluginHub(
  subject: PluginUnderTest,
  loaded: LoadedPlugin,
  stateFolder: string,
  settings: PluginTestHubOptions,
): Promise<PluginTestHub> {
  const { bus, events } = recordEvents();
  const script = new ScriptedServer();
  script.tools = TOOLS;
  const { plugin, find } = countCalls(loaded);
  const { inner } = settings;
  const uses = inner === undefined ? [plugin] : [plugin, inner];
  const loaders: PluginLoaders = Object.fromEntries(
    uses.map((use) => [use.name, () => Promise.resolve({ default: use })]),
  );
  const entries = uses.map(({ name }, at) =>
    testedPluginSpec({ use: name, folder: subject.folder }, undefined, at),
  );
  const manifest = { ...manifestFor({ s: script }, settings), plugins: entries };
  const env = { HOME: stateFolder };
  const equipped = await setUpPlugins(manifest, { bus, env, stateFolder, loaders });
  assert.ok(equipped.ok, formatProblems(equipped));
  const { plugins } = equipped;
  const setup = setUpHub({ s: script }, { ...settings, prepared: { ...equipped, bus, events } });
  await initialize(setup.client);
  const names = await listToolNames(setup.client);
  const shown = TOOLS.map(toolInfoOf).filter(({ exposedName }) => names.includes(exposedName));
  const nameOf = ({ exposedName }: ToolInfo): string => exposedName;
  const tools = shown.map(nameOf);
  const instance = find();
  const wrapped = shown.filter((tool) => isWrapped(instance.hooks, tool)).map(nameOf);
  return { ...setup, instance, plugins, script, bus, subject, tools, wrapped, stateFolder };
}

function toolInfoOf(text: string): ToolInfo {
  const definition = JSON.parse(text) as Tool;
  const { name } = definition;
  return { server: "s", name, exposedName: `s__${name}`, definition, isolation: "shared" };
}

/** Whether the plugin does not leave the calls of this tool alone. */
function isWrapped(hooks: Parts, tool: ToolInfo): boolean {
  const next: Next = () => Promise.reject(new Error("nothing is called here"));
  try {
    return (hooks.call?.(next, tool) ?? next) !== next;
  } catch {
    return true;
  }
}

/** The plugin wrapped, so that its calls are counted. */
function countCalls({ plugin, options }: LoadedPlugin): {
  plugin: Plugin<undefined>;
  find(): TestedPlugin;
} {
  let instance: TestedPlugin | undefined;
  const wrapped: Plugin<undefined> = {
    name: plugin.name,
    ...(plugin.whenBroken !== undefined && { whenBroken: plugin.whenBroken }),
    async setup(_, host) {
      const parts = await plugin.setup(options, host);
      const seen = { hooks: parts, host, openCallCount: 0, callsAfterEnd: 0 };
      instance = seen;
      if (typeof parts?.call !== "function") return parts;
      const call: Parts["call"] = (next, tool) => {
        const counted: Next = (inner) => {
          if (inner.signal.aborted) seen.callsAfterEnd++;
          return next(inner);
        };
        const own = parts.call?.(counted, tool) ?? counted;
        if (own === counted) return next;
        return (outer) => {
          const answer = own(outer);
          seen.openCallCount++;
          const callEnded = (): void => void seen.openCallCount--;
          Promise.resolve(answer).then(callEnded, callEnded);
          return answer;
        };
      };
      return { ...copyOf(parts), call };
    },
  };
  return { plugin: wrapped, find: () => instance ?? assert.fail("the plugin was not set up") };
}

const KEYS = ["list", "event", "events", "secrets", "servers", "routes", "dispose"];

/** The hooks that `setup` returned, as a plain object: they may be a class instance. */
function copyOf(parts: Parts): Parts {
  const all = [...new Set([...Object.keys(parts), ...KEYS])].map((key): [string, unknown] => {
    const part: unknown = Reflect.get(parts, key);
    return [key, typeof part === "function" ? part.bind(parts) : part];
  });
  return Object.fromEntries(all.filter(([, part]) => part !== undefined));
}

/** The text of the response with this id. */
export function answerTo(client: Peer, id: string): Promise<string> {
  // Some responses are too long to parse them.
  return client.findText((text) => text.includes(`"id":"${id}"`));
}

let asked = 0;

/** Sends a tools/call with these params, as JSON text. @returns its id */
export function send(client: Peer, params: string): string {
  const id = `call-${++asked}`;
  client.send(`{"jsonrpc":"2.0","id":"${id}","method":"tools/call","params":${params}}`);
  return id;
}

/** Calls a tool with arguments as JSON text. @returns the text of the response */
export function ask(client: Peer, tool: string, args = "{}"): Promise<string> {
  return answerTo(client, send(client, `{"name":"${tool}","arguments":${args}}`));
}
