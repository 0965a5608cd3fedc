import assert from "node:assert/strict";
import { describe } from "node:test";
import { searchServers } from "../../src/operations/search.ts";
import { officialApi, sendJson, withRegistryServer } from "../fixtures/registry-server.ts";
import type { ManifestFolder } from "../fixtures/manifest/manifest-folder.ts";
import { contextOf } from "../harness/context.ts";
import { itIn } from "../harness/in-folder.ts";

const SERVERS = [
  { name: "a.b/one", title: "One", version: "1.0", remotes: [] },
  {
    name: "a.b/one-more",
    packages: [
      {
        registryType: "npm",
        identifier: "@a/one",
        version: "1.2.0",
        transport: { type: "stdio" },
        environmentVariables: [{ name: "KEY", isRequired: true }],
      },
    ],
  },
];

async function search(
  folder: ManifestFolder,
  words: readonly string[],
  {
    from = [],
    limit = 20,
    manifest = "",
    env = {},
  }: {
    readonly from?: readonly string[];
    readonly limit?: number;
    readonly manifest?: string;
    readonly env?: Readonly<Record<string, string>>;
  },
) {
  const config = [await folder.write("toolmux.toml", manifest)];
  const context = contextOf({ HOME: folder.home, ...env }, folder.root);
  return searchServers({ words, from, limit }, { config }, context);
}

describe("a search", () => {
  itIn("finds servers, and says how each can be used", (folder) =>
    withRegistryServer(officialApi(SERVERS), async ({ baseUrl }) => {
      const { document, hasAnswer } = await search(folder, ["one"], { from: [baseUrl] });
      const directory = new URL(baseUrl).host;
      assert.equal(hasAnswer, true);
      assert.deepEqual(document.failures, []);
      const [one, more] = document.servers;
      const { title, version, offers } = one ?? assert.fail();
      assert.deepEqual([one?.directory, one?.name], [directory, "a.b/one"]);
      assert.deepEqual([title, version, offers], ["One", "1.0", []]);
      assert.ok(more !== undefined && !("title" in more));
      assert.deepEqual(more.offers, [{ package: "npm:@a/one@1.2.0", env: ["KEY"] }]);
    }),
  );

  itIn("asks the registries of the environment before those of the manifest", (folder) =>
    withRegistryServer(officialApi(SERVERS), ({ baseUrl, requests }) =>
      withRegistryServer(officialApi([]), async (other) => {
        const manifest = `[search]\ndirectories = ["${other.baseUrl}"]\n`;
        const env = { TOOLMUX_DIRECTORIES: baseUrl };
        const limit = 1;
        const named = await search(folder, ["one"], { limit, manifest, env });
        assert.equal(named.entries.length, 1);
        assert.equal(other.requests.length, 0);
        const before = requests.length;
        assert.deepEqual((await search(folder, ["one"], { manifest })).entries, []);
        assert.equal(requests.length, before);
        assert.ok(other.requests.length > 0);
      }),
    ),
  );

  itIn("goes on without a registry that fails, and names it", (folder) =>
    withRegistryServer(officialApi(SERVERS), ({ baseUrl }) =>
      withRegistryServer(
        (_url, _request, response) => sendJson(response, {}, 500),
        async (broken) => {
          const from = [broken.baseUrl, baseUrl];
          const { document, hasAnswer } = await search(folder, ["one"], { from });
          assert.deepEqual([document.servers.length, hasAnswer], [2, true]);
          const directory = new URL(broken.baseUrl).host;
          assert.deepEqual(
            document.failures.map((failure) => [failure.directory, failure.code]),
            [[directory, "serverFailed"]],
          );
          const alone = await search(folder, ["one"], { from: [broken.baseUrl] });
          assert.equal(alone.hasAnswer, false);
        },
      ),
    ),
  );
});
