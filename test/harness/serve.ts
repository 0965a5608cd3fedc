import assert from "node:assert/strict";
import { run as runCommand } from "./command.ts";
import { RawClient } from "./raw-client.ts";
import { EXIT_LIMIT, executable, shareInSuite, type TestFolder, withTestFolder } from "./hub.ts";
import type { Manifest } from "./manifest.ts";
import type { StdioCommand } from "./sdk-client.ts";

export const SERVER_TRANSPORTS = ["stdio", "HTTP"] as const;
/** `attach`: on stdio, with one hub for all clients. */
export type ServerTransportName = (typeof SERVER_TRANSPORTS)[number] | "attach";

/** The executable with its manifest; `target` is the command or the URL that a client connects to. */
export interface ServedHub<At> extends TestFolder {
  readonly target: At;
}

/** Runs `run` with the executable served over one transport; over stdio each client starts a process of its own. */
export function withServe(
  transport: ServerTransportName,
  manifest: Manifest,
  run: (hub: ServedHub<StdioCommand | string>) => Promise<void>,
): Promise<void> {
  if (transport === "HTTP") return withHttpServe(manifest, run);
  return withTestFolder(manifest, async (testFolder) => {
    const { dir: cwd, config, env } = testFolder;
    const args = [transport === "attach" ? "attach" : "serve", "--config", config];
    const target = { command: executable(), args, cwd, env: { ...env } };
    try {
      await run({ ...testFolder, target });
    } finally {
      if (transport === "attach") await stopSharedHub(testFolder);
    }
  });
}

/** Ends the hub that attached clients have left. */
export async function stopSharedHub(folder: TestFolder): Promise<void> {
  const { code, stderr } = await runCommand(folder, "daemon", "stop");
  assert.equal(code, 0, stderr);
}

/** Serves over HTTP. Afterwards the executable gets SIGTERM and must have written nothing to stdout. */
export function withHttpServe(
  manifest: Manifest,
  run: (hub: ServedHub<string>) => Promise<void>,
): Promise<void> {
  return withTestFolder(manifest, async (testFolder) => {
    const args = ["serve", "--http", "127.0.0.1:0", "--config", testFolder.config];
    const hub = new RawClient(executable(), args, testFolder.dir, testFolder.env);
    const target = await hub.until(20_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
    await run({ ...testFolder, target });
    hub.signal("SIGTERM");
    assert.equal((await hub.waitForExit(EXIT_LIMIT)).code, 143);
    assert.deepEqual(hub.lines, []);
  });
}

/** Serves over one transport for all tests of the suite that calls this. */
export function serveForSuite(
  transport: ServerTransportName,
  manifest: () => Manifest,
): () => ServedHub<StdioCommand | string> {
  return shareInSuite<ServedHub<StdioCommand | string>>((use) =>
    withServe(transport, manifest(), use),
  );
}
