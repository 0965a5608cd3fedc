import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, it as nodeTest, type TestOptions } from "node:test";
import { fileURLToPath } from "node:url";
import { RawClient } from "./raw-client.ts";
import { isJsonRpc } from "./message.ts";
import { poll } from "./wait.ts";
import { type Manifest, toToml, withVariables } from "./manifest.ts";
import {
  pidsWithEnv,
  descendants,
  isAlive,
  killPidsWithEnv,
  waitUntilExited,
} from "./processes.ts";

/*
 * test/harness: runs the built executable for the end-to-end tests. `withHub` starts it on a manifest with a
 * `RawClient` on its stdio; serve.ts also serves it over HTTP; controlled-servers.ts has servers whose behaviour a test
 * changes; wait.ts has the waits with deadlines. Start with `withTestFolder` and `withHub` below.
 */

/** One event in the log file of a scripted server; ids, cursors and arguments are JSON text. */
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

/** The temporary folder of one test, the manifest in it, and the environment for the executable. */
export interface TestFolder {
  readonly dir: string;
  /** The manifest's path. */
  readonly config: string;
  readonly env: Readonly<Record<string, string>>;
  /** The events that a scripted server has logged so far. */
  log(server: string): ScriptedEvent[];
  /** Waits for the first event of a scripted server that satisfies `test`. */
  waitForEvent(
    server: string,
    test: (event: ScriptedEvent) => boolean,
    ms?: number,
  ): Promise<ScriptedEvent>;
}

/** Time limit for the hub and all its servers to exit, including servers that ignore SIGTERM, in ms. */
export const EXIT_LIMIT = 12_000;

/** Test timeout in ms: longer than any wait in a test, so that the wait fails first and names what is missing. */
export const TEST_OPTIONS = { timeout: 60_000 };

/** `it` of node:test with `TEST_OPTIONS`. */
export const it = itWith({});

/** `it` with these options; their time limit, if they have none, is that of `TEST_OPTIONS`. */
export function itWith(options: TestOptions): (name: string, run: () => unknown) => void {
  return (name, run) =>
    void nodeTest(name, { ...TEST_OPTIONS, ...options }, async () => {
      await run();
    });
}

/**
 * `it` for tests of a suite that wait most of the time and share nothing: the first begins three of them, and each begins
 * another when it is over.
 */
export function itTogether(): typeof it {
  const tests: (() => unknown)[] = [];
  const results: Promise<unknown>[] = [];
  // Also when only some of them are run: nothing of the others is left behind.
  after(() => Promise.allSettled(results), TEST_OPTIONS);
  return (name, run) => {
    const at = tests.push(run) - 1;
    it(name, () => {
      if (results.length === 0)
        for (const [index, test] of tests.entries()) {
          const result = Promise.allSettled([results[index - 3]]).then(test);
          result.catch(() => {});
          results.push(result);
        }
      return results[at];
    });
  };
}

/** The executable under test; TOOLMUX_EXECUTABLE names another build of it. */
export function executable(): string {
  const path =
    process.env["TOOLMUX_EXECUTABLE"] ??
    fileURLToPath(new URL("../../dist/toolmux", import.meta.url));
  if (!existsSync(path)) throw new Error(`${path} is missing: build it first`);
  return path;
}

/**
 * Runs `run` with a temporary folder that holds the manifest, and checks afterwards that no process is left with the
 * folder's path in its environment. A manifest given as a string is written unchanged. `name`: its file name.
 */
export async function withTestFolder<Value>(
  manifest: Manifest | string | ((dir: string) => Manifest),
  run: (testFolder: TestFolder) => Promise<Value>,
  name = "toolmux.toml",
): Promise<Value> {
  const dir = mkdtempSync(join(tmpdir(), "toolmux-e2e-"));
  const logOf = (server: string): string => join(dir, `${server}.log`);
  const log = (server: string): ScriptedEvent[] => readLog(logOf(server));
  const testFolder: TestFolder = {
    dir,
    config: join(dir, name),
    env: testEnvironment(dir),
    log,
    waitForEvent: (server, test, ms = 20_000) =>
      poll(
        ms,
        () => `an event of ${server}; noted: ${JSON.stringify(log(server))}`,
        () => log(server).find(test),
      ),
  };
  for (const folder of ["config", "cache", "state", "data", "runtime", "tmp"])
    mkdirSync(join(dir, folder), { mode: 0o700 });
  writeFileSync(testFolder.config, manifestText(manifest, dir, logOf));
  try {
    const value = await run(testFolder);
    await waitUntilExited(pidsWithEnv(dir), EXIT_LIMIT);
    return value;
  } finally {
    await killPidsWithEnv(dir);
    rmSync(dir, { recursive: true, force: true });
  }
}

