import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  findServer,
  openRegistry,
  parseRegistryChoice,
  searchRegistries,
} from "../../src/registry/search.ts";
import type { RegistryEntry, Registry } from "../../src/registry/registry.ts";
import { makeManifestEntry, serverKeyOf } from "../../src/registry/manifest-entry.ts";
import { HubError } from "../../src/base/errors.ts";
import { makeFetch } from "../../src/transport/http-client/fetch.ts";
import {
  type RegistryHandler,
  officialApi,
  sendJson,
  smitheryApi,
  withRegistryServer,
} from "../fixtures/registry-server.ts";
import {
  findProblems,
  getRemote,
  getServer,
  loadText,
  plainCopy,
} from "../fixtures/manifest/manifest-folder.ts";
import { resolveRemote, resolveServer } from "../../src/manifest/resolve.ts";

const NEVER = new AbortController().signal;
const dial = makeFetch({ ca: undefined, env: {} });

function open(text: string, key?: string): Registry {
  return openRegistry(parseRegistryChoice(text), (url, init) => dial(url, init), key);
}

/** Runs `use` with a directory that answers so, and what it was asked. */
function withDirectory<T>(
  answer: RegistryHandler,
  use: (directory: Registry, asked: readonly string[]) => Promise<T>,
): Promise<T> {
  return withRegistryServer(answer, ({ baseUrl, requests }) => use(open(baseUrl), requests));
}

function reply(json: unknown, status?: number): RegistryHandler {
  return (_url, _request, response) => sendJson(response, json, status);
}

async function namesIn(directory: Registry, words: readonly string[], limit = 20) {
  return (await directory.search(words, limit, NEVER)).map(({ name }) => name);
}

const npm = (identifier: string, more: object = {}): object => {
  return {
    registryType: "npm",
    identifier,
    version: "1.2.3",
    transport: { type: "stdio" },
    ...more,
  };
};

const FIVE = ["a.b/one", "a.b/two", "a.b/file", "a.b/file-two", "c.d/file"].map((name, i) => ({
  name,
  description: `the ${i + 1}th for files`,
  version: "1.0.0",
}));

describe("the choice of directories", () => {
  for (const [text, name, kind, baseUrl] of [
    ["http://127.0.0.1:5/api/", "127.0.0.1:5", "official", "http://127.0.0.1:5/api"],
    ["https://a.example", "a.example", "official", "https://a.example"],
    ["official=https://a.example/x", "official", "official", "https://a.example/x"],
    ["smithery=https://a.example", "smithery", "smithery", "https://a.example"],
  ] as const) {
    it(`understands ${text}`, () => {
      assert.deepEqual(parseRegistryChoice(text), { name, kind, baseUrl });
    });
  }

  it("knows two by name, over TLS", () => {
    for (const name of ["official", "smithery"]) {
      const choice = parseRegistryChoice(name);
      assert.deepEqual([choice.name, choice.kind], [name, name]);
      assert.match(choice.baseUrl, /^https:\/\/[\w.]+\.(?:io|ai)$/);
    }
  });

  it("refuses what is none", () => {
    const urls = ["ftp://x", "https://me:pw@x", "https://x?a=b", "https://x#a"];
    for (const text of ["", "other", "smithery=", ...urls]) {
      const refused = { code: "usage", message: /is no directory of servers/ };
      assert.throws(() => parseRegistryChoice(text), refused, text);
    }
  });
});

