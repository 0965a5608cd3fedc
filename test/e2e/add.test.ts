import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe } from "node:test";
import { promisify } from "node:util";
import { openSecrets } from "../../src/secrets/secrets.ts";
import {
  officialApi,
  sendJson,
  smitheryApi,
  withRegistryServer,
} from "../fixtures/registry-server.ts";
import { type CommandOutput, run, runCommand, runJson } from "../harness/command.ts";
import {
  controlled,
  listToolNames,
  waitForListChanged,
  withControlledServers,
} from "../harness/controlled-servers.ts";
import { executable, it, itWith, type TestFolder, withTestFolder } from "../harness/hub.ts";
import { scripted } from "../harness/manifest.ts";
import { skipWithout } from "../harness/requirements.ts";

const { command: RUNTIME, args: [SCRIPTED = ""] = [] } = scripted();
const START = ["--", RUNTIME, SCRIPTED];

const BEFORE = `# mine
[servers.a] # first
command = "x"

# the end
`;

/** Runs `toolmux add …` on the manifest; `line`: words, those with spaces in `rest`. */
async function add(
  { dir, env, config }: TestFolder,
  line: string,
  rest: readonly string[] = START,
  code = 0,
): Promise<CommandOutput> {
  const output = await runCommand({ dir, env }, [
    "add",
    ...line.split(" "),
    "--file",
    config,
    ...rest,
  ]);
  assert.equal(output.code, code, output.stdout + output.stderr);
  return output;
}

const remove = (setup: TestFolder, name: string): Promise<CommandOutput> =>
  runCommand(setup, ["remove", name, "--file", setup.config]);

const read = ({ config }: TestFolder): string => readFileSync(config, "utf8");

