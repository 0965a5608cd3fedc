import assert from "node:assert/strict";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { RawClient } from "./raw-client.ts";
import { poll } from "./wait.ts";
import { closeClient, executable, type TestFolder, withTestFolder } from "./hub.ts";
import { type Manifest, type ServerEntry, toToml, withVariables } from "./manifest.ts";
import type { Received } from "./message.ts";

const CONTROLLED = fileURLToPath(new URL("../fixtures/servers/controlled.mjs", import.meta.url));

/** A server that behaves as its rules file says (`ControlledServers.setRules`); controlled.mjs documents the rules. */
export function controlled(more: Readonly<Record<string, unknown>> = {}): ServerEntry {
  return { command: process.execPath, args: [CONTROLLED], ...more };
}

export interface ServerRules {
  readonly tools?: readonly (string | readonly [name: string, description: string])[];
  readonly start?: "hang" | "exit";
  readonly failures?: number;
  readonly dies?: "listed";
  readonly pings?: "ignore" | "refuse";
  readonly chatter?: number;
  readonly burn?: number;
  readonly stubborn?: boolean;
}

/** One event of a controlled server: its start, its exit, or a received message. `time` in ms since the epoch. */
export interface ControlledEvent {
  readonly pid: number;
  readonly time: number;
  readonly event: string;
  /** On start: pids of earlier processes that still run, and the process's own arguments. */
  readonly others?: readonly number[];
  readonly args?: readonly string[];
  readonly tool?: string;
  readonly until?: string;
}

export type EditMethod = "in place" | "by rename";

/** A test folder whose manifest and controlled servers can be changed while hubs run. */
export interface ControlledServers extends TestFolder {
  /** Writes a manifest of controlled servers, or a text. */
  editManifest(manifest: Manifest | string, method?: EditMethod, path?: string): void;
  /** Replaces a server's rules from now on. */
  setRules(server: string, rules: ServerRules): void;
  events(server: string): ControlledEvent[];
  /** The start events of a server so far. `started`: their pids. */
  startEvents(server: string): ControlledEvent[];
  startedPids(server: string): number[];
  /** Waits until `find` returns a value for the events of a server. */
  waitForEvents<Found>(
    server: string,
    find: (events: readonly ControlledEvent[]) => Found | undefined,
    ms?: number,
  ): Promise<Found>;
  /** Runs a hub, by default on the manifest, during `run`; checked as in `withHub`. */
  serve(
    run: (client: RawClient) => Promise<void>,
    args?: readonly string[],
    /** A command and its arguments that start the executable; by default none. */
    wrapper?: readonly string[],
  ): Promise<RawClient>;
}

/** Runs `run` with a folder of controlled servers and this manifest; see `withTestFolder`. */
export function withControlledServers<Value>(
  manifest: Manifest | string,
  run: (servers: ControlledServers) => Promise<Value>,
): Promise<Value> {
  return withTestFolder("", (testFolder) => {
    const servers = makeControlledServers(testFolder);
    servers.editManifest(manifest);
    return run(servers);
  });
}

function makeControlledServers(testFolder: TestFolder): ControlledServers {
  const { dir, config, env } = testFolder;
  const events = (server: string): ControlledEvent[] => readEvents(join(dir, `${server}.notes`));
  const startEvents = (server: string): ControlledEvent[] =>
    events(server).filter(({ event }) => event === "start");
  return {
    ...testFolder,
    editManifest: (manifest, method = "in place", path = config) => {
      const text = typeof manifest === "string" ? manifest : toToml(withRulesFiles(manifest, dir));
      if (method === "in place") writeFileSync(path, text);
      else replaceFile(path, text);
    },
    setRules: (server, rules) => replaceFile(join(dir, `${server}.rules`), JSON.stringify(rules)),
    events,
    startEvents,
    startedPids: (server) => startEvents(server).map(({ pid }) => pid),
    waitForEvents: (server, find, ms = 15_000) =>
      poll(
        ms,
        () => `something of ${server}; noted: ${JSON.stringify(events(server).slice(-20))}`,
        () => find(events(server)),
      ),
    serve: async (run, args = ["--config", config], wrapper = []) => {
      const [command = "", ...rest] = [...wrapper, executable(), ...args];
      const client = new RawClient(command, rest, dir, env);
      await run(client);
      await closeClient(client);
      return client;
    },
  };
}

function withRulesFiles(manifest: Manifest, dir: string): Manifest {
  return withVariables(manifest, (key) => ({ GOVERNED: join(dir, key) }));
}

function readEvents(file: string): ControlledEvent[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as ControlledEvent);
}

/** Replaces the file by rename: readers see the old text or the new one. */
function replaceFile(path: string, text: string): void {
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}

const LIST_CHANGED = "notifications/tools/list_changed";

/** The number of `notifications/tools/list_changed` that the client has received. */
export function listChangedCount(client: RawClient): number {
  return client.filter(({ method }) => method === LIST_CHANGED).length;
}

/** Waits until the client has received `count` of `notifications/tools/list_changed`. */
export function waitForListChanged(client: RawClient, count: number, ms = 15_000): Promise<true> {
  return client.until(ms, `list_changed for the ${count}. time`, () =>
    listChangedCount(client) >= count ? true : undefined,
  );
}

/** Waits until the hub's stderr matches. */
export function waitForStderr(client: RawClient, pattern: RegExp, ms = 15_000): Promise<true> {
  return client.until(ms, String(pattern), () => (pattern.test(client.stderr) ? true : undefined));
}

/** The tool names in the current `tools/list`. */
export async function listToolNames(client: RawClient, ms?: number): Promise<string[]> {
  return toolNamesIn(await client.request("tools/list", undefined, ms));
}

export function toolNamesIn({ message }: Received): string[] {
  return (message.result?.tools ?? []).map(({ name }) => name);
}

/** The pid of a controlled server, from its tool `pid`. */
export async function callPid(client: RawClient, server: string, ms?: number): Promise<number> {
  const { message } = await client.call(`${server}__pid`, {}, ms);
  const pid = Number(message.result?.content?.[0]?.text);
  assert.ok(pid > 0, JSON.stringify(message));
  return pid;
}

/** A call of the tool `hold` that its server has received. */
export interface HeldCall {
  /** Lets the server answer, and checks that the response echoes the call's arguments. */
  release(): Promise<void>;
  /** Waits for the response, whatever it is. */
  response(ms?: number): Promise<Received>;
}

let holdCount = 0;

/** Calls `hold`, which is answered on `release()`; resolves when the server has received the call. */
export async function holdCall(
  { dir, waitForEvents }: ControlledServers,
  client: RawClient,
  server: string,
  extraArguments: object = {},
): Promise<HeldCall> {
  const until = join(dir, `until-${++holdCount}`);
  const args = { until, ...extraArguments };
  const params = {
    name: `${server}__hold`,
    arguments: args,
    _meta: { progressToken: `of-${holdCount}` },
  };
  const id = client.sendRequest("tools/call", params);
  await waitForEvents(server, (events) => events.find((event) => event.until === until));
  const response = (ms?: number): Promise<Received> => client.response(id, ms);
  return {
    response,
    release: async () => {
      writeFileSync(until, "");
      const { message } = await response();
      assert.deepEqual(JSON.parse(message.result?.content?.[0]?.text ?? "null"), args);
    },
  };
}
