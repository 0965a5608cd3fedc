import assert from "node:assert/strict";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { type TestFolder, it, withTestFolder } from "../harness/hub.ts";
import { controlled, listToolNames, withControlledServers } from "../harness/controlled-servers.ts";
import { publishedServer, scripted } from "../harness/manifest.ts";

function run(setup: TestFolder, ...args: string[]): Promise<CommandOutput> {
  return runCommand(setup, [...args, "--config", setup.config]);
}

function startsOf(setup: TestFolder, server: string): number {
  return setup.log(server).filter(({ event }) => event === "start").length;
}

const MANIFEST = {
  servers: { a: scripted("--bare --tool one"), b: scripted("--bare --tool two") },
};

describe("what servers listed", () => {
  for (const command of [["list"], ["list", "--fresh"], ["status"], ["call", "a__one"]]) {
    it(`during toolmux ${command.join(" ")} is listed again without starting them`, () =>
      withTestFolder(MANIFEST, async (setup) => {
        assert.equal((await run(setup, ...command)).code, 0);
        const starts = startsOf(setup, "a");
        const { stdout } = await run(setup, "list", "a", "--json");
        const { tools, listedAt } = JSON.parse(stdout) as {
          tools: { name: string }[];
          listedAt: { a: string };
        };
        assert.deepEqual(
          tools.map(({ name }) => name),
          ["a__one"],
        );
        assert.ok(Math.abs(Date.now() - Date.parse(listedAt.a)) < 60_000);
        assert.equal(startsOf(setup, "a"), starts);
      }));
  }

  for (const command of [["list"], ["status"], ["call", "a__one"]]) {
    it(`during toolmux ${command.join(" ")} is the first list of the next hub, whatever its client can do`, () => {
      const manifest = { hub: { listWait: "60s" }, servers: { a: controlled() } };
      return withControlledServers(manifest, async (servers) => {
        servers.setRules("a", { tools: ["one"] });
        await run(servers, ...command);
        servers.setRules("a", { start: "hang" });
        await servers.serve(async (client) => {
          await client.initialize("2025-11-25", { roots: { listChanged: true }, sampling: {} });
          assert.ok((await listToolNames(client, 3000)).includes("a__one"));
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
      assert.equal(startsOf(setup, "a"), 1);
      assert.match((await run(setup, "list")).stdout, /^a__one /m);
      assert.equal(startsOf(setup, "a"), 1);
    }));

  it("is asked for anew by --fresh, which starts all servers", () =>
    withTestFolder(MANIFEST, async (setup) => {
      await run(setup, "list");
      const { stdout } = await run(setup, "list", "--fresh", "--json");
      assert.ok(!("listedAt" in (JSON.parse(stdout) as object)));
      assert.deepEqual([startsOf(setup, "a"), startsOf(setup, "b")], [2, 2]);
    }));

  it("is printed without colors to a pipe, whatever CI and FORCE_COLOR say", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const env = { ...setup.env, CI: "true", FORCE_COLOR: "1" };
      const { stdout } = await run({ ...setup, env }, "list");
      assert.match(stdout, /a__one/);
      assert.ok(!stdout.includes("\u001b"));
    }));

  it("of a server that was never listed is learnt by starting that server alone", () =>
    withTestFolder(MANIFEST, async (setup) => {
      await run(setup, "list", "a");
      assert.deepEqual([startsOf(setup, "a"), startsOf(setup, "b")], [1, 0]);
      const { stdout } = await run(setup, "list");
      assert.match(stdout, /^a__one +a[^]*^b__two +b/m);
      assert.deepEqual([startsOf(setup, "a"), startsOf(setup, "b")], [1, 1]);
    }));
});

describe("a word that names nothing", () => {
  it("of list is answered with the nearest server or list, and exit code 2", () =>
    withTestFolder({ servers: { files: scripted("--bare --tool one") } }, async (setup) => {
      for (const [word, nearest] of [
        ["fils", "files"],
        ["promts", "prompts"],
      ] as const) {
        const { code, stderr } = await run(setup, "list", word);
        assert.equal(code, 2);
        assert.match(stderr, new RegExp(`"${nearest}"`));
      }
    }));

  it("of call is answered with the tool that was meant, and starts nothing", () =>
    withTestFolder(MANIFEST, async (setup) => {
      await run(setup, "list");
      for (const word of ["one", "x_one", "a_one"]) {
        const { code, stderr } = await run(setup, "call", word);
        assert.equal(code, 2);
        assert.match(stderr, /"a__one"/);
      }
      assert.deepEqual([startsOf(setup, "a"), startsOf(setup, "b")], [1, 1]);
    }));

  it("of call is looked for at the server of its prefix, which may have a new tool", () =>
    withTestFolder(MANIFEST, async (setup) => {
      await run(setup, "list");
      const { code } = await run(setup, "call", "a__other");
      assert.equal(code, 2);
      assert.deepEqual([startsOf(setup, "a"), startsOf(setup, "b")], [2, 1]);
    }));
});

const EVERYTHING = { servers: { e: publishedServer("everything") } };

describe("describe", () => {
  it("shows the arguments of a tool, and a call that the tool accepts", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const { code, stdout } = await run(setup, "describe", "e__get-sum");
      assert.equal(code, 0);
      assert.match(stdout, /^ {2}a +.*required/m);
      const [, example = ""] = /^ {2}toolmux (call .*)$/m.exec(stdout) ?? [];
      assert.deepEqual(example.split(" ").slice(0, 2), ["call", "e__get-sum"]);
      assert.equal((await run(setup, ...example.split(" "))).code, 0);
    }));

  it("--json prints the tool as clients get it", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const { stdout } = await run(setup, "describe", "e__echo", "--json");
      const { tools } = JSON.parse((await run(setup, "list", "--json")).stdout) as {
        tools: { name: string }[];
      };
      assert.deepEqual(
        JSON.parse(stdout),
        tools.find(({ name }) => name === "e__echo"),
      );
    }));
});

describe("get", () => {
  it("prints the messages of a prompt, each after its role", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const { code, stdout } = await run(setup, "get", "e__args-prompt", "city=Berlin");
      assert.deepEqual([code, stdout.split("\n")[0]], [0, "user:"]);
      assert.match(stdout, /Berlin/);
      const raw = await run(setup, "get", "e__args-prompt", "city=Berlin", "--raw");
      assert.ok("messages" in (JSON.parse(raw.stdout) as object));
    }));

  it("names an argument that is missing, or that the prompt does not have, with exit code 2", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const missing = await run(setup, "get", "e__args-prompt");
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /city=/);
      const unknown = await run(setup, "get", "e__args-prompt", "city=x", "stat=y");
      assert.equal(unknown.code, 2);
      assert.match(unknown.stderr, /"state"/);
    }));
});

describe("read", () => {
  it("prints a resource that is listed, and one that fits a template", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const listed = await run(setup, "read", "demo://resource/static/document/features.md");
      assert.equal(listed.code, 0);
      assert.match(listed.stdout, /^# /);
      const expanded = await run(setup, "read", "demo://resource/dynamic/text/3");
      assert.equal(expanded.code, 0);
      assert.match(expanded.stdout, /3/);
      const raw = await run(setup, "read", "demo://resource/dynamic/text/3", "--raw");
      assert.ok("contents" in (JSON.parse(raw.stdout) as object));
    }));

  it("of what no server has ends with an error on stderr alone", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const { code, stdout, stderr } = await run(setup, "read", "demo://nothing");
      assert.equal(code, 1);
      assert.equal(stdout, "");
      assert.match(stderr, /demo:\/\/nothing/);
    }));
});
