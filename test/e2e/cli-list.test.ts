import assert from "node:assert/strict";
import { describe } from "node:test";
import { RawClient } from "../harness/raw-client.ts";
import { EXIT_LIMIT, type TestFolder, executable, it, withTestFolder } from "../harness/hub.ts";
import { publishedServer, scripted } from "../harness/manifest.ts";

async function list(setup: TestFolder, ...args: string[]): Promise<string> {
  const line = ["list", ...args, "--config", setup.config];
  const command = new RawClient(executable(), line, setup.dir, setup.env);
  command.end();
  assert.equal((await command.waitForExit(EXIT_LIMIT)).code, 0);
  return command.lines.map(({ text }) => text).join("\n");
}

const LONG = "x".repeat(70);

const MANIFEST = {
  servers: {
    a: scripted(`--bare --tool one --tool two --tool two --tool secret_delete --tool ${LONG}`, {
      tools: { deny: ["*_delete"] },
    }),
    b: scripted("--bare --tool a__one --tool three", { prefix: "" }),
    off: { ...scripted(), enabled: false },
  },
};

describe("list", () => {
  it("ends with how many tools there are, of how many servers, and how many are hidden", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const text = await list(setup);
      assert.match(text, /^4 tools of 2 servers; 3 hidden$/m);
      assert.match(text, /^TOOL +SERVER +DESCRIPTION\na__one +a /);
      assert.doesNotMatch(text, /secret_delete|OWN NAME/);
      const servers = await list(setup, "servers", "--fresh");
      assert.match(servers, /^3 servers, 2 connected, 1 disabled$/m);
    }));

  it("--all shows what is hidden or has another name, and why", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const text = await list(setup, "--all");
      assert.match(text, /^OWN NAME +SERVER +STATE +WHY$/m);
      assert.match(text, /^secret_delete +a +hidden +tools\.deny names it\.$/m);
      assert.match(
        text,
        /^two +a +hidden +The server lists this name twice; the first is kept\.$/m,
      );
      assert.match(text, /^a__one +b +hidden +"a__one" is already one of server "a"\.$/m);
      assert.match(
        text,
        new RegExp(`^${LONG} +a +renamed +"a__${LONG}" is exposed as "a__x+_\\w{6}"\\.$`, "m"),
      );
    }));

  it("--all --json has them too, in a form for programs", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { tools, remarks } = JSON.parse(await list(setup, "--all", "--json")) as {
        tools: unknown[];
        remarks: { server: string; tool: string; kind: string; text: string }[];
      };
      assert.equal(tools.length, 4);
      const kinds = remarks.map(
        ({ server, tool, kind }) => `${server} ${tool.slice(0, 13)} ${kind}`,
      );
      assert.deepEqual(kinds.toSorted(), [
        "a secret_delete filtered",
        "a two duplicate",
        `a ${LONG.slice(0, 13)} shortened`,
        "b a__one clash",
      ]);
      assert.ok(!("remarks" in (JSON.parse(await list(setup, "--json")) as object)));
    }));
});

const EVERYTHING = {
  servers: {
    a: publishedServer("everything", ["stdio"]),
    b: publishedServer("everything", ["stdio"]),
  },
};

describe("list of prompts and resources", () => {
  it("has them by the names that clients see", () =>
    withTestFolder(EVERYTHING, async (setup) => {
      const prompts = await list(setup, "prompts");
      assert.match(prompts, /^PROMPT +SERVER +DESCRIPTION$/m);
      assert.match(prompts, /^b__simple-prompt +b +A prompt with no arguments$/m);
      assert.match(prompts, /^8 prompts of 2 servers$/m);
      const resources = await list(setup, "resources");
      assert.match(resources, /^demo:\/\/resource\/dynamic\/text\/\{resourceId\} +a /m);
      assert.match(
        resources,
        /^toolmux:\/\/b\/demo:\/\/resource\/dynamic\/text\/\{resourceId\} +b /m,
      );
      const parsed = JSON.parse(await list(setup, "resources", "--json")) as object;
      assert.deepEqual(Object.keys(parsed), ["resources", "resourceTemplates", "listedAt"]);
    }));
});
