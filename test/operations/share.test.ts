import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { SCHEMA_ID } from "../../src/base/homepage.ts";
import {
  describeFigures,
  type HubUse,
  offerToClients,
  setSharing,
  sharingOf,
  sharingOffer,
} from "../../src/operations/share.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn, loadFiles, serverTable } from "../harness/in-folder.ts";

const MB = 1e6;
const NOTHING = { config: [] };
const contextIn = (folder: ManifestFolder) => contextOf({ HOME: folder.home }, folder.cwd);

function hub(pid: number, names: readonly string[], more: Partial<HubUse> = {}): HubUse {
  const servers = names.map((name) => ({ name, processes: 1, memory: 70 * MB }));
  return { pid, cwd: "/work", endpoints: ["stdio"], servers, ...more };
}

const NAMES = ["browser", ..."a b c d e f g h".split(" ")];
const MANIFEST = NAMES.map((name) =>
  serverTable(name, name === "browser" ? 'isolation = "perClient"' : ""),
).join("");

describe("the figures of sharing", () => {
  itIn("count what runs, and what of it a shared hub would run", async (folder) => {
    const manifest = await loadFiles(folder, [MANIFEST]);
    const sharing = sharingOf(
      [1, 2, 3].map((pid) => hub(pid, NAMES)),
      manifest,
    );
    assert.deepEqual(sharing.now, { hubs: 3, processes: 27, memory: 27 * 70 * MB });
    assert.deepEqual(sharing.shared, { processes: 11, memory: 11 * 70 * MB });
    assert.deepEqual(sharing.perClient, ["browser"]);
    assert.equal(
      describeFigures(sharing),
      '3 hubs, 27 processes, 1.9 GB; shared: 11 processes, about 770 MB; "browser" would stay one per client',
    );
  });

  itIn(
    "know the servers that keep a client's state, unless the manifest decides",
    async (folder) => {
      const browser = (name: string, more = ""): string =>
        `[servers.${name}]\npackage = "npm:@playwright/mcp"\n${more}\n`;
      const manifest = await loadFiles(folder, [browser("a") + browser("b", 'isolation = "one"')]);
      const sharing = sharingOf([hub(1, ["a", "b"]), hub(2, ["a", "b"])], manifest);
      assert.deepEqual([sharing.perClient, sharing.shared.processes], [["a"], 3]);
    },
  );

  itIn("take the largest copy of a server for the one that stays", async (folder) => {
    const manifest = await loadFiles(folder, [serverTable("a")]);
    const uses = [1, 2, 3].map((size) =>
      hub(size, [], { servers: [{ name: "a", processes: size, memory: size * MB }] }),
    );
    const { now, shared } = sharingOf(uses, manifest);
    assert.deepEqual([now.processes, shared.processes], [6, 3]);
    assert.deepEqual([now.memory, shared.memory], [6 * MB, 3 * MB]);
  });

  itIn("count a server for each folder that it takes from its clients", async (folder) => {
    const manifest = await loadFiles(folder, [
      serverTable("a", 'args = ["${workspaceFolder}"]') + serverTable("b", 'inheritEnv = ["T"]'),
    ]);
    const uses = ["/x", "/x", "/y"].map((cwd, pid) => hub(pid, ["a", "b"], { cwd }));
    const { now, shared, perValue } = sharingOf(uses, manifest);
    assert.deepEqual([now.processes, shared.processes], [6, 3]);
    assert.deepEqual(perValue, [
      { server: "a", names: ["${workspaceFolder}"] },
      { server: "b", names: ["T"] },
    ]);
  });

  itIn("leave out hubs that serve no client on stdio, and the shared hub", async (folder) => {
    const manifest = await loadFiles(folder, [serverTable("a")]);
    const uses = [
      hub(1, ["a"]),
      hub(2, ["a"], { endpoints: ["http://127.0.0.1:8700/mcp"] }),
      hub(3, ["a"], { endpoints: ["shared"] }),
    ];
    const sharing = sharingOf(uses, manifest);
    assert.deepEqual(sharing.now, { hubs: 1, processes: 1, memory: 70 * MB });
    assert.deepEqual([sharing.privateHubs, sharing.sharedHubs], [[1], [3]]);
  });
});