/**
 * Shares something between all tests of a suite.
 * @param open opens it before the first test, hands it to `use`, and closes it when the promise of `use` is resolved, after
 * the last test
 * @returns a function that returns it while tests of the suite run
 */
export function shareInSuite<Value>(
  open: (use: (value: Value) => Promise<void>) => Promise<void>,
): () => Value {
  let shared: { readonly value: Value } | undefined;
  let release = (): void => {};
  let ended: Promise<void> | undefined;
  before(
    () =>
      new Promise<void>((resolve, reject) => {
        ended = open((value) => {
          shared = { value };
          resolve();
          return new Promise<void>((done) => (release = done));
        });
        ended.catch(reject);
      }),
    TEST_OPTIONS,
  );
  after(() => {
    release();
    return ended;
  }, TEST_OPTIONS);
  return () => {
    assert.ok(shared, "a test of the suite runs");
    return shared.value;
  };
}

/**
 * A test folder for all tests of a suite. Before the first test, `begin` starts what they share. The function that it
 * returns ends that after the last test, and then the folder is checked as by `withTestFolder`.
 */
export function sharedTestFolder(
  manifest: Parameters<typeof withTestFolder>[0],
  begin: (testFolder: TestFolder) => Promise<() => unknown>,
): void {
  shareInSuite<TestFolder>((use) =>
    withTestFolder(manifest, async (testFolder) => {
      const end = await begin(testFolder);
      await use(testFolder);
      await end();
    }),
  );
}

function manifestText(
  manifest: Manifest | string | ((dir: string) => Manifest),
  dir: string,
  logOf: (server: string) => string,
): string {
  if (typeof manifest === "string") return manifest;
  return toToml(withLogs(typeof manifest === "function" ? manifest(dir) : manifest, logOf));
}

/** Gives every server SCRIPTED_LOG, the log file of scripted servers; others ignore the variable. */
function withLogs(manifest: Manifest, logOf: (server: string) => string): Manifest {
  return withVariables(manifest, (key) => ({ SCRIPTED_LOG: logOf(key) }));
}

function testEnvironment(dir: string): Record<string, string> {
  return {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: dir,
    TMPDIR: join(dir, "tmp"),
    XDG_CONFIG_HOME: join(dir, "config"),
    XDG_CACHE_HOME: join(dir, "cache"),
    XDG_STATE_HOME: join(dir, "state"),
    XDG_DATA_HOME: join(dir, "data"),
    XDG_RUNTIME_DIR: join(dir, "runtime"),
    TOOLMUX_RUN_DIR: join(dir, "run"),
  };
}

function readLog(file: string): ScriptedEvent[] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as ScriptedEvent);
}

/** A running `toolmux serve` and the client at its stdin and stdout. */
export interface Hub extends TestFolder {
  readonly client: RawClient;
}

/**
 * Runs the executable on a manifest with a raw client. After `run` the client closes stdin; the hub and its servers
 * must exit within `END`, and stdout must hold only JSON-RPC messages.
 */
export function withHub<Value>(
  manifest: Manifest | string,
  run: (hub: Hub) => Promise<Value>,
  name?: string,
): Promise<Value> {
  return withTestFolder(
    manifest,
    async (testFolder) => {
      const client = new RawClient(
        executable(),
        ["--config", testFolder.config],
        testFolder.dir,
        testFolder.env,
      );
      const value = await run({ ...testFolder, client });
      await closeClient(client);
      return value;
    },
    name,
  );
}

/** Such a hub for all tests of a suite, whose client has listed the tools. */
export function sharedHub(manifest: Manifest): () => Hub {
  return shareInSuite<Hub>((use) =>
    withHub(manifest, async (hub) => {
      await hub.client.initializeAndList();
      await use(hub);
    }),
  );
}

/** Closes the client's stdin and checks what `withHub` says of the exit. */
export async function closeClient(client: RawClient): Promise<void> {
  const started = isAlive(client.pid) ? descendants(client.pid) : [];
  client.end();
  await client.waitForExit(EXIT_LIMIT);
  assertProtocolOnly(client);
  await waitUntilExited(started, EXIT_LIMIT);
}

/** Throws unless stdout so far is complete lines, each a JSON-RPC 2.0 message in valid UTF-8. */
export function assertProtocolOnly(client: RawClient): void {
  const invalidLines = client.lines
    .filter((line) => !isJsonRpc(line.json) || !line.isValidUtf8)
    .map((line) => line.text.slice(0, 300));
  assert.deepEqual(invalidLines, [], "stdout carries nothing but protocol");
  assert.equal(client.unterminatedOutput, "", "stdout ends with a whole line");
}