describe("the official API", () => {
  it("is asked for the longest word, page by page, and what comes has the other words", () =>
    withDirectory(officialApi(FIVE), async (directory, asked) => {
      assert.deepEqual(await namesIn(directory, ["two", "FILE"]), []);
      assert.deepEqual(await namesIn(directory, ["2nd", "file"]), []);
      assert.deepEqual(await namesIn(directory, ["two", "file"]), ["a.b/file-two"]);
      const first = "/v0.1/servers?search=file&version=latest&limit=100";
      assert.deepEqual(asked.slice(-2), [first, `${first}&cursor=2`]);
    }));

  it("is asked for no more pages than are needed, and never for more than a few", () => {
    const servers = Array.from({ length: 50 }, (_, i) => ({ name: `a.b/x${i}` }));
    return withDirectory(officialApi(servers), async (directory, asked) => {
      assert.equal((await namesIn(directory, ["x"], 3)).length, 3);
      assert.equal(asked.length, 2);
      assert.equal((await namesIn(directory, ["x"], 50)).length, 10);
      assert.equal(asked.length, 7);
    });
  });

  it("is asked in its older version where that is all there is", () =>
    withDirectory(officialApi(FIVE, 10, ["v0"]), async (directory, asked) => {
      assert.equal((await namesIn(directory, ["file"])).length, 3);
      const paths = asked.map((path) => path.split("?")[0]);
      assert.deepEqual(paths, ["/v0.1/servers", "/v0/servers"]);
      assert.equal((await directory.find("a.b/one", NEVER))?.name, "a.b/one");
      assert.equal(await directory.find("a.b/none", NEVER), undefined);
    }));

  it("that gives the same cursor again and again is not asked for ever", () => {
    const answer = reply({ servers: [{ server: FIVE[0] }], metadata: { nextCursor: "same" } });
    return withDirectory(answer, async (directory, asked) => {
      assert.deepEqual(await namesIn(directory, ["one"]), ["a.b/one"]);
      assert.equal(asked.length, 2);
    });
  });

  it("tells what is malformed apart from the rest, which counts", () => {
    const wrong = { description: 5, repository: "x", packages: {}, remotes: [null] };
    const gone = { "io.modelcontextprotocol.registry/official": { status: "deleted" } };
    const servers = [
      { server: FIVE[0] },
      null,
      7,
      { server: null },
      { server: { name: 5 } },
      { server: { name: "no slash" } },
      { server: { name: "a.b/\u001b[31m" } },
      { server: { name: "a.b/one-odd", ...wrong } },
      { server: { name: "a.b/one-gone" }, _meta: gone },
    ];
    return withDirectory(reply({ servers, metadata: 5 }), async (directory) => {
      const [one, odd, ...others] = await directory.search(["one"], 20, NEVER);
      assert.deepEqual([one?.name, odd?.name, others], ["a.b/one", "a.b/one-odd", []]);
      assert.deepEqual(odd?.options, []);
    });
  });

  for (const body of [null, [], "x", 5, {}, { servers: 5 }, { servers: {} }]) {
    it(`is none that answers with ${JSON.stringify(body)}, which is said`, () =>
      assert.rejects(
        withDirectory(reply(body), (directory) => namesIn(directory, ["x"])),
        /^HubError: 127\.0\.0\.1:\d+ has not answered as a directory of servers does/,
      ));
  }

  it("finds nothing in a list of nothing, however that is written", async () => {
    for (const servers of [[], null]) {
      await withDirectory(reply({ servers }), async (directory) =>
        assert.deepEqual(await namesIn(directory, ["x"]), []),
      );
    }
  });

  it("is none where there is no list of servers", () =>
    assert.rejects(
      withDirectory(reply({}, 404), (directory) => namesIn(directory, ["x"])),
      /has not answered as a directory of servers does/,
    ));
});

