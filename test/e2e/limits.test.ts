import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { run, runJson, startOn, waitUntilFound } from "../harness/command.ts";
import { closeClient, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";
import type { Received } from "../harness/message.ts";
import type { RawClient } from "../harness/raw-client.ts";

const LIMITS = `[limits]
client = { rate = "2/1h", maxConcurrent = 4 }

`;
const SERVER = { s: scripted("", { limits: { quota: "3/30d", maxConcurrent: 2 } }) };

interface Limits {
  readonly limits: readonly {
    readonly kind: string;
    readonly client?: string;
    readonly refused: number;
    readonly rate?: { readonly left: number };
    readonly quota?: { readonly used: number };
  }[];
}

const errorOf = ({ message: { result } }: Received): unknown =>
  (result?.["_meta"] as Record<string, unknown> | undefined)?.["toolmux/error"];

/** Starts a hub on the manifest with a client that has listed its tools. */
async function startHub(folder: TestFolder): Promise<RawClient> {
  const hub = startOn(folder);
  await hub.initializeAndList();
  await waitUntilFound(folder, hub.pid);
  return hub;
}

const call = (hub: RawClient): Promise<Received> =>
  hub.request("tools/call", { name: "s__echo", arguments: {} });

describe("limits of calls", () => {
  it("are shown and reset by a command, and a quota outlives the hub", () =>
    withTestFolder(LIMITS + toToml({ servers: SERVER }), async (folder) => {
      const first = await startHub(folder);
      // The list of tools was the first of two requests.
      assert.equal(errorOf(await call(first)), undefined);
      assert.equal(errorOf(await call(first)), "overLimit");
      const { limits, code } = await runJson<Limits>(folder, "limits");
      assert.equal(code, 0);
      assert.deepEqual(
        limits.map(({ kind, client, refused, rate, quota }) => [
          kind,
          client,
          refused,
          rate?.left,
          quota?.used,
        ]),
        [
          ["client", "client-1", 1, 0, undefined],
          ["server", undefined, 0, undefined, 1],
        ],
      );
      const shown = await run(folder, "limits");
      assert.match(shown.stdout, /client client-1 +0 left of 2\/1h +- +0 of 4 +0 +1\n/);
      assert.match(shown.stdout, /server s +- +1 of 3\/30d +0 of 2 +0 +0\n/);
      assert.equal((await run(folder, "limits", "reset", "client-2")).code, 2);
      assert.equal((await run(folder, "limits", "reset", "client-1")).code, 0);
      assert.equal(errorOf(await call(first)), undefined);
      await closeClient(first);
      const file = join(folder.dir, "state", "toolmux", "quotas.json");
      assert.equal(statSync(file).mode & 0o777, 0o600);
      assert.match(readFileSync(file, "utf8"), /"used": 2/);
      const second = await startHub(folder);
      assert.equal(errorOf(await call(second)), undefined);
      const { limits: now } = await runJson<Limits>(folder, "limits");
      assert.equal(now.find(({ kind }) => kind === "server")?.quota?.used, 3);
      await closeClient(second);
    }));
});
