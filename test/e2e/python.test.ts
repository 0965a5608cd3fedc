import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { promisify } from "node:util";
import { SERVER_TRANSPORTS, withServe, withHttpServe } from "../harness/serve.ts";
import { connectFullClient, textOf } from "../harness/full-client.ts";
import { type TestFolder, itWith } from "../harness/hub.ts";
import type { ServerEntry } from "../harness/manifest.ts";
import { SKIP_WITHOUT_PYTHON, PYTHON, pythonModule, pythonScript } from "../harness/python.ts";
import type { StdioCommand } from "../harness/sdk-client.ts";

// Each test, not each suite: a file of which nothing is reported fails.
const it = itWith({ skip: SKIP_WITHOUT_PYTHON });

type Era = "legacy" | "modern";

// Its SDK speaks both eras.
const FAST: ServerEntry = { command: PYTHON, args: [pythonScript("server.py")] };
const TIME = pythonModule("mcp_server_time", ["--local-timezone", "Europe/Oslo"]);
const GIT = pythonModule("mcp_server_git");

/** A repository with one commit, and a change. */
/** Python takes seconds to start where others are at work: a first list waits for it. */
const MACHINE = { listWait: "30s" };

function makeRepository({ dir, env }: TestFolder): string {
  const repository = join(dir, "repository");
  const git = (...args: string[]): unknown => execFileSync("git", args, { cwd: dir, env });
  git("init", "--quiet", repository);
  writeFileSync(join(repository, "note.txt"), "one\n");
  git("-C", repository, "add", "note.txt");
  const person = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"];
  git("-C", repository, ...person, "commit", "--quiet", "-m", "Write a note ☃");
  writeFileSync(join(repository, "note.txt"), "two\n");
  return repository;
}

describe("servers made with the Python SDK behind the hub", () => {
  it("are listed as they list themselves, but for the prefix", () =>
    withServe("stdio", { hub: MACHINE, servers: { time: TIME, git: GIT } }, async (setup) => {
      const direct = Object.entries({ time: TIME, git: GIT }).map(async ([key, server]) => {
        const args = [...(server.args ?? [])];
        const program = { command: PYTHON, args, cwd: setup.dir, env: { ...setup.env } };
        const client = await connectFullClient("SDK v1", program);
        const { tools } = await client.sdk.listTools();
        await client.close();
        return tools.map((tool) => ({ ...tool, name: `${key}__${tool.name}` }));
      });
      const expected = (await Promise.all(direct))
        .flat()
        .toSorted((a, b) => (a.name < b.name ? -1 : 1));
      assert.ok(expected.length > 10);
      const client = await connectFullClient("SDK v1", setup.target);
      assert.deepEqual((await client.sdk.listTools()).tools, expected);
      await client.close();
    }));

  for (const face of SERVER_TRANSPORTS) {
    it(`tell the time, and what is in a repository, over ${face}`, () =>
      withServe(face, { hub: MACHINE, servers: { time: TIME, git: GIT } }, async (setup) => {
        const repository = makeRepository(setup);
        const client = await connectFullClient("SDK v2", setup.target);
        await client.sdk.listTools();
        const conversion = {
          source_timezone: "Asia/Kathmandu",
          time: "16:30",
          target_timezone: "UTC",
        };
        const converted = await client.call("time__convert_time", conversion);
        assert.match(textOf(converted), /10:45:00/);
        assert.match(textOf(converted), /-5\.75h/);
        const wrong = await client.call("time__get_current_time", { timezone: "No/Where" });
        assert.equal(wrong.isError, true);
        assert.match(textOf(wrong), /No\/Where/);
        const log = await client.call("git__git_log", { repo_path: repository });
        assert.match(textOf(log), /Write a note ☃/);
        const difference = await client.call("git__git_diff_unstaged", { repo_path: repository });
        assert.match(textOf(difference), /-one\n\+two/);
        await client.close();
      }));
  }
});

const CLIENTS = [
  ["SDK v1", "HTTP"],
  ["SDK v2", "stdio"],
] as const;

