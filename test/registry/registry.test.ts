import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  findServer,
  openRegistry,
  parseRegistryChoice,
  type RegistryChoice,
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

/** What is found in a directory that answers so. */
function searchIn(
  answer: RegistryHandler,
  words: readonly string[],
  limit = 20,
): Promise<readonly RegistryEntry[]> {
  return withRegistryServer(answer, ({ baseUrl: base }) => open(base).search(words, limit, NEVER));
}

function findOne(server: object): Promise<RegistryEntry | undefined> {
  return withRegistryServer(officialApi([server]), ({ baseUrl: base }) =>
    open(base).find("a.b/x", NEVER),
  );
}

const npm = (identifier: string, more: object = {}): object => ({
  registryType: "npm",
  identifier,
  version: "1.2.3",
  transport: { type: "stdio" },
  ...more,
});

const FIVE = ["a.b/one", "a.b/two", "a.b/file", "a.b/file-two", "c.d/file"].map((name, i) => ({
  name,
  description: `the ${i + 1}th for files`,
  version: "1.0.0",
}));

describe("the choice of directories", () => {
  for (const [text, name, kind, base] of [
    ["http://127.0.0.1:5/api/", "127.0.0.1:5", "official", "http://127.0.0.1:5/api"],
    ["https://a.example", "a.example", "official", "https://a.example"],
    ["official=https://a.example/x", "official", "official", "https://a.example/x"],
    ["smithery=https://a.example", "smithery", "smithery", "https://a.example"],
  ] as const) {
    it(`understands ${text}`, () => {
      assert.deepEqual(parseRegistryChoice(text), {
        name,
        kind,
        baseUrl: base,
      } satisfies RegistryChoice);
    });
  }

  it("knows two by name, over TLS", () => {
    for (const name of ["official", "smithery"]) {
      const choice = parseRegistryChoice(name);
      assert.deepEqual([choice.name, choice.kind], [name, name]);
      assert.match(choice.baseUrl, /^https:\/\/[\w.]+\.(?:io|ai)$/);
    }
  });

  for (const text of [
    "",
    "other",
    "ftp://x",
    "smithery=",
    "https://me:pw@x",
    "https://x?a=b",
    "https://x#a",
  ]) {
    it(`refuses ${JSON.stringify(text)}`, () => {
      assert.throws(() => parseRegistryChoice(text), {
        code: "usage",
        message: /is no directory of servers/,
      });
    });
  }
});

