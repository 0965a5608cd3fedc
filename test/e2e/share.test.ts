import assert from "node:assert/strict";
import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { sharedHubLog } from "../../src/host/daemon.ts";
import { run, runJson, startHub } from "../harness/command.ts";
import { closeClient, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { waitUntil } from "../harness/wait.ts";

interface Sharing {
  readonly enabled: boolean;
  readonly now: { readonly hubs: number; readonly processes: number; readonly memory: number };
  readonly shared: { readonly processes: number };
  readonly perClient: readonly string[];
  readonly privateHubs: readonly number[];
  readonly setting?: { readonly changed: boolean };
}

interface Offers {
  readonly offers?: readonly { readonly text: string }[];
}

interface Findings {
  readonly findings: readonly {
    readonly code: string;
    readonly subject: string;
    readonly advice?: string;
    readonly stderr?: readonly string[];
  }[];
}

interface Hubs {
  readonly hubs: readonly { readonly pid: number; readonly startedAt: number }[];
}

const MANIFEST = {
  servers: { a: scripted(), b: scripted("", { isolation: "perClient" }) },
};

describe("two clients of one manifest", () => {
  it("are told by ps, status, doctor and share what one hub would save, until it is shared", () =>
    withTestFolder(MANIFEST, async (folder) => {
      const first = await startHub(folder);
      assert.equal((await runJson<Offers>(folder, "ps")).offers, undefined);
      const second = await startHub(folder);
      const { now, shared, perClient, ...rest } = await waitUntil("the processes", async () => {
        const sharing = await runJson<Sharing>(folder, "share");
        return sharing.now.processes === 4 ? sharing : undefined;
      });
      assert.deepEqual([now.hubs, now.processes, shared.processes], [2, 4, 3]);
      assert.ok(now.memory > 0);
      assert.deepEqual([rest.enabled, perClient], [false, ["b"]]);
      const command = `toolmux --config ${folder.config} share on`;
      for (const name of ["ps", "status"]) {
        const { offers = [] } = await runJson<Offers>(folder, name);
        assert.deepEqual(
          offers.map(({ text }) => text.endsWith(command)),
          [true],
          name,
        );
        const { stdout } = await run(folder, name);
        assert.match(stdout.replaceAll(/\s+/g, " "), /2 hubs, 4 processes/, name);
      }
      const { findings } = await runJson<Findings>(folder, "doctor");
      const found = findings.filter(({ code }) => code === "TM605");
      assert.deepEqual(
        found.map(({ advice = "" }) => advice.endsWith(command)),
        [true],
      );

      const on = await runJson<Sharing>(folder, "share", "on");
      assert.deepEqual([on.enabled, on.setting?.changed], [true, true]);
      assert.deepEqual(on.privateHubs, [first.pid, second.pid]);
      assert.match(readFileSync(folder.config, "utf8"), /\[hub\]\nshared = true\n/);
      for (const name of ["ps", "status"])
        assert.equal((await runJson<Offers>(folder, name)).offers, undefined, name);

      // A shared hub that could not be started has left a log when the private hub was opened.
      const { hubs } = await runJson<Hubs>(folder, "ps");
      const log = await sharedHubLog([folder.config], {
        env: folder.env,
        platform: process.platform,
      });
      mkdirSync(dirname(log), { recursive: true });
      writeFileSync(log, "toolmux: no space left\n");
      const opened = new Date(hubs.find(({ pid }) => pid === first.pid)?.startedAt ?? 0);
      utimesSync(log, opened, opened);
      const { findings: later } = await runJson<Findings>(folder, "doctor");
      const told = later.find(({ subject }) => subject === `toolmux ${first.pid}`);
      assert.deepEqual([told?.code, told?.stderr], ["TM605", ["toolmux: no space left"]]);
      await closeClient(first);
      await closeClient(second);
    }));
});
