import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe } from "node:test";
import { run, runCommand, runJson } from "../harness/command.ts";
import {
  controlled,
  listChangedCount,
  listToolNames,
  toolNamesIn,
  waitForListChanged,
  withControlledServers,
} from "../harness/controlled-servers.ts";
import {
  EXIT_LIMIT,
  executable,
  type Hub,
  it,
  itWith,
  type TestFolder,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { type ServerEntry, publishedServer, scripted, toToml } from "../harness/manifest.ts";
import { findPort } from "../harness/remote-process.ts";
import { shownBy, skipWithoutTerminal, startInTerminal } from "../harness/terminal.ts";
import { slice } from "../fixtures/servers/json-slices.mjs";

interface Listed {
  readonly tools: readonly { readonly name: string }[];
  readonly servers: readonly Readonly<Record<string, unknown>>[];
  readonly remarks: readonly { server: string; tool: string; kind: string; text: string }[];
  readonly listedAt: Readonly<Record<string, string>>;
}

const list = (setup: TestFolder, ...args: string[]) => run(setup, "list", ...args);
const listJson = (setup: TestFolder, ...args: string[]) => runJson<Listed>(setup, "list", ...args);

/** How often servers `a` and `b` have been started. */
function starts({ log }: TestFolder): readonly number[] {
  return ["a", "b"].map((name) => log(name).filter(({ event }) => event === "start").length);
}

const ONE = scripted("--bare --tool one");
const BROKEN = scripted("--exit-at-once");
const OFF = { ...BROKEN, enabled: false };
const LONG = "x".repeat(70);
const MANIFEST = {
  servers: {
    a: scripted(`--bare --tool one --tool two --tool two --tool secret_delete --tool ${LONG}`, {
      tools: { deny: ["*_delete"] },
    }),
    b: scripted("--bare --tool a__one --tool three", { prefix: "" }),
    off: OFF,
  },
};
const ONE_EACH = { servers: { a: ONE, b: scripted("--bare --tool two") } };

describe("list", () => {
  it("shows the tools as a plain table, and with --all what is hidden or has another name, and why, also to programs", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const env = { CI: "true", FORCE_COLOR: "1" };
      const { code, stdout } = await runCommand(setup, ["list", "--config", setup.config], { env });
      assert.equal(code, 0);
      assert.match(stdout, /^4 tools of 2 servers; 3 hidden$/m);
      assert.match(stdout, /^TOOL +SERVER +DESCRIPTION\na__one +a /);
      assert.doesNotMatch(stdout, /secret_delete|OWN NAME/);
      assert.ok(
        !stdout.includes("\u001b"),
        "no colours in a pipe, whatever CI and FORCE_COLOR say",
      );
      const all = await list(setup, "--all");
      for (const line of [
        "OWN NAME +SERVER +STATE +WHY",
        "secret_delete +a +hidden +tools\\.deny names it\\.",
        "two +a +hidden +The server lists this name twice; the first is kept\\.",
        'a__one +b +hidden +"a__one" is already one of server "a"\\.',
        `${LONG} +a +renamed +"a__${LONG}" is exposed as "a__x+_\\w{6}"\\.`,
      ])
        assert.match(all.stdout, new RegExp(`^${line}$`, "m"));
      const { tools, remarks } = await listJson(setup, "--all");
      assert.equal(tools.length, 4);
      assert.deepEqual(
        remarks.map(({ server, tool, kind }) => `${server} ${tool} ${kind}`).toSorted(),
        ["a secret_delete filtered", "a two duplicate", `a ${LONG} shortened`, "b a__one clash"],
      );
      assert.ok(!("remarks" in (await listJson(setup))));
      for (const [word, nearest] of [
        ["of", /"off"/],
        ["promts", /"prompts"/],
      ] as const) {
        const wrong = await list(setup, word);
        assert.equal(wrong.code, 2);
        assert.match(wrong.stderr, nearest);
      }
    }));

  it("prints the tools on stdout, and on stderr why a server has none", () =>
    withTestFolder({ servers: { a: ONE, broken: BROKEN } }, async (setup) => {
      const { code, stdout, stderr } = await list(setup);
      assert.equal(code, 0);
      assert.match(stdout, /^TOOL +SERVER +DESCRIPTION\na__one +a\b/);
      assert.ok(!stdout.includes("broken"));
      const why =
        /^toolmux: .*"broken".*exited with code 3.*cannot open the database.*\n.*toolmux status\n$/;
      assert.match(stderr, why);
    }));

  it("gives programs the tools as clients get them, byte for byte", () =>
    withTestFolder({ servers: { a: scripted() } }, async (setup) => {
      const { stdout } = await list(setup, "--json");
      assert.ok((JSON.parse(stdout) as Listed).tools.some(({ name }) => name === "a__echo"));
      assert.ok(stdout.includes('"x-order":{"b":1.0,"a":1234567890123456789}'));
    }));

  itWith({ skip: skipWithoutTerminal })(
    "has colours in a terminal unless NO_COLOR is set, and is cut at its width",
    () =>
      withTestFolder({ servers: { a: scripted() } }, async (setup) => {
        const show = async (before: string): Promise<string> => {
          const line = `${before} '${executable()}' list --config '${setup.config}'`;
          const terminal = startInTerminal(setup, line);
          assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
          // Before it there is the line of progress, which was erased.
          return shownBy(terminal).split("\r\u001b[K").at(-1) ?? "";
        };
        assert.ok((await show("stty cols 24;")).includes("\u001b[2mTOOL"));
        const plain = await show("stty cols 24; NO_COLOR=1");
        assert.ok(!plain.includes("\u001b"));
        const lines = plain.split("\r\n").filter((line) => line.startsWith("a__"));
        assert.ok(lines.length > 5 && lines.every((line) => line.length <= 24), plain);
      }),
  );

  it("ends with 3 if all servers have failed, and says why each did, and with 0 if there are none", async () => {
    const port = await findPort();
    const gone = { url: `http://127.0.0.1:${port}/mcp` };
    const broken = { broken: BROKEN, missing: { command: "no-such-command" }, gone };
    await withTestFolder({ servers: broken }, async (setup) => {
      const { code, stdout, stderr } = await list(setup);
      assert.deepEqual([code, stdout], [3, ""]);
      assert.match(stderr, /cannot open the database[^]*"no-such-command"/);
      assert.match(stderr, new RegExp(`^toolmux: gone: Nothing listens at 127.0.0.1:${port}`, "m"));
      assert.equal((await list(setup, "--json")).code, 3);
    });
    await withTestFolder({ servers: { off: OFF } }, async (setup) => {
      const stdout = "0 tools of 0 servers\n";
      assert.deepEqual(await list(setup), { code: 0, stdout, stderr: "" });
    });
  });

  it("has prompts and resources by the names that clients see", () => {
    const everything = publishedServer("everything", ["stdio"]);
    return withTestFolder({ servers: { a: everything, b: everything } }, async (setup) => {
      const prompts = (await list(setup, "prompts")).stdout;
      assert.match(prompts, /^PROMPT +SERVER +DESCRIPTION$/m);
      assert.match(prompts, /^b__simple-prompt +b +A prompt with no arguments$/m);
      assert.match(prompts, /^8 prompts of 2 servers$/m);
      const { stdout } = await list(setup, "resources");
      const template = String.raw`demo:\/\/resource\/dynamic\/text\/\{resourceId\}`;
      assert.match(stdout, new RegExp(`^${template} +a `, "m"));
      assert.match(stdout, new RegExp(`^toolmux:\\/\\/b\\/${template} +b `, "m"));
      const { code, ...parsed } = await listJson(setup, "resources");
      assert.equal(code, 0);
      assert.deepEqual(Object.keys(parsed), ["resources", "resourceTemplates", "listedAt"]);
    });
  });
});