describe("Smithery's API", () => {
  const servers = Array.from({ length: 70 }, (_, i) => {
    const about = { displayName: `X ${i}`, description: "about x", useCount: 5 };
    const deploymentUrl = i === 1 ? "https://x.example/mcp" : "http://x.example/mcp";
    const connections = [{ type: "stdio" }, { type: "http", deploymentUrl }];
    const homepage = "https://example.com/x";
    return { qualifiedName: `@owner/x${i}`, ...about, homepage, connections };
  });
  const withSmithery = (
    key: string | undefined,
    use: (directory: Registry, asked: readonly string[]) => Promise<void>,
  ): Promise<void> =>
    withRegistryServer(smitheryApi(servers, "the-key"), ({ baseUrl, requests }) =>
      use(open(`smithery=${baseUrl}`, key), requests),
    );

  it("is asked page by page, with the key", () =>
    withSmithery("the-key", async (directory, asked) => {
      const found = await directory.search(["two words", "x"], 60, NEVER);
      assert.equal(found.length, 60);
      assert.deepEqual([found[0]?.name, found[0]?.title], ["@owner/x0", "X 0"]);
      const pages = [1, 2].map((n) => `/servers?q=two+words+x&page=${n}&pageSize=50`);
      assert.deepEqual(asked, pages);
      assert.equal((await namesIn(directory, ["two words", "x"], 200)).length, 70);
      assert.deepEqual(asked.slice(2), pages);
    }));

  it("says where a server is that it hosts", () =>
    withSmithery("the-key", async (directory) => {
      const { options = [] } = (await directory.find("@owner/x1", NEVER)) ?? {};
      const urls = options.map((offer) => offer.kind === "remote" && offer.url);
      assert.deepEqual(urls, ["https://x.example/mcp"]);
      // One that is not reached over TLS is none that a stranger may name.
      assert.deepEqual((await directory.find("@owner/x2", NEVER))?.options, []);
      assert.equal(await directory.find("@owner/none", NEVER), undefined);
    }));

  it("without a key lets nobody in, which is said", () =>
    withSmithery(undefined, async (directory) => {
      const message =
        /^smithery \(127\.0\.0\.1:\d+\) needs a key, or refuses the given one \(401\): "Unauthorized"\.$/;
      await assert.rejects(namesIn(directory, ["x"]), { code: "unauthorized", message });
    }));
});

const TROUBLES: readonly (readonly [what: string, answer: RegistryHandler, code: string])[] = [
  ["has no JSON", (_url, _request, response) => response.end("<html>"), "serverFailed"],
  ["fails", reply({}, 500), "serverFailed"],
  ["has been asked too often", reply({}, 429), "serverFailed"],
  ["refuses", reply({}, 400), "serverRefused"],
  [
    "leads elsewhere",
    (_url, _request, response) =>
      void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
    "serverRefused",
  ],
  [
    "says too much",
    (_url, _request, response) => {
      response.on("error", () => undefined);
      for (let i = 0; i < 6; i++) response.write(Buffer.alloc(1024 * 1024, 0x20));
      response.end("{}");
    },
    "messageTooLarge",
  ],
  ["hangs up", (_url, request) => void request.socket.destroy(), "answerLost"],
];

describe("several directories", () => {
  for (const [what, answer, code] of TROUBLES) {
    it(`lose only what one of them would have found that ${what}`, () =>
      withDirectory(answer, (bad) =>
        withDirectory(officialApi(FIVE), async (good) => {
          const found = await searchRegistries([bad, good], ["file"], 20, NEVER);
          assert.equal(found.entries.length, 3);
          const codes = found.failures.map(({ cause }) => cause.code);
          assert.deepEqual(codes, [code]);
        }),
      ));
  }

  it("wait for one that is silent no longer than it may take, nor for one that never ends", () => {
    const silent: RegistryHandler = () => undefined;
    const endless: RegistryHandler = (_url, _request, response) =>
      void response.write('{"servers": [');
    return withDirectory(silent, (one) =>
      withDirectory(endless, async (two) => {
        const { failures } = await searchRegistries([one, two], ["x"], 20, NEVER, 50);
        assert.equal(failures.length, 2);
        for (const { cause } of failures) {
          assert.equal(cause.code, "unreachable");
          assert.match(cause.message, /has not answered within 50 ms/);
        }
      }),
    );
  });

  it("are given up at once when the process is told to end", () =>
    withDirectory(
      () => undefined,
      async (directory) => {
        const ending = new AbortController();
        const searching = searchRegistries([directory], ["x"], 20, ending.signal);
        ending.abort(new HubError("cancelled", "told to end"));
        await assert.rejects(searching, { code: "cancelled" });
      },
    ));

  it("list by turns, and what both have once", async () => {
    const make = (directory: string, repositories: Readonly<Record<string, string>>): Registry => {
      const entries = Object.entries(repositories).map(([name, repository]) => {
        const entry = { directory, name, options: [], omissions: [] };
        return { ...entry, repository: repository || undefined } as unknown as RegistryEntry;
      });
      return {
        name: directory,
        search: () => Promise.resolve(entries),
        find: (wanted) => Promise.resolve(entries.find(({ name }) => name === wanted)),
      };
    };
    const mono = "https://github.com/o/mono";
    const one = make("one", { a: mono, b: `${mono}.git`, c: "" });
    const two = make("two", { z: "", A: "", other: "http://www.github.com/O/mono/", y: "" });
    const { entries } = await searchRegistries([one, two], ["x"], 20, NEVER);
    const names = entries.map(({ directory, name }) => `${directory} ${name}`);
    assert.deepEqual(names, ["one a", "two z", "one b", "one c", "two y"]);
    const { entry } = await findServer([two, one], "c", NEVER);
    assert.equal(entry?.directory, "one");
  });
});