describe("toolmux add", () => {
  it("tries a server, says who it is, and puts it into the file and nothing else", () =>
    withTestFolder(BEFORE, async (setup) => {
      const added = await add(setup, "new --prefix n --env MODE=fast");
      assert.match(added.stdout, /^new works: scripted 1\.0\.0, \d+ tools$/m);
      assert.match(added.stdout, new RegExp(`^added to ${setup.config}$`, "m"));
      const text = read(setup);
      const entry = `[servers.new]\ncommand = ${JSON.stringify(RUNTIME)}\nargs = [${JSON.stringify(SCRIPTED)}]\nenv = { MODE = "fast" }\nprefix = "n"\n`;
      assert.equal(text, `# mine\n[servers.a] # first\ncommand = "x"\n\n${entry}\n# the end\n`);
      const again = await add(setup, "new", START, 2);
      assert.equal(again.stdout, "");
      assert.match(again.stderr, /There is a server new in .* already; .*--replace/);
      assert.equal(read(setup), text);
      const replaced = await add(setup, "new --replace --no-try");
      assert.ok(!read(setup).includes("MODE"));
      assert.match(replaced.stdout, /^replaced in .*\nno longer set.*: MODE\b/m);
      const removed = await remove(setup, "new");
      assert.equal(removed.code, 0, removed.stderr);
      assert.equal(read(setup), BEFORE);
    }));

  it("warns of secrets wherever they stand, by the names that the doctor has", () =>
    withTestFolder(BEFORE, async (setup) => {
      const args = ["--api-key", "hunter2-hunter2", "postgres://ada:hunter3-x@db/app"];
      const line = "my.db --prefix db --no-try --env X-COOKIE=session-abcdef";
      const { stderr } = await add(setup, line, [...START, ...args]);
      const { findings } = await runJson<{
        findings: { code: string; text: string; advice: string }[];
      }>(setup, "doctor");
      const found = findings.find(({ code }) => code === "TM107");
      const warnings = stderr.matchAll(/warn (\S+) looks like a secret.*secret set ([^,\s]+)/g);
      const warned = [...warnings].map(([, label = "", secret]) => [label, secret] as const);
      assert.deepEqual(warned, [
        ["env.X-COOKIE", "my.db/X-COOKIE"],
        ["args.2", "my.db/api-key"],
        ["args.3", "my.db/password"],
      ]);
      for (const [label] of warned) assert.ok(found?.text.includes(label), label);
      assert.ok(found?.advice.includes("toolmux secret set my.db/X-COOKIE,"));
    }));

  it("takes turns with others who add at the same moment: all of theirs are there", () =>
    withTestFolder(BEFORE, async (setup) => {
      const names = Array.from({ length: 4 }, (_, i) => `s${i}`);
      const all = names.map((name) => add(setup, `${name} --no-try`, ["--", "x"]));
      for (const { stderr } of await Promise.all(all)) assert.equal(stderr, "");
      const there = read(setup).match(/(?<=^\[servers\.)s\d(?=\]$)/gm);
      assert.deepEqual(there?.toSorted(), names);
    }));

  it("makes the user's own manifest if there is none, for its owner alone", () =>
    withTestFolder("", async (setup) => {
      const { code, stderr } = await runCommand(setup, ["add", "new", ...START]);
      assert.equal(code, 0, stderr);
      const folder = join(setup.env["XDG_CONFIG_HOME"] ?? "", "toolmux");
      assert.equal(statSync(join(folder, "toolmux.toml")).mode & 0o777, 0o600);
      assert.equal(statSync(folder).mode & 0o777, 0o700);
      assert.match((await runCommand(setup, ["list", "servers"])).stdout, /^new +idle/m);
    }));

  it("writes nothing if the server does not start, but for --force and --no-try, and says why", () =>
    withTestFolder(BEFORE, async (setup) => {
      const bad = "bad --env API_KEY=sk-very-secret";
      const exits = ["--", "sh", "-c", "exit 3"];
      const failed = await add(setup, bad, exits, 3);
      assert.equal(read(setup), BEFORE);
      assert.match(failed.stderr, /error .*Server "bad" exited with code 3/);
      assert.match(failed.stderr, /--force/);
      assert.match(failed.stderr, /env\.API_KEY looks like a secret.*\$\{secret:bad\/API_KEY\}/);
      assert.ok(!`${failed.stdout}${failed.stderr}`.includes("sk-very-secret"));
      const json = await add(setup, `${bad} --json`, exits, 3);
      const { added, trial } = JSON.parse(json.stdout) as {
        added: boolean;
        trial: { code: string };
      };
      assert.deepEqual([added, trial.code], [false, "connectionLost"]);
      await add(setup, `${bad} --force`, exits);
      await add(setup, "unseen --no-try", ["--", "no-such-command"]);
      assert.match(
        read(setup),
        /\[servers\.bad\][^]*\[servers\.unseen\]\ncommand = "no-such-command"/,
      );
    }));

  it("leaves a file trusted that was, and none that was not", () =>
    withTestFolder("", async (setup) => {
      const list = () => runCommand(setup, ["list", "servers"]);
      await add(setup, "one --no-try", ["--", "true"]);
      assert.match((await list()).stderr, /toolmux\.toml is ignored: .*toolmux trust/);
      assert.equal((await runCommand(setup, ["trust", setup.config])).code, 0);
      await add(setup, "two");
      assert.match((await list()).stdout, /^two +idle/m);
    }));

  it("adds a server that wants an authorization, and says what to run", () =>
    withTestFolder(BEFORE, async (setup) => {
      const server = createServer((_request, response) => {
        response.writeHead(401, { "www-authenticate": 'Bearer realm="x"' }).end();
      }).listen(0, "127.0.0.1");
      await once(server, "listening");
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
      const { stdout } = await add(setup, `closed --url ${url}`, []);
      server.close();
      assert.match(stdout, /toolmux auth login closed$/m);
      assert.match(read(setup), /\[servers\.closed\]\nurl = "http:/);
    }));

  it("writes nothing if its arguments contradict each other, or the manifest would not be valid", () =>
    withTestFolder(BEFORE, async (setup) => {
      for (const [args, message] of [
        [["--url", "http://x", "--", "y"], /--url and a command/],
        [["--no-try", "--", "${HOME}"], /write \$\{env:HOME\}/],
      ] as const) {
        const { stdout, stderr } = await add(setup, "x", args, 2);
        assert.equal(stdout, "");
        assert.match(stderr, message);
        assert.equal(read(setup), BEFORE);
      }
    }));

  it("takes a server from a directory by its name, with what it needs, and starts it once that is there", () => {
    const key = { name: "API_KEY", isRequired: true, isSecret: true, description: "from the site" };
    const npm = {
      registryType: "npm",
      identifier: "@example/thing",
      version: "1.0.0",
      transport: { type: "stdio" },
      packageArguments: [{ type: "positional", value: "${env:HOME}" }],
      environmentVariables: [key],
    };
    const listed = {
      name: "io.example/thing",
      description: "about things",
      version: "1.0.0",
      packages: [npm],
      remotes: [{ type: "streamable-http", url: "https://thing.example.com/mcp" }],
    };
    return withTestFolder(BEFORE, (plain) =>
      withRegistryServer(officialApi([listed]), async ({ baseUrl }) => {
        const bin = join(plain.dir, "bin");
        mkdirSync(bin);
        const note = join(plain.dir, "given");
        const npx = `#!/bin/sh\nprintf '%s\\n' "$@" "$API_KEY" > '${note}'\nexec '${RUNTIME}' '${SCRIPTED}'\n`;
        writeFileSync(join(bin, "npx"), npx, { mode: 0o755 });
        const PATH = `${bin}:${plain.env["PATH"] ?? ""}`;
        const setup = { ...plain, env: { ...plain.env, PATH, TOOLMUX_DIRECTORIES: baseUrl } };
        const found = await runCommand(setup, ["search", "thing"]);
        assert.equal(found.code, 0, found.stderr);
        const shown =
          /^io\.example\/thing 1\.0\.0 \(127\.0\.0\.1:\d+\)\n {2}about things\n {2}npm:@example\/thing@1\.0\.0, https:/m;
        assert.match(found.stdout, shown);
        const { stdout } = await add(setup, "io.example/thing", []);
        assert.match(stdout, /toolmux secret set thing\/API_KEY +# from the site$/m);
        assert.ok(!existsSync(note), "it was not started without its key");
        await add(setup, "io.example/thing --as other", []);
        const env = { ...setup.env, TOOLMUX_SECRET_THING_API_KEY: "value-of-key" };
        const listing = await run({ ...setup, env }, "list", "servers", "--fresh");
        assert.match(listing.stdout, /^thing +connected/m, listing.stderr);
        const given = "-y\n@example/thing@1.0.0\n${env:HOME}\nvalue-of-key\n";
        assert.equal(readFileSync(note, "utf8"), given);
        const { stderr } = await add(setup, "io.example/none", [], 2);
        assert.match(stderr, /No directory .*"io\.example\/none"/);
      }),
    );
  });
});

describe("toolmux search", () => {
  const servers = [
    { name: "a.b/one", title: "\u001b[31mred\u0007", description: "two\nlines", version: "1.0" },
    { name: "a.b/one-more", description: "x" },
  ];

  it("shows what strangers wrote without what a terminal would obey, and as JSON all of it", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(officialApi(servers), async ({ baseUrl }) => {
        const args = ["search", "one", "--from", baseUrl];
        const { code, stdout } = await runCommand(setup, args);
        assert.equal(code, 0);
        // oxlint-disable-next-line no-control-regex
        assert.doesNotMatch(stdout, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/);
        assert.match(stdout, /two lines/);
        const json = await runCommand(setup, [...args, "--json", "--limit", "1"]);
        const document = JSON.parse(json.stdout) as { servers: { name: string }[] };
        assert.equal(document.servers.map(({ name }) => name).join(), "a.b/one");
      }),
    ));

  it("says which directory it could not ask, and what may help, and goes on with the others", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(officialApi(servers), (one) =>
        withRegistryServer(smitheryApi([{ qualifiedName: "@o/one" }], "the-key"), async (two) => {
          const from = ["--from", one.baseUrl, "--from", `smithery=${two.baseUrl}`];
          const search = (env = {}) => runCommand(setup, ["search", "one", ...from], { env });
          const without = await search();
          assert.equal(without.code, 0);
          assert.match(without.stderr, /warn .*"smithery".*toolmux secret set smithery/);
          const wrong = await search({ SMITHERY_API_KEY: "sk-wrong-key" });
          assert.ok(!`${wrong.stdout}${wrong.stderr}`.includes("sk-wrong-key"));
          const withKey = await search({ SMITHERY_API_KEY: "the-key" });
          assert.equal(withKey.stderr, "");
          assert.match(withKey.stdout, /^@o\/one/m);
        }),
      ),
    ));

  it("ends with 1 if nothing was found, and with 3 if nobody could be asked", () =>
    withTestFolder("", (setup) =>
      withRegistryServer(
        (url, _request, response) => {
          const status = url.searchParams.get("search") === "none" ? 200 : 500;
          sendJson(response, { servers: [] }, status);
        },
        async ({ baseUrl }) => {
          const search = (...args: string[]) =>
            runCommand(setup, ["search", ...args, "--from", baseUrl]);
          const none = await search("none");
          assert.deepEqual([none.code, none.stdout], [1, ""]);
          const broken = await search("x");
          assert.deepEqual([broken.code, broken.stdout], [3, ""]);
          const { code, stdout } = await search("x", "--json");
          const { failures, ...found } = JSON.parse(stdout) as { failures: { code: string }[] };
          assert.deepEqual([code, found], [3, { servers: [] }]);
          assert.equal(failures.map((failure) => failure.code).join(), "serverFailed");
          assert.equal((await search("x", "--limit", "0")).code, 2);
          assert.match((await search()).stderr, /^Try: toolmux help search$/m);
        },
      ),
    ));
});

