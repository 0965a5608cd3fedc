import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { RawClient } from "./client.ts";
import { isProtocol } from "./message.ts";
import { poll } from "./clock.ts";
import { type Manifest, toToml, withVariables } from "./manifest.ts";
import { carrying, descendants, isAlive, killCarrying, waitUntilGone } from "./processes.ts";

/** One event in the log of a scripted server; ids, cursors and arguments are JSON text. */
export interface ScriptedEvent {
  readonly pid: number;
  readonly event: "start" | "initialize" | "list" | "call" | "cancelled" | "eof" | "signal";
  readonly tool?: string;
  readonly id?: string;
  readonly arguments?: string;
  readonly meta?: string;
  readonly requestId?: string;
  readonly reason?: string;
  readonly cursor?: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** A place for one test: its folder, the manifest in it and the environment to start the executable in. */
export interface Stage {
  readonly dir: string;
  /** The manifest's path. */
  readonly config: string;
  readonly env: Readonly<Record<string, string>>;
  /** What a scripted server noted so far. */
  log(server: string): ScriptedEvent[];
  /** Waits for the first event of a scripted server that satisfies `test`. */
  logged(
    server: string,
    test: (event: ScriptedEvent) => boolean,
    ms?: number,
  ): Promise<ScriptedEvent>;
}

/** How long the hub may take to end everything, servers that ignore SIGTERM included, in ms. */
export const END = 12_000;

/** What a test may take, in ms: longer than any wait in it, so that the wait says what was missing. */
export const LIMIT = { timeout: 60_000 };

/** The executable under test; TOOLMUX_EXECUTABLE names another build of it. */
export function executable(): string {
  const path =
    process.env["TOOLMUX_EXECUTABLE"] ??
    fileURLToPath(new URL("../../dist/toolmux", import.meta.url));
  if (!existsSync(path)) throw new Error(`${path} is missing: build it first`);
  return path;
}

/**
 * Gives `run` a folder of its own with a manifest in it, and checks afterwards that no process which carries
 * the folder's name in its environment is left. A manifest that is a text is written as it is, as `name`.
 */
export async function withStage<Value>(
  manifest: Manifest | string | ((dir: string) => Manifest),
  run: (stage: Stage) => Promise<Value>,
  name = "toolmux.toml",
): Promise<Value> {
  const dir = mkdtempSync(join(tmpdir(), "toolmux-e2e-"));
  const logOf = (server: string): string => join(dir, `${server}.log`);
  const log = (server: string): ScriptedEvent[] => readLog(logOf(server));
  const stage: Stage = {
    dir,
    config: join(dir, name),
    env: surroundings(dir),
    log,
    logged: (server, test, ms = 10_000) =>
      poll(
        ms,
        () => `an event of ${server}; noted: ${JSON.stringify(log(server))}`,
        () => log(server).find(test),
      ),
  };
  for (const folder of ["config", "cache", "state", "data", "runtime", "tmp"])
    mkdirSync(join(dir, folder), { mode: 0o700 });
  writeFileSync(stage.config, manifestText(manifest, dir, logOf));
  try {
    const value = await run(stage);
    await waitUntilGone(carrying(dir), END);
    return value;
  } finally {
    await killCarrying(dir);
    rmSync(dir, { recursive: true, force: true });
  }
}

function manifestText(
  manifest: Manifest | string | ((dir: string) => Manifest),
  dir: string,
  logOf: (server: string) => string,
): string {
  if (typeof manifest === "string") return manifest;
  return toToml(withLogs(typeof manifest === "function" ? manifest(dir) : manifest, logOf));
}

/** Each scripted server writes its log to its own file; others do not mind the variable. */
function withLogs(manifest: Manifest, logOf: (server: string) => string): Manifest {
  return withVariables(manifest, (key) => ({ SCRIPTED_LOG: logOf(key) }));
}

function surroundings(dir: string): Record<string, string> {
  return {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: dir,
    TMPDIR: join(dir, "tmp"),
    XDG_CONFIG_HOME: join(dir, "config"),
    XDG_CACHE_HOME: join(dir, "cache"),
    XDG_STATE_HOME: join(dir, "state"),
    XDG_DATA_HOME: join(dir, "data"),
    XDG_RUNTIME_DIR: join(dir, "runtime"),
  };
}

function readLog(file: string): ScriptedEvent[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as ScriptedEvent);
}

/** A running `toolmux serve` and the client at its stdin and stdout. */
export interface Hub extends Stage {
  readonly client: RawClient;
}

/**
 * Runs the executable on a manifest with a raw client. After `run` the client leaves (if the hub still runs) and
 * everything must be gone in time; stdout must have carried nothing but protocol.
 */
export function withHub<Value>(
  manifest: Manifest | string,
  run: (hub: Hub) => Promise<Value>,
  name?: string,
): Promise<Value> {
  return withStage(
    manifest,
    async (stage) => {
      const client = new RawClient(executable(), ["--config", stage.config], stage.dir, stage.env);
      const value = await run({ ...stage, client });
      await end(client);
      return value;
    },
    name,
  );
}

/** Lets the client leave, and checks what `withHub` promises. */
export async function end(client: RawClient): Promise<void> {
  const started = isAlive(client.pid) ? descendants(client.pid) : [];
  client.end();
  await client.ended(END);
  assertProtocolOnly(client);
  await waitUntilGone(started, END);
}

/** Throws unless every line of stdout so far is a JSON-RPC 2.0 message in valid UTF-8, and nothing follows the last one. */
export function assertProtocolOnly(client: RawClient): void {
  const strays = client.lines
    .filter((line) => !isProtocol(line.json) || !line.isText)
    .map((line) => line.text.slice(0, 300));
  assert.deepEqual(strays, [], "stdout carries nothing but protocol");
  assert.equal(client.rest, "", "stdout ends with a whole line");
}