describe("the official API", () => {
  it("is asked for the longest word, page by page, and the other words are looked for in what comes", () =>
    withRegistryServer(officialApi(FIVE), async ({ baseUrl: base, requests: asked }) => {
      const found = await open(base).search(["two", "FILE"], 20, NEVER);
      assert.deepEqual(
        found.map(({ name }) => name),
        [],
      );
      const lower = await open(base).search(["file", "2nd"].toSorted(), 20, NEVER);
      assert.deepEqual(lower, []);
      const both = await open(base).search(["two", "file"], 20, NEVER);
      assert.deepEqual(
        both.map(({ name }) => name),
        ["a.b/file-two"],
      );
      assert.deepEqual(asked.slice(-2), [
        "/v0.1/servers?search=file&version=latest&limit=100",
        "/v0.1/servers?search=file&version=latest&limit=100&cursor=2",
      ]);
    }));

  it("is asked for no more pages than are needed, and never for more than a few", () =>
    withRegistryServer(
      officialApi(Array.from({ length: 50 }, (_, i) => ({ name: `a.b/x${i}` }))),
      async ({ baseUrl: base, requests: asked }) => {
        assert.equal((await open(base).search(["x"], 3, NEVER)).length, 3);
        assert.equal(asked.length, 2);
        assert.equal((await open(base).search(["x"], 50, NEVER)).length, 10);
        assert.equal(asked.length, 7);
      },
    ));

  it("is asked in its older version where that is all there is", () =>
    withRegistryServer(
      officialApi(FIVE, 10, ["v0"]),
      async ({ baseUrl: base, requests: asked }) => {
        assert.equal((await open(base).search(["file"], 20, NEVER)).length, 3);
        assert.deepEqual(
          asked.map((path) => path.split("?")[0]),
          ["/v0.1/servers", "/v0/servers"],
        );
        assert.equal((await open(base).find("a.b/one", NEVER))?.name, "a.b/one");
        assert.equal(await open(base).find("a.b/none", NEVER), undefined);
      },
    ));

  it("that gives the same cursor again and again is not asked for ever", async () => {
    const answer: RegistryHandler = (_url, _request, response) =>
      sendJson(response, { servers: [{ server: FIVE[0] }], metadata: { nextCursor: "same" } });
    await withRegistryServer(answer, async ({ baseUrl: base, requests: asked }) => {
      assert.equal((await open(base).search(["one"], 20, NEVER)).length, 1);
      assert.equal(asked.length, 2);
    });
  });

  it("tells what is malformed apart from the rest, which counts", async () => {
    const servers = [
      { server: FIVE[0] },
      null,
      7,
      { server: null },
      { server: { name: 5 } },
      { server: { name: "no slash" } },
      { server: { name: "a.b/\u001b[31m" } },
      {
        server: {
          name: "a.b/one-odd",
          description: 5,
          repository: "x",
          packages: {},
          remotes: [null],
        },
      },
      {
        server: { name: "a.b/one-gone" },
        _meta: { "io.modelcontextprotocol.registry/official": { status: "deleted" } },
      },
    ];
    const found = await searchIn(
      (_url, _request, response) => sendJson(response, { servers, metadata: 5 }),
      ["one"],
    );
    assert.deepEqual(
      found.map(({ name }) => name),
      ["a.b/one", "a.b/one-odd"],
    );
    assert.deepEqual(found[1]?.options, []);
  });

  for (const body of [null, [], "x", 5, {}, { servers: 5 }, { servers: {} }]) {
    it(`is none that answers with ${JSON.stringify(body)}, which is said`, () =>
      assert.rejects(
        searchIn((_url, _request, response) => sendJson(response, body), ["x"]),
        /^HubError: 127\.0\.0\.1:\d+ has not answered as a directory of servers does/,
      ));
  }

  it("finds nothing in a list of nothing, however that is written", async () => {
    for (const servers of [[], null]) {
      const found = searchIn((_url, _request, response) => sendJson(response, { servers }), ["x"]);
      assert.deepEqual(await found, []);
    }
  });

  it("is none where there is no list of servers", () =>
    assert.rejects(
      searchIn((_url, _request, response) => sendJson(response, {}, 404), ["x"]),
      /has not answered as a directory of servers does/,
    ));
});

describe("Smithery's API", () => {
  const servers = Array.from({ length: 70 }, (_, i) => ({
    qualifiedName: `@owner/x${i}`,
    displayName: `X ${i}`,
    description: "about x",
    homepage: "https://example.com/x",
    useCount: 5,
    connections: [
      { type: "stdio" },
      { type: "http", deploymentUrl: i === 1 ? "https://x.example/mcp" : "http://x.example/mcp" },
    ],
  }));

  it("is asked page by page, with the key", () =>
    withRegistryServer(
      smitheryApi(servers, "the-key"),
      async ({ baseUrl: base, requests: asked }) => {
        const found = await open(`smithery=${base}`, "the-key").search(
          ["two words", "x"],
          60,
          NEVER,
        );
        assert.equal(found.length, 60);
        assert.deepEqual([found[0]?.name, found[0]?.title], ["@owner/x0", "X 0"]);
        const pages = [
          "/servers?q=two+words+x&page=1&pageSize=50",
          "/servers?q=two+words+x&page=2&pageSize=50",
        ];
        assert.deepEqual(asked, pages);
        const all = await open(`smithery=${base}`, "the-key").search(
          ["two words", "x"],
          200,
          NEVER,
        );
        assert.equal(all.length, 70);
        assert.deepEqual(asked.slice(2), pages);
      },
    ));

  it("says where a server is that it hosts", () =>
    withRegistryServer(smitheryApi(servers, "the-key"), async ({ baseUrl: base }) => {
      const directory = open(`smithery=${base}`, "the-key");
      const found = await directory.find("@owner/x1", NEVER);
      assert.deepEqual(
        found?.options.map((offer) => offer.kind === "remote" && offer.url),
        ["https://x.example/mcp"],
      );
      // One that is not reached over TLS is none that a stranger may name.
      assert.deepEqual((await directory.find("@owner/x2", NEVER))?.options, []);
      assert.equal(await directory.find("@owner/none", NEVER), undefined);
    }));

  it("without a key lets nobody in, which is said", () =>
    withRegistryServer(smitheryApi(servers, "the-key"), async ({ baseUrl: base }) => {
      await assert.rejects(open(`smithery=${base}`).search(["x"], 5, NEVER), {
        code: "unauthorized",
        message: /^smithery \(127\.0\.0\.1:\d+\) wants a key, or another one \(401\)\.$/,
      });
    }));
});

