import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { formatPinFile, parsePinFile, pinKeyOf } from "../../src/manifest/pin-file.ts";
import { trustFileOrAgent } from "../../src/operations/trust.ts";
import { differencesFrom } from "../../src/pins/pin-file.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const tool = (name: string, digest = "d") => ({ kind: "tool" as const, name, digest });
const EMPTY = formatPinFile(new Map());
const TEXT = `[hub]\npinFile = "toolmux.pins.json"\n[servers.a]\ncommand = "x"\n`;

describe("a pin file", () => {
  it("is read as it was written", () => {
    const entries = [
      tool("b", "1"),
      tool("__proto__", "2"),
      { kind: "prompt" as const, name: "b", digest: "3" },
      { kind: "instructions" as const, name: "", digest: "4" },
    ];
    const read = parsePinFile(formatPinFile(new Map([["s", entries]])));
    assert.deepEqual(
      read?.get("s"),
      new Map(entries.map(({ kind, name, digest }) => [pinKeyOf(kind, name), digest])),
    );
  });

  it("has the same text whatever the order of servers and names is", () => {
    const one = formatPinFile(
      new Map([
        ["a", [tool("x"), tool("y")]],
        ["b", []],
      ]),
    );
    const other = formatPinFile(
      new Map([
        ["b", []],
        ["a", [tool("y"), tool("x")]],
      ]),
    );
    assert.equal(one, other);
  });

  for (const text of [
    "",
    "{",
    "[]",
    '{"version":2,"servers":{}}',
    '{"version":1,"servers":{"a":[]}}',
    '{"version":1,"servers":{"a":{"tools":{"x":1}}}}',
    '{"version":1,"servers":{"a":{"resources":{}}}}',
  ]) {
    it(`is damaged as a whole if it is ${text === "" ? "empty" : text}`, () => {
      assert.equal(parsePinFile(text), undefined);
    });
  }

  it("differs from what is listed by each name", () => {
    const file = parsePinFile(
      formatPinFile(
        new Map([
          ["a", [tool("same"), tool("changed", "1"), tool("gone")]],
          ["lost", []],
          ["off", [tool("x")]],
        ]),
      ),
    );
    const listed = new Map([
      ["a", [tool("same"), tool("changed", "2"), tool("new")]],
      ["b", [tool("x")]],
    ]);
    assert.deepEqual(
      differencesFrom(file ?? assert.fail(), listed, ["a", "b", "off"]).map((each) => [
        each.server,
        each.name,
        each.reason,
      ]),
      [
        ["a", "changed", "changed"],
        ["a", "new", "notInFile"],
        ["a", "gone", "notListed"],
        ["b", undefined, "notInFile"],
        ["lost", undefined, "noServer"],
      ],
    );
  });
});

describe("the pin file of a manifest", () => {
  const contentOf = async (folder: ManifestFolder, files: readonly string[]) => {
    const { manifest } = await folder.loadValid({ files });
    return manifest.pinFile?.content;
  };

  itIn("lies beside it, and is a part of what was loaded", async (folder) => {
    const file = await folder.write("a.toml", TEXT);
    const pins = join(folder.root, "toolmux.pins.json");
    const missing = await folder.load({ files: [file] });
    assert.ok(missing.ok && missing.manifest.pinFile !== undefined);
    assert.ok("unusable" in missing.manifest.pinFile.content);
    assert.ok(missing.dependentFiles.includes(pins), "it is not watched");
    await writeFile(pins, EMPTY);
    const { fingerprint } = await folder.load({ files: [file] });
    assert.notEqual(fingerprint, missing.fingerprint);
    assert.deepEqual(await contentOf(folder, [file]), { servers: new Map() });
    await writeFile(pins, "{");
    const damaged = await contentOf(folder, [file]);
    assert.ok(damaged !== undefined && "unusable" in damaged);
    assert.notEqual((await folder.load({ files: [file] })).fingerprint, fingerprint);
  });

  itIn("of the working directory has to be trusted again when it has changed", async (folder) => {
    await folder.write("work/toolmux.toml", TEXT);
    const pins = await folder.write("work/toolmux.pins.json", EMPTY);
    const context = { ...contextOf({ HOME: folder.home }, folder.cwd), note: () => {} };
    const trust = () => trustFileOrAgent("toolmux.toml", { config: [] }, context);
    await trust();
    assert.deepEqual(await contentOf(folder, []), { servers: new Map() });
    await writeFile(pins, (await readFile(pins, "utf8")).replace("{", "{ "));
    const changed = await contentOf(folder, []);
    assert.ok(changed !== undefined && "unusable" in changed);
    assert.match(changed.unusable, /toolmux trust .*toolmux\.toml/);
    await trust();
    assert.deepEqual(await contentOf(folder, []), { servers: new Map() });
  });
});
