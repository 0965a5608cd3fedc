import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { type CommandOutput, run, runCommand, startOn } from "../harness/command.ts";
import { EXIT_LIMIT, closeClient, it, withTestFolder } from "../harness/hub.ts";
import type { Manifest } from "../harness/manifest.ts";

const SERVER = fileURLToPath(new URL("../fixtures/servers/text-everywhere.mjs", import.meta.url));

const range = (first: number, last: number): string =>
  Array.from({ length: last - first + 1 }, (_, n) => String.fromCodePoint(first + n)).join("");
/** All that nobody sees and that changes how the text around it reads. */
const HIDDEN = [
  range(0x200b, 0x200f),
  range(0x202a, 0x202e),
  range(0x2066, 0x2069),
  "\ufeff",
  range(0xe0000, 0xe007f),
].join("");
const SPELLED = Array.from(HIDDEN, (char) => `\\u{${char.codePointAt(0)?.toString(16)}}`);
/** Short, as columns and examples are cut. */
const SAID = "a\u202eb\u2066c\u200bd\ufeffe\u{e0041}f";

const MANIFEST: Manifest = {
  servers: {
    good: { command: process.execPath, args: [SERVER, SAID] },
    dead: { command: "sh", args: ["-c", 'printf "%s\\n" "$0" >&2; exit 3', SAID] },
  },
};

function assertShown({ stdout, stderr }: CommandOutput, what: string): void {
  const found = Array.from(HIDDEN).filter((char) => (stdout + stderr).includes(char));
  assert.deepEqual(
    found.map((char) => char.codePointAt(0)?.toString(16)),
    [],
    what,
  );
  assert.match(stdout + stderr, /\\u\{202e\}/, what);
}

describe("what nobody sees in others' text", () => {
  it("is shown as escapes by list, status, doctor and call", () =>
    withTestFolder(MANIFEST, async (setup) => {
      for (const args of [
        ["list"],
        ["list", "--all"],
        ["list", "resources"],
        ["list", "servers"],
        ["status"],
        ["doctor", "--connect"],
        ["call", "good__t"],
        ["check"],
      ]) {
        assertShown(await run(setup, ...args), args.join(" "));
      }
    }));

  it("stays the same text in JSON documents, with JSON escapes in its place", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { stdout } = await run(setup, "status", "--json");
      assert.ok(!stdout.includes("\u202e"));
      const document = JSON.parse(stdout) as {
        servers: { implementation?: { name: string }; error?: { stderr: string[] } }[];
      };
      const [good, dead] = document.servers;
      assert.equal(good?.implementation?.name, SAID);
      assert.deepEqual(dead?.error?.stderr, [SAID]);
    }));

  it("is data that is not touched where a server's own entries are printed as JSON", () =>
    withTestFolder(MANIFEST, async (setup) => {
      const { stdout } = await run(setup, "list", "--json");
      assert.ok(stdout.includes(`"description":"${SAID}"`));
    }));

  it("is shown as escapes in the log of serve, as text and as JSON, and passes in the protocol", () =>
    withTestFolder(MANIFEST, async (setup) => {
      for (const format of ["text", "json"]) {
        const client = startOn(setup, "--log-level", "debug", "--log-format", format);
        const tools = await client.initializeAndList();
        assert.equal(tools.find(({ name }) => name === "good__t")?.["description"], SAID);
        await client.until(
          EXIT_LIMIT,
          "the end of one",
          () => /exited with code 3/.exec(client.stderr) ?? undefined,
        );
        // The hub starts a server whose tools it knows after the list. The call waits until the server is connected.
        await client.call("good__t");
        await closeClient(client);
        for (const char of HIDDEN) assert.ok(!client.stderr.includes(char), format);
        assert.match(client.stderr, format === "text" ? /\\u\{202e\}/ : /\\u202e/);
        if (format === "text") continue;
        const lines = client.stderr
          .trim()
          .split("\n")
          .map((line) => JSON.parse(line) as { message: string });
        assert.ok(lines.some(({ message }) => message === `told ${SAID}`));
      }
    }));

  it("is shown as escapes to whoever trusts a file, and where a manifest is wrong", () =>
    withTestFolder({ servers: {} }, async (setup) => {
      const place = join(setup.dir, `project\u202e`);
      mkdirSync(place);
      const file = join(place, ".mcp.json");
      const args = ["-c", `ls ${HIDDEN}; hs | live lruc`];
      writeFileSync(file, JSON.stringify({ mcpServers: { odd: { command: "sh", args } } }));
      const trusted = await runCommand(setup, ["trust", file]);
      assertShown(trusted, "trust");
      for (const escape of SPELLED) assert.ok(trusted.stdout.includes(escape), escape);
      writeFileSync(setup.config, `[servers.a]\ncommand = "x"\n"y${SAID}" = 1\n`);
      for (const command of ["check", "list"])
        assertShown(await run(setup, command), `wrong: ${command}`);
    }));
});
