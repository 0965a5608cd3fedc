import assert from "node:assert/strict";
import { describe } from "node:test";
import type { RawClient } from "../harness/raw-client.ts";
import type { Tool } from "../harness/message.ts";
import { it, sharedHub, withHub } from "../harness/hub.ts";
import { type ServerEntry, scripted } from "../harness/manifest.ts";

/** A server that has only the tools of these names; each returns its own remote name as its second text. */
function tools(
  remotes: readonly string[],
  more: Readonly<Record<string, unknown>> = {},
): ServerEntry {
  const server = scripted("--bare", more);
  return {
    ...server,
    args: [...(server.args ?? []), ...remotes.flatMap((name) => ["--tool", name])],
  };
}

async function list(client: RawClient): Promise<readonly Tool[]> {
  await client.initialize();
  return (await client.request("tools/list")).message.result?.tools ?? [];
}

function names(listed: readonly Tool[]): string[] {
  return listed.map(({ name }) => name);
}

/** The remote name of the tool that answers to an exposed name. */
async function remote(client: RawClient, name: string): Promise<string | undefined> {
  return (await client.call(name)).message.result?.content?.[1]?.text;
}

describe("the name that a client sees", () => {
  const LONG = "search_through_all_documents_of_the_whole_company_and_summarise_the_";
  const ODD = ["files/read.txt", "größe", "a b", "🚀", "dots.and:colons", "", "a".repeat(200)];

  it("fits the budget and the alphabet whatever the server calls its tools, and each reaches its own tool", () =>
    withHub(
      { servers: { docs: tools([`${LONG}first`, `${LONG}second`, "short", ...ODD]) } },
      async ({ client }) => {
        const listed = await list(client);
        const remotes = new Map<string | undefined, string>();
        for (const name of names(listed)) {
          assert.match(name, /^[A-Za-z0-9_-]{1,50}$/);
          assert.ok(name.startsWith("docs__"));
          remotes.set(await remote(client, name), name);
        }
        for (const name of [`${LONG}first`, `${LONG}second`, "short", ...ODD.filter(Boolean)])
          assert.ok(remotes.has(name), name);
        assert.equal(remotes.get("short"), "docs__short");
        assert.match(remotes.get("files/read.txt") ?? "", /^docs__files_read_txt_[a-z2-7]{6}$/i);
        for (const long of [`${LONG}first`, `${LONG}second`]) {
          const exposed = remotes.get(long) ?? "";
          assert.match(exposed, /^docs__search_through_.*_[a-z2-7]{6}$/i);
          assert.equal(exposed.length, 50);
          const tool = listed.find(({ name }) => name === exposed);
          assert.ok(
            JSON.stringify(tool?.["_meta"] ?? {}).includes(long),
            "_meta says the full name",
          );
        }
      },
    ));

  it("may be as long as nameLimit less the client's own prefix", () =>
    withHub(
      {
        hub: { nameLimit: 40, clientPrefix: "" },
        servers: { s: tools(["x".repeat(37), "x".repeat(38)]) },
      },
      async ({ client }) => {
        const whole = `s__${"x".repeat(37)}`;
        const listed = names(await list(client));
        const cut = listed.find((name) => name !== whole);
        assert.ok(listed.includes(whole));
        assert.match(cut ?? "", /^s__x{30}_[a-z2-7]{6}$/i);
      },
    ));

  it("has the manifest's prefix and separator, or no prefix at all if the manifest says so", () =>
    withHub(
      {
        hub: { separator: "-" },
        servers: {
          one: tools(["t"], { prefix: "first" }),
          two: tools(["t"]),
          bare: tools(["t"], { prefix: "" }),
        },
      },
      async ({ client }) => {
        assert.deepEqual(names(await list(client)), ["first-t", "t", "two-t"]);
        for (const name of ["first-t", "t", "two-t"]) assert.equal(await remote(client, name), "t");
      },
    ));
});

describe("tools.rename, allow and deny", () => {
  const hub = sharedHub({
    servers: {
      renamed: tools(["read", "write"], { tools: { rename: { read: "cat" } } }),
      filtered: tools(["read_file", "read_secret", "list_dir", "write_file", "reading"], {
        tools: {
          allow: ["read_*", "list_*"],
          deny: ["*_secret"],
          rename: { read_file: "write_file" },
        },
      }),
    },
  });
  const namesOf = async (server: string): Promise<readonly string[]> => {
    const { message } = await hub().client.request("tools/list");
    return names(message.result?.tools ?? []).filter((name) => name.startsWith(`${server}__`));
  };

  it("rename maps remote names, and the renamed tool reaches the remote one", async () => {
    const { client } = hub();
    assert.deepEqual(await namesOf("renamed"), ["renamed__cat", "renamed__write"]);
    assert.equal(await remote(client, "renamed__cat"), "read");
    assert.equal((await client.call("renamed__read")).message.error?.code, -32602);
  });

  it("allow keeps only what it names, deny takes away from that, both as patterns over remote names, and what they hide cannot be called", async () => {
    const { client, log } = hub();
    assert.deepEqual(await namesOf("filtered"), ["filtered__list_dir", "filtered__write_file"]);
    assert.equal(await remote(client, "filtered__write_file"), "read_file");
    for (const name of ["filtered__read_secret", "filtered__reading", "read_secret"])
      assert.equal((await client.call(name)).message.error?.code, -32602, name);
    const called = log("filtered").filter(({ event }) => event === "call");
    assert.deepEqual(
      called.map(({ tool }) => tool),
      ["read_file"],
    );
  });
});

describe("two tools that would have the same name", () => {
  it("the first server of the manifest keeps it, an unprefixed name loses to a prefixed one, of one server the first is kept; what is hidden is reported, all else is served", () =>
    withHub(
      {
        servers: {
          second_by_name: tools(["same", "one"], { prefix: "" }),
          first_by_name: tools(["same", "two"], { prefix: "" }),
          bare: tools(["b__same"], { prefix: "" }),
          b: tools(["same", "twice", "other", "twice"]),
        },
      },
      async ({ client, log }) => {
        const expected = ["b__other", "b__same", "b__twice", "one", "same", "two"];
        assert.deepEqual(names(await list(client)), expected);
        assert.equal(await remote(client, "b__twice"), "twice");
        for (const name of ["same", "b__same"]) await client.call(name);
        const callsOf = (server: string): number =>
          log(server).filter(({ tool }) => tool === "same" || tool === "b__same").length;
        const servers = ["second_by_name", "first_by_name", "b", "bare"];
        assert.deepEqual(servers.map(callsOf), [1, 0, 1, 0]);
        for (const name of ["same", "b__same"]) {
          const report = new RegExp(`"${name}"`);
          await client.until(5000, "a report", () => report.test(client.stderr) || undefined);
        }
      },
    ));
});