const TROUBLES: readonly (readonly [what: string, answer: RegistryHandler, code: string])[] = [
  ["has no JSON", (_url, _request, response) => response.end("<html>"), "serverFailed"],
  ["fails", (_url, _request, response) => sendJson(response, {}, 500), "serverFailed"],
  [
    "has been asked too often",
    (_url, _request, response) => sendJson(response, {}, 429),
    "serverFailed",
  ],
  ["refuses", (_url, _request, response) => sendJson(response, {}, 400), "serverRefused"],
  [
    "leads elsewhere",
    (_url, _request, response) =>
      void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
    "serverRefused",
  ],
  [
    "says too much",
    (_url, _request, response) => {
      const piece = Buffer.alloc(1024 * 1024, 0x20);
      response.on("error", () => undefined);
      for (let i = 0; i < 6; i++) response.write(piece);
      response.end("{}");
    },
    "messageTooLarge",
  ],
  ["hangs up", (_url, request) => void request.socket.destroy(), "answerLost"],
];

describe("several directories", () => {
  for (const [what, answer, code] of TROUBLES) {
    it(`lose only what one of them would have found that ${what}`, () =>
      withRegistryServer(answer, (bad) =>
        withRegistryServer(officialApi(FIVE), async (good) => {
          const directories = [open(bad.baseUrl), open(good.baseUrl)];
          const { entries: listings, failures } = await searchRegistries(
            directories,
            ["file"],
            20,
            NEVER,
          );
          assert.equal(listings.length, 3);
          assert.deepEqual(
            failures.map(({ cause }) => cause.code),
            [code],
          );
        }),
      ));
  }

  it("wait for one that is silent no longer than it may take, and for one that never ends neither", async () => {
    const silent: RegistryHandler = () => undefined;
    const endless: RegistryHandler = (_url, _request, response) =>
      void response.write('{"servers": [');
    await withRegistryServer(silent, (one) =>
      withRegistryServer(endless, async (two) => {
        const { failures } = await searchRegistries(
          [open(one.baseUrl), open(two.baseUrl)],
          ["x"],
          20,
          NEVER,
          50,
        );
        assert.deepEqual(
          failures.map(({ cause }) => [
            cause.code,
            /has not answered within 50 ms/.test(cause.message),
          ]),
          [
            ["unreachable", true],
            ["unreachable", true],
          ],
        );
      }),
    );
  });

  it("are given up at once when the process is told to end", () =>
    withRegistryServer(
      () => undefined,
      async ({ baseUrl: base }) => {
        const ending = new AbortController();
        const searching = searchRegistries([open(base)], ["x"], 20, ending.signal);
        ending.abort(new HubError("cancelled", "told to end"));
        await assert.rejects(searching, { code: "cancelled" });
      },
    ));

  it("list by turns, and what both have once", () => {
    const listing = (directory: string, name: string, repository?: string): RegistryEntry => ({
      directory,
      name,
      title: undefined,
      description: undefined,
      version: undefined,
      repository,
      homepage: undefined,
      options: [],
      omissions: [],
    });
    const make = (name: string, listings: readonly RegistryEntry[]): Registry => ({
      name,
      search: () => Promise.resolve(listings),
      find: (wanted) => Promise.resolve(listings.find((one) => one.name === wanted)),
    });
    const one = make("one", [
      listing("one", "a", "https://github.com/o/mono"),
      listing("one", "b", "https://github.com/o/mono.git"),
      listing("one", "c"),
    ]);
    const two = make("two", [
      listing("two", "z"),
      listing("two", "A"),
      listing("two", "other", "http://www.github.com/O/mono/"),
      listing("two", "y"),
    ]);
    return searchRegistries([one, two], ["x"], 20, NEVER).then(async ({ entries: listings }) => {
      assert.deepEqual(
        listings.map(({ directory, name }) => `${directory} ${name}`),
        ["one a", "two z", "one b", "one c", "two y"],
      );
      const { entry: found } = await findServer([two, one], "c", NEVER);
      assert.equal(found?.directory, "one");
    });
  });
});