describe("list servers", () => {
  it("says of each server how it stands; one that waits to be called is no failure", () => {
    const lazy = { ...ONE, lazy: true };
    const servers = { a: scripted("--bare --tool only"), broken: BROKEN, off: OFF };
    return withTestFolder({ servers }, async (setup) => {
      const { stdout } = await list(setup, "servers", "--fresh");
      assert.match(stdout, /a +connected +1\nbroken +failed .*cannot open.*\noff +disabled/);
      assert.match(stdout, /^3 servers, 1 connected, 1 failed, 1 disabled$/m);
      const { code, servers: all } = await listJson(setup, "servers", "--fresh");
      assert.equal(code, 0);
      const [a, broken, off] = all;
      const era = { era: "legacy", protocolVersion: "2025-11-25" };
      assert.deepEqual(a, { name: "a", state: "connected", tools: 1, ...era });
      assert.deepEqual(off, { name: "off", state: "disabled" });
      const { error, ...rest } = broken as { error: Record<string, unknown> };
      assert.deepEqual(rest, { name: "broken", state: "failed" });
      assert.deepEqual([error["code"], error["step"]], ["connectionLost", "handshake"]);
      assert.match(JSON.stringify(error["stderr"]), /cannot open the database/);
      writeFileSync(setup.config, toToml({ servers: { lazy } }));
      const waiting = await list(setup, "servers");
      assert.deepEqual([waiting.code, waiting.stderr], [0, ""]);
      assert.match(waiting.stdout, /^lazy +idle +1\n1 server, 1 idle$/m);
    });
  });
});

