import assert from "node:assert/strict";
import { describe } from "node:test";
import { itIn, serverTable } from "../harness/in-folder.ts";

const CLIENT = '[[clients]]\nname = "a"\ntoken = "t"\n';

describe("modes and clients of a manifest", () => {
  itIn("are merged by name, the later file wins", async (folder) => {
    const one = await folder.write(
      "one.toml",
      `${serverTable("x")}[modes.m]\ntools = "all"\ntitle = "One"\n[modes.n]\ntools = "all"\n${CLIENT}`,
    );
    const two = await folder.write(
      "sub/two.toml",
      `[modes.m]\ntools = { or = [] }\n${CLIENT}mode = "n"\n[[clients]]\nname = "b"\ntoken = "u"`,
    );
    const { manifest } = await folder.loadValid({ files: [one, two] });
    assert.deepEqual(
      manifest.modes?.map(({ name, title, tools }) => [name, title, JSON.stringify(tools)]),
      [
        ["m", "m", '{"or":[]}'],
        ["n", "n", '"all"'],
      ],
    );
    assert.deepEqual(
      manifest.clients?.map((it) => it.kind === "client" && [it.name, it.mode, it.token.baseDir]),
      [
        ["a", "n", `${folder.root}/sub`],
        ["b", undefined, `${folder.root}/sub`],
      ],
    );
  });

  itIn("with a problem do without themselves alone: such a mode shows nothing", async (folder) => {
    const text = `${serverTable("x")}[modes.good]\ntools = "all"\n[modes.bad]\ntools = { tool = [] }\n${CLIENT}mode = "none"\n[[clients]]\nname = "b"\ntoken = "u"\nmode = "good"\n[[clients]]\ntoken = "v"`;
    const file = await folder.write("t.toml", text);
    const loaded = await folder.load({ files: [file] });
    assert.ok(loaded.ok);
    const places = loaded.problems.map(({ path }) => path.join("."));
    assert.deepEqual(places, ["modes.bad.tools.tool", "clients.0.mode", "clients.2.name"]);
    const { modes = [], clients = [] } = loaded.manifest;
    const [good, bad] = modes;
    assert.deepEqual([good?.problems, good?.tools], [[], "all"]);
    assert.equal(bad?.problems[0]?.position?.line, 7);
    assert.deepEqual([bad.tools, bad.prompts, bad.resources], [{ or: [] }, { or: [] }, { or: [] }]);
    assert.deepEqual(
      clients.map(({ kind, name }) => [kind, name]),
      [
        ["invalid", "a"],
        ["client", "b"],
        ["invalid", undefined],
      ],
    );
  });

  itIn("with a problem refuse the manifest whose hub.mode they are", async (folder) => {
    const bad = "[modes.bad]\ntools = {}\n";
    for (const [mode, ok] of [
      ["bad", false],
      ["none", false],
      ["full", true],
    ] as const) {
      const text = `hub.mode = "${mode}"\n${serverTable("x")}${bad}`;
      const file = await folder.write("t.toml", text);
      assert.equal((await folder.load({ files: [file] })).ok, ok, mode);
    }
  });

  itIn("are noted if a token is plain text in a file that others can read", async (folder) => {
    const file = await folder.write("t.toml", `${serverTable("x")}${CLIENT}`);
    const { notes } = await folder.loadValid({ files: [file] });
    assert.match(notes.join(), /the token of client "a" is plain text/);
    assert.doesNotMatch(notes.join(), /"t"/);
  });
});
