import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { promisify } from "node:util";
import { connectFullClient, textOf } from "../harness/full-client.ts";
import { type TestFolder, executable, itWith } from "../harness/hub.ts";
import type { ServerEntry } from "../harness/manifest.ts";
import { SKIP_WITHOUT_PYTHON, PYTHON, pythonModule, pythonScript } from "../harness/python.ts";
import type { ToolResult } from "../harness/sdk-client.ts";
import { stopSharedHub, withHttpServe } from "../harness/serve.ts";

/** For the clients, in ms: with their servers, several interpreters start at the same time. */
const LIMIT = 100_000;

// Each test, not each suite: a file of which nothing is reported fails.
const it = itWith({ skip: SKIP_WITHOUT_PYTHON, timeout: 2 * LIMIT });

type Era = "legacy" | "modern";

// Its SDK speaks both eras.
const FAST: ServerEntry = { command: PYTHON, args: [pythonScript("server.py")] };
const GIT = pythonModule("mcp_server_git");

/** Python takes seconds to start where others are at work: a first list waits for it. */
const MACHINE = { listWait: "30s" };

/** A repository with one commit, and a change. */
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

/** The tools of GIT as it lists them without the hub, but under the names that the hub gives them. */
async function listGitDirectly({ dir, env }: TestFolder): Promise<readonly { name: string }[]> {
  const program = { command: PYTHON, args: [...(GIT.args ?? [])], cwd: dir, env: { ...env } };
  const client = await connectFullClient("SDK v1", program);
  const { tools } = await client.sdk.listTools();
  await client.close();
  return tools.map((tool) => ({ ...tool, name: `git__${tool.name}` }));
}

describe("a server made with the Python SDK behind the hub", () => {
  it("is listed as it lists itself but for the prefix, tells what is in a repository, and what it was asked wrongly", () =>
    withHttpServe({ hub: MACHINE, servers: { git: GIT } }, async (setup) => {
      const repository = makeRepository(setup);
      const client = await connectFullClient("SDK v1", setup.target);
      const { tools } = await client.sdk.listTools();
      assert.ok(tools.length > 10);
      const direct = await listGitDirectly(setup);
      assert.deepEqual(
        tools,
        direct.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      );
      const call = (name: string, folder: string): Promise<ToolResult> =>
        client.call(name, { repo_path: folder });
      assert.match(textOf(await call("git__git_log", repository)), /Write a note ☃/);
      assert.match(textOf(await call("git__git_diff_unstaged", repository)), /-one\n\+two/);
      const wrong = await call("git__git_log", join(setup.dir, "nowhere"));
      assert.equal(wrong.isError, true);
      assert.match(textOf(wrong), /nowhere/);
      await client.close();
    }));
});

/** A client of test/python/client.py: its name, its era, and the URL or the command of the hub. */
type Run = readonly [name: string, era: Era, ...target: string[]];

/** Lets clients do everything once, all at the same time, and checks what they tell. */
async function drive({ dir, env }: TestFolder, runs: readonly Run[]): Promise<void> {
  const args = ["-W", "ignore", pythonScript("client.py"), JSON.stringify(runs)];
  const { stdout } = await promisify(execFile)(PYTHON, args, { cwd: dir, env, timeout: LIMIT });
  assert.deepEqual(
    JSON.parse(stdout),
    runs.map(([name, era]) => success(name, era)),
  );
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

describe("clients made with the Python SDK", () => {
  // One interpreter runs all clients: an interpreter with the SDK is slow to start.
  it("do all of it in both eras over both transports, also with a server of their own, which speaks their era", () => {
    // It asks by itself, which servers do in the legacy era alone.
    const legacy = { hub: MACHINE, servers: { fast: { ...FAST, era: "legacy" } } };
    const own = { hub: MACHINE, servers: { fast: { ...FAST, isolation: "perClient" } } };
    return withHttpServe(legacy, (hub) =>
      withHttpServe(own, async (other) => {
        const attach = [executable(), "attach", "--config", hub.config] as const;
        await drive(hub, [
          ["http", "modern", hub.target],
          ["stdio", "modern", executable(), "serve", "--config", hub.config],
          ["attached", "legacy", ...attach],
          ["shared", "modern", ...attach],
          ["own", "legacy", other.target],
        ]);
        await stopSharedHub(hub);
      }),
    );
  });
});
