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
  shareInSuite,
  type TestFolder,
  withHub,
  withTestFolder,
} from "../harness/hub.ts";
import { scripted, toToml } from "../harness/manifest.ts";
import { findPort, startRemote } from "../harness/remote-process.ts";
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
      for (const [word, nearest] of [
        ["of", /"off"/],
        ["promts", /"prompts"/],
      ] as const) {
        const wrong = await list(setup, word);
        assert.equal(wrong.code, 2);
        assert.match(wrong.stderr, nearest);
      }
    }));

  it("prints the tools on stdout, for programs as clients get them, byte for byte, and on stderr why a server has none", () =>
    withTestFolder({ servers: { a: scripted(), broken: BROKEN } }, async (setup) => {
      const { code, stdout, stderr } = await list(setup);
      assert.equal(code, 0);
      assert.match(stdout, /^TOOL +SERVER +DESCRIPTION\na__\w+ +a\b/);
      assert.ok(!stdout.includes("broken"));
      const why =
        /^toolmux: .*"broken".*exited with code 3\.\n(?: {2}\| .*\n)*? {2}\| .*cannot open the database.*\n(?: {2}\| .*\n)*.*toolmux status\n$/;
      assert.match(stderr, why);
      const json = (await list(setup, "--json")).stdout;
      const listed = JSON.parse(json) as Listed;
      assert.ok(listed.tools.some(({ name }) => name === "a__echo"));
      assert.ok(!("remarks" in listed), "they are for --all");
      assert.ok(json.includes('"x-order":{"b":1.0,"a":1234567890123456789}'));
    }));

  itWith({ skip: skipWithoutTerminal })(
    "has colours in a terminal unless NO_COLOR is set, and fits its width, with the prefix of a server once",
    () =>
      withTestFolder({ servers: { a: scripted() } }, async (setup) => {
        const show = async (before: string): Promise<string> => {
          const line = `${before} '${executable()}' list --config '${setup.config}'`;
          const terminal = startInTerminal(setup, line);
          assert.equal((await terminal.waitForExit(EXIT_LIMIT)).code, 0);
          // Before it there is the line of progress, which was erased.
          return shownBy(terminal).split("\r\u001b[K").at(-1) ?? "";
        };
        assert.ok((await show("stty cols 24;")).includes("\u001b[1ma: "));
        const plain = await show("stty cols 24; NO_COLOR=1");
        assert.ok(!plain.includes("\u001b"));
        const lines = plain.split("\r\n").filter((line) => line.startsWith("  "));
        assert.ok(lines.length > 5 && lines.every((line) => line.length <= 24), plain);
        assert.equal(plain.split("a__").length, 2, plain);
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

  it("has prompts and resources by the names that clients see", async () => {
    // Over HTTP one process is both servers, for all commands.
    const remote = await startRemote("http");
    const everything = { url: remote.url };
    const check = async (setup: TestFolder): Promise<void> => {
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
    };
    try {
      await withTestFolder({ servers: { a: everything, b: everything } }, check);
    } finally {
      await remote.stop();
    }
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
  it("during toolmux list, list --fresh, status and call is listed again without starting them, and first by the next hub, whatever its client can do", () => {
    /** Each starts the server of its name alone. */
    const commands = {
      listed: ["list", "listed"],
      fresh: ["list", "fresh", "--fresh"],
      status: ["status", "status"],
      called: ["call", "called__one"],
    };
    const names = Object.keys(commands);
    const manifest = {
      hub: { listWait: "60s" },
      servers: Object.fromEntries(names.map((name) => [name, controlled()])),
    };
    return withControlledServers(manifest, async (servers) => {
      const startCounts = (): number[] => names.map((name) => servers.startEvents(name).length);
      for (const name of names) servers.setRules(name, { tools: ["one"] });
      for (const [at, command] of Object.values(commands).entries()) {
        assert.equal((await run(servers, ...command)).code, 0);
        const started = startCounts().map((count) => count > 0);
        assert.deepEqual(
          started,
          names.map((_, index) => index <= at),
        );
      }
      const before = startCounts();
      const { tools, listedAt } = await listJson(servers);
      for (const name of names) {
        assert.ok(tools.some((tool) => tool.name === `${name}__one`));
        assert.ok(Math.abs(Date.now() - Date.parse(listedAt[name] ?? "")) < 60_000);
      }
      assert.deepEqual(startCounts(), before);
      for (const name of names) servers.setRules(name, { start: "hang" });
      await servers.serve(async (client) => {
        await client.initialize("2025-11-25", { roots: { listChanged: true }, sampling: {} });
        const listed = await listToolNames(client);
        for (const name of names) assert.ok(listed.includes(`${name}__one`), name);
        for (const name of names) servers.setRules(name, { tools: ["one"] });
      });
    });
  });

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
  const servers = {
    a: scripted("--grow"),
    filtered: scripted("--grow", { tools: { deny: ["grown_1"] } }),
  };
  const hub = shareInSuite<Hub>(async (use) => {
    const client = await withHub({ servers }, async (running) => {
      await running.client.initializeAndList();
      await use(running);
      return running.client;
    });
    // In all its life: three in the first test, and one in each other.
    assert.equal(listChangedCount(client), 5);
  });

  it("leads to one list_changed each time, and the new tool is listed and can be called", async () => {
    const { client } = hub();
    for (const n of [1, 2, 3]) {
      await client.call("a__grow");
      await waitForListChanged(client, n);
      assert.ok((await listToolNames(client)).includes(`a__grown_${n}`));
      const { message } = await client.call(`a__grown_${n}`, { n });
      assert.deepEqual(message.result?.structuredContent, { n });
    }
  });

  for (const [what, server, first, grown, changes] of [
    ["leads to no list_changed when it only says so", "a", "touch", 4, 4],
    ["is no change for the client while a filter hides it", "filtered", "grow", 2, 5],
  ] as const) {
    it(what, async () => {
      const { client, log, waitForEvent } = hub();
      const listings = () => log(server).filter(({ event }) => event === "list").length;
      const before = listings();
      await client.call(`${server}__${first}`);
      await waitForEvent(server, () => listings() > before);
      // Outlasts whatever a hub may wait before it tells its client.
      await client.call(`${server}__sleep`, { ms: 400 });
      assert.equal(listChangedCount(client), changes - 1);
      await client.call(`${server}__grow`);
      await waitForListChanged(client, changes);
      const names = await listToolNames(client);
      assert.ok(names.includes(`${server}__grown_${grown}`));
      assert.ok(!names.includes("filtered__grown_1"));
    });
  }
});

describe("a listing in pages", () => {
  it("is gathered whole, sorted, and the same bytes every time and from one start of the hub to the next", async () => {
    const options = {
      a: "--pages 40 --tools 20 --start-delay 200",
      b: "--pages 5 --tools 50 --bare --empty-cursor",
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