describe("an offer to share", () => {
  const two = [hub(1, ["a"]), hub(2, ["a"])];
  const idle = [hub(1, []), hub(2, [])];
  const cases: readonly (readonly [
    what: string,
    uses: readonly HubUse[],
    more: string,
    boolean,
  ])[] = [
    ["is made to two hubs", two, "", true],
    ["is made to two hubs that have started no server yet", idle, "", true],
    ["is not made to one hub", [hub(1, ["a"])], "", false],
    ["is not made if the manifest is shared", two, "[hub]\nshared = true\n", false],
    ["is not made if each client keeps its processes", two, 'isolation = "perClient"', false],
  ];
  for (const [what, uses, more, isMade] of cases) {
    itIn(what, async (folder) => {
      const isHub = more.startsWith("[hub]");
      const text = serverTable("a", isHub ? "" : more) + (isHub ? more : "");
      const sharing = sharingOf(uses, await loadFiles(folder, [text]));
      const offer = sharingOffer(sharing);
      assert.equal(offer !== undefined, isMade);
      if (offer !== undefined) assert.ok(offer.text.endsWith(": toolmux share on"), offer.text);
    });
  }

  it("names the files that choose the manifest", () => {
    const offer = sharingOffer(sharingOf(two, undefined), ["/x/a.toml"]);
    assert.ok(offer?.text.endsWith(": toolmux --config /x/a.toml share on"));
  });

  it("is made to two installed clients before they have run", () => {
    const none = sharingOf([], undefined);
    assert.equal(offerToClients(1, none, []), undefined);
    assert.match(offerToClients(2, none, []) ?? "", /^2 clients .*: toolmux share on$/);
    assert.match(offerToClients(2, sharingOf(two, undefined), []) ?? "", /^2 hubs, 2 processes/);
    assert.equal(offerToClients(2, { ...none, enabled: true }, []), undefined);
  });
});

describe("hub.shared", () => {
  itIn("is set in the user's own manifest, which is made if need be", async (folder) => {
    const context = contextIn(folder);
    const file = join(folder.home, ".config", "toolmux", "toolmux.toml");
    const off = await setSharing(false, NOTHING, context);
    assert.deepEqual(off, { file, shared: false, changed: false });
    assert.ok(!existsSync(file), "nothing is written to say what holds anyway");
    const on = await setSharing(true, NOTHING, context);
    assert.deepEqual(on, { file, shared: true, changed: true });
    const text = `#:schema ${SCHEMA_ID}\n\n[hub]\nshared = true\n`;
    assert.equal(await readFile(file, "utf8"), text);
    assert.equal((await setSharing(true, NOTHING, context)).changed, false);
    assert.equal((await setSharing(false, NOTHING, context)).changed, true);
    assert.equal(await readFile(file, "utf8"), text.replace("true", "false"));
  });

  itIn("is set in the last manifest that is named, and counts there", async (folder) => {
    const context = contextIn(folder);
    const first = await folder.write("a.toml", `[hub]\nshared = true\n${serverTable("a")}`);
    const last = await folder.write("b.toml", serverTable("b"));
    const choice = { config: [first, last] };
    assert.equal((await setSharing(true, choice, context)).changed, false);
    const off = await setSharing(false, choice, context);
    assert.deepEqual(off, { file: last, shared: false, changed: true });
    assert.match(await readFile(last, "utf8"), /\n\[hub\]\nshared = false\n/);
    assert.equal((await setSharing(false, choice, context)).changed, false);
  });

  itIn("is not set in a manifest that no hub can use", async (folder) => {
    const file = await folder.write("home/.config/toolmux/toolmux.toml", "[hub]\nx = 1\n");
    const setting = setSharing(true, NOTHING, contextIn(folder));
    await assert.rejects(setting, { code: "manifestInvalid" });
    assert.equal(await readFile(file, "utf8"), "[hub]\nx = 1\n");
  });
});
