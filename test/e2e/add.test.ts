import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe } from "node:test";
import { type CommandOutput, runCommand } from "../harness/command.ts";
import { openSecrets } from "../../src/secrets/secrets.ts";
import {
  officialApi,
  sendJson,
  smitheryApi,
  withRegistryServer,
} from "../fixtures/registry-server.ts";
import { type TestFolder, it, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import {
  waitForListChanged,
  controlled,
  listToolNames,
  withControlledServers,
} from "../harness/controlled-servers.ts";

function run(
  setup: TestFolder,
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<CommandOutput> {
  return runCommand(setup, args, { env });
}

const { args: [SCRIPTED = ""] = [] } = scripted();
/** Any runtime will do, but not every one runs a file without being told what it may do. */
const RUNTIME = "node";
const START = ["--", RUNTIME, SCRIPTED];

const BEFORE = `# mine
[servers.a] # first
command = "x"

# the end
`;

describe("toolmux add", () => {
  it("tries a server, says who it is, and puts it into the file and nothing else", () =>
    withTestFolder(BEFORE, async (setup) => {
      const { config } = setup;
      const added = await run(setup, [
        "add",
        "new",
        "--file",
        config,
        "--prefix",
        "n",
        "--env",
        "MODE=fast",
        ...START,
      ]);
      assert.equal(added.code, 0, added.stderr);
      assert.match(added.stdout, /^new works: scripted 1\.0\.0, \d+ tools$/m);
      assert.match(added.stdout, new RegExp(`^added to ${config}$`, "m"));
      const text = readFileSync(config, "utf8");
      const entry = `[servers.new]\ncommand = ${JSON.stringify(RUNTIME)}\nargs = [${JSON.stringify(SCRIPTED)}]\nenv = { MODE = "fast" }\nprefix = "n"\n`;
      assert.equal(text, `# mine\n[servers.a] # first\ncommand = "x"\n\n${entry}\n# the end\n`);
      const again = await run(setup, ["add", "new", "--file", config, ...START]);
      assert.deepEqual([again.code, again.stdout], [2, ""]);
      assert.match(again.stderr, /There is a server new in .* already; .*--replace/);
      assert.equal(readFileSync(config, "utf8"), text);
      const replaced = await run(setup, ["add", "new", "--replace", "--file", config, ...START]);
      assert.equal(replaced.code, 0, replaced.stderr);
      assert.ok(!readFileSync(config, "utf8").includes("MODE"));
      assert.match(replaced.stdout, /^replaced in .*\nno longer set.*: MODE\b/m);
      const removed = await run(setup, ["remove", "new", "--file", config]);
      assert.equal(removed.code, 0, removed.stderr);
      assert.equal(readFileSync(config, "utf8"), BEFORE);
    }));

  it("names tools as the separator of the manifest has it", () =>
    withTestFolder(`[hub]\nseparator = "-"\n`, async (setup) => {
      const added = await run(setup, [
        "add",
        "my-server",
        "--no-try",
        "--file",
        setup.config,
        ...START,
      ]);
      assert.equal(added.code, 0, added.stderr);
      assert.match(readFileSync(setup.config, "utf8"), /^prefix = "my_server"$/m);
      const wrong = ["add", "x", "--prefix", "a-b", "--no-try", "--file", setup.config, ...START];
      assert.equal((await run(setup, wrong)).code, 2);
      assert.equal((await run(setup, ["check", "--config", setup.config])).code, 0);
    }));

  it("refuses a prefix that a server of another manifest has, before it is written", () =>
    withTestFolder(`[servers.a]\ncommand = "x"\nprefix = "n"\n`, async (setup) => {
      const other = join(setup.dir, "other.toml");
      writeFileSync(other, "");
      const both = ["--config", setup.config, "--config", other];
      const clash = await run(setup, ["add", "n", "--no-try", ...both, ...START]);
      assert.equal(clash.code, 2, clash.stdout);
      assert.equal(readFileSync(other, "utf8"), "");
      const added = await run(setup, ["add", "n", "--prefix", "m", "--no-try", ...both, ...START]);
      assert.equal(added.code, 0, added.stderr);
      assert.equal((await run(setup, ["check", ...both])).code, 0);
    }));

  it("warns of secrets wherever they stand, by the names that the doctor has", () =>
    withTestFolder(BEFORE, async (setup) => {
      const args = ["--api-key", "hunter2-hunter2", "postgres://ada:hunter3-x@db/app"];
      const server = ["--env", "X-COOKIE=session-abcdef", "--", RUNTIME, SCRIPTED, ...args];
      const added = await run(setup, [
        "add",
        "my.db",
        "--prefix",
        "db",
        "--no-try",
        "--file",
        setup.config,
        ...server,
      ]);
      assert.equal(added.code, 0, added.stderr);
      const { stdout } = await run(setup, ["doctor", "--json", "--config", setup.config]);
      const { findings } = JSON.parse(stdout) as {
        findings: { code: string; text: string; advice: string }[];
      };
      const found = findings.find(({ code }) => code === "TM107");
      const warned = [
        ...added.stderr.matchAll(/warn (\S+) looks like a secret.*secret set ([^,\s]+)/g),
      ];
      assert.deepEqual(
        warned.map(([, label, secret]) => [label, secret]),
        [
          ["env.X-COOKIE", "my.db/X-COOKIE"],
          ["args.2", "my.db/api-key"],
          ["args.3", "my.db/password"],
        ],
      );
      for (const [, label = ""] of warned) assert.ok(found?.text.includes(label), label);
      assert.ok(found?.advice.includes("toolmux secret set my.db/X-COOKIE,"));
    }));

  it("takes turns with others who add at the same moment: all of theirs are there", () =>
    withTestFolder(BEFORE, async (setup) => {
      const { config } = setup;
      const names = Array.from({ length: 6 }, (_, i) => `s${i}`);
      const all = await Promise.all(
        names.map((name) => run(setup, ["add", name, "--no-try", "--file", config, "--", "x"])),
      );
      assert.deepEqual(
        all.map(({ code, stderr }) => [code, stderr]),
        names.map(() => [0, ""]),
      );
      const there = [...readFileSync(config, "utf8").matchAll(/^\[servers\.(s\d)\]$/gm)];
      assert.deepEqual(new Set(there.map(([, name]) => name)), new Set(names));
    }));

  it("makes the user's own manifest if there is none, for its owner alone", () =>
    withTestFolder("", async (setup) => {
      const { code, stderr } = await run(setup, ["add", "new", ...START]);
      assert.equal(code, 0, stderr);
      const folder = join(
        setup.env["XDG_CONFIG_HOME"] ?? join(setup.env["HOME"] ?? "", ".config"),
        "toolmux",
      );
      const file = join(folder, "toolmux.toml");
      assert.equal(statSync(file).mode & 0o777, 0o600);
      assert.equal(statSync(folder).mode & 0o777, 0o700);
      const { stdout } = await run(setup, ["list", "servers"]);
      assert.match(stdout, /^new +idle/m);
    }));

  it("writes nothing if the server does not start, but for --force and --no-try, and says why", () =>
    withTestFolder(BEFORE, async (setup) => {
      const { config } = setup;
      const bad = ["add", "bad", "--file", config, "--env", "API_KEY=sk-very-secret"];
      const failed = await run(setup, [...bad, ...START, "--exit-at-once"]);
      assert.deepEqual([failed.code, readFileSync(config, "utf8")], [3, BEFORE]);
      assert.match(failed.stderr, /error Server "bad" exited with code 3/);
      assert.match(failed.stderr, /--force/);
      assert.match(failed.stderr, /env\.API_KEY looks like a secret.*\$\{secret:bad\/API_KEY\}/);
      assert.ok(!`${failed.stdout}${failed.stderr}`.includes("sk-very-secret"));
      const json = await run(setup, [...bad, "--json", ...START, "--exit-at-once"]);
      const { added, trial } = JSON.parse(json.stdout) as {
        added: boolean;
        trial: { code: string };
      };
      assert.deepEqual([json.code, added, trial.code], [3, false, "connectionLost"]);
      const forced = await run(setup, [...bad, "--force", ...START, "--exit-at-once"]);
      assert.equal(forced.code, 0, forced.stderr);
      const unseen = await run(setup, [
        "add",
        "unseen",
        "--no-try",
        "--file",
        config,
        "--",
        "no-such-command",
      ]);
      assert.equal(unseen.code, 0, unseen.stderr);
      assert.match(
        readFileSync(config, "utf8"),
        /\[servers\.bad\][\s\S]*\[servers\.unseen\]\ncommand = "no-such-command"/,
      );
    }));

  it("leaves a file trusted that was, and none that was not", () =>
    withTestFolder("", async (setup) => {
      const file = join(setup.dir, "toolmux.toml");
      const [first, second] = [
        ["add", "one"],
        ["add", "two"],
      ].map((words) => [...words, "--file", file, ...START]);
      assert.equal((await run(setup, first ?? [])).code, 0);
      assert.match(
        (await run(setup, ["list", "servers"])).stderr,
        /toolmux\.toml is ignored: .*toolmux trust/,
      );
      assert.equal((await run(setup, ["trust", file])).code, 0);
      assert.equal((await run(setup, second ?? [])).code, 0);
      const { stdout, stderr } = await run(setup, ["list", "servers"]);
      assert.match(stdout, /^two +idle/m, stderr);
    }));

  it("adds a server that wants an authorization, and says what to run", () =>
    withTestFolder(BEFORE, async (setup) => {
      const server = createServer((_request, response) => {
        response.writeHead(401, { "www-authenticate": 'Bearer realm="x"' }).end();
      }).listen(0, "127.0.0.1");
      await once(server, "listening");
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
      const { code, stdout, stderr } = await run(setup, [
        "add",
        "closed",
        "--url",
        url,
        "--file",
        setup.config,
      ]);
      server.close();
      assert.equal(code, 0, stderr);
      assert.match(stdout, /toolmux auth login closed$/m);
      assert.match(readFileSync(setup.config, "utf8"), /\[servers\.closed\]\nurl = "http:/);
    }));

  for (const [args, message] of [
    [["x", "--url", "http://x", "--package", "npm:x"], /--url and --package/],
    [["x", "--url", "http://x", "--", "y"], /--url and a command/],
    [["x", "--url", "http://x", "--env", "A=b"], /--env .*--url/],
    [["x", "--header", "A: b", "--", "y"], /--header needs --url/],
    [["x", "--runner", "npx", "--", "y"], /--runner needs --package/],
    [["x", "--url", "http://x", "--header", "secret"], /--header .*NAME: VALUE/],
    [["x", "--env", "secret", "--", "y"], /--env .*KEY=VALUE/],
    [["x", "--package", "npm:-x"], /"npm:-x" is not a package/],
    [["x", "--command", "a 'b"], /--command .*quote/],
    [["x", "--from", "nonsense"], /"nonsense" is no directory of servers/],
    [["x", "--no-try", "--", "${HOME}"], /write \$\{env:HOME\}/],
  ] as const) {
    it(`refuses what makes no sense: ${args.join(" ")}`, () =>
      withTestFolder(BEFORE, async (setup) => {
        const { code, stdout, stderr } = await run(setup, ["add", "--file", setup.config, ...args]);
        assert.deepEqual([code, stdout], [2, ""], stderr);
        assert.match(stderr, message);
        assert.equal(readFileSync(setup.config, "utf8"), BEFORE);
      }));
  }

  it("leaves a client's file alone", () =>
    withTestFolder(
      '{"mcpServers": {}}',
      async (setup) => {
        const { code, stderr } = await run(setup, [
          "add",
          "x",
          "--file",
          setup.config,
          "--package",
          "npm:x",
          "--no-try",
        ]);
        assert.equal(code, 2);
        assert.match(stderr, /claude\.json .*--file/);
        assert.equal(readFileSync(setup.config, "utf8"), '{"mcpServers": {}}');
      },
      "claude.json",
    ));

  it("takes a server from a directory by its name, with what it needs, and starts it once that is there", () =>
    withTestFolder(BEFORE, async (setup) => {
      const { dir, config } = setup;
      const bin = join(dir, "bin");
      mkdirSync(bin);
      const note = join(dir, "given");
      const npx = `#!/bin/sh\nprintf '%s\\n' "$@" "$API_KEY" > '${note}'\nexec '${RUNTIME}' '${SCRIPTED}'\n`;
      writeFileSync(join(bin, "npx"), npx);
      chmodSync(join(bin, "npx"), 0o755);
      const listed = {
        name: "io.example/thing",
        description: "about things",
        version: "1.0.0",
        packages: [
          {
            registryType: "npm",
            identifier: "@example/thing",
            version: "1.0.0",
            transport: { type: "stdio" },
            packageArguments: [{ type: "positional", value: "${env:HOME}" }],
            environmentVariables: [
              { name: "API_KEY", isRequired: true, isSecret: true, description: "from the site" },
            ],
          },
        ],
        remotes: [{ type: "streamable-http", url: "https://thing.example.com/mcp" }],
      };
      await withRegistryServer(officialApi([listed]), async ({ baseUrl: base }) => {
        const env = { PATH: `${bin}:${setup.env["PATH"] ?? ""}`, TOOLMUX_DIRECTORIES: base };
        const found = await run(setup, ["search", "thing"], env);
        assert.equal(found.code, 0, found.stderr);
        assert.match(
          found.stdout,
          /^io\.example\/thing 1\.0\.0 \(127\.0\.0\.1:\d+\)\n {2}about things\n {2}npm:@example\/thing@1\.0\.0, https:/m,
        );
        const added = await run(setup, ["add", "io.example/thing", "--file", config], env);
        assert.equal(added.code, 0, added.stderr);
        assert.match(added.stdout, /toolmux secret set thing\/API_KEY +# from the site$/m);
        assert.ok(!existsSync(note), "it was not started without its key");
        const key = "TOOLMUX_SECRET_THING_API_KEY";
        const again = await run(
          setup,
          ["add", "io.example/thing", "--as", "other", "--file", config],
          env,
        );
        assert.equal(again.code, 0, again.stderr);
        const listing = await run(setup, ["--config", config, "list", "servers", "--fresh"], {
          ...env,
          [key]: "value-of-key",
        });
        assert.match(listing.stdout, /^thing +connected/m, listing.stderr);
        assert.deepEqual(readFileSync(note, "utf8").split("\n").slice(0, 4), [
          "-y",
          "@example/thing@1.0.0",
          "${env:HOME}",
          "value-of-key",
        ]);
        const none = await run(setup, ["add", "io.example/none", "--file", config], env);
        assert.equal(none.code, 2);
        assert.match(none.stderr, /No directory .*"io\.example\/none"/);
      });
    }));
});

describe("toolmux search", () => {
  const servers = [
    { name: "a.b/one", title: "\u001b[31mred\u0007", description: "two\nlines", version: "1.0" },
    { name: "a.b/one-more", description: "x" },
  ];

  it("shows what strangers wrote without what a terminal would obey, and as JSON all of it", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(officialApi(servers), async ({ baseUrl: base }) => {
        const { code, stdout } = await run(setup, ["search", "one", "--from", base]);
        assert.equal(code, 0);
        // oxlint-disable-next-line no-control-regex
        assert.ok(!/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/.test(stdout));
        assert.match(stdout, /two lines/);
        const json = await run(setup, ["search", "one", "--from", base, "--json", "--limit", "1"]);
        const document = JSON.parse(json.stdout) as { servers: { name: string }[] };
        assert.deepEqual(
          document.servers.map(({ name }) => name),
          ["a.b/one"],
        );
      }),
    ));

  it("says which directory it could not ask, and what may help, and goes on with the others", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(officialApi(servers), (one) =>
        withRegistryServer(smitheryApi([{ qualifiedName: "@o/one" }], "the-key"), async (two) => {
          const args = [
            "search",
            "one",
            "--from",
            one.baseUrl,
            "--from",
            `smithery=${two.baseUrl}`,
          ];
          const without = await run(setup, args);
          assert.equal(without.code, 0);
          assert.match(without.stderr, /warn .*"smithery".*toolmux secret set smithery/);
          const wrong = await run(setup, args, { SMITHERY_API_KEY: "sk-wrong-key" });
          assert.ok(!`${wrong.stdout}${wrong.stderr}`.includes("sk-wrong-key"));
          const withKey = await run(setup, args, { SMITHERY_API_KEY: "the-key" });
          assert.equal(withKey.stderr, "");
          assert.match(withKey.stdout, /^@o\/one/m);
        }),
      ),
    ));

  it("ends with 1 if nothing was found, and with 3 if nobody could be asked", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(
        (url, _request, response) =>
          sendJson(
            response,
            { servers: [] },
            url.searchParams.get("search") === "none" ? 200 : 500,
          ),
        async ({ baseUrl: base }) => {
          const none = await run(setup, ["search", "none", "--from", base]);
          assert.deepEqual([none.code, none.stdout], [1, ""]);
          const broken = await run(setup, ["search", "x", "--from", base]);
          assert.deepEqual([broken.code, broken.stdout], [3, ""]);
          const reported = await run(setup, ["search", "x", "--json", "--from", base]);
          assert.equal(reported.code, 3);
          const { failures, ...found } = JSON.parse(reported.stdout) as {
            failures: readonly { code: string }[];
          };
          assert.deepEqual(found, { servers: [] });
          assert.deepEqual(
            failures.map(({ code }) => code),
            ["serverFailed"],
          );
          const wrong = await run(setup, ["search", "x", "--limit", "0"]);
          assert.equal(wrong.code, 2);
          const lone = await run(setup, ["search"]);
          assert.match(lone.stderr, /^Try: toolmux help search$/m);
        },
      ),
    ));
});

describe("toolmux remove", () => {
  it("says which secrets of the server remain, but for those that others use", () =>
    withTestFolder(
      '[servers.a]\ncommand = "x"\nargs = ["${secret:a/key}", "${secret:shared}", "${secret:gone}"]\n\n[servers.b]\ncommand = "y"\nenv.A = "${secret:shared}"\n',
      async (setup) => {
        const { file } = openSecrets({ env: setup.env, platform: process.platform });
        for (const name of ["a/key", "shared"]) await file.set(name, "value");
        const { code, stdout, stderr } = await run(setup, ["remove", "a", "--file", setup.config]);
        assert.equal(code, 0, stderr);
        const text = readFileSync(setup.config, "utf8");
        assert.equal(text, '[servers.b]\ncommand = "y"\nenv.A = "${secret:shared}"\n');
        assert.deepEqual(stdout.split("\n").slice(1), [
          "its secret is still stored: toolmux secret remove a/key",
          "",
        ]);
      },
    ));

  it("changes nothing if there is no such server, and says which there are", () =>
    withTestFolder(BEFORE, async (setup) => {
      const { code, stderr } = await run(setup, ["remove", "b", "--file", setup.config]);
      assert.equal(code, 2);
      assert.match(stderr, /There is no server b in .*; there are a\./);
      assert.equal(readFileSync(setup.config, "utf8"), BEFORE);
    }));
});

describe("a running hub", () => {
  it("has a server as soon as it is added, and loses it when it is removed", () =>
    withControlledServers({ servers: { a: controlled() } }, async (harness) => {
      await harness.serve(async (client) => {
        await client.initializeAndList();
        const added = await run(harness, ["add", "late", "--file", harness.config, ...START]);
        assert.equal(added.code, 0, added.stderr);
        await waitForListChanged(client, 1);
        assert.ok((await listToolNames(client)).some((name) => name.startsWith("late__")));
        const removed = await run(harness, ["remove", "late", "--file", harness.config]);
        assert.equal(removed.code, 0, removed.stderr);
        await waitForListChanged(client, 2);
        assert.ok(!(await listToolNames(client)).some((name) => name.startsWith("late__")));
      });
    }));
});
