import assert from "node:assert/strict";
import { describe } from "node:test";
import { run, runJson, startHub } from "../harness/command.ts";
import { it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";

const MANIFEST = {
  servers: {
    a: scripted("--bare --tool read_file --tool delete_file"),
    b: scripted("--bare --tool current_weather"),
  },
  modes: { careful: { tools: { not: { tools: ["delete_*"] } } } },
};

interface Found {
  readonly tools: readonly { readonly name: string; readonly words?: readonly object[] }[];
  readonly matches: number;
  readonly available: number;
}

interface Tokens {
  readonly servers: readonly { readonly server: string; readonly tools: number }[];
  readonly exposures?: Readonly<Record<string, { readonly tools: number }>>;
}

describe("find", () => {
  it("finds tools by what they do, of the manifest's servers and of a running hub, also in a mode, and list --tokens counts them", () =>
    withTestFolder(MANIFEST, async (setup) => {
      for (const isRunning of [false, true]) {
        const hub = isRunning ? await startHub(setup) : undefined;
        const found = await runJson<Found>(setup, "find", "remove", "a", "file", "--explain");
        assert.deepEqual([found.code, found.matches, found.available], [0, 2, 3]);
        assert.deepEqual(
          found.tools.map(({ name }) => name),
          ["a__delete_file", "a__read_file"],
        );
        assert.ok(found.tools.every(({ words = [] }) => words.length > 0));
        const inMode = await runJson<Found>(setup, "find", "remove file", "--mode", "careful");
        assert.deepEqual(
          [inMode.available, inMode.tools.map(({ name }) => name)],
          [2, ["a__read_file"]],
        );
        const { stdout } = await run(setup, "find", "wether", "--server", "b");
        assert.match(
          stdout,
          /^TOOL +SERVER +DESCRIPTION\nb__current_weather +b .*\n1 of 1 tool match/,
        );
        const wrong = await run(setup, "find", "file", "--server", "c");
        assert.notEqual(wrong.code, 0);
        assert.match(wrong.stderr, /"c"/);

        const tokens = await runJson<Tokens>(setup, "list", "--tokens");
        assert.deepEqual(
          tokens.servers.map(({ server, tools }) => [server, tools]),
          [
            ["a", 2],
            ["b", 1],
          ],
        );
        assert.deepEqual(Object.keys(tokens.exposures ?? {}), ["direct", "search", "select"]);
        const ofOne = await runJson<Tokens>(setup, "list", "b", "--tokens");
        assert.deepEqual([ofOne.servers.length, ofOne.exposures], [1, undefined]);
        hub?.end();
      }
    }));
});