describe("toolmux remove", () => {
  it("says which secrets of the server remain, but for those that others use", () => {
    const b = '[servers.b]\ncommand = "y"\nenv.A = "${secret:shared}"\n';
    const a =
      '[servers.a]\ncommand = "x"\nargs = ["${secret:a/key}", "${secret:shared}", "${secret:gone}"]\n';
    return withTestFolder(`${a}\n${b}`, async (setup) => {
      const { file } = openSecrets({ env: setup.env, platform: process.platform });
      for (const name of ["a/key", "shared"]) await file.set(name, "value");
      const { code, stdout, stderr } = await remove(setup, "a");
      assert.equal(code, 0, stderr);
      assert.equal(read(setup), b);
      assert.match(stdout, /^.*\nits secret is still stored: toolmux secret remove a\/key\n$/);
    });
  });

  it("changes nothing if there is no such server, and says which there are", () =>
    withTestFolder(BEFORE, async (setup) => {
      const { code, stderr } = await remove(setup, "b");
      assert.equal(code, 2);
      assert.match(stderr, /There is no server b in .*; there are a\./);
      assert.equal(read(setup), BEFORE);
    }));
});

/** Mounts the file $0 over the file $1, in a mount namespace of its own, and runs the rest there. */
const MOUNTED = 'mount --bind "$0" "$1" && shift && exec "$@"';
const inMounts = (words: readonly string[]): readonly string[] => ["-rm", "sh", "-c", ...words];
const SKIP_WITHOUT_MOUNTS = skipWithout({
  isMet: spawnSync("unshare", inMounts([MOUNTED, "/dev/null", "/dev/null", "true"])).status === 0,
  tests: "a manifest that is a mount point",
  remedy: "this user may not make mount namespaces",
});

