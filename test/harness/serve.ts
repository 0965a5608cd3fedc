import assert from "node:assert/strict";
import { RawClient } from "./raw-client.ts";
import { END, type Stage, executable, withStage } from "./hub.ts";
import type { Manifest } from "./manifest.ts";
import type { Program } from "./sdk-client.ts";

export const FACES = ["stdio", "HTTP"] as const;
export type Face = (typeof FACES)[number];

/** The executable with its manifest; `target` is the command or the URL that a client connects to. */
export interface Reachable<At> extends Stage {
  readonly reach: At;
}

/** Runs `run` with the executable served over one transport; over stdio each client starts a process of its own. */
export function withFace(
  face: Face,
  manifest: Manifest,
  run: (hub: Reachable<Program | string>) => Promise<void>,
): Promise<void> {
  if (face === "HTTP") return withHttp(manifest, run);
  return withStage(manifest, async (stage) => {
    const { dir: cwd, config, env } = stage;
    const args = ["serve", "--config", config];
    await run({ ...stage, reach: { command: executable(), args, cwd, env: { ...env } } });
  });
}

/** Serves over HTTP. Afterwards the executable gets SIGTERM and must have written nothing to stdout. */
export function withHttp(
  manifest: Manifest,
  run: (hub: Reachable<string>) => Promise<void>,
): Promise<void> {
  return withStage(manifest, async (stage) => {
    const args = ["serve", "--http", "127.0.0.1:0", "--config", stage.config];
    const hub = new RawClient(executable(), args, stage.dir, stage.env);
    const reach = await hub.until(10_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
    await run({ ...stage, reach });
    hub.signal("SIGTERM");
    assert.equal((await hub.ended(END)).code, 143);
    assert.deepEqual(hub.lines, []);
  });
}
