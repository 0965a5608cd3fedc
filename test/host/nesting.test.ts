import assert from "node:assert/strict";
import process from "node:process";
import { describe, it } from "node:test";
import { hubListFor } from "../../src/host/nesting.ts";
import { manifestIdentity } from "../../src/manifest/identity.ts";
import { HUBS_VARIABLE, MAX_NESTED_HUBS, parseOuterHubs } from "../../src/process/outer-hubs.ts";
import { manifestOf } from "../fixtures/memory-hub.ts";

const MANIFEST = { ...manifestOf({}), sources: ["/m.toml"] };

describe("the hubs above the servers of a hub", () => {
  it("are those above it, those above the clients that share it, and itself", async () => {
    const env = { [HUBS_VARIABLE]: "7:aa" };
    const own = { pid: process.pid, manifest: await manifestIdentity(MANIFEST, env) };
    const list = async (more: Parameters<typeof hubListFor>[2]) =>
      parseOuterHubs(await hubListFor(MANIFEST, env, more));
    const above = { pid: 7, manifest: "aa" };
    assert.deepEqual(await list([]), [above, own]);
    const client = { pid: 8, manifest: "bb" };
    assert.deepEqual(await list([client]), [above, client, own]);
  });

  it("are never so many that a server of a shared hub counts as nested too deeply", async () => {
    const more = Array.from({ length: 50 }, (_, at) => ({ pid: at + 1, manifest: `c${at}` }));
    const list = parseOuterHubs(await hubListFor(MANIFEST, {}, more));
    assert.equal(list.length, MAX_NESTED_HUBS);
    assert.equal(list.at(-1)?.pid, process.pid);
  });
});