/** The manifest's entry for a server, as TOML; what is to be set. */
async function cook(server: object) {
  const known = { name: "a.b/x", description: "d", version: "1", ...server };
  const listing = await withDirectory(officialApi([known]), (directory) =>
    directory.find("a.b/x", NEVER),
  );
  const [offer] = listing?.options ?? [];
  const recipe = offer && makeManifestEntry(offer, "x");
  return {
    listing,
    entry: recipe && plainCopy(recipe.entry),
    needs: recipe?.requiredValues.map(({ kind, name }) => `${kind} ${name}`),
    optional: recipe?.optional,
  };
}

describe("what is written for a server of a directory", () => {
  it("is its package, with what it needs as references and what is usual as it is", async () => {
    const variables = { user: { isRequired: true }, host: { default: "localhost" } };
    const server = npm("@s/n", {
      runtimeArguments: [{ type: "positional", value: "-y" }],
      packageArguments: [
        { type: "positional", value: "serve" },
        { type: "named", name: "--root", isRequired: true, description: "where" },
        { type: "named", name: "--level", default: "warn" },
        { type: "named", name: "--verbose" },
        { type: "named", name: "--db", value: "{user}@{host}", variables },
        { type: "positional", valueHint: "target_dir", isRequired: true },
      ],
      environmentVariables: [
        { name: "API_KEY", isRequired: true, isSecret: true, description: "the key" },
        { name: "REGION", isRequired: true },
        { name: "MODE", default: "fast" },
        { name: "EXTRA" },
        { name: "TOKEN", isSecret: true, default: "do-not-write" },
      ],
    });
    const { entry, needs, optional } = await cook({ packages: [server] });
    const args =
      "serve --root ${env:ROOT} --level warn --db ${env:USER}@localhost ${env:TARGET_DIR}";
    const env = { API_KEY: "${secret:x/API_KEY}", REGION: "${env:REGION}", MODE: "fast" };
    assert.deepEqual(entry, { package: "npm:@s/n@1.2.3", args: args.split(" "), env });
    const values = ["REGION", "ROOT", "TARGET_DIR", "USER"].map((name) => `variable ${name}`);
    assert.deepEqual(needs?.toSorted(), ["secret x/API_KEY", ...values]);
    assert.deepEqual(optional, ["env.EXTRA", "env.TOKEN", "argument --verbose"]);
  });

  it("is where it is reached, with its headers", async () => {
    const token = { isRequired: true, isSecret: true };
    const { entry, needs } = await cook({
      remotes: [
        {
          type: "sse",
          url: "https://{tenant}.example.com/sse",
          variables: { tenant: { isRequired: true } },
          headers: [
            { name: "Authorization", value: "Bearer {token}", variables: { token } },
            { name: "X-Key", isRequired: true, isSecret: true },
            { name: "X-Plain", value: "{literal}" },
          ],
        },
      ],
    });
    const keys = {
      Authorization: "Bearer ${secret:x/Authorization}",
      "X-Key": "${secret:x/X_Key}",
    };
    assert.deepEqual(entry, {
      url: "https://${env:TENANT}.example.com/sse",
      transport: "sse",
      headers: { ...keys, "X-Plain": "{literal}" },
    });
    assert.deepEqual(needs, ["secret x/Authorization", "secret x/X_Key", "variable TENANT"]);
  });

  it("never has a stranger's text for a reference, whatever it looks like", async () => {
    const evil = "${file:~/.ssh/id_rsa} ${cmd:rm -rf x} ${env:HOME} {v}";
    const variables = { v: { value: "${secret:a}" }, "cmd:rm -rf x": { value: "y" } };
    const server = npm("n", {
      packageArguments: [
        { type: "positional", value: evil, variables },
        { type: "named", name: "--a", default: evil },
      ],
      environmentVariables: [
        { name: "A", value: evil },
        { name: "B", default: evil },
      ],
    });
    const { entry } = await cook({ packages: [server] });
    const { manifest } = await loadText(JSON.stringify({ servers: { x: entry } }), "a.json");
    const home = { HOME: "/home/me" };
    const { args, env, secrets } = await resolveServer(getServer(manifest, "x"), home);
    const literal = evil.replace("{v}", "${secret:a}");
    assert.deepEqual(args.slice(2), [literal, "--a", evil]);
    assert.deepEqual(plainCopy(env), { A: evil, B: evil });
    assert.deepEqual(secrets, []);
    const remote = await cook({
      remotes: [{ type: "streamable-http", url: "https://x.example/${env:HOME}" }],
    });
    const loaded = await loadText(JSON.stringify({ servers: { x: remote.entry } }), "a.json");
    const { url } = await resolveRemote(getRemote(loaded.manifest, "x"), home);
    assert.ok(!url.href.includes("/home/me"));
  });

  const volume = { type: "named", name: "-v", value: "/:/host" };
  const container = npm("o/n", { registryType: "oci", runtimeArguments: [volume] });
  const nuget = npm("n", { registryType: "nuget" });
  const NO_NAME = /has an invalid name or version/;
  const atHost = npm("n", { registryBaseUrl: "https://private.example" });
  const overHttp = npm("n", { transport: { type: "streamable-http" } });
  const remoteAt = (url: string, type = "sse") => ({ remotes: [{ type, url }] });
  for (const [what, server, omission] of [
    ["a package of another kind", nuget, /is of a kind that toolmux does not run/],
    ["a package elsewhere", atHost, /comes from https:\/\/private\.example/],
    ["a package over HTTP", overHttp, /serves over HTTP/],
    ["a package with an option for a name", npm("--registry=x"), NO_NAME],
    ["an option for a version", npm("n", { version: "--x" }), NO_NAME],
    ["a container with more rights", container, /needs arguments for its runner/],
    ["a URL without TLS", remoteAt("http://x.example"), /begins with https/],
    ["a URL with a password", remoteAt("https://a:b@x.example"), /begins with https/],
    ["a remote over WebSocket", remoteAt("wss://x.example", "ws"), /does not speak/],
  ] as const) {
    it(`is nothing for ${what}, and why is said`, async () => {
      const { listing, entry } = await cook("remotes" in server ? server : { packages: [server] });
      assert.equal(entry, undefined);
      assert.match(listing?.omissions.join() ?? "", omission);
    });
  }

  for (const name of ["A=B", ""]) {
    it(`is nothing for a variable with the name ${JSON.stringify(name)}`, async () => {
      const packages = [npm("n", { environmentVariables: [{ name, value: "x" }] })];
      assert.equal((await cook({ packages })).entry, undefined);
    });
  }

  for (const [registryType, identifier, version, named] of [
    ["pypi", "mcp-x", "1.0", "pypi:mcp-x==1.0"],
    ["oci", "ghcr.io/o/n:1.0", undefined, "docker:ghcr.io/o/n:1.0"],
    ["oci", "docker.io/o/n", "1.0", "docker:docker.io/o/n:1.0"],
    ["npm", "@s/n", undefined, "npm:@s/n"],
  ] as const) {
    it(`names ${named}, which a manifest takes`, async () => {
      const said = { registryType, identifier, version };
      const { entry } = await cook({ packages: [{ ...said, transport: { type: "stdio" } }] });
      assert.deepEqual(entry, { package: named });
      await loadText(JSON.stringify({ servers: { x: entry } }), "a.json");
    });
  }

  it("has a key that can be a prefix", async () => {
    for (const name of ["io.github.o/x", "a.b/my__server", "a.b/_x_", "a.b/...", "@o/ü", "plain"]) {
      const key = serverKeyOf(name, "__");
      const file = `[servers.${JSON.stringify(key)}]\ncommand = "x"\nnonsense = 1`;
      const problems = await findProblems(file);
      assert.equal(problems.length, 1, problems.join());
    }
  });
});