describe("a manifest that is mounted", () => {
  itWith({ skip: SKIP_WITHOUT_MOUNTS })("is written in place, and its text before is kept", () =>
    withTestFolder(BEFORE, async ({ dir, env, config }) => {
      const source = join(dir, "source.toml");
      writeFileSync(source, BEFORE);
      writeFileSync(config, "");
      const command = [executable(), "add", "b", "--no-try", "--file", config, "--", "y"];
      const words = inMounts([MOUNTED, source, config, ...command]);
      const { stderr } = await promisify(execFile)("unshare", words, { env, cwd: dir });
      const after = readFileSync(source, "utf8");
      assert.ok(after.startsWith("# mine\n[servers.a] # first\n"), after);
      assert.match(after, /\[servers\.b\]\ncommand = "y"/);
      const backup = `${config}.before-edit`;
      assert.ok(stderr.includes(backup), stderr);
      assert.equal(readFileSync(backup, "utf8"), BEFORE);
      assert.equal(statSync(backup).mode & 0o777, 0o600);
    }),
  );
});

describe("a running hub", () => {
  it("has a server as soon as it is added, and loses it when it is removed", () =>
    withControlledServers({ servers: { a: controlled() } }, async (harness) => {
      await harness.serve(async (client) => {
        const isThere = async (): Promise<boolean> =>
          (await listToolNames(client)).some((name) => name.startsWith("late__"));
        await client.initializeAndList();
        await add(harness, "late");
        await waitForListChanged(client, 1);
        assert.ok(await isThere());
        const removed = await remove(harness, "late");
        assert.equal(removed.code, 0, removed.stderr);
        await waitForListChanged(client, 2);
        assert.ok(!(await isThere()));
      });
    }));
});
