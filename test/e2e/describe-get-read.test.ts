import assert from "node:assert/strict";
import { describe } from "node:test";
import { run, runJson } from "../harness/command.ts";
import { it, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { publishedServer } from "../harness/manifest.ts";

const testOnEverything = (name: string, check: (setup: TestFolder) => Promise<void>): void =>
  it(name, () => withTestFolder({ servers: { e: publishedServer("everything") } }, check));

describe("describe", () => {
  testOnEverything("shows the arguments of a tool, and a call that it accepts", async (setup) => {
    const { code, stdout } = await run(setup, "describe", "e__get-sum");
    assert.equal(code, 0);
    assert.match(stdout, /^ {2}a +.*required/m);
    const [, example = ""] = /^ {2}toolmux (call .*)$/m.exec(stdout) ?? [];
    assert.match(example, /^call e__get-sum /);
    assert.equal((await run(setup, ...example.split(" "))).code, 0);
  });

  testOnEverything("--json prints the tool as clients get it", async (setup) => {
    const { code: _, ...tool } = await runJson<{ name: string }>(setup, "describe", "e__echo");
    const { tools } = await runJson<{ tools: { name: string }[] }>(setup, "list");
    assert.deepEqual(
      tool,
      tools.find(({ name }) => name === "e__echo"),
    );
  });
});

describe("get", () => {
  testOnEverything("prints the messages of a prompt, each after its role", async (setup) => {
    const { code, stdout } = await run(setup, "get", "e__args-prompt", "city=Berlin");
    assert.equal(code, 0);
    assert.match(stdout, /^user:\n[^]*Berlin/);
    const raw = await run(setup, "get", "e__args-prompt", "city=Berlin", "--raw");
    assert.ok("messages" in (JSON.parse(raw.stdout) as object));
  });

  testOnEverything(
    "names an argument that is missing or that the prompt does not have, and ends with 2",
    async (setup) => {
      const missing = await run(setup, "get", "e__args-prompt");
      assert.equal(missing.code, 2);
      assert.match(missing.stderr, /city=/);
      const unknown = await run(setup, "get", "e__args-prompt", "city=x", "stat=y");
      assert.equal(unknown.code, 2);
      assert.match(unknown.stderr, /"state"/);
    },
  );
});

describe("read", () => {
  testOnEverything(
    "prints a resource that is listed, and one that fits a template",
    async (setup) => {
      const listed = await run(setup, "read", "demo://resource/static/document/features.md");
      assert.equal(listed.code, 0);
      assert.match(listed.stdout, /^# /);
      const expanded = await run(setup, "read", "demo://resource/dynamic/text/3");
      assert.equal(expanded.code, 0);
      assert.match(expanded.stdout, /3/);
      const raw = await run(setup, "read", "demo://resource/dynamic/text/3", "--raw");
      assert.ok("contents" in (JSON.parse(raw.stdout) as object));
    },
  );

  testOnEverything("of what no server has ends with an error on stderr alone", async (setup) => {
    const { code, stdout, stderr } = await run(setup, "read", "demo://nothing");
    assert.deepEqual([code, stdout], [1, ""]);
    assert.match(stderr, /demo:\/\/nothing/);
  });
});
