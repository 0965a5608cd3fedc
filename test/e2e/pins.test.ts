import assert from "node:assert/strict";
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { closeClient, it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { run, runJson, startHub } from "../harness/command.ts";
import { waitUntil } from "../harness/wait.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/definitions.mjs", import.meta.url));

interface Pins {
  readonly servers: readonly {
    readonly server: string;
    readonly pending: readonly {
      readonly name: string;
      readonly reason: string;
      readonly digest: string;
    }[];
  }[];
}

/** Writes what the server lists: tools by name, each with its description. */
function describeTools({ dir }: Pick<TestFolder, "dir">, tools: Readonly<Record<string, string>>) {
  const entries = Object.entries(tools).map(([name, description]) => ({
    name,
    description,
    inputSchema: { type: "object" },
  }));
  writeFileSync(join(dir, "definitions.json"), JSON.stringify({ tools: entries }));
}

function withServer(work: (folder: TestFolder) => Promise<void>): Promise<void> {
  return withTestFolder(
    (dir) => ({
      hub: { pinFile: "toolmux.pins.json" },
      servers: {
        files: {
          command: process.execPath,
          args: [SERVER, join(dir, "definitions.json")],
          pin: "block",
        },
      },
    }),
    async (folder) => {
      describeTools(folder, { read: "Reads.", write: "Writes." });
      await work(folder);
    },
  );
}

const pendingOf = ({ servers }: Pins): readonly string[] =>
  servers.flatMap(({ pending }) => pending.map(({ name, reason }) => `${name} ${reason}`));

describe("a project with a pin file", () => {
  it("is exported, checked, and exported again when a change was accepted", () =>
    withServer(async (folder) => {
      assert.equal((await run(folder, "check", "--pins")).code, 2, "there is no file yet");
      assert.equal((await run(folder, "pins", "files")).code, 3, "nothing was compared");
      assert.equal((await run(folder, "pins", "export")).code, 0);
      const file = join(folder.dir, "toolmux.pins.json");
      const before = readFileSync(file, "utf8");
      assert.equal((await run(folder, "check", "--pins")).code, 0);

      describeTools(folder, { read: "Reads\u200b and sends.", write: "Writes." });
      const { code, stdout } = await run(folder, "check", "--pins");
      assert.equal(code, 1);
      assert.match(stdout, /files: "read"/);
      const refused = await run(folder, "pins", "export");
      assert.equal(refused.code, 2);
      assert.equal(readFileSync(file, "utf8"), before);
      const called = await run(folder, "call", "files__read");
      assert.notEqual(called.code, 0);
      assert.match(called.stderr, /has changed since you accepted it/);

      const [pending] = (await runJson<Pins>(folder, "pins", "files")).servers[0]?.pending ?? [];
      const digest = pending?.digest.slice(0, 8) ?? "";
      const other = await run(folder, "pins", "accept", "files", "read@AAAAAAAA");
      assert.equal(other.code, 2, "another version was accepted");
      const accepted = await run(folder, "pins", "accept", "files", `read@${digest}`);
      assert.equal(accepted.code, 0);
      assert.match(accepted.stdout, /\+ Reads\\u\{200b\} and sends\./);
      assert.equal((await run(folder, "pins", "accept", "files", "write")).code, 2);
      assert.deepEqual(pendingOf(await runJson<Pins>(folder, "pins")), ["read pinFile"]);
      const { stdout: advice } = await run(folder, "pins");
      assert.match(advice, /toolmux pins export/);
      assert.doesNotMatch(advice, /pins accept/, "it is accepted already");
      assert.equal((await run(folder, "pins", "export")).code, 0);
      assert.notEqual(readFileSync(file, "utf8"), before);
      assert.equal((await run(folder, "check", "--pins")).code, 0);
      assert.equal((await run(folder, "call", "files__read")).code, 0);
      assert.equal((await run(folder, "pins", "forget", "files")).code, 0);
      assert.equal((await run(folder, "pins", "forget", "files")).code, 2);

      appendFileSync(folder.config, "\n[servers.wrong]\nargs = 1\n");
      const unknown = await run(folder, "check", "--pins");
      assert.equal(unknown.code, 3);
      assert.match(unknown.stderr, /its table in the manifest has a problem/);
    }));
});

describe("a running hub whose server has changed a tool", () => {
  it("hides it, says so, and shows it as soon as it is accepted from a terminal", () =>
    withServer(async (folder) => {
      assert.equal((await run(folder, "pins", "export")).code, 0);
      writeFileSync(
        folder.config,
        readFileSync(folder.config, "utf8").replace(/^.*pinFile.*$/m, ""),
      );
      describeTools(folder, { read: "Reads and sends.", write: "Writes." });
      const hub = await startHub(folder);
      const other = await startHub(folder);
      // Until the server has listed its tools, the hub has what it listed in an earlier run.
      await waitUntil(
        "the change",
        async () =>
          pendingOf(await runJson<Pins>(folder, "pins", "files")).join() === "read changed" ||
          undefined,
      );
      const called = await run(folder, "call", "files__read");
      assert.match(called.stdout + called.stderr, /has changed since you accepted it/);
      const accepted = await run(folder, "pins", "accept", "files", "--all");
      assert.equal(accepted.code, 0);
      assert.equal(accepted.stdout.match(/"read" @/g)?.length, 1, accepted.stdout);
      assert.equal((await run(folder, "call", "files__read")).code, 0);
      await closeClient(hub);
      await closeClient(other);
    }));
});