for (const [sdk, face] of CLIENTS) {
  describe(`a FastMCP server behind the hub, for a client of ${sdk} over ${face}`, () => {
    it("asks for all that it needs, and says how far it is", () =>
      withServe(face, { hub: MACHINE, servers: { fast: FAST } }, async ({ target: reach }) => {
        const client = await connectFullClient(sdk, reach, "one");
        await client.sdk.listTools();
        const text = async (name: string, args?: Record<string, unknown>): Promise<string> =>
          textOf(await client.call(`fast__${name}`, args));
        assert.equal(await text("confirm", { question: "Sure?" }), "accept True");
        assert.equal(await text("visit", { url: "https://example.com/?a=b" }), "accept");
        assert.equal(await text("sample", { prompt: "think" }), "sampled by one");
        assert.match(await text("roots"), /file:\/\/\/one/);
        assert.deepEqual(
          client.requests.map(({ method, params }) => [method, params["message"], params["url"]]),
          [
            ["elicitation/create", "[fast] Sure?", undefined],
            ["elicitation/create", "[fast] Look there", "https://example.com/?a=b"],
            ["sampling/createMessage", undefined, undefined],
            ["roots/list", undefined, undefined],
          ],
        );
        assert.deepEqual(client.completedElicitations, ["visit-1"]);
        await client.sdk.setLoggingLevel("info");
        await text("log", { text: "a line" });
        const line = await client.until("the line", () => client.logs[0]);
        assert.deepEqual([line.level, line.logger], ["info", "fast/tools"]);
        const steps: number[] = [];
        const onprogress = ({ progress }: { progress: number }): void => {
          steps.push(progress);
        };
        const counted = await client.call("fast__count", { to: 3 }, { onprogress });
        assert.equal(textOf(counted), "counted to 3");
        // Progress that comes in one chunk with the answer is lost in the SDKs.
        assert.deepEqual(steps, [1, 2, 3].slice(0, steps.length));
        await client.close();
      }));
  });
}

/** Lets the client of test/python do everything once, and returns what it tells. */
async function drive(
  { dir, env }: TestFolder,
  name: string,
  era: Era,
  reach: StdioCommand | string,
): Promise<Record<string, unknown>> {
  const target = typeof reach === "string" ? [reach] : [reach.command, ...reach.args];
  const args = ["-W", "ignore", pythonScript("client.py"), name, era, ...target];
  const { stdout } = await promisify(execFile)(PYTHON, args, { cwd: dir, env, timeout: 40_000 });
  return JSON.parse(stdout) as Record<string, unknown>;
}

/** What a client tells that everything went well for. */
function success(name: string, era: Era): Record<string, unknown> {
  const tools = ["add", "choose", "confirm", "count", "fail", "log", "roots", "sample", "visit"];
  return {
    version: era === "legacy" ? "2025-11-25" : "2026-07-28",
    tools: tools.map((tool) => `fast__${tool}`),
    called: {
      add: "42",
      count: "counted to 3",
      confirm: "accept True",
      visit: "accept",
      sample: `sampled by ${name}`,
      choose: "toolUse right {'exact': 1.5}",
      roots: `["file:///${name}"]`,
      log: "logged",
      fail: "Error calling tool 'fail': as told",
    },
    failed: ["fail"],
    structured: { result: 42 },
    progress: [1, 2, 3].map((at) => [at, 3, `at ${at}`]),
    asked: [
      "form [fast] Sure?",
      "url [fast] Look there",
      `sample for ${name}`,
      "sample choose",
      "roots",
    ],
    // Modern clients come back by themselves.
    completed: era === "legacy" ? ["visit-1"] : [],
    logs: [["info", "fast/tools", { msg: `line for ${name}`, extra: null }]],
    prompts: ["fast__greet"],
    prompt: `Hello ${name} ☃`,
    resources: ["fast://plain"],
    templates: ["fast://of/{name}"],
    read: ["plain text", "about me"],
    unknown: [-32602, 'There is no tool "fast__none".'],
  };
}

describe("a client made with the Python SDK", () => {
  for (const era of ["legacy", "modern"] as const) {
    // It asks by itself, which servers do in the legacy era alone: of its own accord it is spoken to as its client is.
    const fast: ServerEntry = era === "legacy" ? FAST : { ...FAST, era: "legacy" };
    for (const face of SERVER_TRANSPORTS) {
      it(`does all of it in the ${era} era over ${face}, and is asked for all of it`, () =>
        withServe(
          face,
          { hub: MACHINE, servers: { fast } },
          async ({ target: reach, ...setup }) => {
            assert.deepEqual(await drive(setup, "one", era, reach), success("one", era));
          },
        ));
    }
  }

  it("is alone with its own server while others are with theirs", () =>
    withHttpServe(
      { hub: MACHINE, servers: { fast: { ...FAST, isolation: "perClient" } } },
      async (hub) => {
        const names = ["one", "two", "three"];
        const reported = await Promise.all(
          names.map((name) => drive(hub, name, "legacy", hub.target)),
        );
        assert.deepEqual(
          reported,
          names.map((name) => success(name, "legacy")),
        );
      },
    ));
});