describe("what servers listed", () => {
  for (const command of [["list"], ["list", "--fresh"], ["status"], ["call", "a__one"]]) {
    it(`during toolmux ${command.join(" ")} is listed again without starting them, and first by the next hub, whatever its client can do`, () => {
      const manifest = { hub: { listWait: "60s" }, servers: { a: controlled() } };
      return withControlledServers(manifest, async (servers) => {
        servers.setRules("a", { tools: ["one"] });
        assert.equal((await run(servers, ...command)).code, 0);
        const before = servers.startEvents("a").length;
        const { tools, listedAt } = await listJson(servers, "a");
        assert.ok(tools.some(({ name }) => name === "a__one"));
        assert.ok(Math.abs(Date.now() - Date.parse(listedAt["a"] ?? "")) < 60_000);
        assert.equal(servers.startEvents("a").length, before);
        servers.setRules("a", { start: "hang" });
        await servers.serve(async (client) => {
          await client.initialize("2025-11-25", { roots: { listChanged: true }, sampling: {} });
          assert.ok((await listToolNames(client)).includes("a__one"));
          servers.setRules("a", { tools: ["one"] });
        });
      });
    });
  }

  it("during toolmux add is listed again without starting it", () =>
    withTestFolder("", async (setup) => {
      const { command, args = [] } = scripted("--bare --tool one");
      const log = `SCRIPTED_LOG=${setup.dir}/a.log`;
      await run(setup, "add", "a", "--env", log, "--command", [command, ...args].join(" "));
      assert.equal(starts(setup)[0], 1);
      assert.match((await list(setup)).stdout, /^a__one /m);
      assert.equal(starts(setup)[0], 1);
    }));

  it("is learnt by starting the server alone that was never listed, and asked for anew by --fresh, which starts all", () =>
    withTestFolder(ONE_EACH, async (setup) => {
      await list(setup, "a");
      assert.deepEqual(starts(setup), [1, 0]);
      assert.match((await list(setup)).stdout, /^a__one +a[^]*^b__two +b/m);
      assert.deepEqual(starts(setup), [1, 1]);
      assert.ok(!("listedAt" in (await listJson(setup, "--fresh"))));
      assert.deepEqual(starts(setup), [2, 2]);
    }));
});

describe("a server whose tools change", () => {
  /** Runs a hub, ends it, and checks how many list_changed it sent in all its life. */
  async function assertChanges(
    count: number,
    servers: Readonly<Record<string, ServerEntry>>,
    during: (hub: Hub, listings: () => number) => Promise<void>,
  ): Promise<void> {
    const client = await withHub({ servers }, async (hub) => {
      await hub.client.initializeAndList();
      await during(hub, () => hub.log("a").filter(({ event }) => event === "list").length);
      return hub.client;
    });
    assert.equal(listChangedCount(client), count);
  }

  it("leads to one list_changed each time, and the new tool is listed and can be called", () =>
    assertChanges(3, { a: scripted("--grow"), b: scripted() }, async ({ client }) => {
      for (const n of [1, 2, 3]) {
        await client.call("a__grow");
        await waitForListChanged(client, n);
        assert.ok((await listToolNames(client)).includes(`a__grown_${n}`));
        const { message } = await client.call(`a__grown_${n}`, { n });
        assert.deepEqual(message.result?.structuredContent, { n });
      }
    }));

  for (const [what, options, first, listed] of [
    ["leads to no list_changed when it only says so", {}, "a__touch", "a__grown_1"],
    [
      "is no change for the client while a filter hides it",
      { deny: ["grown_1"] },
      "a__grow",
      "a__grown_2",
    ],
  ] as const) {
    it(what, () =>
      assertChanges(1, { a: scripted("--grow", { tools: options }) }, async (hub, listings) => {
        const { client } = hub;
        const before = listings();
        await client.call(first);
        await hub.waitForEvent("a", () => listings() > before);
        // Outlasts whatever a hub may wait before it tells its client.
        await client.call("a__sleep", { ms: 400 });
        await client.call("a__grow");
        await waitForListChanged(client, 1);
        const names = await listToolNames(client);
        assert.deepEqual(
          names.filter((name) => name.includes("grown")),
          [listed],
        );
      }),
    );
  }
});

describe("a listing in pages", () => {
  it("is gathered whole, sorted, and the same bytes every time and from one start of the hub to the next", async () => {
    const options = {
      a: "--pages 5 --tools 50 --bare",
      b: "--pages 3 --tools 7 --bare --empty-cursor",
      c: "--pages 40 --tools 20 --bare",
      d: "--tools 3 --start-delay 200",
    };
    const servers = Object.fromEntries(
      Object.entries(options).map(([name, line]) => [name, scripted(line)]),
    );
    const bytes = new Set<string>();
    for (let hubs = 0; hubs < 2; hubs += 1) {
      await withHub({ servers }, async ({ client }) => {
        await client.initialize();
        const first = await client.request("tools/list");
        for (const { text } of [first, await client.request("tools/list")])
          bytes.add(slice(text, "result") ?? "");
        const listed = toolNamesIn(first);
        for (const [server, line] of Object.entries(options)) {
          const extras = listed.filter((name) => name.startsWith(`${server}__extra_`));
          assert.equal(extras.length, Number(/--tools (\d+)/.exec(line)?.[1]), line);
          const { message } = await client.call(`${server}__extra_001`, { n: 1 });
          assert.deepEqual(message.result?.structuredContent, { n: 1 });
        }
        assert.deepEqual(listed, [...new Set(listed)].toSorted());
      });
    }
    assert.equal(bytes.size, 1);
  });
});
