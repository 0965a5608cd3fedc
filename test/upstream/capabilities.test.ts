import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  connectionStatusOf,
  initialize,
  listToolNames,
  ScriptedServer,
  setUpHub,
  setUpHubWithClock,
} from "../fixtures/memory-hub.ts";

const METHOD_NOT_FOUND = '"error":{"code":-32601,"message":"no"}';
const UNDECLARED = /^lists tools but does not declare/;

/** The faults that the status of a legacy server has, if it declares these capabilities. */
async function faultsOf(capabilities: string, hasTools: boolean): Promise<readonly string[]> {
  const a = new ScriptedServer("x");
  a.onInitialize = () =>
    `"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"}${capabilities}}`;
  if (!hasTools) a.onList = () => METHOD_NOT_FOUND;
  const { hub, client } = setUpHub({ a });
  await initialize(client);
  await listToolNames(client);
  await hub.diagnosed();
  return connectionStatusOf(hub, "a").capabilityFaults ?? [];
}

describe("the capabilities of a server", () => {
  for (const [capabilities, shape] of [
    ["", /^declares no capabilities/],
    [',"capabilities":null', /^declares no capabilities .*null/],
    [',"capabilities":[]', /as an array/],
    [',"capabilities":"tools"', /as a string/],
    [',"capabilities":true', /as true/],
    [',"capabilities":{"tools":true}', /"tools" as true/],
    [',"capabilities":{"tools":{},"resources":"all"}', /"resources" as a string/],
    [',"capabilities":{"tools":{},"logging":1}', /"logging" as a number/],
    [',"capabilities":{}', undefined],
    [',"capabilities":{"tools":null}', undefined],
    [',"capabilities":{"prompts":{}}', undefined],
  ] as const) {
    const isDeclared = capabilities.includes('"tools":{}');
    it(`are in its status if they have another form, or lack its tools: ${capabilities}`, async () => {
      const expected = [shape ?? [], isDeclared ? [] : UNDECLARED].flat();
      const faults = await faultsOf(capabilities, true);
      assert.equal(faults.length, expected.length, JSON.stringify(faults));
      for (const [at, pattern] of expected.entries()) assert.match(faults[at] ?? "", pattern);
      if (!isDeclared)
        assert.equal((await faultsOf(capabilities, false)).length, shape === undefined ? 0 : 1);
    });
  }
});

describe("a server that declares no tools", () => {
  it("and does not answer what it has not declared starts no later for that", async () => {
    const a = new ScriptedServer("x");
    a.onInitialize = () =>
      '"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{}}';
    a.onList = () => undefined;
    const { hub, client, clock } = setUpHubWithClock({ a });
    await initialize(client);
    await hub.settled();
    assert.equal(clock.now(), 0);
    assert.equal(connectionStatusOf(hub, "a").state, "connected");
    assert.deepEqual(await listToolNames(client), []);
    assert.equal(a.messagesOf("tools/list").length, 1);
    const diagnosed = hub.diagnosed();
    await clock.advanceAsync(1000);
    await diagnosed;
    assert.equal(connectionStatusOf(hub, "a").capabilityFaults, undefined);
    assert.equal(a.messagesOf("notifications/cancelled").length, 1);
  });
});
