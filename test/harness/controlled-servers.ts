import assert from "node:assert/strict";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { RawClient } from "./raw-client.ts";
import { poll } from "./wait.ts";
import { end, executable, type Stage, withStage } from "./hub.ts";
import { type Manifest, type ServerEntry, toToml, withVariables } from "./manifest.ts";
import type { Received } from "./message.ts";

const GOVERNED = fileURLToPath(new URL("../fixtures/servers/controlled.mjs", import.meta.url));

/** A server that behaves as its rules file says (`ControlledServers.setRules`); controlled.mjs documents the rules. */
export function governed(more: Readonly<Record<string, unknown>> = {}): ServerEntry {
  return { command: process.execPath, args: [GOVERNED], ...more };
}

export interface Rules {
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
export interface Note {
  readonly pid: number;
  readonly time: number;
  readonly event: string;
  /** On start: pids of earlier processes that still run, and the process's own arguments. */
  readonly others?: readonly number[];
  readonly args?: readonly string[];
  readonly tool?: string;
  readonly until?: string;
}

export type Edit = "in place" | "by rename";

/** A test folder whose manifest and controlled servers can be changed while hubs run. */
export interface Realm extends Stage {
  /** Writes a manifest of controlled servers, or a text. */
  edit(manifest: Manifest | string, how?: Edit, path?: string): void;
  /** Replaces a server's rules from now on. */
  rule(server: string, rules: Rules): void;
  notes(server: string): Note[];
  /** The start events of a server so far. `started`: their pids. */
  starts(server: string): Note[];
  started(server: string): number[];
  /** Waits until `find` returns a value for the events of a server. */
  noting<Found>(
    server: string,
    look: (notes: readonly Note[]) => Found | undefined,
    ms?: number,
  ): Promise<Found>;
  /** Runs a hub, by default on the manifest, during `run`; checked as in `withHub`. */
  serve(
    run: (client: RawClient) => Promise<void>,
    args?: readonly string[],
    /** A command and its arguments that start the executable; by default none. */
    through?: readonly string[],
  ): Promise<RawClient>;
}

/** Runs `run` with a folder of controlled servers and this manifest; see `withTestFolder`. */
export function withRealm<Value>(
  manifest: Manifest | string,
  run: (realm: Realm) => Promise<Value>,
): Promise<Value> {
  return withStage("", (stage) => {
    const realm = found(stage);
    realm.edit(manifest);
    return run(realm);
  });
}

function found(stage: Stage): Realm {
  const { dir, config, env } = stage;
  const notes = (server: string): Note[] => readNotes(join(dir, `${server}.notes`));
  const starts = (server: string): Note[] => notes(server).filter(({ event }) => event === "start");
  return {
    ...stage,
    edit: (manifest, how = "in place", path = config) => {
      const text = typeof manifest === "string" ? manifest : toToml(govern(manifest, dir));
      if (how === "in place") writeFileSync(path, text);
      else replace(path, text);
    },
    rule: (server, rules) => replace(join(dir, `${server}.rules`), JSON.stringify(rules)),
    notes,
    starts,
    started: (server) => starts(server).map(({ pid }) => pid),
    noting: (server, look, ms = 15_000) =>
      poll(
        ms,
        () => `something of ${server}; noted: ${JSON.stringify(notes(server).slice(-20))}`,
        () => look(notes(server)),
      ),
    serve: async (run, args = ["--config", config], through = []) => {
      const [command = "", ...rest] = [...through, executable(), ...args];
      const client = new RawClient(command, rest, dir, env);
      await run(client);
      await end(client);
      return client;
    },
  };
}

function govern(manifest: Manifest, dir: string): Manifest {
  return withVariables(manifest, (key) => ({ GOVERNED: join(dir, key) }));
}

function readNotes(file: string): Note[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as Note);
}

/** Replaces the file by rename: readers see the old text or the new one. */
function replace(path: string, text: string): void {
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}

const CHANGED = "notifications/tools/list_changed";

/** The number of `notifications/tools/list_changed` that the client has received. */
export function changes(client: RawClient): number {
  return client.filter(({ method }) => method === CHANGED).length;
}

/** Waits until the client has received `count` of `notifications/tools/list_changed`. */
export function changed(client: RawClient, count: number, ms = 15_000): Promise<true> {
  return client.until(ms, `list_changed for the ${count}. time`, () =>
    changes(client) >= count ? true : undefined,
  );
}

/** Waits until the hub's stderr matches. */
export function saying(client: RawClient, wanted: RegExp, ms = 15_000): Promise<true> {
  return client.until(ms, String(wanted), () => (wanted.test(client.stderr) ? true : undefined));
}

/** The tool names in the current `tools/list`. */
export async function listNames(client: RawClient, ms?: number): Promise<string[]> {
  return namesIn(await client.request("tools/list", undefined, ms));
}

export function namesIn({ message }: Received): string[] {
  return (message.result?.tools ?? []).map(({ name }) => name);
}

/** The pid of a controlled server, from its tool `pid`. */
export async function askPid(client: RawClient, server: string, ms?: number): Promise<number> {
  const { message } = await client.call(`${server}__pid`, {}, ms);
  const pid = Number(message.result?.content?.[0]?.text);
  assert.ok(pid > 0, JSON.stringify(message));
  return pid;
}

/** A call of the tool `hold` that its server has received. */
export interface Held {
  /** Lets the server answer, and checks that the response echoes the call's arguments. */
  release(): Promise<void>;
  /** Waits for the response, whatever it is. */
  answer(ms?: number): Promise<Received>;
}

let count = 0;

/** Calls `hold`, which is answered on `release()`; resolves when the server has received the call. */
export async function hold(
  { dir, noting }: Realm,
  client: RawClient,
  server: string,
  more: object = {},
): Promise<Held> {
  const until = join(dir, `until-${++count}`);
  const args = { until, ...more };
  const params = {
    name: `${server}__hold`,
    arguments: args,
    _meta: { progressToken: `of-${count}` },
  };
  const id = client.ask("tools/call", params);
  await noting(server, (notes) => notes.find((note) => note.until === until));
  const answer = (ms?: number): Promise<Received> => client.answer(id, ms);
  return {
    answer,
    release: async () => {
      writeFileSync(until, "");
      const { message } = await answer();
      assert.deepEqual(JSON.parse(message.result?.content?.[0]?.text ?? "null"), args);
    },
  };
}