/** The manifest's entry for a server, as TOML; what is to be set. */
async function cook(server: object) {
  const listing = await findOne({ name: "a.b/x", description: "d", version: "1", ...server });
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
    const { entry, needs, optional } = await cook({
      packages: [
        npm("@s/n", {
          runtimeArguments: [{ type: "positional", value: "-y" }],
          packageArguments: [
            { type: "positional", value: "serve" },
            { type: "named", name: "--root", isRequired: true, description: "where" },
            { type: "named", name: "--level", default: "warn" },
            { type: "named", name: "--verbose" },
            {
              type: "named",
              name: "--db",
              value: "{user}@{host}",
              variables: { user: { isRequired: true }, host: { default: "localhost" } },
            },
            { type: "positional", valueHint: "target_dir", isRequired: true },
          ],
          environmentVariables: [
            { name: "API_KEY", isRequired: true, isSecret: true, description: "the key" },
            { name: "REGION", isRequired: true },
            { name: "MODE", default: "fast" },
            { name: "EXTRA" },
            { name: "TOKEN", isSecret: true, default: "do-not-write" },
          ],
        }),
      ],
    });
    assert.deepEqual(entry, {
      package: "npm:@s/n@1.2.3",
      args: [
        "serve",
        "--root",
        "${env:ROOT}",
        "--level",
        "warn",
        "--db",
        "${env:USER}@localhost",
        "${env:TARGET_DIR}",
      ],
      env: { API_KEY: "${secret:x/API_KEY}", REGION: "${env:REGION}", MODE: "fast" },
    });
    assert.deepEqual(
      needs,
      [
        "secret x/API_KEY",
        "variable REGION",
        "variable ROOT",
        "variable USER",
        "variable TARGET_DIR",
      ].toSorted((a, b) => (needs ?? []).indexOf(a) - (needs ?? []).indexOf(b)),
    );
    assert.deepEqual(optional, ["env.EXTRA", "env.TOKEN", "argument --verbose"]);
  });

  it("is where it is reached, with its headers", async () => {
    const { entry, needs } = await cook({
      remotes: [
        {
          type: "sse",
          url: "https://{tenant}.example.com/sse",
          variables: { tenant: { isRequired: true } },
          headers: [
            {
              name: "Authorization",
              value: "Bearer {token}",
              variables: { token: { isRequired: true, isSecret: true } },
            },
            { name: "X-Key", isRequired: true, isSecret: true },
            { name: "X-Plain", value: "{literal}" },
          ],
        },
      ],
    });
    assert.deepEqual(entry, {
      url: "https://${env:TENANT}.example.com/sse",
      transport: "sse",
      headers: {
        Authorization: "Bearer ${secret:x/Authorization}",
        "X-Key": "${secret:x/X_Key}",
        "X-Plain": "{literal}",
      },
    });
    assert.deepEqual(needs, ["secret x/Authorization", "secret x/X_Key", "variable TENANT"]);
  });

  it("never has a stranger's text for a reference, whatever it looks like", async () => {
    const evil = "${file:~/.ssh/id_rsa} ${cmd:rm -rf x} ${env:HOME} {v}";
    const { entry } = await cook({
      packages: [
        npm("n", {
          packageArguments: [
            {
              type: "positional",
              value: evil,
              variables: { v: { value: "${secret:a}" }, "cmd:rm -rf x": { value: "y" } },
            },
            { type: "named", name: "--a", default: evil },
          ],
          environmentVariables: [
            { name: "A", value: evil },
            { name: "B", default: evil },
          ],
        }),
      ],
    });
    const { manifest } = await loadText(JSON.stringify({ servers: { x: entry } }), "a.json");
    const { args, env, secrets } = await resolveServer(getServer(manifest, "x"), {
      HOME: "/home/me",
    });
    const literal = evil.replace("{v}", "${secret:a}");
    assert.deepEqual(args.slice(2), [literal, "--a", evil]);
    assert.deepEqual(plainCopy(env), { A: evil, B: evil });
    assert.deepEqual(secrets, []);
    const remote = await cook({
      remotes: [{ type: "streamable-http", url: "https://x.example/${env:HOME}" }],
    });
    const loaded = await loadText(JSON.stringify({ servers: { x: remote.entry } }), "a.json");
    const { url } = await resolveRemote(getRemote(loaded.manifest, "x"), { HOME: "/home/me" });
    assert.ok(!url.href.includes("/home/me"));
  });

  for (const [what, server, omission] of [
    [
      "a package of another kind",
      { packages: [npm("n", { registryType: "nuget" })] },
      /is of a kind that toolmux does not run/,
    ],
    [
      "a package elsewhere",
      { packages: [npm("n", { registryBaseUrl: "https://private.example" })] },
      /is at https:\/\/private\.example/,
    ],
    [
      "a package over HTTP",
      { packages: [npm("n", { transport: { type: "streamable-http" } })] },
      /serves over HTTP/,
    ],
    [
      "a package with an option for a name",
      { packages: [npm("--registry=x")] },
      /has a name or a version that is none/,
    ],
    [
      "a package with an option for a version",
      { packages: [npm("n", { version: "--x" })] },
      /has a name or a version that is none/,
    ],
    [
      "a container with more rights",
      {
        packages: [
          npm("o/n", {
            registryType: "oci",
            runtimeArguments: [{ type: "named", name: "-v", value: "/:/host" }],
          }),
        ],
      },
      /wants arguments for what runs it/,
    ],
    [
      "a URL without TLS",
      { remotes: [{ type: "sse", url: "http://x.example" }] },
      /begins with https/,
    ],
    [
      "a URL with a password",
      { remotes: [{ type: "sse", url: "https://a:b@x.example" }] },
      /begins with https/,
    ],
    [
      "a remote over WebSocket",
      { remotes: [{ type: "ws", url: "wss://x.example" }] },
      /does not speak/,
    ],
  ] as const) {
    it(`is nothing for ${what}, and why is said`, async () => {
      const { listing, entry } = await cook(server);
      assert.equal(entry, undefined);
      assert.match(listing?.omissions.join() ?? "", omission);
    });
  }

  for (const [what, packages] of [
    [
      "a variable with an odd name",
      [npm("n", { environmentVariables: [{ name: "A=B", value: "x" }] })],
    ],
    ["a variable without a name", [npm("n", { environmentVariables: [{ name: "", value: "x" }] })]],
  ] as const) {
    it(`is nothing for ${what}`, async () => {
      assert.equal((await cook({ packages })).entry, undefined);
    });
  }

  for (const [said, named] of [
    [{ registryType: "pypi", identifier: "mcp-x", version: "1.0" }, "pypi:mcp-x==1.0"],
    [{ registryType: "oci", identifier: "ghcr.io/o/n:1.0" }, "docker:ghcr.io/o/n:1.0"],
    [
      { registryType: "oci", identifier: "docker.io/o/n", version: "1.0" },
      "docker:docker.io/o/n:1.0",
    ],
    [{ registryType: "npm", identifier: "@s/n" }, "npm:@s/n"],
  ] as const) {
    it(`names ${named}, which a manifest takes`, async () => {
      const { entry } = await cook({ packages: [{ ...said, transport: { type: "stdio" } }] });
      assert.deepEqual(entry, { package: named });
      await loadText(JSON.stringify({ servers: { x: entry } }), "a.json");
    });
  }

  it("has a key that can be a prefix", async () => {
    for (const name of ["io.github.o/x", "a.b/my__server", "a.b/_x_", "a.b/...", "@o/ü", "plain"]) {
      const key = serverKeyOf(name, "__");
      const problems = await findProblems(
        `[servers.${JSON.stringify(key)}]\ncommand = "x"\nnonsense = 1`,
      );
      assert.equal(problems.length, 1, problems.join());
    }
  });
});
