import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { runCommand, start } from "../harness/command.ts";
import { EXIT_LIMIT, it, withTestFolder } from "../harness/hub.ts";

const EXAMPLES = fileURLToPath(new URL("../../examples/", import.meta.url));

/** The command that examples/README.md gives for each example, without environment and `toolmux`. */
const COMMANDS = new Map(
  [...readFileSync(`${EXAMPLES}README.md`, "utf8").matchAll(/^\| \[(.+?)\].*`(.*)` *\|$/gm)].map(
    ([, name = "", line = ""]) => [name, line],
  ),
);

/** What the command of an example prints, and its exit code. Examples with HTTP have tests of their own. */
const OUTCOMES: Readonly<Record<string, readonly [code: number, printed: RegExp]>> = {
  "first-steps": [0, /files__read_text_file[^]*memory__create_entities/],
  modes: [0, /^TOOL.*\nnotes__list .*\n1 tool of 1 server; 2 hidden\n$/],
  approval: [1, /notes__delete" was not called: a person has to allow it/],
  agents: [0, /^Your notes say: milk: Buy two litres\./],
  "own-plugin": [1, /The note "call" is protected\./],
};

const SERVED = ["http-with-tokens", "telemetry"];

/** The words of a command line, without the variables before it and without `toolmux`. */
function wordsOf(line: string): readonly string[] {
  const words = [...line.matchAll(/"[^"]*"|\S+/g)].map(([word]) => word);
  return words.slice(words.indexOf("toolmux") + 1).map((word) => word.replaceAll('"', ""));
}

describe("the examples", () => {
  it("are the folders of examples, and README names each with a command", () => {
    const folders = readdirSync(EXAMPLES, { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    const names = folders.map(({ name }) => name).toSorted();
    assert.deepEqual([...COMMANDS.keys()].toSorted(), names);
    assert.deepEqual(Object.keys(OUTCOMES).concat(SERVED).toSorted(), names);
  });

  for (const [name, [code, printed]] of Object.entries(OUTCOMES)) {
    it(`include ${name}, whose command does what it shows`, () =>
      withTestFolder({ servers: {} }, async ({ env }) => {
        const words = wordsOf(COMMANDS.get(name) ?? "");
        const output = await runCommand({ dir: EXAMPLES, env }, words);
        assert.equal(output.code, code, output.stderr);
        assert.match(output.stdout + output.stderr, printed);
      }));
  }

  it("include http-with-tokens, which shows each client what its token allows", () =>
    withTestFolder({ servers: {} }, async ({ env }) => {
      const line = COMMANDS.get("http-with-tokens") ?? "";
      const words = wordsOf(line).map((word) => (word === "8700" ? "127.0.0.1:0" : word));
      const variables = Object.fromEntries(
        [...line.matchAll(/(\w+)=(\w+)/g)].map((match) => match.slice(1)),
      );
      const hub = start({ dir: EXAMPLES, env }, words, variables);
      const url = await hub.until(20_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
      const list = async (token: string | undefined): Promise<number | readonly string[]> => {
        const response = await fetch(url, {
          method: "POST",
          headers: {
            "Content-Type": "application/json",
            Accept: "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/list",
            ...(token !== undefined && { Authorization: `Bearer ${token}` }),
          },
          body: JSON.stringify({
            jsonrpc: "2.0",
            id: 1,
            method: "tools/list",
            params: {
              _meta: {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
              },
            },
          }),
        });
        const text = await response.text();
        const names = [...text.matchAll(/"name":"(notes__\w+)"/g)].map(([, tool = ""]) => tool);
        return response.ok ? names.toSorted() : response.status;
      };
      assert.deepEqual(await list("r"), ["notes__list"]);
      assert.deepEqual(await list("w"), ["notes__delete", "notes__list", "notes__write"]);
      assert.equal(await list(undefined), 401);
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }));

  it("include telemetry, whose metrics Prometheus can read where its file says", () =>
    withTestFolder({ servers: {} }, async ({ env }) => {
      const words = wordsOf(COMMANDS.get("telemetry") ?? "");
      const config = readFileSync(`${EXAMPLES}telemetry/prometheus.yml`, "utf8");
      assert.ok(words.includes("8700") && config.includes('"127.0.0.1:8700"'));
      const free = words.map((word) => (word === "8700" ? "127.0.0.1:0" : word));
      const hub = start({ dir: EXAMPLES, env }, free);
      const url = await hub.until(20_000, "the address", () => /http:\S+/.exec(hub.stderr)?.[0]);
      const response = await fetch(new URL("/metrics", url));
      assert.equal(response.status, 200);
      assert.match(await response.text(), /^toolmux_servers\{/m);
      hub.signal("SIGTERM");
      await hub.waitForExit(EXIT_LIMIT);
    }));
});
